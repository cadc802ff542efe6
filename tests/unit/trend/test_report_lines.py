"""From reports to lines: what is kept, and that the same report makes the same lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Comparison, Repetition
from cudal1_ci.render.merge import merge
from cudal1_ci.trend.lines import encoded
from cudal1_ci.trend.record import Row, Run
from cudal1_ci.trend.report_lines import interval_us, lines_of
from tests.unit.trend.samples import (
    H200,
    L40S,
    a_comparison,
    a_report,
    a_target,
    an_entry,
    an_evaluation,
    date,
    sha,
)

GOLDEN = Path(__file__).parent / "golden"


def of(kind, document, when=None):
    return [line for line in lines_of(document, when) if isinstance(line, kind)]


def proposed(*evaluations, **fields):
    target = a_target("pool", "pkg/pooling.py")
    return an_entry(target, evaluations=evaluations, best=0, **fields)


def test_lines_are_those_of_the_documentation():
    document = a_report(
        3,
        an_entry(a_target("Block"), comparison=a_comparison(10.0, 11.5, H200)),
        proposed(an_evaluation(300.0, 2.5, H200)),
    )
    text = b"".join(encoded(line) + b"\n" for line in lines_of(document)).decode()
    assert text == (GOLDEN / "history.jsonl").read_text()
    documented = (GOLDEN.parents[3] / "docs" / "trend.md").read_text()
    assert all(f"\n{line}\n" in documented for line in text.splitlines())


def test_the_same_report_makes_the_same_lines():
    document = a_report(1, proposed(an_evaluation(300.0, 2.5, H200)))
    assert list(map(encoded, lines_of(document))) == list(map(encoded, lines_of(document)))


def test_the_date_is_that_of_the_commit_and_else_of_the_report():
    document = a_report(4)
    assert of(Run, document)[0].date == date(4)
    assert of(Run, document, date(2))[0].date == date(2)
    assert of(Run, document, date(2))[0].generated_at == date(4)


@pytest.mark.parametrize("head_sha", [None, "", "HEAD", "z" * 40, "a" * 300, 'c0ffee"><b>'])
def test_a_report_of_no_commit_is_refused(head_sha):
    with pytest.raises(ReportError, match="commit what was measured"):
        lines_of(a_report(1, head_sha=head_sha))


def test_a_scan_has_no_base_that_unnamed_targets_would_be_unchanged_since():
    scanned = a_report(2, proposed(an_evaluation(300.0, 2.5, H200)))
    assert of(Run, scanned)[0].base is None
    compared = a_report(2, an_entry(a_target("B"), comparison=a_comparison(1.0, 1.0, H200)))
    assert of(Run, compared)[0].base == sha(1)
    nothing = a_report(2, devices=())
    assert of(Run, nothing)[0].base == sha(1)
    assert of(Run, nothing)[0].device is None


def test_the_time_of_a_scanned_target_is_the_median_over_its_candidates():
    entry = proposed(*(an_evaluation(t, 2.0, H200, known_id=str(t)) for t in (300.0, 310.0, 900.0)))
    (row,) = of(Row, a_report(1, entry))
    assert row.time_us == 310.0
    assert row.slowdown is None


def test_times_of_an_earlier_run_are_no_times_of_this_commit():
    entry = proposed(an_evaluation(300.0, 2.0, H200), reused=("c1",))
    assert of(Row, a_report(1, entry)) == []


def test_a_target_that_was_compared_has_the_time_of_its_head():
    entry = proposed(an_evaluation(999.0, 2.0, H200), comparison=a_comparison(10.0, 12.0, H200))
    (row,) = of(Row, a_report(1, entry))
    assert (row.time_us, row.verdict) == (12.0, "regression")
    assert row.slowdown == pytest.approx(1.2)


def test_a_target_that_could_not_be_compared_leaves_a_row_that_says_so():
    entry = an_entry(a_target("B"), comparison=Comparison(verdict="skipped", reason="?"))
    (row,) = of(Row, a_report(1, entry))
    assert (row.verdict, row.time_us, row.workload) == ("skipped", None, None)


def test_a_merged_report_has_a_run_and_a_row_for_each_device():
    documents = [
        a_report(
            1, an_entry(a_target("B"), comparison=a_comparison(1.0, 1.0, d)), devices=(d,), device=d
        )
        for d in (H200, L40S)
    ]
    merged = merge(documents)
    runs, rows = of(Run, merged), of(Row, merged)
    assert {run.machine.name for run in runs} == {H200.name, L40S.name}
    assert {row.device for row in rows} == {run.device for run in runs}
    assert merged.generated_at == date(1)


def test_the_mood_of_a_machine_does_not_make_it_another_one():
    warm = msgspec.structs.replace(H200, temperature_c=80.0, clock_mhz=900.0)
    keys = {of(Run, a_report(1, devices=(device,)))[0].device for device in (H200, warm)}
    assert len(keys) == 1


def test_a_time_has_the_interval_of_its_processes():
    def launches(*times):
        return [Repetition(reference_us=(t,), candidate_us=(t,), num_calls=1) for t in times]

    low, high = interval_us(launches(10.0, 10.1, 9.9, 10.05, 9.95))
    assert low < 10 < high < 10.3
    assert interval_us(launches(10.0)) == (None, None)
