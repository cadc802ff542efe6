"""Runners that take turns: where they run, and when their clocks contradict the judge's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.forkserver.handles import Process
from cudal1_ci.sandboxed.timing import cores
from cudal1_ci.sandboxed.timing.round_times import reconcile
from cudal1_ci.sandboxed.timing.timed_rounds import Lane
from cudal1_ci.sandboxed.verifier import verifier as judge_module
from cudal1_ci.sandboxed.verifier.verifier import Verifier

TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""


def test_all_threads_of_a_runner_take_their_turns_on_the_same_core():
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        process = Process(child.pid, os.pidfd_open(child.pid))
        process.pin([core])
        threads = [int(one.name) for one in Path(f"/proc/{child.pid}/task").iterdir()]
        found = [os.sched_getaffinity(thread) for thread in threads]
        child.kill()
    process.pin([core])  # of one that has ended: nothing
    process.close()
    assert found == [{core}, {core}]


@pytest.mark.parametrize(
    ("num_cores", "num_threads", "gpu_index", "expected"),
    [
        (16, 1, 0, [15]),
        (16, 1, 3, [12]),
        (16, 2, 1, [12, 13]),
        (4, 1, 0, [3]),
        (3, 1, 0, None),
        (7, 1, 1, None),
        (16, 1, None, None),
    ],
)
def test_runners_of_each_gpu_have_cores_of_their_own(
    monkeypatch, num_cores, num_threads, gpu_index, expected
):
    kept = []
    monkeypatch.setattr(cores, "TOPOLOGY", "/nowhere/{}")
    monkeypatch.setattr(judge_module.os, "sched_getaffinity", lambda _: set(range(num_cores)))
    monkeypatch.setattr(judge_module.os, "sched_setaffinity", lambda _, left: kept.append(left))
    judge = Verifier(num_threads, SimpleNamespace(kind="cuda"), SimpleNamespace())
    for _ in range(2):  # also when this process may no longer use them
        assert judge.turns(gpu_index) == expected
    others = [set(range(num_cores)) - set(expected or [])] * 2
    assert kept == (others if expected else [])


@pytest.mark.parametrize(
    ("siblings", "num_threads", "gpu_index", "expected"),
    [
        ("{even}-{odd}", 1, 0, ([15], {14, 15})),
        ("{even}-{odd}", 1, 1, ([13], {12, 13})),
        ("{even}-{odd}", 2, 0, ([13, 15], {12, 13, 14, 15})),
        ("{low},{high}", 1, 0, ([15], {7, 15})),
        ("{even}-{odd}", 1, 3, None),  # 8 for turns, and 8 of the 12 that four judges want
        ("nonsense", 1, 0, ([15], {15})),
    ],
)
def test_a_runner_has_the_silicon_of_its_core_to_itself(
    tmp_path, monkeypatch, siblings, num_threads, gpu_index, expected
):
    for core in range(16):
        text = siblings.format(
            even=core // 2 * 2, odd=core // 2 * 2 + 1, low=core % 8, high=core % 8 + 8
        )
        (tmp_path / f"{core}").write_text(f"{text}\n")
    monkeypatch.setattr(cores, "TOPOLOGY", str(tmp_path / "{}"))
    assert cores.cores_of_turns(range(16), num_threads, gpu_index) == expected


def test_a_core_whose_sibling_may_not_be_used_is_one_alone(tmp_path, monkeypatch):
    for core in range(8):
        (tmp_path / f"{core}").write_text(f"{core // 2 * 2}-{core // 2 * 2 + 1}\n")
    monkeypatch.setattr(cores, "TOPOLOGY", str(tmp_path / "{}"))
    assert cores.cores_of_turns([0, 2, 3, 4, 6], 1, 0) == ([6], {6})


def lane(span_us: float, claim_us: float) -> Lane:
    made = Lane("", None, None, None, [], None)
    made.spans_us, made.claims_us = [span_us] * 3, [claim_us] * 3
    return made


@pytest.mark.parametrize(
    ("late_us", "alone_us", "accused"),
    [(100, 0, False), (3000, 0, True), (3000, 4000, False), (9000, 4000, True)],
)
def test_copying_what_has_gaps_is_no_work_that_was_put_off(late_us, alone_us, accused):
    case = SimpleNamespace(accelerator=SimpleNamespace(kind="cuda"))
    trusted = [lane(10_300, 10_000)] * 2
    found = reconcile(case, trusted, lane(5_300 + late_us, 5_000), 300.0, alone_us)
    assert (found is not None) is accused
