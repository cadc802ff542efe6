"""Remove secrets from the output of other processes.

    Secrets(["sk-0123456789abcdef"]).hidden("no such key: sk-0123456789abcdef")  # no such key: ***

Covered: a secret as it is, or cut off after its first characters. Not covered: an encoded secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cudal1_ci.processes.environment import may_be_secret

MIN_CHARS = 8
"""The shortest secret. Shorter values are words such as `none`, and would match in any text."""


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Return the values of all variables that may hold a secret."""
    return [value for name, value in environment.items() if may_be_secret(name, value)]


class Secrets:
    """Hold values that must not be repeated."""

    def __init__(self, values: Iterable[str]):
        # What a server shows of a key is often its beginning: that is enough to hide all of it.
        starts = sorted(
            {re.escape(value[:MIN_CHARS]) for value in values if len(value) >= MIN_CHARS}
        )
        self._pattern = re.compile(rf"(?:{'|'.join(starts)})[^\s\"'<>,;]*") if starts else None

    def hidden(self, text: str) -> str:
        """Return the text without the secrets."""
        return self._pattern.sub("***", text) if self._pattern else text
