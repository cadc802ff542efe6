"""Several runs as one: whatever their order, however often."""

from __future__ import annotations

import gzip
import itertools

import msgspec
import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Finding
from cudal1_ci.report_card.crowded import crowded_because
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.page import portability, render_page
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.shape import DemandDocument
from cudal1_ci.report_card.worth import worth
from tests.unit.report_card.rig import a_run, a_task, told

ONE, TWO = a_task("level1/1"), a_task("level1/2", "class Model: pass")


def test_parts_of_the_tasks_make_the_whole_in_any_order_and_any_number():
    first = a_run(told(ONE, {"eager": 1.0, "playbook": 2.0}))
    second = a_run(told(TWO, {"eager": 1.0, "playbook": 3.0}))
    whole = merge([first, second])
    assert [task.name for task in whole.tasks] == ["level1/1", "level1/2"]
    assert {row.num_tasks for row in whole.card} == {2}
    for order in itertools.permutations([first, second, first]):
        assert merge(order) == whole
    assert merge([whole]).tasks == whole.tasks


def test_columns_of_two_runs_stand_beside_each_other():
    whole = merge(
        [
            a_run(told(ONE, {"eager": 1.0})),
            a_run(told(ONE, {"playbook": 2.0}), told(TWO, {"playbook": 2.0})),
        ]
    )
    assert whole.solvers == ("eager", "playbook", "best")
    assert [task.standing for task in whole.tasks] == ["judged", "missing"]
    assert whole.tasks[1].reason == "no result of eager"
    assert {row.num_tasks for row in whole.card} == {1}


def test_a_column_of_another_version_is_kept():
    known = told(ONE, {"eager": 1.0})
    (eager,) = known.results
    newer = msgspec.structs.replace(known, results=(msgspec.structs.replace(eager, solver="tvm"),))
    whole = merge([a_run(known), a_run(newer, solvers=("tvm", "best"))])
    assert whole.solvers == ("eager", "best", "tvm")
    assert [result.solver for result in whole.tasks[0].results] == ["eager", "tvm"]
    assert {row.solver for row in whole.card} == {"eager", "best", "tvm"}
    assert "tvm" in render_page(whole)


def test_of_two_trials_of_one_candidate_a_refusal_stands():
    passed = told(ONE, {"playbook": 2.0})
    trial = passed.results[0].trials[0]

    def with_status(status):
        refused = msgspec.structs.replace(trial, status=status, measurements=())
        result = msgspec.structs.replace(passed.results[0], trials=(refused,))
        return msgspec.structs.replace(passed, results=(result,))

    for other, is_success in (("incorrect_values", False), ("inconclusive", True)):
        whole = merge([a_run(passed), a_run(with_status(other))])
        assert worth(whole.tasks[0], "playbook").is_success is is_success


def crowded(document, *columns):
    """The same where these had too little memory."""
    finding = Finding(rule="memory.device", message="", line=None, evidence=None)
    results = [
        msgspec.structs.replace(
            result,
            trials=tuple(
                msgspec.structs.replace(
                    trial, status="inconclusive", findings=(finding,), measurements=()
                )
                for trial in result.trials
            ),
        )
        if result.solver in columns
        else result
        for result in document.results
    ]
    return msgspec.structs.replace(document, results=tuple(results))


def test_a_column_that_had_too_little_memory_has_not_had_its_turn():
    columns = {"eager": 1.0, "playbook": 2.0, "best": 2.0}
    whole = told(ONE, columns)
    few = crowded(whole, "eager", "best")
    (task,) = merge([a_run(few)]).tasks
    assert task.standing == "missing"
    assert task.reason == crowded_because(["eager", "best"])
    # The other run had enough, and `best` chose another candidate there.
    other = told(ONE, columns | {"best": 3.0})
    for runs in ([a_run(few), a_run(other)], [a_run(other), a_run(few)]):
        (task,) = merge(runs).tasks
        assert (task.standing, task.reason) == ("judged", None)
        assert worth(task, "eager").is_success
        assert [len(result.trials) for result in task.results] == [1, 1, 1]
    # A judge that failed there has not had enough of anything.
    failed = msgspec.structs.replace(whole.results[0], trials=(), failure="the judge died")
    died = msgspec.structs.replace(whole, results=(failed, *whole.results[1:]))
    (task,) = merge([a_run(few), a_run(died)]).tasks
    assert task.reason == crowded_because(["eager"])
    part = told(ONE, {"eager": 1.0})
    (task,) = merge([a_run(few), a_run(part)]).tasks
    assert task.reason == crowded_because(["best"])


def test_a_reference_that_is_degenerate_somewhere_is_left_out():
    fine = told(ONE, {"eager": 1.0})
    weak = msgspec.structs.replace(fine, standing="degenerate", reason="weak", results=())
    for runs in ([a_run(fine), a_run(weak)], [a_run(weak), a_run(fine)]):
        assert merge(runs).tasks[0].standing == "degenerate"
    failed = msgspec.structs.replace(weak, standing="invalid", reason="out of memory")
    assert merge([a_run(failed), a_run(fine)]).tasks[0].standing == "judged"


