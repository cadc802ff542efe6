"""A report card's run without the programs in it: facts stay, and no line of a program does."""

from __future__ import annotations

import gzip
import sys

import msgspec
import pytest

from cudal1_ci.records import Finding
from cudal1_ci.report_card.reading import read_run
from tests.unit.report_card.rig import a_run, a_task, told

SECRET = "self.secret_layer(x)"
FAR = 'off by 1/3 in "/tmp/runners-1/r2/program.py", line 9, of https://a.b/c/d.py'


@pytest.fixture
def run_facts(experiment_module):
    return experiment_module("run_facts")


def with_quotes(task):
    """The task with its text in every place where the judge quotes."""
    findings = (
        Finding(rule="static.hard_coded", message="a constant", line=3, evidence=SECRET),
        Finding(rule="values.mismatch", message=FAR, evidence="3 of 4 elements"),
    )
    log = f"Traceback:\n  {SECRET}\nNameError: name 'y' is not defined"
    results = tuple(
        msgspec.structs.replace(
            column,
            trials=tuple(
                msgspec.structs.replace(
                    trial,
                    findings=findings,
                    log=log,
                    code=f"{trial.code}# {SECRET}",
                )
                for trial in column.trials
            ),
        )
        for column in task.results
    )
    return msgspec.structs.replace(
        task, results=results, findings=findings, reason=f"raised: NameError\n  {SECRET}"
    )


def test_facts_stay_and_programs_go(run_facts, tmp_path, monkeypatch):
    one = told(a_task("level1/1", f"class Model: {SECRET}"), {"playbook": 2.0, "published": 3.0})
    two = told(a_task("level1/2", f"class Model:  {SECRET}"), {"playbook": "incorrect_values"})
    run = a_run(with_quotes(one), with_quotes(two))
    raw, packed = tmp_path / "run.json", tmp_path / "facts.json.gz"
    raw.write_bytes(msgspec.json.encode(run))
    for _ in range(2):  # the second time from what the first wrote
        monkeypatch.setattr(sys, "argv", ["run_facts.py", str(raw), "--output", str(packed)])
        run_facts.main()
        assert SECRET.encode() not in gzip.decompress(packed.read_bytes())
        found = read_run(packed)
        raw.write_bytes(packed.read_bytes())
    assert found.card == run.card
    assert [task.problem_id for task in found.tasks] == [task.problem_id for task in run.tasks]
    trial = found.tasks[0].results[0].trials[0]
    before = run.tasks[0].results[0].trials[0]
    assert trial.measurements == before.measurements
    assert trial.log == "NameError: name 'y' is not defined"
    assert [finding.evidence for finding in trial.findings] == [None, "3 of 4 elements"]
    said = 'off by 1/3 in "program.py", line 9, of https://a.b/c/d.py'
    assert trial.findings[1].message == said, "no folder of the machine"
    assert found.tasks[0].reason == "raised: NameError"
    texts = {task.reference for task in found.tasks}
    texts |= {each.code for task in found.tasks for row in task.results for each in row.trials}
    assert len(texts) == 5


def test_a_file_that_is_no_run_is_named(run_facts, tmp_path, monkeypatch, capsys):
    file = tmp_path / "other.json"
    file.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["run_facts.py", str(file), "--output", str(file)])
    with pytest.raises(SystemExit):
        run_facts.main()
    assert "other.json: expected a run" in capsys.readouterr().err
    assert file.read_text() == "{}"


def test_of_a_column_that_is_measured_again_nothing_stays(run_facts, tmp_path, monkeypatch):
    one = told(a_task("level1/1"), {"playbook": 2.0, "published": 3.0})
    raw, packed = tmp_path / "run.json", tmp_path / "facts.json.gz"
    raw.write_bytes(msgspec.json.encode(a_run(one)))
    words = ["run_facts.py", str(raw), "--output", str(packed), "--without"]
    monkeypatch.setattr(sys, "argv", [*words, "published"])
    run_facts.main()
    kept = read_run(packed)
    assert [result.solver for result in kept.tasks[0].results] == ["playbook"]
    assert "published" not in kept.solvers + tuple(row.solver for row in kept.card)
    monkeypatch.setattr(sys, "argv", [*words, "publshed"])
    with pytest.raises(SystemExit):
        run_facts.main()
