"""Convert a report to lines of the history.

    lines_of(read_report(path), date)

The time of a target is that of the commit itself: the head's of a comparison, else the reference's
in the measurements of its candidates, in which case it is the median over candidates. Times that an
archive of an earlier run supplied are left out: they are of an earlier session, and repeated they
would look like a machine without noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Comparison,
    Device,
    Entry,
    Measurement,
    Repetition,
    Report,
    content_hash,
)
from cudal1_ci.stats import speedups
from cudal1_ci.trend.record import SCHEMA_VERSION, AnyEntry, Machine, Row, Run, Sha

NUM_DIGITS = 5
"""Significant digits that are kept: a hundredth of a thousandth is below any noise."""


def lines_of(document: Report, date: datetime | None = None) -> list[AnyEntry]:
    """Return the lines of a report. `date` is that of the commit, where it is known.

    Raises:
        ReportError: The report is of no commit.
    """
    commit = _commit(document.head_sha)
    if commit is None:
        raise ReportError(
            f"expected a report of a commit, got head_sha {document.head_sha!r}; commit what was "
            "measured, or measure a commit"
        )
    lines: list[AnyEntry] = list(_runs(document, commit, date))
    for entry in document.entries:
        lines += _rows(entry, commit)
    return lines


def machine_of(device: Device) -> Machine:
    """Return hardware and software of a device, without clock and temperature."""
    known = {name: getattr(device, name) for name in Machine.__struct_fields__}
    return Machine(**known)


def key_of(device: Device | Machine) -> str:
    """Return the key that must be equal for times to be of one machine."""
    return content_hash([getattr(device, name) for name in Machine.__struct_fields__])


def _runs(document: Report, commit: str, date: datetime | None) -> Iterator[Run]:
    is_comparison = not document.entries or any(e.comparison for e in document.entries)
    run = Run(
        schema_version=SCHEMA_VERSION,
        repository=document.repository,
        commit=commit,
        base=_commit(document.base_sha) if is_comparison else None,
        date=date or document.generated_at,
        generated_at=document.generated_at,
    )
    devices = {key_of(device): device for device in document.devices}
    if not devices:
        yield run
    for key, device in devices.items():
        yield msgspec.structs.replace(run, device=key, machine=machine_of(device))


def _rows(entry: Entry, commit: str) -> Iterator[Row]:
    target = entry.target.address
    compared = set()
    if entry.comparison is not None:
        for row in _comparison_rows(entry.comparison, commit, target):
            compared.add((row.workload, row.device))
            yield row
    times: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in _measurements(entry):
        key = (measurement.workload, key_of(measurement.device))
        if key not in compared:
            times.setdefault(key, []).append(measurement)
    for (workload, device), measurements in times.items():
        yield _timed(
            Row(commit=commit, target=target, workload=workload, device=device), measurements
        )


def _comparison_rows(comparison: Comparison, commit: str, target: str) -> Iterator[Row]:
    if not comparison.rows:
        yield Row(commit=commit, target=target, verdict=comparison.verdict)
    for row in comparison.rows:
        is_timed = row.device is not None and row.head_us is not None
        yield Row(
            commit=commit,
            target=target,
            workload=row.workload,
            device=None if row.device is None else key_of(row.device),
            time_us=_short(row.head_us) if is_timed else None,
            slowdown=_short(row.slowdown),
            slowdown_low=_short(row.slowdown_low),
            slowdown_high=_short(row.slowdown_high),
            verdict=row.verdict,
        )


def _measurements(entry: Entry) -> Iterator[Measurement]:
    """Yield the measurements of the target itself in this session."""
    for evaluation in entry.evaluations:
        if not entry.is_reused(evaluation):
            yield from (m for m in evaluation.measurements if m.reference_us is not None)


def _timed(row: Row, measurements: Sequence[Measurement]) -> Row:
    middle = sorted(measurements, key=lambda m: m.reference_us or 0.0)[(len(measurements) - 1) // 2]
    low, high = interval_us(middle.repetitions)
    time_us = middle.reference_us or 0.0
    if low is None or high is None or not low <= time_us <= high:
        return msgspec.structs.replace(row, time_us=_short(time_us))
    return msgspec.structs.replace(
        row, time_us=_short(time_us), low_us=_short(low), high_us=_short(high)
    )


def interval_us(repetitions: Sequence[Repetition]) -> tuple[float | None, float | None]:
    """Return the t interval of the reference's time over fresh processes, as speedups have."""
    logs = [math.log(speedups.typical_us(one.reference_us)) for one in repetitions]
    if len(logs) < 2:
        return None, None
    half = speedups.t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean - half), math.exp(mean + half)


def _commit(sha: str | None) -> str | None:
    try:
        return None if sha is None else msgspec.convert(sha, Sha)
    except msgspec.ValidationError:
        return None


def _short(value: float | None) -> float | None:
    """Round a number as the history keeps it."""
    return None if value is None else float(f"{value:.{NUM_DIGITS}g}")
