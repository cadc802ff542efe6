"""Read report.json. The file is hostile data: it may come from a pull request.

Nothing in it is run, followed or believed beyond its shape: sizes are capped, numbers are finite,
paths stay inside of the checkout, patches parse. What is wrong is said with its place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Report
from cudal1_ci.records.published import READ_VERSIONS, SCHEMA_VERSION, from_json
from cudal1_ci.render.hunks import files_of

MAX_BYTES = 64 * 2**20
"""A report of a thousand targets with all raw times has about ten megabytes."""


class _Version(msgspec.Struct, frozen=True):
    """Hold what every report begins with; the rest may have an unknown shape."""

    schema_version: int | None = None


def read_report(path: Path) -> Report:
    """Read the report in a file.

    Raises:
        ReportError: The file is missing, too large, not JSON, of another version or shape.
    """
    encoded = _bytes_of(path)
    version = _version(path, encoded)
    try:
        report = from_json(encoded, version)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(
            f"{path}: expected a report written by `cudal1-ci scan --json`, got another shape: "
            f"{error}"
        ) from error
    for place, problem in _unsound(report):
        raise ReportError(f"{path}: {problem} - at `{place}`")
    return report


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            encoded = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ReportError(
            f"{path}: no such file; `cudal1-ci scan --json {path}` writes one"
        ) from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    if len(encoded) > MAX_BYTES:
        raise ReportError(
            f"{path}: expected at most {MAX_BYTES // 2**20} MiB, got more; report fewer targets "
            "(`scan --include GLOB`)"
        )
    if not encoded.strip():
        raise ReportError(
            f"{path}: expected JSON, and the file is empty; was its scan interrupted?"
        )
    return encoded


def _version(path: Path, encoded: bytes) -> int:
    try:
        version = msgspec.json.decode(encoded, type=_Version).schema_version
    except msgspec.ValidationError as error:
        raise ReportError(f"{path}: expected a report, an object: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"{path}: expected JSON, got something else: {error}") from error
    if version is None:
        raise ReportError(f"{path}: expected a report: it has no `schema_version`")
    if version not in READ_VERSIONS:
        raise ReportError(
            f"{path}: expected schema_version {SCHEMA_VERSION} or before, got {version}; "
            "read it with the version of cudal1-ci that wrote it"
        )
    return version


def _unsound(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what types cannot refuse, with its place in the file."""
    for i, entry in enumerate(report.entries):
        if not _stays_inside(entry.target.path):
            yield (
                f"$.entries[{i}].target.path",
                f"expected a relative path, got {entry.target.path!r}",
            )
        for j, evaluation in enumerate(entry.evaluations):
            patch = evaluation.candidate.patch
            place = f"$.entries[{i}].evaluations[{j}].candidate.patch"
            try:
                files = files_of(patch) if patch else ()
            except ReportError as error:
                yield place, str(error)
                continue
            for file in files:
                if not _stays_inside(file.path):
                    yield place, f"expected a relative path, got {file.path!r}"


def _stays_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts and bool(pure.parts)
