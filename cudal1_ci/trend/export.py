"""Export the last commit's times for github-action-benchmark (`customSmallerIsBetter`).

[{"name": "pkg/model.py:Block, base, NVIDIA H200", "unit": "us", "value": 11.5,
  "range": "± 0.2", "extra": "1.15x of the base's time, paired: regression"}]
"""

from __future__ import annotations

import msgspec

from cudal1_ci.render.wording import ratio_text
from cudal1_ci.trend.record import Row
from cudal1_ci.trend.view import View


class Benchmark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold one time of one commit; smaller is better."""

    name: str
    unit: str
    value: float
    range: str | None = None
    extra: str | None = None


def render_benchmarks(view: View) -> str:
    """Return the JSON of the last commit's times, in the order of the page."""
    last = len(view.commits.all) - 1
    found = [
        Benchmark(
            name=f"{one.target}, {one.workload}, {one.machine.name}",
            unit="us",
            value=one.points[-1].time_us,
            range=_range(one.points[-1].row),
            extra=_extra(one.points[-1].row),
        )
        for target in view.targets
        for one in target.series
        if one.points[-1].place == last
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def _range(row: Row) -> str | None:
    if row.low_us is None or row.high_us is None:
        return None
    return f"± {(row.high_us - row.low_us) / 2:.3g}"


def _extra(row: Row) -> str | None:
    if row.slowdown is None:
        return None
    verdict = f": {row.verdict}" if row.verdict else ""
    return f"{ratio_text(row.slowdown)} of the base's time, paired{verdict}"
