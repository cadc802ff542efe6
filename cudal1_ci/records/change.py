"""Describe what a pull request, or `--changed BASE`, changed."""

from __future__ import annotations

from cudal1_ci.records.record import Record


class FileChange(Record, frozen=True, kw_only=True):
    """Hold one file of a change: text before and after; None where it did not exist or
    was removed.
    """

    path: str
    previous_path: str | None = None
    before: str | None = None
    after: str | None = None


class Change(Record, frozen=True, kw_only=True):
    """What a pull request, or `--changed BASE`, changed. Born in forge, read by discover."""

    repository: str
    base_sha: str
    head_sha: str | None
    """None for a working tree that is not committed."""
    files: tuple[FileChange, ...]
