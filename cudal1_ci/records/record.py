"""Define the base of every record and the hash of its content."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


class Record(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of every record: immutable, by keyword, no unknown fields."""


def content_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of a record's canonical JSON."""
    encoded = msgspec.json.encode(msgspec.to_builtins(value), order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]
