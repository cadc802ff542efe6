"""Define the base of every record and the hash of its content."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=4096)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Line = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Record(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of every record: immutable, by keyword, no unknown fields."""


class Published(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of the records that a report holds. Unknown fields are ignored, so that a later version
    can add some. Bounds of values are checked where a record is read from a file."""


def refuse_disorder(record: Any, *names: str) -> None:
    """Refuse a number outside of its `_low` and `_high`, or one that lacks a bound. Raises
    ValueError.
    """
    for name in names:
        bounds = [getattr(record, f"{name}{end}") for end in ("_low", "", "_high")]
        known = [bound for bound in bounds if bound is not None]
        if known and (len(known) < 3 or known != sorted(known)):
            raise ValueError(
                f"expected {name}_low <= {name} <= {name}_high, or none of them, got {bounds}"
            )


def content_hash(value: Any) -> str:
    """Return 16 hex digits of the SHA-256 of a record's canonical JSON."""
    encoded = msgspec.json.encode(msgspec.to_builtins(value), order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]
