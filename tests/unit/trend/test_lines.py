"""The file: appended to, read back, hostile."""

from __future__ import annotations

import json

import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.trend import lines
from cudal1_ci.trend.lines import append_lines, missing_from, read_lines
from cudal1_ci.trend.record import Row
from tests.unit.trend.conftest import history_of
from tests.unit.trend.samples import a_line, sha


@pytest.fixture
def entries():
    return history_of(*a_line(num_commits=3)).entries


@pytest.fixture
def file(tmp_path, entries):
    path = tmp_path / "data" / "history.jsonl"
    append_lines(path, entries)
    return path


def test_what_was_written_is_read_back(file, entries):
    assert read_lines(file).entries == entries


def test_lines_that_are_there_are_not_missing(file, entries):
    row = Row(commit=sha(9), target="a.py:f", verdict="new")
    assert missing_from(read_lines(file), [*entries, row, row]) == [row]


def test_nothing_is_appended_to_without_need(file):
    before = file.read_bytes()
    append_lines(file, [])
    assert file.read_bytes() == before


def test_a_line_that_was_cut_off_is_left_out_and_written_over(file, entries):
    file.write_bytes(file.read_bytes()[:-20])
    assert read_lines(file).entries == entries[:-1]
    append_lines(file, entries[-1:])
    assert read_lines(file).entries == entries


def test_a_last_line_without_its_end_is_whole(file, entries):
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert read_lines(file).entries == entries
    row = Row(commit=sha(9), target="a.py:f", verdict="new")
    append_lines(file, [row])
    assert read_lines(file).entries == (*entries, row)


def test_lines_and_fields_that_a_later_version_added_are_ignored(file, entries):
    first = json.loads(file.read_text().splitlines()[0]) | {"invented_later": [1]}
    file.write_text(f'{json.dumps(first)}\n\n{{"record": "weather", "is": "fine"}}\n')
    assert read_lines(file).entries == entries[:1]


ROW = f'"record": "row", "commit": "{sha(1)}", "target": "a.py:f"'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "expected a line written by"),
        ("[1]", "Expected `object`"),
        ('{"commit": "c0ffee"}', "missing required field `record`"),
        ('{"record": "run", "schema_version": 9}', "expected schema_version 1, got 9"),
        (f'{{"record": "row", "commit": "{sha(1)}"}}', "missing required field `target`"),
        ('{"record": "row", "commit": "../x", "target": "t"}', "matching regex"),
        ('{"record": "row", "commit": "c0ffee00\\n", "target": "t"}', "matching regex"),
        (f'{{{ROW}, "time_us": -1, "workload": "w", "device": "0123456789abcdef"}}', "> 0"),
        (f'{{{ROW}, "time_us": 1e999}}', "out of range"),
        (f'{{{ROW}, "time_us": 1.0}}', "needs a workload and a device"),
        (f'{{{ROW}, "slowdown": 2.0, "slowdown_low": 3.0, "slowdown_high": 4.0}}', "its bounds"),
        (f'{{{ROW}, "verdict": "fine"}}', "Invalid enum value"),
        ('{"record": "x", "y": ' + "[" * 100_000 + "}", "JSON|recursion|malformed"),
    ],
)
def test_what_is_no_line_is_refused_with_its_place(file, line, message):
    file.write_text(f"{file.read_text().splitlines()[0]}\n{line}\n{{}}\n")
    with pytest.raises(ReportError, match=message) as error:
        read_lines(file)
    assert f"{file}:2" in str(error.value)


def test_a_missing_file_says_what_makes_one(tmp_path):
    with pytest.raises(ReportError, match="--history-append"):
        read_lines(tmp_path / "none.jsonl")


def test_a_file_over_the_cap_is_refused(file, monkeypatch):
    monkeypatch.setattr(lines, "MAX_BYTES", 100)
    with pytest.raises(ReportError, match="begin a new file"):
        read_lines(file)


def test_what_cannot_be_written_is_said(tmp_path, entries):
    with pytest.raises(ReportError, match="cannot be written: Is a directory"):
        append_lines(tmp_path, entries)
