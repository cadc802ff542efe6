"""What is counted of the playbook's rewrites when they are examined, and what is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Finding, Verdict

TASKS = Path(__file__).parents[2] / "bench_tasks" / "KernelBench"
PASSED = Verdict(status="passed")


@pytest.fixture
def examined(benchmark_module, monkeypatch, tmp_path):
    """The script on the tasks of the tests, with a judge that answers by itself."""
    module = benchmark_module("playbook_examined")

    def run(check, examine, *words):
        class Judge:
            def __init__(self, config, **given):
                assert config.weights == "seed"
                assert given["device"] == "cpu"

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def check(self, problem):
                return check(problem)

            def examine(self, problem, candidate):
                return examine(problem, candidate)

        monkeypatch.setattr(module, "Session", Judge)
        output = tmp_path / "found.json"
        argv = ["playbook_examined.py", str(TASKS), "--output", str(output), *words]
        monkeypatch.setattr(sys, "argv", argv)
        module.main()
        return json.loads(output.read_text())

    return run


def test_every_rewrite_that_matches_is_examined_and_what_is_wrong_is_told(examined):
    wrong = Verdict(
        status="incorrect_values", findings=(Finding(rule="values.mismatch", message="off by 2"),)
    )

    def examine(_, candidate):
        return wrong if "gelu" in candidate.proposer else PASSED

    found = examined(lambda _: PASSED, examine, "--judges", "2")
    assert (found["num_tasks"], found["num_matching"], found["num_examined"]) == (5, 3, 3)
    assert found["references"] == {"passed": 3}
    assert found["rewrites"]["diagonal_product"] == {"passed": 1}
    assert found["rewrites"]["gelu"] == {"incorrect_values": 1}
    told = [one for row in found["rows"] for one in row["candidates"] if "messages" in one]
    assert [(one["rewrites"], one["messages"]) for one in told] == [("gelu", ["off by 2"])]


def test_a_reference_that_is_not_accepted_says_nothing_of_the_playbook(examined):
    refused = Verdict(
        status="degenerate", findings=(Finding(rule="reference.constant", message="same"),)
    )
    found = examined(lambda _: refused, lambda *_: pytest.fail("not to be examined"))
    assert found["references"] == {"degenerate": found["num_examined"]}
    assert found["rewrites"] == {}


def test_a_judge_that_died_is_counted_apart(examined):
    def check(_):
        raise WorkerError("it died")

    found = examined(check, lambda *_: PASSED)
    assert found["references"] == {"failure": found["num_examined"]}
    assert {row["failure"] for row in found["rows"]} == {"it died"}


def test_no_task_begins_after_the_limit(examined):
    assert examined(lambda _: PASSED, lambda *_: PASSED, "--limit", "0")["num_examined"] == 0
