"""Fill in what the times of a measurement and of a comparison say, for a report.

    with_figures(measurement).speedup_low

Where too little was measured, or a number is beyond what a float holds, there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from cudal1_ci.records import ComparedWorkload, Comparison, Evaluation, Measurement
from cudal1_ci.stats import regression, speedups


def with_figures(measurement: Measurement) -> Measurement:
    """Return a measurement with what its times say; as it is where it has none."""
    if not measurement.repetitions:
        return measurement
    found = speedups.speedup(measurement)
    known = found if found is not None and found.low > 0 and math.isfinite(found.high) else None
    return msgspec.structs.replace(
        measurement,
        speedup=known.estimate if known else None,
        speedup_low=known.low if known else None,
        speedup_high=known.high if known else None,
        speedup_cuda_l1=_finite(speedups.cuda_l1_speedup(measurement)),
        control_spread=_finite(speedups.control_spread(measurement)),
        reference_us=speedups.reference_us(measurement),
        candidate_us=_positive(speedups.candidate_us(measurement)),
        num_pairs=sum(len(one.reference_us) for one in measurement.repetitions),
    )


def evaluation_with_figures(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation whose measurements have their figures."""
    measurements = tuple(map(with_figures, evaluation.measurements))
    return msgspec.structs.replace(evaluation, measurements=measurements)


def comparison_with_figures(comparison: Comparison) -> Comparison:
    """Return a comparison whose rows have their figures, and no raw times."""
    return of_rows(map(_row, comparison.rows), comparison)


def of_rows(rows: Iterable[ComparedWorkload], other: Comparison) -> Comparison:
    """Return a comparison with the verdict and the numbers of the worst of some rows, all else as
    in `other`."""
    rows = tuple(rows)
    verdict = regression.worst(row.verdict for row in rows) if rows else other.verdict
    deciding = [row for row in rows if row.verdict == verdict]
    row = max(deciding, key=lambda row: row.slowdown or 0.0, default=None)
    return msgspec.structs.replace(
        other,
        verdict=verdict,
        slowdown=row.slowdown if row else None,
        slowdown_low=row.slowdown_low if row else None,
        slowdown_high=row.slowdown_high if row else None,
        rows=rows,
    )


def _row(row: ComparedWorkload) -> ComparedWorkload:
    measurement = regression.decisive(row)
    found = regression.slowdown(measurement) if measurement else None
    shown = msgspec.structs.replace(
        row,
        measurements=(),
        device=measurement.device if measurement else None,
        num_measurements=len(row.measurements),
    )
    if measurement is None or found is None or not math.isfinite(found.high):
        return shown
    return msgspec.structs.replace(
        shown,
        slowdown=found.estimate,
        slowdown_low=found.low,
        slowdown_high=found.high,
        base_us=speedups.reference_us(measurement),
        head_us=speedups.candidate_us(measurement),
        control_spread=_finite(speedups.control_spread(measurement)),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _positive(value: float) -> float | None:
    return value if 0 < value < math.inf else None
