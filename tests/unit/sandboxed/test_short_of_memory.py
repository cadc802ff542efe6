"""What is done where a device has too little memory for all at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure, RunnerHandle
from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.memory.cuda import DriverError
from cudal1_ci.sandboxed.verifier import verifier as judge_module
from cudal1_ci.sandboxed.verifier.cases import Limits, Rejected
from cudal1_ci.sandboxed.verifier.failures import says_out_of_memory
from cudal1_ci.sandboxed.verifier.reference import make_case
from cudal1_ci.sandboxed.verifier.verifier import Verifier
from cudal1_ci.sandboxed.wire.runner import CallSets
from cudal1_ci.sandboxed.wire.verifier import Clock, Convicted, Interrupted, Repeated, Times
from cudal1_ci.verification.crossing import problem_on_wire
from cudal1_ci.verification.session import GPU_EXHAUSTED
from tests.unit.sandboxed.messages import text
from tests.unit.verification.test_session import problem_of, tensor

LIMITS = Limits(60.0, 30.0)
CLOCK = Clock(batch_us=1.0, max_calls=1, num_rounds=1, repetition_s=1.0)
TIMES = Times(reference_us=(1.0,), candidate_us=(1.0,), control_us=(1.0,), num_calls=3, phases_s={})
EXHAUSTED = Rejected("runtime_error", "memory.exhausted", "CUDA out of memory. Tried to allocate")
CROWDED = Rejected("inconclusive", "memory.device", "timing `w` needs 44.0 GiB")
WRONG = Rejected("incorrect_values", "values.timed", "a timed call is off by 1")
FAILED = RunnerFailure("raised", "OutOfMemoryError: CUDA out of memory", is_trusted=True)
KILLED = "the process closed its channel, or was killed (out of memory?)"
DIED = RunnerFailure("died", KILLED, is_trusted=True)
ENDED = Rejected("runtime_error", "runner.died", KILLED)
NONE_LEFT = torch.cuda.OutOfMemoryError("CUDA out of memory")
NONE_SHARED = DriverError("cuMemAlloc: out of memory")


@pytest.fixture
def launched(monkeypatch) -> Callable[..., tuple[Any, list[tuple[bool, bool, Any]]]]:
    """Launches of one candidate: the last answer, and of each that was made whether as little
    memory was taken as there can be, whether by processes that were kept, and how many calls a
    batch of the one before had."""
    judge = Verifier(1, SimpleNamespace(memory_bytes=lambda is_alone: 2**30, kind="cpu"), None)
    judge.limits = None
    ended = []
    monkeypatch.setattr(judge, "dismiss", lambda: ended.append("candidate"))
    monkeypatch.setattr(judge.kept, "close", lambda: ended.append("references"))

    def call(*answers, times=1, counts=False):
        made, left = [], list(answers)

        def launch(case, crews, program, slots, limits, config, rng, num_calls=None):
            made.append((config.is_least, crews is judge.kept, num_calls))
            answer = left.pop(0)
            case.counts = counts
            if isinstance(answer, Exception):
                if config.is_least:
                    assert {"references", "candidate"} <= set(ended)
                raise answer
            return answer, None

        monkeypatch.setattr(judge_module, "launch", launch)
        judge.examine(text(), keeps=True)
        ended.clear()
        judge.at_hand, judge.slots = {"w": SimpleNamespace()}, {"w": []}
        for _ in range(times):
            reply = judge.repeat("w", CLOCK)
        assert not left
        return reply, made

    return call


@pytest.mark.parametrize("first", [EXHAUSTED, CROWDED, FAILED, NONE_LEFT, NONE_SHARED])
def test_a_launch_that_ran_out_of_memory_is_made_again_with_the_least(launched, first):
    reply, made = launched(first, TIMES)
    assert reply == Repeated(times=TIMES)
    assert made == [(False, True, None), (True, False, None)]


def test_so_are_those_that_follow_and_none_of_the_next_candidate(launched):
    _, made = launched(EXHAUSTED, TIMES, TIMES, times=2)
    assert made[1:] == [(True, False, None), (True, False, 3)]
    assert launched(TIMES)[1] == [(False, True, None)]


@pytest.mark.parametrize(
    ("second", "kind", "rule"),
    [
        (EXHAUSTED, Convicted, "memory.exhausted"),
        (CROWDED, Convicted, "memory.device"),
        (FAILED, Interrupted, "reference.raised"),
        (NONE_LEFT, Convicted, "memory.device"),
    ],
)
def test_one_that_runs_out_of_it_again_is_answered_as_it_is(launched, second, kind, rule):
    reply, made = launched(EXHAUSTED, second)
    assert type(reply) is kind
    assert reply.verdict.findings[0].rule == rule and len(made) == 2


@pytest.mark.parametrize("answer", [EXHAUSTED, CROWDED, FAILED, NONE_LEFT])
def test_once_its_rounds_count_a_launch_is_not_made_again(launched, answer):
    """Who may stop one could choose those that count."""
    reply, made = launched(answer, counts=True)
    assert isinstance(reply, Convicted | Interrupted) and len(made) == 1


@pytest.mark.parametrize("answer", [WRONG, DIED, ENDED])
def test_nothing_else_is_made_again(launched, answer):
    reply, made = launched(answer)
    assert isinstance(reply, Convicted | Interrupted) and len(made) == 1


def test_what_returns_too_much_is_told_as_torch_tells_it(template):
    """By these words a session tells that others have a GPU's memory."""

    class Tiny(Cpu):
        kind = "elsewhere"

        def memory_bytes(self, *, is_alone=False):
            return 100

    problem = problem_on_wire(problem_of(WIDE.format(times=1), tensor(32, 16)))
    (workload,) = problem.workloads
    with pytest.raises(Rejected, match="ELSEWHERE out of memory: it returns tensors of 2,048"):
        make_case(template, Tiny(), problem, workload, LIMITS, 0)
    assert GPU_EXHAUSTED.search("CUDA out of memory: it returns tensors of 2,048 bytes")


WIDE = """
class Model(nn.Module):
    def forward(self, x):
        return x.repeat(1, {times})
"""


@pytest.mark.parametrize(("times", "most"), [(1, 2**20), (64, 7), (4096, 1)])
def test_what_calls_return_counts_among_the_sets_that_a_runner_gets_at_a_time(
    template, monkeypatch, times, most
):
    """Of 16 MiB an eighth; a set is 2 KiB, and so often that is what a call returns, twice."""

    class Small(Cpu):
        def memory_bytes(self, *, is_alone=False):
            return 2**24

    numbers = []
    ask = RunnerHandle.ask

    def asked(runner, request, timeout_s):
        if isinstance(request, CallSets):
            numbers.append(len(request.sets))
        return ask(runner, request, timeout_s)

    monkeypatch.setattr(RunnerHandle, "ask", asked)
    problem = problem_on_wire(problem_of(WIDE.format(times=times), tensor(32, 16)))
    (workload,) = problem.workloads
    case = make_case(template, Small(), problem, workload, LIMITS, 0)
    assert numbers[0] == 1
    assert case.num_together == max(1, 2**21 // (2048 + 2 * 2048 * times + 1))
    assert max(numbers) == min(most, len(case.trials))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", True),
        ("AcceleratorError: CUDA error: out of memory", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp] . can't allocate memory", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED", False),
    ],
)
def test_libraries_say_in_their_own_words_that_there_is_no_memory(message, expected):
    assert says_out_of_memory(message) is expected
