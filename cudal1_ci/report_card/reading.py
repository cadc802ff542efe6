"""Read the JSON of a run, also where it is gzipped.

Speedups are computed again from the times. Runs that versions with another score have written are
merged and compared, and an interval must not depend on the version.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records.version_1 import renewed
from cudal1_ci.report_card.judged import scored
from cudal1_ci.report_card.shape import SCHEMA_VERSION, ResultDocument, RunDocument, TrialDocument

MAX_BYTES = 512 * 2**20
"""A run of 250 tasks and eight columns with all raw times has some fifty megabytes."""
GZIP = b"\x1f\x8b"
"""How a gzipped file begins. Source: RFC 1952."""


class _Head(msgspec.Struct, frozen=True):
    schema_version: int | None = None
    kind: str | None = None


def read_run(path: Path) -> RunDocument:
    """Read the run in a file.

    Raises:
        ReportError: The file is missing, too large, not JSON, of another version or shape.
    """
    try:
        with path.open("rb") as file:
            encoded = unpacked(file).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ReportError(f"{path}: cannot be read: {why}") from error
    if len(encoded) > MAX_BYTES:
        raise ReportError(f"{path}: expected at most {MAX_BYTES // 2**20} MiB, got more")
    try:
        head = msgspec.json.decode(encoded, type=_Head)
        if head.kind != "bench":
            raise ReportError(f"{path}: expected a run of `cudal1-ci bench --output`")
        if head.schema_version != SCHEMA_VERSION:
            raise ReportError(
                f"{path}: expected schema_version {SCHEMA_VERSION}, got {head.schema_version}; "
                "read it with the version of cudal1-ci that wrote it"
            )
        return scored_anew(msgspec.json.decode(renewed(encoded), type=RunDocument))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(
            f"{path}: expected a run of `cudal1-ci bench --output`: {error}"
        ) from error


def scored_anew(run: RunDocument) -> RunDocument:
    """Score all measurements again; the card is made from them later (card.py)."""

    def of_trial(trial: TrialDocument) -> TrialDocument:
        measurements = tuple(scored(one) for one in trial.measurements)
        return msgspec.structs.replace(trial, measurements=measurements)

    def of_column(result: ResultDocument) -> ResultDocument:
        return msgspec.structs.replace(result, trials=tuple(of_trial(t) for t in result.trials))

    tasks = tuple(
        msgspec.structs.replace(task, results=tuple(of_column(one) for one in task.results))
        for task in run.tasks
    )
    return msgspec.structs.replace(run, tasks=tasks)


def unpacked(file: BinaryIO) -> BinaryIO | gzip.GzipFile:
    """Open the content of a file, whether it is gzipped or not."""
    is_packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return gzip.open(file) if is_packed else file
