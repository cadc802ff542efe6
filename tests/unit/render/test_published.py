"""From records to the published JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.records import (
    ComparedWorkload,
    Entry,
    Evaluation,
    Impact,
    Measurement,
    Problem,
    Repetition,
    Report,
    TextProgram,
    Verdict,
)
from cudal1_ci.records.published import json_schema
from cudal1_ci.render import render, render_json
from cudal1_ci.render.published import listing, published, verdict_of
from cudal1_ci.stats import speedups
from cudal1_ci.stats.figures import with_figures
from tests.unit.render.samples import CPU, a_candidate, a_measurement, a_target, a_workload

DOCS = Path(__file__).parents[3] / "docs" / "report.md"


def test_scan_json_has_the_fields_that_are_promised(sample):
    published = json.loads(render_json(sample))
    assert published["schema_version"] == 2
    assert {"repository", "base_sha", "head_sha", "device", "entries", "totals"} <= set(published)
    entry = published["entries"][0]
    assert {"target", "skipped", "workloads", "evaluations", "best"} <= set(entry)
    assert {"path", "qualname", "kind", "first_line", "last_line"} <= set(entry["target"])
    assert {"name", "provenance"} <= set(entry["workloads"][0])
    assert {"proposer", "analysis", "patch"} <= set(entry["evaluations"][0]["candidate"])
    assert published["entries"][2]["best"] is None, "absent is null, not left out"


def test_verify_json_has_the_fields_that_are_promised(report):
    failed, passed = report.entries[0].evaluations
    published = json.loads(render_json(verdict_of(passed)))
    promised = "schema_version status findings max_abs_error max_rel_error measurements device"
    assert set(promised.split()) | {"elapsed_s"} <= set(published)
    promised = (
        "workload baseline speedup speedup_low speedup_high reference_us candidate_us num_pairs"
    )
    assert set(promised.split()) | {"device"} <= set(published["measurements"][0])
    published = json.loads(render_json(verdict_of(failed)))
    assert published["measurements"] == []
    assert published["findings"][0]["rule"] == "values.mismatch"


def test_speedups_are_those_of_score_and_raw_times_are_kept(report, sample):
    measurement = report.entries[0].evaluations[1].measurements[0]
    published = sample.entries[0].evaluations[1].measurements[0]
    expected = speedups.speedup(measurement)
    assert published.speedup == expected.estimate
    assert (published.speedup_low, published.speedup_high) == (expected.low, expected.high)
    assert published.control_spread == speedups.control_spread(measurement)
    assert published.repetitions[0].reference_us == measurement.repetitions[0].reference_us
    assert len(published.control) == 5
    assert published.num_pairs == 45


def test_totals_count_entries_and_evaluations(sample):
    assert msgspec.to_builtins(sample.totals) == {
        "num_targets": 8,
        "num_judged": 4,
        "num_skipped": 4,
        "num_proposals": 2,
        "num_candidates": 4,
        "num_passed": 3,
        "num_reused": 1,
    }


def test_a_reused_evaluation_says_so(sample):
    entry = sample.entries[0]
    assert [entry.is_reused(one) for one in entry.evaluations] == [True, False]


def test_numbers_that_json_cannot_hold_become_null():
    verdict = Verdict(status="incorrect_values", max_abs_error=math.inf, max_rel_error=math.nan)
    candidate = a_candidate(Path("/"), "none.py", "", "")
    hot = msgspec.structs.replace(CPU, clock_mhz=math.nan)
    evaluation = Evaluation(candidate=candidate, verdict=verdict, device=hot)
    shown = json.loads(render_json(verdict_of(evaluation)))
    assert shown["max_abs_error"] is None
    assert shown["max_rel_error"] is None
    assert shown["device"]["clock_mhz"] is None


@pytest.mark.parametrize("time_us", [0.0, -1.0, math.nan, math.inf])
def test_times_that_no_clock_shows_are_refused(time_us):
    with pytest.raises(ValueError, match="expected microseconds that a clock can show"):
        Repetition(reference_us=(1.0, 1.0), candidate_us=(1.0, time_us), num_calls=1)


def test_times_so_far_apart_that_their_interval_has_no_end_have_bounds_that_are_numbers():
    apart = [
        Repetition(reference_us=(us,), candidate_us=(1.0,), num_calls=1) for us in (1e-8, 1e14)
    ]
    found = with_figures(Measurement(workload="w", repetitions=tuple(apart), device=CPU))
    assert 0 < found.speedup_low < found.speedup < found.speedup_high < math.inf


def test_one_repetition_has_times_and_the_interval_that_is_known_of_one():
    single = a_measurement(2.0)
    single = msgspec.structs.replace(single, repetitions=single.repetitions[:1])
    candidate = a_candidate(Path("/"), "none.py", "", "")
    evaluation = Evaluation(
        candidate=candidate, verdict=Verdict(status="passed"), measurements=(single,)
    )
    published = verdict_of(evaluation).measurements[0]
    assert published.reference_us > 0
    assert published.speedup == pytest.approx(2.0, rel=0.02)
    assert published.speedup / published.speedup_low == pytest.approx(1.27, rel=0.01)


def test_a_checkout_edited_since_keeps_the_verdict_and_says_why_there_is_no_patch(report, checkout):
    (checkout / "slowformer/attention.py").write_text("# edited while the scan ran\n")
    shown = published(report)
    best = shown.entries[0].evaluations[1]
    assert best.candidate.patch is None
    assert best.measurements[0].speedup > 2
    assert any("changed since the scan" in notice.message for notice in shown.warnings)


def test_a_text_candidate_has_no_patch_and_needs_no_excuse():
    candidate = msgspec.structs.replace(
        a_candidate(Path("/"), "a.py", "", ""), program=TextProgram(source="", entry="M")
    )
    evaluation = Evaluation(candidate=candidate, verdict=Verdict(status="timeout"))
    shown = published(
        Report(repository="r", entries=(Entry(target=a_target(), evaluations=(evaluation,)),))
    )
    assert shown.entries[0].evaluations[0].candidate.patch is None
    assert shown.warnings == ()


def test_long_logs_keep_their_end():
    verdict = Verdict(status="runtime_error", log="x" * 100_000 + "ValueError: the reason")
    candidate = a_candidate(Path("/"), "none.py", "", "")
    shown = verdict_of(Evaluation(candidate=candidate, verdict=verdict))
    assert shown.verdict.log.endswith("ValueError: the reason")
    assert len(shown.verdict.log) <= 20_000


PLAN = Plan(
    root=Path(),
    repository="repo",
    targets=(
        Planned(
            target=a_target(),
            problem=Problem(reference=TextProgram(source="", entry="M"), workloads=(a_workload(),)),
            workloads=(a_workload(),),
        ),
        Planned(
            target=a_target("b.py", "B|C"), reason="no call of it is known", hint="declare one"
        ),
    ),
)


def test_a_listing_has_targets_and_workloads_and_no_verdicts():
    published = json.loads(render(listing(PLAN), "json"))
    first, second = published["entries"]
    assert set(first) == {"target", "workloads", "skipped", "hint"}
    (argument,) = first["workloads"][0]["call"]["args"]
    assert argument == {"type": "tensor", "shape": [8, 128, 256], "dtype": "float32"}
    assert first["workloads"][0]["init"]["kwargs"] == {
        "num_heads": {"type": "constant", "value": 8}
    }
    assert second["skipped"] == "no call of it is known"


@pytest.mark.parametrize("output_format", ["text", "md"])
def test_a_listing_is_readable(output_format):
    text = render(listing(PLAN), output_format)
    assert "(float32[8, 128, 256])" in text
    assert "no call of it is known (declare one)" in text
    assert "traced" in text


@pytest.mark.parametrize("output_format", ["text", "md"])
def test_a_listing_names_a_few_of_many_that_nothing_calls(output_format):
    idle = [
        Planned(target=a_target(f"b{i}.py", "B"), reason="no call of it is known", hint="trace")
        for i in range(300)
    ]
    broken = Planned(target=a_target("c.py", "C"), reason="it needs a GPU", hint="--device cuda")
    plan = dataclasses.replace(PLAN, targets=(PLAN.targets[0], broken, *idle))
    text = render(listing(plan), output_format)
    assert "302 targets, 1 with a workload" in text
    assert "it needs a GPU" in text
    assert "288 more" in text
    assert text.count("no call of it is known (trace)") == 1
    assert len(text.splitlines()) < 30
    assert len(json.loads(render(listing(plan), "json"))["entries"]) == 302


def test_every_published_field_is_documented():
    text = DOCS.read_text(encoding="utf-8")
    forms = json_schema()["$defs"]
    assert len(forms) > 20
    missing = {
        f"{form}.{field}"
        for form, schema in forms.items()
        for field in schema["properties"]
        if f"`{field}`" not in text
    }
    assert not missing


def test_what_a_candidate_changes_is_published_as_its_patch_alone(report, sample, checkout):
    before = report.entries[0].evaluations[1].candidate
    shown = sample.entries[0].evaluations[1].candidate
    assert shown.id == before.id
    assert shown.patch.startswith("--- a/slowformer/attention.py")
    assert shown.program.overlay == ()
    assert str(checkout) not in render_json(sample)


def test_an_unknown_place_or_a_wrong_order_of_bounds_is_refused():
    with pytest.raises(ValueError, match="speedup_low <= speedup <= speedup_high"):
        msgspec.structs.replace(a_measurement(2.0), speedup=2.0, speedup_low=3.0, speedup_high=4.0)
    with pytest.raises(ValueError, match="or none of them"):
        ComparedWorkload(workload="w", verdict="same", slowdown=1.0)
    with pytest.raises(ValueError, match="expected low <= high"):
        Impact(root="m.py:main", before_us=2.0, after_us=1.0, low=3.0, high=2.0)