def test_a_reference_that_lacked_memory_in_one_run_is_what_the_other_says():
    part = crowded(told(ONE, {"eager": 1.0, "playbook": 2.0}), "playbook")
    finding = Finding(rule="memory.device", message="", line=None, evidence=None)
    lacked = msgspec.structs.replace(
        part, standing="invalid", reason="out of memory", findings=(finding,), results=()
    )
    for runs in ([a_run(part), a_run(lacked)], [a_run(lacked), a_run(part)]):
        (task,) = merge(runs).tasks
        assert task.standing == "missing"
        assert task.reason.endswith(crowded_because(["playbook"]))
    assert merge([a_run(lacked)]).tasks[0].standing == "invalid"
    # One that cannot be judged for another reason is not fixed by that.
    raised = msgspec.structs.replace(lacked, reason="raised", findings=())
    assert merge([a_run(part), a_run(raised)]).tasks[0].reason == "raised"


def test_what_the_device_takes_at_the_least_is_known_from_any_part():
    first, second = told(ONE, {"eager": 1.0}), told(ONE, {"playbook": 2.0})
    demand = DemandDocument(num_bytes=48_000)
    known = msgspec.structs.replace(second, demand=demand, least_us=5.0)
    for parts in ((first, known), (known, first)):
        (task,) = merge([a_run(part) for part in parts]).tasks
        assert (task.standing, task.demand, task.least_us) == ("judged", demand, 5.0)
    alike = merge([a_run(msgspec.structs.replace(known, demand=None, least_us=None))])
    assert alike.tasks[0].least_us is None


def test_machines_are_told_apart_and_compared_where_both_were():
    here = a_run(
        told(ONE, {"eager": 1.0, "playbook": 2.0}), told(TWO, {"eager": 1.0, "playbook": 9.0})
    )
    there = a_run(told(ONE, {"eager": 1.0, "playbook": 0.5}, machine="another"))
    whole = merge([here, there])
    assert {row.machine for row in whole.card} == {"another", here.tasks[0].machine}
    rows = dict(portability(whole))["playbook"]
    assert [row.num_tasks for row in rows] == [1, 1]
    assert sorted(row.mean.estimate for row in rows) == pytest.approx([0.5, 2.0], rel=0.02)
    assert portability(here) == []


def test_runs_of_two_policies_are_refused():
    task = told(ONE, {"eager": 1.0})
    with pytest.raises(ReportError, match="one policy"):
        merge([a_run(task), a_run(task, policy="cuda-l1")])
    with pytest.raises(ReportError, match="one precision, got strict and tf32"):
        merge([a_run(task), a_run(task, precision="tf32")])


def test_a_run_is_read_as_it_was_written_and_others_are_refused(tmp_path):
    file = tmp_path / "run.json"
    run = a_run(told(ONE, {"eager": 1.0, "playbook": None}))
    file.write_bytes(msgspec.json.encode(run))
    assert read_run(file) == run
    for text, said in (
        ('{"schema_version": 1}', "bench --output"),
        ('{"schema_version": 9, "kind": "bench"}', "schema_version 1, got 9"),
        ('{"schema_version": 1, "kind": "bench"}', "bench --output"),
        ("no", "bench --output"),
    ):
        file.write_text(text)
        with pytest.raises(ReportError, match=said):
            read_run(file)
    with pytest.raises(ReportError, match="cannot be read"):
        read_run(tmp_path / "none.json")


def test_what_times_say_is_said_anew_when_a_run_is_read(tmp_path):
    """Intervals of whoever wrote it are not set beside others; one without times has its own."""
    run = a_run(told(ONE, {"eager": 1.0, "playbook": 2.0}))
    encoded = msgspec.json.decode(msgspec.json.encode(run))
    for result in encoded["tasks"][0]["results"]:
        for trial in result["trials"]:
            trial["measurements"][0] |= {"speedup": 8.0, "speedup_low": 7.0, "speedup_high": 9.0}
    file = tmp_path / "run.json"
    file.write_bytes(msgspec.json.encode(encoded))
    assert read_run(file) == run
    encoded["tasks"][0]["results"][1]["trials"][0]["measurements"][0]["launches"] = []
    file.write_bytes(msgspec.json.encode(encoded))
    left = read_run(file).tasks[0].results
    assert left[0] == run.tasks[0].results[0]
    assert left[1].trials[0].measurements[0].speedup_low == 7.0


def test_a_run_may_be_gzipped_whatever_its_file_is_called(tmp_path):
    run = a_run(told(ONE, {"eager": 1.0}))
    packed = gzip.compress(msgspec.json.encode(run))
    for name in ("run.json.gz", "run.json"):
        (tmp_path / name).write_bytes(packed)
        assert read_run(tmp_path / name) == run
    file = tmp_path / "run.json.gz"
    for broken in (packed[:-20], packed[:12] + b"\xff" * 40, packed + b"more", b"\x1f\x8b"):
        file.write_bytes(broken)
        with pytest.raises(ReportError, match="cannot be read: "):
            read_run(file)


def test_what_a_gzipped_run_holds_has_a_limit(tmp_path, monkeypatch):
    file = tmp_path / "run.json.gz"
    file.write_bytes(gzip.compress(b" " * 3 * 2**20))
    monkeypatch.setattr("cudal1_ci.report_card.reading.MAX_BYTES", 2**20)
    with pytest.raises(ReportError, match="at most 1 MiB"):
        read_run(file)
