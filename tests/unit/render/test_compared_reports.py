"""Comparisons in the published JSON, of one machine and of two."""

from __future__ import annotations

from cudal1_ci.records import (
    Acknowledgement,
    ComparedWorkload,
    Comparison,
    ContractCheck,
    Entry,
    Report,
)
from cudal1_ci.render.merge import joined, merge
from cudal1_ci.render.published import published
from tests.fakes import CPU, a_target
from tests.unit.stats.test_regression import measured

AGREED = Acknowledgement(
    target="*", max_slowdown=1.3, reason="it is right now", owner="@me", expires="2027-01-01"
)


def a_report(
    *rows: ComparedWorkload, acknowledged: Acknowledgement | None = None, **more
) -> Report:
    verdict = rows[0].verdict if rows else more.pop("verdict")
    comparison = Comparison(verdict=verdict, rows=rows, acknowledged=acknowledged, **more)
    entry = Entry(target=a_target(), comparison=comparison)
    return Report(repository="o/r", base_sha="b", head_sha="h", device=CPU, entries=(entry,))


def row(verdict: str, *ratios: float, kind: str = "cpu") -> ComparedWorkload:
    measurements = tuple(measured(ratio, kind=kind) for ratio in ratios)
    return ComparedWorkload(workload="w", verdict=verdict, measurements=measurements)


def test_what_is_shown_was_measured_after_the_alarm():
    (entry,) = published(a_report(row("regression", 1.4, 1.2))).entries
    (shown,) = entry.comparison.rows
    assert abs(shown.slowdown - 1.2) < 0.02
    assert shown.slowdown_low < shown.slowdown < shown.slowdown_high
    assert abs(shown.head_us / shown.base_us - shown.slowdown) < 0.001
    assert shown.num_measurements == 2
    assert entry.comparison.slowdown == shown.slowdown


def test_what_was_not_measured_has_no_numbers():
    (entry,) = published(a_report(verdict="new", reason="it is new")).entries
    assert entry.comparison.verdict == "new"
    assert entry.comparison.slowdown is None


def test_the_worst_of_two_machines_decides_and_both_are_shown():
    here, there = (
        published(a_report(row("same", 1.0))),
        published(a_report(row("regression", 1.2, 1.2, kind="cuda"))),
    )
    comparison = merge([here, there]).entries[0].comparison
    assert comparison.verdict == "regression"
    assert [one.device.kind for one in comparison.rows] == ["cpu", "cuda"]
    assert abs(comparison.slowdown - 1.2) < 0.02


def test_of_two_machines_the_worst_result_of_each_line_is_kept():
    def checks(**results: str) -> tuple[ContractCheck, ...]:
        return tuple(ContractCheck(aspect=a, result=r, detail=r) for a, r in results.items())

    def with_lines(contract, contract_s):
        return Comparison(verdict="same", contract=contract, contract_s=contract_s)

    here = with_lines(checks(dtype="held", layout="broken", device="not_tried"), 3.0)
    there = with_lines(checks(dtype="broken", layout="held", device="held", size="held"), 4.0)
    both = joined([here, there])
    assert {one.aspect: one.result for one in both.contract} == {
        "dtype": "broken",
        "layout": "broken",
        "device": "held",
        "size": "held",
    }
    assert both.contract_s == 7.0
    alone = joined([here, with_lines(None, None)])
    assert (alone.contract, alone.contract_s) == (here.contract, 3.0)
    assert joined([with_lines(None, None)] * 2).contract is None


def test_what_is_agreed_to_on_one_machine_alone_is_not_agreed_to():
    agreed = published(a_report(row("regression", 1.2), acknowledged=AGREED)).entries[0].comparison
    other = published(a_report(row("regression", 1.2))).entries[0].comparison
    same = published(a_report(row("same", 1.0))).entries[0].comparison
    assert joined([agreed, other]).acknowledged is None
    assert joined([agreed, same]).acknowledged.owner == "@me"
    assert joined([]) is None
