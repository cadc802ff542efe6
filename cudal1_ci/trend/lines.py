"""Read and write the history: JSONL, hostile data like the reports that it was made from.

A file that was cut off in its last line (a killed job, a full disk) is read without that line, and
the next line that is written takes its place. Anything else that is no line of a history is
refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.trend.record import SCHEMA_VERSION, AnyEntry, History, Row, Run

MAX_BYTES = 256 * 2**20
"""A thousand commits of fifty targets have about ten megabytes."""
KINDS = {"run": Run, "row": Row}


class _Head(msgspec.Struct, frozen=True):
    """Hold what identifies the kind of a line."""

    record: str
    schema_version: int | None = None


_HEADS = msgspec.json.Decoder(_Head)
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def read_lines(path: Path) -> History:
    """Read the history in a file.

    Raises:
        ReportError: The file is missing, too large, or has a line that is none of a history.
    """
    entries = []
    for number, line in enumerate(_whole(_bytes_of(path)).split(b"\n"), 1):
        entry = _entry(line, f"{path}:{number}") if line.strip() else None
        if entry is not None:
            entries.append(entry)
    return History(entries=tuple(entries))


def missing_from(history: History, entries: Iterable[AnyEntry]) -> list[AnyEntry]:
    """Return entries that are not in the history yet, each once."""
    known = {encoded(entry) for entry in history.entries}
    missing = {line: entry for entry in entries if (line := encoded(entry)) not in known}
    return list(missing.values())


def append_lines(path: Path, entries: Sequence[AnyEntry]) -> None:
    """Write lines at the end of a file, which is made where it is missing.

    Raises:
        ReportError: The file cannot be written.
    """
    if not entries:
        return
    text = b"".join(encoded(entry) + b"\n" for entry in entries)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            content = file.read()
            whole = _whole(content)
            if len(whole) < len(content):
                file.truncate(len(whole))
            is_open = whole and not whole.endswith(b"\n")
            file.write(b"\n" + text if is_open else text)
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror}") from error


def encoded(entry: AnyEntry) -> bytes:
    """Encode a line without its end."""
    return msgspec.json.encode(entry)


def _whole(content: bytes) -> bytes:
    """Drop a last line that was cut off before its end."""
    end = content.rfind(b"\n") + 1
    try:
        msgspec.json.decode(content[end:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content[:end]
    return content


def _entry(line: bytes, place: str) -> AnyEntry | None:
    """Decode a line; None for a kind that a later version has added."""
    try:
        head = _HEADS.decode(line)
        if head.record not in KINDS:
            return None
        if head.record == "run" and head.schema_version != SCHEMA_VERSION:
            raise ReportError(
                f"{place}: expected schema_version {SCHEMA_VERSION}, got {head.schema_version}; "
                "read it with the version of cudal1-ci that wrote it"
            )
        found: AnyEntry = _DECODERS[head.record].decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(
            f"{place}: expected a line written by `cudal1-ci report --history-append`, got "
            f"something else: {error}; remove the line to go on without it"
        ) from error
    return found


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ReportError(
            f"{path}: no such file; `cudal1-ci report REPORT... --history-append {path}` makes one"
        ) from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ReportError(
            f"{path}: expected at most {MAX_BYTES // 2**20} MiB, got more; begin a new file and "
            "keep this one"
        )
    return content
