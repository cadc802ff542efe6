"""Processes of a reference that serve several candidates: a real judge, on a CPU."""

from __future__ import annotations

import math
from contextlib import contextmanager

import msgspec
import pytest

from cudal1_ci.executor.local import BOOTSTRAP, WORKER_FOLDER
from cudal1_ci.schema import Made, Problem, TextProgram, Workload
from cudal1_ci.worker import clock
from cudal1_ci.worker.accelerators import accelerator
from cudal1_ci.worker.crews import Terms
from cudal1_ci.worker.judge import Judge
from cudal1_ci.worker.processes import Template
from cudal1_ci.worker.start import start_template

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))
        {more}

    def forward(self, x):
        return torch.tanh(x) * self.scale

def get_inputs():
    return [torch.randn(256, 64)]

def get_init_inputs():
    return []
"""
CLOCK = {"batch_us": 3000.0, "max_calls": 8, "num_rounds": 3, "launch_s": 5.0}


@contextmanager
def a_judge():
    process, channel = start_template(["-P", "-c", BOOTSTRAP, str(WORKER_FOLDER)], 1, "cpu")
    judge = Judge(1, accelerator("cpu"), Template(process, channel, None))
    try:
        yield judge
    finally:
        judge.crews.close()
        judge.template.close()


@pytest.fixture
def judge(monkeypatch):
    def terms_of(case, limits, config):
        return Terms(limits, min(2, config.num_ahead), 12, keeps=not case.leaves_traces)

    monkeypatch.setattr(clock, "terms_of", terms_of)
    with a_judge() as judge:
        forked = []
        fork = judge.template.fork

        def counted(*args):
            forked.append(args)
            return fork(*args)

        monkeypatch.setattr(judge.template, "fork", counted)
        judge.forked = forked
        yield judge


def learn(judge, more="pass"):
    workload = Workload(
        name="w",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    source = REFERENCE.format(more=more)
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    limits = {"load_s": 60, "call_s": 30}
    verdict = judge.check(msgspec.to_builtins(problem), limits, 0, None, "checkpoint", None)
    assert verdict["status"] == "passed", verdict
    return source


def launches(judge, source, count=2):
    verdict = judge.examine(msgspec.to_builtins(TextProgram(source=source, entry="Model")))
    assert verdict["status"] == "passed", verdict
    judge.forked.clear()
    return [judge.launch("w", {**CLOCK, "num_ahead": 2}) for _ in range(count)]


def test_the_next_candidate_starts_processes_of_its_own_alone(judge):
    source = learn(judge)
    first = launches(judge, source + "# a\n")
    # One alone, that waits for the launches then: 2 of the candidate, 4 of the reference.
    assert len(judge.forked) == 6
    faster = launches(judge, source.replace("torch.tanh(x)", "x.tanh()"))
    assert len(judge.forked) == 2
    for reply in first + faster:
        times = reply["launch"]
        assert len(times["reference_us"]) == len(times["control_us"]) == CLOCK["num_rounds"]
        assert all(math.isfinite(one) and one > 0 for one in times["candidate_us"])


def test_a_launch_that_convicts_leaves_the_next_candidate_sound_references(judge):
    source = learn(judge)
    late = """
calls = 0

def forward(self, x):
    global calls
    calls += 1
    return torch.tanh(x) * self.scale if calls < 20 else x * 0.5

Model.forward = forward
"""
    (convicted,) = launches(judge, source + late, count=1)
    assert convicted["verdict"]["findings"][0]["rule"] == "values.timed"
    honest = launches(judge, source + "# b\n")
    assert all("launch" in reply for reply in honest)


def test_a_reference_that_calls_leave_traces_in_is_started_anew(judge):
    source = learn(judge, "self.register_buffer('seen', torch.zeros(1))")
    launches(judge, source + "# a\n")
    launches(judge, source + "# b\n")
    assert len(judge.forked) == 6


def test_no_process_outlives_the_problem(judge):
    source = learn(judge)
    launches(judge, source + "# a\n")
    waiting = [m.runner for one in judge.crews.regulars.values() for m in one.idle + one.spent]
    assert len(waiting) == 4
    learn(judge)
    judge.crews.settle()
    assert all(runner.ended for runner in waiting)
