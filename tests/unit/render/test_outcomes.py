"""What is said of candidates that are no proposal: what was measured, and what it does not meet."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from cudal1_ci.records import (
    Acceptance,
    AcceptanceLine,
    Device,
    Entry,
    Measurement,
    ModelUse,
    Report,
)
from cudal1_ci.render.outcomes import outcomes_text
from cudal1_ci.render.published import published
from cudal1_ci.render.text import render_text
from cudal1_ci.render.wording import acceptance_lines
from cudal1_ci.stats import speedups
from tests.unit.render.samples import (
    ATTENTION,
    FASTER_ATTENTION,
    SLOWER_CPU,
    a_candidate,
    a_measurement,
    a_target,
    a_workload,
    failed,
    passed,
)
from tests.unit.render.samples import CPU as CPU_RECORD

CPU = Device(kind="cpu", name="cpu")
SPEEDUP = re.compile(r"\d\.\d\dx \[\d\.\d\d, \d\.\d\d\]")


def measured(low, estimate, high, spread=0.005, workload="base", reference_us=100.0, device=CPU):
    return Measurement(
        workload=workload,
        baseline="eager",
        speedup=estimate,
        speedup_low=low,
        speedup_high=high,
        control_spread=spread,
        reference_us=reference_us,
        candidate_us=None,
        num_pairs=0,
        device=device,
    )


def judged(*measurements, status="passed", phase=None, broken=(), acceptance=None):
    return SimpleNamespace(
        status=status,
        measurements=measurements,
        phase=phase,
        broken=broken,
        acceptance=acceptance,
    )


def test_a_gain_that_the_noise_may_be_is_told_with_its_interval_and_what_it_had_to_exceed():
    assert outcomes_text([judged(measured(1.12, 1.2, 1.4, spread=0.136))]) == (
        "1 passed with 1.20x [1.12, 1.40], not proposed: the lower bound must be above 1.14x, "
        "as the reference against itself (A/A) differs by up to 13.6 %"
    )


def test_a_broken_line_of_the_contract_is_named():
    line = SimpleNamespace(aspect="NaN and infinities in x")
    assert outcomes_text([judged(measured(1.3, 1.7, 2.2), broken=(line,))]) == (
        "1 passed with 1.70x [1.30, 2.20], not proposed: contract broken, NaN and infinities in x"
    )


def test_what_the_repository_refuses_names_the_place():
    line = AcceptanceLine(
        kind="hook",
        result="broken",
        detail="hooks `attend`, which the patch no longer calls",
        path="vit_pytorch/recorder.py",
        line=28,
    )
    refused = judged(
        measured(1.3, 1.7, 2.2), phase="screened", acceptance=Acceptance(lines=(line,))
    )
    assert outcomes_text([refused]) == (
        "1 passed with 1.70x [1.30, 2.20], not proposed: vit_pytorch/recorder.py:28 hooks "
        "`attend`, which the patch no longer calls"
    )


def test_what_was_only_screened_says_so():
    assert outcomes_text([judged(measured(1.3, 1.7, 2.2), phase="screened")]) == (
        "1 passed with 1.70x [1.30, 2.20], screened in one repetition, not confirmed"
    )


@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        (measured(1.01, 1.012, 1.014), "not proposed: the lower bound must be above 1.02x"),
        (
            measured(1.08, 1.1, 1.12, reference_us=4.0),
            "not proposed: by its lower bound it must save more than 0.5 us a call",
        ),
        (measured(0.98, 1.2, 1.4), "not proven faster"),
        (measured(0.8, 0.9, 0.95), "not proven faster"),
    ],
)
def test_each_condition_of_a_proposal_is_named_where_it_is_not_met(measurement, why):
    text = outcomes_text([judged(measurement)])
    assert text.endswith(f"], {why}")


def test_a_gain_with_a_loss_beside_it_is_told_with_both():
    mixed = judged(measured(0.93, 0.95, 0.97, workload="long"), measured(1.13, 1.15, 1.17))
    assert outcomes_text([mixed]) == (
        "1 passed with 1.15x [1.13, 1.17] on base and 0.95x [0.93, 0.97] on long, "
        "not proposed: faster on one, slower on another"
    )
    gpu = Device(kind="cuda", name="H200")
    merged = judged(measured(0.93, 0.95, 0.97, device=gpu), measured(1.13, 1.15, 1.17))
    assert "1.15x [1.13, 1.17] on cpu and 0.95x [0.93, 0.97] on H200" in outcomes_text(
        [merged], several_devices=True
    )


def test_candidates_that_ended_alike_are_counted_with_the_best_of_them():
    alike = [judged(measured(0.97, 1.0, 1.02)), judged(measured(0.99, 1.01, 1.04))]
    wrong = judged(status="incorrect_values")
    assert outcomes_text([wrong, *alike, wrong, wrong]) == (
        "2 passed with 1.01x [0.99, 1.04] at best, not proven faster; 3 wrong values"
    )


def test_a_candidate_without_times_is_not_called_no_faster():
    assert outcomes_text([judged()]) == "1 passed, not measured"
    assert outcomes_text([judged(measured(None, None, None))]) == "1 passed, not measured"


def test_a_gain_that_another_verdict_stands_against_is_not_blamed_on_its_times():
    assert outcomes_text([judged(measured(1.3, 1.4, 1.5))]).endswith("did not pass everywhere")


def test_a_terminal_has_each_speedup_unbroken_beside_what_became_of_it(tmp_path):
    def candidate(number):
        after = FASTER_ATTENTION + f"# {number}\n"
        return a_candidate(tmp_path, "slowformer/attention.py", ATTENTION, after)

    mixed = passed(candidate(1), a_measurement(1.4, seed=1), a_measurement(0.8, "long", seed=2))
    same = passed(candidate(2), a_measurement(1.0, seed=3), a_measurement(1.0, "long", seed=4))
    wrong = failed(candidate(3), "incorrect_values", "output 0 differs")
    use = ModelUse(model="small-coder", num_answers=4, refused={"no_code": 2})
    entry = Entry(
        target=a_target(),
        workloads=(a_workload(), a_workload("long")),
        evaluations=(wrong, same, mixed),
        model_use=use,
    )
    report = published(Report(repository="r", device=CPU_RECORD, entries=(entry,)))
    wide = section(render_text(report, 160))
    assert re.sub(r"\[.*?\]", "[]", " ".join(wide.split())) == (
        "slowformer/attention.py:9 Attention "
        "1.40x [] 1 passed on base, not proposed: faster on one, slower on another "
        "base (traced), long (traced) "
        "0.80x [] on long "
        "1.00x [] 1 passed on long, not proven faster "
        "- 1 wrong values; 2 without code"
    )
    for width in (72, 120, 160):
        assert len(SPEEDUP.findall(section(render_text(report, width)))) == 3


def test_a_report_of_several_devices_says_where_each_was_measured(tmp_path):
    candidate = a_candidate(tmp_path, "slowformer/attention.py", ATTENTION, FASTER_ATTENTION)
    one, other = a_measurement(1.4, seed=1), a_measurement(0.8, seed=2, device=SLOWER_CPU)
    entry = Entry(target=a_target(), evaluations=(passed(candidate, one, other),))
    text = section(render_text(published(Report(repository="r", entries=(entry,))), 160))
    assert re.search(r"1\.40x .* 1 passed on AMD EPYC 9B14, 1 thread, not proposed", text)
    assert re.search(r"0\.80x .* on Intel Xeon 6976P, 2 threads", text)


def section(text):
    return text.partition("No faster version (1)\n")[2]


@pytest.mark.parametrize("speedup", [0.9, 1.0, 1.01, 1.015, 1.03, 1.05, 1.2])
@pytest.mark.parametrize("reference_us", [2.0, 20.0, 1840.0])
def test_a_condition_is_named_for_what_the_score_does_not_propose_and_only_for_that(
    tmp_path, speedup, reference_us
):
    candidate = a_candidate(tmp_path, "slowformer/attention.py", ATTENTION, FASTER_ATTENTION)
    evaluation = passed(candidate, a_measurement(speedup, reference_us=reference_us))
    entry = Entry(target=a_target(), workloads=(a_workload(),), evaluations=(evaluation,))
    shown = published(Report(repository="r", entries=(entry,))).entries[0]
    is_proposed = speedups.best([evaluation], entry.workloads) is not None
    assert outcomes_text(shown.evaluations).endswith("did not pass everywhere") == is_proposed


def test_what_was_not_run_is_grouped_by_its_reason():
    spent = [
        AcceptanceLine(
            kind="block", result="not_run", detail="its time was spent", path=path, line=n
        )
        for path, n in (("README.md", 55), ("docs/losses.md", 5), ("tests/test_a.py", None))
    ]
    alone = AcceptanceLine(kind="test", result="not_run", detail="`make test` is no pytest")
    broken = AcceptanceLine(kind="hook", result="broken", detail="hooks it", path="m.py", line=2)
    assert acceptance_lines(Acceptance(lines=(broken, *spent, alone))) == [
        "broken: m.py:2 hooks it",
        "not run (its time was spent): README.md:55, docs/losses.md:5, tests/test_a.py",
        "not run: `make test` is no pytest",
    ]
