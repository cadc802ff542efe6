"""With Ray itself, where it is installed: `pip install ray`, then `pytest -m slow`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.starts_verifier

ROOT = Path(__file__).parents[2]


def bench_words(tmp_path, *words):
    tasks = ROOT / "tests" / "bench_tasks" / "KernelBench"
    solvers = ["--solvers", "eager,playbook,best", "--output", str(tmp_path / "run.json")]
    cluster = ["--executor", "ray", "--address", "local", "--device", "cpu"]
    return [sys.executable, "-m", "cudal1_ci", "bench", str(tasks), *solvers, *cluster, *words]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "CUDAL1_CI_TRIAL_NUM_LAUNCHES": "1"}


@pytest.mark.slow
def test_bench_judges_on_a_cluster(tmp_path):
    pytest.importorskip("ray")
    done = subprocess.run(
        bench_words(tmp_path, "--task", "level1/[12]*"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert [(task["name"], task["standing"]) for task in document["tasks"]] == [
        ("level1/1", "judged"),
        ("level1/2", "judged"),
    ]
    for task in document["tasks"]:
        found = {result["solver"]: result["trials"] for result in task["results"]}
        assert {solver: len(trials) for solver, trials in found.items()} == {
            "eager": 1,
            "playbook": 1,
            "best": 0,
        }
        # A busy machine may time nothing; what is measured is right.
        statuses = {trial["status"] for trials in found.values() for trial in trials}
        assert statuses <= {"passed", "inconclusive"}
    assert "[2/2] level1/2:Model: done" in done.stderr


@pytest.mark.slow
def test_an_interrupt_ends_a_bench_on_a_cluster_with_its_report(tmp_path):
    pytest.importorskip("ray")
    with subprocess.Popen(
        bench_words(tmp_path),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        assert started.stderr is not None
        for line in started.stderr:
            if line == "[1/5] level1/1:Model: done\n":
                break
        began_s = time.monotonic()
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        started.communicate(timeout=60)
    assert time.monotonic() - began_s < 20
    assert started.returncode == 130
    document = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert document["ended"] == "interrupted"
    assert [task["standing"] for task in document["tasks"]] == ["judged"] + ["missing"] * 4


@pytest.mark.slow
def test_a_task_whose_actor_is_killed_is_done_by_another_and_nothing_twice(tmp_path):
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "tests/integration/killed_actor.py", str(tmp_path)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["standings"] == ["judged"] * 8
    assert found["num_trials"] == [4] * 8
    assert found["judged"] == [1] * 32
    assert found["num_processes"] >= 2
    (lost,) = found["notices"]
    assert lost.startswith("lost ")
