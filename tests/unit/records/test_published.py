"""The JSON of a report: both ways, its schema, and what earlier versions wrote."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    Call,
    ContractCheck,
    Edit,
    Entry,
    Impact,
    Made,
    Operation,
    Report,
    Understanding,
)
from cudal1_ci.records.archive import Archive, decoded
from cudal1_ci.records.call_text import call_text
from cudal1_ci.records.published import from_json, json_schema, schema_text, to_json
from cudal1_ci.records.version_1 import call_of
from cudal1_ci.render import render
from cudal1_ci.render.published import published
from cudal1_ci.render.reading import read_report
from tests.fakes import CPU, a_candidate, a_problem, a_target, an_evaluation
from tests.report_schema import SCHEMA, validated
from tests.unit.render import comparisons

SAMPLES = Path(__file__).parent / "samples"
VERSION_1 = SAMPLES / "report_version_1.json"


@pytest.fixture
def full():
    """A report with every field that later work fills."""
    edits = tuple(
        Edit(operator=name, technique="fusion", found=("`a` -> `b`",), why="fewer passes.")
        for name in ("sdpa", "compile")
    )
    evaluation = msgspec.structs.replace(
        an_evaluation(msgspec.structs.replace(a_candidate(a_problem()), edits=edits)),
        contract=(
            ContractCheck(
                group="training", aspect="gradients", result="held", detail="of 3 inputs"
            ),
        ),
        phase="confirmed",
    )
    understanding = Understanding(
        category="launch-bound",
        bound="memory",
        device_us=12.5,
        share=0.25,
        operations=(Operation(name="aten::mm", num_calls=2, device_us=9.5),),
    )
    entry = Entry(target=a_target(), evaluations=(evaluation,), understanding=understanding, best=0)
    impact = Impact(root="train.py:step", before_us=10.0, after_us=8.0, low=1.2, high=1.3)
    return published(
        Report(repository="r", device=CPU, entries=(entry,), impact=(impact,), elapsed_s=2.0)
    )


def test_what_is_written_is_read_back_whole(full):
    assert from_json(to_json(full)) == full


def test_json_begins_with_its_version_and_has_every_field_that_is_promised(full):
    shown = json.loads(to_json(full))
    assert next(iter(shown.items())) == ("schema_version", 2)
    (entry,) = shown["entries"]
    assert entry["understanding"]["class"] == "launch-bound"
    assert entry["skipped"] is None
    (evaluation,) = entry["evaluations"]
    assert "verdict" not in evaluation
    assert evaluation["status"] == "passed"
    assert evaluation["phase"] == "confirmed"
    assert [edit["operator"] for edit in evaluation["candidate"]["edits"]] == ["sdpa", "compile"]
    assert evaluation["contract"] == [
        {
            "aspect": "gradients",
            "result": "held",
            "detail": "of 3 inputs",
            "group": "training",
        }
    ]
    (measurement,) = evaluation["measurements"]
    assert measurement["speedup_low"] < measurement["speedup"] < measurement["speedup_high"]
    assert measurement["repetitions"][0]["num_calls"] == 10
    assert shown["impact"][0]["root"] == "train.py:step"
    assert shown["totals"]["num_proposals"] == 1


def test_a_verdict_alone_is_an_evaluation_without_its_candidate(full):
    shown = json.loads(to_json(full.entries[0].evaluations[0]))
    assert shown["schema_version"] == 2
    assert "candidate" not in shown
    assert shown["measurements"][0]["num_pairs"] > 0


# --- the schema ---------------------------------------------------------------------------------


def test_the_schema_of_the_package_is_current():
    assert SCHEMA.read_text("utf-8") == schema_text(), "make schema"


@pytest.mark.parametrize(
    "name", ["regression", "acknowledged", "fixed", "three_devices", "version 1"]
)
def test_reports_of_every_kind_are_what_the_schema_says(name):
    shown = read_report(VERSION_1) if name == "version 1" else getattr(comparisons, name)()
    assert json.loads(validated(render(shown, "json")))["schema_version"] == 2


def test_a_report_with_all_that_may_be_in_it_is_what_the_schema_says(full):
    assert json.loads(validated(to_json(full)))["schema_version"] == 2


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schema_version",), 1),
        (("entries", 0, "target", "first_line"), 0),
        (("entries", 0, "evaluations", 0, "status"), "fantastic"),
        (("entries", 0, "evaluations", 0, "measurements", 0, "speedup"), "fast"),
    ],
)
def test_the_schema_refuses_what_cannot_be(full, place, value):
    shown = json.loads(to_json(full))
    inner = shown
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(AssertionError, match=str(place[-1])):
        validated(json.dumps(shown))


def test_no_form_of_the_schema_is_closed_so_that_fields_can_be_added():
    forms = json_schema()["$defs"]
    assert not [name for name, form in forms.items() if "additionalProperties" in form]


# --- what earlier versions wrote ----------------------------------------------------------------


def test_a_report_of_version_1_is_read():
    written = json.loads(VERSION_1.read_text("utf-8"))
    report = read_report(VERSION_1)
    assert len(report.entries) == len(written["entries"])
    for entry, before in zip(report.entries, written["entries"], strict=True):
        assert [e.candidate.id for e in entry.evaluations] == [
            e["candidate"]["id"] for e in before["evaluations"]
        ]
        assert [entry.is_reused(e) for e in entry.evaluations] == [
            e["reused"] for e in before["evaluations"]
        ]
        assert [call_text(w.call) for w in entry.workloads] == [
            w["call"] for w in before["workloads"]
        ]
        for evaluation, old in zip(entry.evaluations, before["evaluations"], strict=True):
            assert evaluation.candidate.patch == old["candidate"]["patch"]
            for one, was in zip(evaluation.measurements, old["measurements"], strict=True):
                assert one.speedup == was["speedup"]
                assert [list(r.reference_us) for r in one.repetitions] == [
                    launch["reference_us"] for launch in was["launches"]
                ]
    assert from_json(to_json(report)) == report


def test_claims_that_version_1_had_at_a_candidate_are_those_of_the_entry():
    written = json.loads(VERSION_1.read_text("utf-8"))
    candidate = written["entries"][0]["evaluations"][1]["candidate"]
    candidate["contradictions"] = [{"claim": "5x", "measured": "3x"}]
    report = from_json(json.dumps(written).encode(), version=1)
    entry = report.entries[0]
    (claim,) = entry.contradictions_of(entry.evaluations[1].candidate)
    assert (claim.claim, claim.measured) == ("5x", "3x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("()", Call()),
        ("get_inputs()", Made(function="get_inputs")),
        ("bench/w.py:get_inputs()", Made(function="get_inputs", path="bench/w.py")),
    ],
)
def test_calls_of_version_1_that_can_be_made_again_are_known(text, expected):
    assert msgspec.convert(call_of(text), Call | Made) == expected
    assert call_text(expected) == text


@pytest.mark.parametrize(
    "broken",
    [
        {"entries": 7},
        {"entries": [7]},
        {"entries": [{"target": 7, "evaluations": [{"candidate": 7}]}]},
        {"entries": [{"evaluations": [{"candidate": {"contradictions": 7, "id": 7}}]}]},
        {"entries": [{"workloads": [{"call": 7}, 7], "evaluations": {}}]},
    ],
)
def test_what_is_not_of_the_shape_of_version_1_is_refused(tmp_path, broken):
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"schema_version": 1, "repository": "r"} | broken))
    with pytest.raises(ReportError, match="got another shape"):
        read_report(path)


def test_rows_of_an_archive_that_call_repetitions_launches_are_read(tmp_path):
    evaluation = an_evaluation(a_candidate(a_problem()))
    old = msgspec.json.encode(evaluation).replace(b'"repetitions":', b'"launches":')
    assert b'"launches":' in old
    assert decoded(old) == evaluation
    said = msgspec.structs.replace(evaluation, candidate=a_candidate(a_problem(), '"launches": 3'))
    with Archive.open(tmp_path / "a.sqlite") as archive:
        archive.record(said, "policy")
        assert archive.recorded()[0][1] == said
