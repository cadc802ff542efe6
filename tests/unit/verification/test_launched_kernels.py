"""A candidate for a kernel must launch that kernel: a session before a judge that says what ran."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from cudal1_ci.records import Candidate, OverlayFile, Problem, Target, TreeProgram
from cudal1_ci.sandboxed.wire.verdicts import KernelTime, Verdict
from cudal1_ci.sandboxed.wire.verifier import (
    Describe,
    Described,
    Examine,
    Failed,
    Hardware,
    Profile,
    Profiled,
    Verified,
)
from cudal1_ci.verification import Session, TrialConfig, session
from tests.fakes import a_workload

KERNELS = """
import triton

@triton.jit
def silu_kernel(x): ...

@triton.jit
def other_kernel(x): ...
"""
SILU, OTHER, NEW = "silu_kernel", "other_kernel", "fresh_kernel"
WITH_NEW = f"{KERNELS}\n@triton.jit\ndef {NEW}(x): ...\n"
TORCH = "void at::native::vectorized_elementwise_kernel<4>(int)"


class Verifier:
    """Passes every candidate, and profiles as it is told."""

    software: ClassVar[dict[str, str]] = {}
    has_disk = False
    pid = 1

    def __init__(self, ran: dict[str, float] | str, profiled: str | None):
        self.ran = ran
        self.profiled = profiled

    @contextmanager
    def start(self, role: str, *, num_threads: int, device: str):
        yield self

    def ask(self, request: Any, timeout_s: float) -> Any:
        match request:
            case Describe():
                here = Hardware(kind="cuda", name="fake", capability="9.0", software={})
                return Described(
                    hardware=here, architecture=None, num_threads=1, sandbox_missing=()
                )
            case Profile():
                ran = self.ran if request.is_candidate else {SILU: 9.0, OTHER: 1.0}
                if isinstance(ran, str):
                    return Failed(why=ran)
                rows = [KernelTime(name=n, num_calls=1, time_us=t) for n, t in ran.items()]
                return Profiled(rows=tuple(rows))
            case Examine():
                assert request.profiled == self.profiled
        return Verified(verdict=Verdict(status="passed"))


@pytest.fixture
def went_on():
    """By measured workload, whether the candidate's processes are there afterwards."""
    return []


@pytest.fixture
def evaluate(tmp_path, monkeypatch, went_on):
    monkeypatch.setattr(session, "measure", lambda *_, goes_on: went_on.append(goes_on))
    (tmp_path / "k.py").write_text(KERNELS)
    reference = TreeProgram(root=str(tmp_path), import_root=".", import_path="k:f", digest="d")

    def evaluated(
        ran: dict[str, float] | str,
        kind: Any = "triton_kernel",
        text: str = KERNELS,
        path: str = "k.py",
        profiled: str | None = a_workload().name,
        config: TrialConfig = TrialConfig(),  # noqa: B008 - frozen
        by: str = "evaluate",
    ):
        target = Target(path="k.py", qualname=SILU, kind=kind, first_line=4, last_line=5)
        problem = Problem(reference=reference, workloads=(a_workload(),), target=target)
        file = OverlayFile(path=path, text=f"{text}\n# new\n", base_digest="old")
        program = TreeProgram(
            root=str(tmp_path), import_root=".", import_path="k:f", digest="d", overlay=(file,)
        )
        candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
        with Session(config, executor=Verifier(ran, profiled)) as opened:
            found = getattr(opened, by)(problem, candidate)
        rules = [one.rule for one in found.verdict.findings]
        return found.verdict.status, rules, [k.name for k in found.kernels if k.is_own]

    return evaluated


@pytest.mark.parametrize(
    ("ran", "text", "expected"),
    [
        ({SILU: 5.0}, KERNELS, ("passed", [], [SILU])),
        ({NEW: 5.0}, WITH_NEW, ("passed", [], [NEW])),  # what launches it was changed with it
        ({TORCH: 5.0}, KERNELS, ("reward_hack", ["kernel.unlaunched"], [])),
        ({OTHER: 5.0}, KERNELS, ("reward_hack", ["kernel.unlaunched"], [])),
        ({SILU: 0.05, TORCH: 5.0}, KERNELS, ("reward_hack", ["kernel.decoy"], [SILU])),
        ({TORCH: 5.0}, "x = 1", ("reward_hack", ["kernel.missing"], [])),
        ("no profiler here", KERNELS, ("inconclusive", ["kernel.unseen"], [])),
    ],
)
def test_a_candidate_for_a_kernel_must_launch_it(evaluate, ran, text, expected):
    assert evaluate(ran, text=text) == expected


def test_a_process_that_is_timed_is_looked_at_when_it_has_been(evaluate, went_on):
    """A profiler that has been in a process slows down its launches."""
    evaluate({SILU: 5.0})
    found = evaluate({SILU: 5.0}, profiled=None, config=TrialConfig(num_launches=1))
    assert found == ("passed", [], [SILU])
    evaluate({SILU: 5.0}, "torch_function", profiled=None, config=TrialConfig(num_launches=1))
    assert went_on == [False, True, False]


def test_a_screening_looks_at_kernels_where_the_verdict_needs_it_alone(evaluate, went_on):
    assert evaluate({SILU: 5.0}, profiled=None, by="screen") == ("passed", [], [SILU])
    plain = evaluate({TORCH: 5.0}, "torch_function", WITH_NEW, profiled=None, by="screen")
    assert plain == ("passed", [], [])
    assert went_on == [True, False]


def test_for_what_is_no_kernel_a_new_kernel_that_does_not_run_is_only_named(evaluate):
    status, rules, _ = evaluate({TORCH: 5.0}, kind="torch_function", text=WITH_NEW)
    assert (status, rules) == ("passed", ["kernel.unlaunched"])
    assert evaluate({NEW: 5.0}, kind="torch_function", text=WITH_NEW)[2] == [NEW]


def test_for_what_is_no_kernel_those_of_its_file_are_not_the_candidates(evaluate):
    found = evaluate({SILU: 5.0}, kind="torch_function", profiled=None)
    assert found == ("passed", [], [])


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        ({SILU: 5.0}, ("passed", [], [SILU])),
        ({TORCH: 5.0}, ("reward_hack", ["kernel.unlaunched"], [])),
    ],
)
def test_a_candidate_that_changes_the_launch_in_another_file_must_launch_it_too(
    evaluate, ran, expected
):
    assert evaluate(ran, text="import k", path="launch.py") == expected
