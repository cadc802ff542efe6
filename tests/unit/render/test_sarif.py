"""SARIF 2.1.0: the fields that consumers read, and fixes that make the candidate's file."""

from __future__ import annotations

import json
import types

import jsonschema
import msgspec
import pytest

from cudal1_ci.render import render
from cudal1_ci.render.patch import patch
from cudal1_ci.render.sarif import render_sarif
from tests.unit.render.test_patch import program, write


def test_sarif_has_a_result_with_place_and_fix_for_each_proposal(sample):
    log = json.loads(render(sample, "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    attention, pool = run["results"]
    for result in (attention, pool):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "faster-version"
        assert result["level"] == "note"
    place = attention["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "slowformer/attention.py"
    assert place["region"] == {"startLine": 9, "endLine": 23}
    assert "3.09x [3.05, 3.14] on AMD EPYC 9B14" in attention["message"]["text"]


def test_sarif_fixes_make_the_candidates_file(report, sample, checkout):
    log = json.loads(render(sample, "sarif"))
    overlays = {
        file.path: file.text
        for entry in report.entries
        if entry.best is not None
        for file in entry.evaluations[entry.best].candidate.program.overlay
    }
    fixes = [result["fixes"][0] for result in log["runs"][0]["results"]]
    assert len(fixes) == 2
    for fix in fixes:
        for change in fix["artifactChanges"]:
            path = change["artifactLocation"]["uri"]
            text = (checkout / path).read_text()
            assert replace_regions(text, change["replacements"]) == overlays[path]


def replace_regions(text: str, replacements: list[dict]) -> str:
    """What a consumer of SARIF does with a fix, last region first."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for replacement in reversed(replacements):
        region = replacement["deletedRegion"]
        first = starts[region["startLine"] - 1] + region["startColumn"] - 1
        last = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:first] + replacement.get("insertedContent", {}).get("text", "") + text[last:]
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nc\n"),
        ("a\nb\nc\n", "a\nb\nx\ny\nc\n"),
        ("a\nb", "a\nc"),
        ("a\nb\n", "x\na\nb\n"),
        ("a\nb\n", "a\nb\nc\n"),
        ("a\nb", "a\nb\nc"),
        ("a\nb\nc\nd\n", "A\nb\nc\nD\n"),
    ],
)
def test_sarif_regions_are_the_changed_lines(before, after, tmp_path, sample, replaced):
    write(tmp_path, "a.py", before)
    changed = patch(program(tmp_path, a=(before, after)))
    shown = replaced(sample, candidate={"patch": changed})
    results = json.loads(render(shown, "sarif"))["runs"][0]["results"]
    changes = [c for r in results for f in r["fixes"] for c in f["artifactChanges"]]
    (change,) = (c for c in changes if c["artifactLocation"]["uri"] == "a.py")
    assert replace_regions(before, change["replacements"]) == after


def test_sarif_escapes_paths_and_can_tell_what_was_skipped(sample, replaced):
    shown = replaced(sample, target={"path": "a b/c#d.py"})
    log = json.loads(render_sarif(shown, skipped=True))
    results = log["runs"][0]["results"]
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert "a%20b/c%23d.py" in uris
    skipped = [r for r in results if r["ruleId"] == "not-judged"]
    assert len(skipped) == 4
    assert log["runs"][0]["tool"]["driver"]["rules"][1]["id"] == "not-judged"
    assert "Rotary" in skipped[-2]["message"]["text"]


def test_no_words_of_a_report_are_a_link_of_an_alert(sample, replaced):
    evil = "[approved](https://evil.example) [0](1) \u202egnp.exe"
    log = json.loads(render_sarif(replaced(sample, candidate={"analysis": evil})))
    (text,) = (
        r["message"]["text"] for r in log["runs"][0]["results"] if "evil" in r["message"]["text"]
    )
    assert "](" not in text.replace("\\](", "")
    assert "\u202e" not in text


def test_sarif_paths_start_at_the_top_of_the_repository(sample):
    shown = msgspec.structs.replace(sample, folder="packages/former")
    (run,) = json.loads(render(shown, "sarif"))["runs"]
    assert list(run["originalUriBaseIds"]) == ["SRCROOT"]
    places = [one["physicalLocation"] for r in run["results"] for one in r["locations"]]
    changes = [c for r in run["results"] for f in r.get("fixes", ()) for c in f["artifactChanges"]]
    assert places
    assert changes
    for one in (*places, *changes):
        assert one["artifactLocation"]["uriBaseId"] == "SRCROOT"
        assert one["artifactLocation"]["uri"].startswith("packages/former/slowformer/")


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["Documentation, https://github.com/OWNER/cudal1-ci/tree/main/docs"], None),
        (["Homepage, https://a", "Documentation, https://a/docs"], "https://a/docs"),
        (None, None),
    ],
)
def test_sarif_rules_have_help_and_a_link_once_a_release_has_an_address(
    monkeypatch, sample, urls, expected
):
    found = types.SimpleNamespace(get_all=lambda _: urls)
    monkeypatch.setattr("cudal1_ci.render.sarif.metadata.metadata", lambda _: found)
    (run,) = json.loads(render_sarif(sample, skipped=True))["runs"]
    driver = run["tool"]["driver"]
    assert driver.get("informationUri") == expected
    for rule in driver["rules"]:
        assert rule["help"]["text"]
        assert rule.get("helpUri") == (expected and f"{expected}/report.md")
    assert [driver["rules"][r["ruleIndex"]]["id"] for r in run["results"]] == [
        r["ruleId"] for r in run["results"]
    ]


def closed(required: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    """Return the schema of an object that has no other properties, as all of SARIF."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: object, least: int = 0) -> dict[str, object]:
    return {"type": "array", "items": items, "minItems": least}


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
POSITIVE = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed(("text",), text=TEXT)
BAG = {"type": "object", "properties": {"tags": array(TEXT)}}
ARTIFACT = closed(uri=TEXT, uriBaseId=TEXT, description=MESSAGE)
REGION = closed(startLine=POSITIVE, endLine=POSITIVE, startColumn=POSITIVE, endColumn=POSITIVE)
LOCATION = closed(
    physicalLocation=closed(artifactLocation=ARTIFACT, region=REGION),
    logicalLocations=array(closed(fullyQualifiedName=TEXT)),
)
REPLACEMENT = closed(("deletedRegion",), deletedRegion=REGION, insertedContent=closed(text=TEXT))
FIX = closed(
    ("artifactChanges",),
    description=MESSAGE,
    artifactChanges=array(
        closed(
            ("artifactLocation", "replacements"),
            artifactLocation=ARTIFACT,
            replacements=array(REPLACEMENT, least=1),
        ),
        least=1,
    ),
)
RULE = closed(
    ("id",),
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    helpUri=TEXT,
    defaultConfiguration=closed(level=LEVEL),
    properties=BAG,
)
RESULT = closed(
    ("message",),
    ruleId=TEXT,
    ruleIndex=COUNT,
    level=LEVEL,
    message=MESSAGE,
    locations=array(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    fixes=array(FIX),
    properties=BAG,
)
DRIVER = closed(("name",), name=TEXT, semanticVersion=TEXT, informationUri=TEXT, rules=array(RULE))
RUN = closed(
    ("tool",),
    tool=closed(("driver",), driver=DRIVER),
    originalUriBaseIds={"type": "object", "additionalProperties": ARTIFACT},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=array(RESULT),
    invocations=array(closed(("executionSuccessful",), executionSuccessful={"type": "boolean"})),
)
SARIF = closed(
    ("version", "runs"), **{"$schema": TEXT}, version={"enum": ["2.1.0"]}, runs=array(RUN)
)
"""Of the objects of SARIF 2.1.0 that a log of ours has, with the names and kinds that the standard
gives them."""


def test_sarif_has_only_properties_that_the_standard_knows(monkeypatch, sample):
    urls = types.SimpleNamespace(get_all=lambda _: ["Documentation, https://a/docs"])
    monkeypatch.setattr("cudal1_ci.render.sarif.metadata.metadata", lambda _: urls)
    jsonschema.Draft7Validator.check_schema(SARIF)
    validator = jsonschema.Draft7Validator(SARIF)
    log = json.loads(render_sarif(sample, skipped=True))
    assert [error.message for error in validator.iter_errors(log)] == []
    (run,) = log["runs"]
    assert run["results"]
    run["results"][0]["fixes"][0]["artifactChanges"][0]["replacements"] = []
    run["tool"]["driver"]["rule"] = []
    assert len(list(validator.iter_errors(log))) == 2
