"""Describe GitHub's answer to a request of a plan: what it made, or why it did not."""

from __future__ import annotations

from cudal1_ci.errors import ForgeError
from cudal1_ci.records import Record


class Made(Record, frozen=True, kw_only=True):
    """Describe what a request has made or changed."""

    id: int | None = None
    url: str | None = None


class Refusal(ForgeError):
    """Report what GitHub did not do, and why."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_read_only(self) -> bool:
        """Return whether the token may not do this, as that of a pull request from a fork."""
        return self.status == 403 and "resource not accessible by" in str(self).lower()

    @property
    def is_locked(self) -> bool:
        """Return whether the conversation is locked, so that no one may comment."""
        return self.status in (403, 422) and "locked" in str(self).lower()

    @property
    def is_unprocessable(self) -> bool:
        """Return whether the request was understood, and its contents refused."""
        return self.status == 422
