"""Comparisons of two trees in the published JSON: of one machine, and of several as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cudal1_ci.records import ComparedWorkload, Comparison
from cudal1_ci.render.shape import (
    AcknowledgementDocument,
    ComparedDocument,
    ComparisonDocument,
    DeviceDocument,
)
from cudal1_ci.stats import regression, speedups


def comparison_document(
    comparison: Comparison, devices: Sequence[DeviceDocument | None]
) -> ComparisonDocument:
    """The published form; `devices` are those of the rows."""
    acknowledged = comparison.acknowledged
    return of_rows(
        tuple(map(_row, comparison.rows, devices)),
        ComparisonDocument(
            verdict=comparison.verdict,
            reason=comparison.reason,
            output_change=comparison.output_change,
            acknowledged=None
            if acknowledged is None
            else AcknowledgementDocument(
                target=acknowledged.target,
                max_slowdown=acknowledged.max_slowdown,
                reason=acknowledged.reason,
                owner=acknowledged.owner,
                expires=acknowledged.expires,
            ),
        ),
    )


def of_rows(rows: tuple[ComparedDocument, ...], other: ComparisonDocument) -> ComparisonDocument:
    """With the verdict and the numbers of the worst of the rows, all else as in `other`."""
    verdict = regression.worst(row.verdict for row in rows) if rows else other.verdict
    deciding = [row for row in rows if row.verdict == verdict]
    row = max(deciding, key=lambda row: row.slowdown or 0.0, default=None)
    return ComparisonDocument(
        verdict=verdict,
        slowdown=row.slowdown if row else None,
        slowdown_low=row.slowdown_low if row else None,
        slowdown_high=row.slowdown_high if row else None,
        rows=rows,
        reason=other.reason,
        output_change=other.output_change,
        acknowledged=other.acknowledged,
    )


def joined(comparisons: Sequence[ComparisonDocument]) -> ComparisonDocument | None:
    """Of one target on several machines: all their rows, and the worst decides. A regression that
    was acknowledged on one and not on another is not acknowledged."""
    if not comparisons:
        return None
    rows = tuple(row for one in comparisons for row in one.rows)
    regressed = [one for one in comparisons if one.verdict == "regression"]
    agreed = [one.acknowledged for one in regressed]
    reasons = dict.fromkeys(one.reason for one in comparisons if one.reason)
    changes = dict.fromkeys(one.output_change for one in comparisons if one.output_change)
    return of_rows(
        rows,
        ComparisonDocument(
            verdict=regression.worst(one.verdict for one in comparisons),
            reason="; ".join(reasons) or None,
            output_change="; ".join(changes) or None,
            acknowledged=agreed[0] if agreed and all(agreed) else None,
        ),
    )


def _row(row: ComparedWorkload, device: DeviceDocument | None) -> ComparedDocument:
    measurement = regression.decisive(row)
    found = regression.slowdown(measurement) if measurement else None
    if measurement is None or found is None or not math.isfinite(found.high):
        return ComparedDocument(
            workload=row.workload,
            verdict=row.verdict,
            device=device,
            num_measurements=len(row.measurements),
            reason=row.reason,
        )
    return ComparedDocument(
        workload=row.workload,
        verdict=row.verdict,
        device=device,
        slowdown=found.estimate,
        slowdown_low=found.low,
        slowdown_high=found.high,
        base_us=speedups.reference_us(measurement),
        head_us=speedups.candidate_us(measurement),
        control_spread=speedups.control_spread(measurement),
        num_measurements=len(row.measurements),
        reason=row.reason,
    )
