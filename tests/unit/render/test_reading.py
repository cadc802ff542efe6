"""Reading a report back: the file is hostile data."""

from __future__ import annotations

import json
import math

import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.render import reading, render
from cudal1_ci.render.reading import read_report


@pytest.fixture
def written(tmp_path, sample):
    path = tmp_path / "report.json"
    path.write_text(render(sample, "json"))
    return path


def test_what_was_written_is_read_back(written, sample):
    assert read_report(written) == sample


def test_unknown_fields_are_ignored_so_that_newer_minor_versions_can_be_read(written, sample):
    published = json.loads(written.read_text())
    published["invented_later"] = {"a": 1}
    published["entries"][0]["target"]["column"] = 3
    written.write_text(json.dumps(published))
    assert read_report(written) == sample


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON, and the file is empty"),
        (b"\n", "expected JSON, and the file is empty"),
        (b"not json", "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[1, 2]", "expected a report, an object"),
        (b"{}", "it has no `schema_version`"),
        (b'{"schema_version": 99}', "expected schema_version 2 or before, got 99"),
        (b'{"schema_version": "1"}', "Expected `int | null`, got `str`"),
        (b'{"schema_version": 1}', "missing required field `repository`"),
        (b'{"schema_version": 2}', "missing required field `repository`"),
        (b'{"schema_version": 2, "repository": "r", "entries": [{"evaluations": [7]}]}', "object"),
        (b'{"schema_version": 1, "x": ' + b"[" * 100_000, "JSON|recursion"),
    ],
)
def test_what_is_not_a_report_is_refused_with_what_was_expected(tmp_path, content, message):
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=message) as error:
        read_report(path)
    assert str(path) in str(error.value)


def test_a_missing_file_says_what_writes_one(tmp_path):
    with pytest.raises(ReportError, match="no such file; `cudal1-ci scan --json"):
        read_report(tmp_path / "none.json")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        read_report(tmp_path)


def test_a_file_over_the_cap_is_refused_without_parsing(written, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    with pytest.raises(ReportError, match="got more"):
        read_report(written)


ENTRY = ("entries", 0)
BEST = (*ENTRY, "evaluations", 1)
TIMES = (*BEST, "measurements", 0)

EDITS = {
    "a path that climbs out": ((*ENTRY, "target", "path"), "../../etc/passwd", "relative path"),
    "an absolute path": ((*ENTRY, "target", "path"), "/etc/passwd", "relative path"),
    "a line 0": ((*ENTRY, "target", "first_line"), 0, r"`\$.entries\[0\].target.first_line`"),
    "text for a number": ((*TIMES, "speedup"), "fast", r"Expected `float \| null`, got `str`"),
    "a negative speedup": ((*TIMES, "speedup"), -1, "> 0"),
    "a speedup outside of its interval": ((*TIMES, "speedup"), 1e6, "speedup_low <= speedup"),
    "a time of zero": ((*TIMES, "repetitions", 0, "candidate_us", 0), 0, "> 1e-0?9"),
    "pairs that are none": ((*TIMES, "repetitions", 0, "candidate_us"), [1.0], "as many candidate"),
    "a moment of no time zone": (("generated_at",), "2026-11-22T03:14:15", "timezone"),
    "a moment that is none": (("generated_at",), "yesterday", "RFC3339"),
    "an infinite number": ((*TIMES, "speedup"), math.inf, "expected JSON|malformed"),
    "an unknown status": ((*BEST, "status"), "fantastic", "Invalid enum value 'fantastic'"),
    "measurements of what failed": ((*BEST, "status"), "reward_hack", "cannot have measurements"),
    "a best that failed": ((*ENTRY, "best"), 0, "did not pass"),
    "a best that is not there": ((*ENTRY, "best"), 9, "there are 2 evaluations"),
    "a patch that is none": ((*BEST, "candidate", "patch"), "rm -rf", "unified diff"),
    "a patch that climbs out": (
        (*BEST, "candidate", "patch"),
        "--- a/../x\n+++ b/../x\n@@ -1,1 +1,1 @@\n-a\n+b\n",
        "relative path",
    ),
    "a tensor of many dimensions": (
        (*ENTRY, "workloads", 0, "call", "args", 0, "shape"),
        [1] * 65,
        "length <= 64",
    ),
    "a dimension beyond all": (
        (*ENTRY, "workloads", 0, "call", "args", 0, "shape"),
        [2**63],
        r"\$.entries\[0\].workloads\[0\].call.args\[0\].shape\[0\]",
    ),
    "a name without end": ((*ENTRY, "target", "qualname"), "x" * 5000, "length <= 4096"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_value_that_cannot_be_is_refused_with_its_place(written, edit):
    place, value, message = edit
    published = json.loads(written.read_text())
    inner = published
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    written.write_text(json.dumps(published))
    with pytest.raises(ReportError, match=message):
        read_report(written)


def test_a_number_too_large_for_a_float_is_refused(written):
    text = written.read_text().replace('"elapsed_s": 94.4', '"elapsed_s": 1e999')
    assert "1e999" in text
    written.write_text(text)
    with pytest.raises(ReportError, match="out of range"):
        read_report(written)
