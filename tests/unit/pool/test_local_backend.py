"""Slots of this machine, with a stand-in for the verifier, and once with a real one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ci.errors import ConfigError, UnsupportedError, WorkerError
from cudal1_ci.pool import LocalBackend, Pool, SessionConfig, SlotLost
from cudal1_ci.records import (
    Call,
    Candidate,
    Device,
    Finding,
    Problem,
    TensorSpec,
    TextProgram,
    Verdict,
    Workload,
)
from cudal1_ci.records.run_status import Ending
from cudal1_ci.sandboxed.wire import verdicts
from cudal1_ci.sandboxed.wire.verifier import Verified
from cudal1_ci.verification import Session, TrialConfig
from tests.fakes import FakeSession, a_candidate, a_problem

REFERENCE = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + {offset}
"""
PASSED = Verified(verdict=verdicts.Verdict(status="passed"))


class Closable(FakeSession):
    num_closed = 0

    def __exit__(self, *_):
        self.num_closed += 1

    def build_ahead(self, problem, candidates):
        raise WorkerError("no worker")


@pytest.fixture
def session(monkeypatch):
    found = Closable({"fast": ("passed", 2.0), "wrong": ("incorrect_values", 1.0)})
    monkeypatch.setattr(SessionConfig, "session", lambda self, device, num_sharing: found)
    return found


def test_slots_of_one_device_know_how_many_share_it(monkeypatch):
    given = []
    monkeypatch.setattr(
        SessionConfig, "session", lambda self, *words: given.append(words) or Closable({})
    )
    backend = LocalBackend(SessionConfig(), ("cuda:0", "cuda:0", "cuda:1"))
    names = [backend.open(number, lambda: False).name for number in range(backend.num_slots)]
    assert names == ["cuda:0 #0", "cuda:0 #1", "cuda:1 #2"]
    assert given == [("cuda:0", 2), ("cuda:0", 2), ("cuda:1", 1)]


@pytest.mark.parametrize(
    ("num_sharing", "configured", "total", "expected"),
    [
        (1, None, 100, (None, None)),  # what is free
        (3, None, 150, (None, 40)),
        (3, 7, 150, (7, None)),
        (3, None, None, (None, None)),  # a GPU that does not say
    ],
)
def test_sessions_of_one_gpu_share_its_memory(num_sharing, configured, total, expected):
    asked = []

    def ask(request, timeout_s):
        asked.append(request)
        return PASSED

    config = SessionConfig(trial=TrialConfig(memory_bytes=configured))
    with config.session("cuda:0", num_sharing) as session:
        session._device = Device(kind="cuda", name="none", num_threads=1)
        session._uuid, session._gpu = "GPU-0", SimpleNamespace(memory_bytes=total)
        session._ask = ask
        assert session.check(a_problem()).status == "passed"
    assert [(one.memory_bytes, one.share_bytes) for one in asked] == [expected]


@pytest.mark.parametrize("num_launches", [1, None])
def test_what_a_slot_judged_is_not_kept_for_later(num_launches):
    asked = []

    def ask(request, timeout_s):
        asked.append(request)
        return PASSED

    config = SessionConfig(trial=TrialConfig(num_launches=num_launches))
    for session in (config.session("cpu"), Session(config.trial, device="cpu")):
        with session:
            session._device = Device(kind="cpu", name="none", num_threads=1)
            session._ask = ask
            session.check(a_problem())
    known = a_problem().id if num_launches == 1 else None
    assert [one.key for one in asked] == [None, known]


EXHAUSTED = "OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."
OWN_FAULT, NOBODYS = ("runtime_error", "memory.exhausted"), ("inconclusive", "memory.device")


@pytest.mark.parametrize(
    ("num_sharing", "num_others", "status", "rule", "message", "expected"),
    [
        (1, 0, *OWN_FAULT, EXHAUSTED, OWN_FAULT),
        (3, 0, *OWN_FAULT, EXHAUSTED, NOBODYS),
        (1, 2, *OWN_FAULT, EXHAUSTED, NOBODYS),
        (3, 2, "invalid_reference", "reference.raised", EXHAUSTED, NOBODYS),
        (3, 0, *OWN_FAULT, "AcceleratorError: CUDA error: out of memory\nSearch", NOBODYS),
        (3, 0, *OWN_FAULT, "RuntimeError: Triton Error [CUDA]: out of memory", NOBODYS),
        (3, 0, *OWN_FAULT, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED", NOBODYS),
        (3, 2, *OWN_FAULT, "RuntimeError: [enforce fail] out of memory", OWN_FAULT),
        (3, 2, "runtime_error", "program.raised", "ValueError: no", None),
    ],
)
def test_the_memory_of_a_gpu_that_others_share_is_nobodys_fault(
    num_sharing, num_others, status, rule, message, expected
):
    expected = expected or (status, rule)
    finding = verdicts.Finding(rule=rule, message=message)
    reply = Verified(verdict=verdicts.Verdict(status=status, findings=(finding,)))
    problem = a_problem()
    with SessionConfig().session("cuda:0", num_sharing) as session:
        session._device = Device(kind="cuda", name="none", num_threads=1)
        session._uuid, session._gpu = (
            "GPU-0",
            SimpleNamespace(memory_bytes=None, num_others=lambda: num_others),
        )
        session._ask = lambda request, timeout_s: reply
        checked = session.check(problem)
        assert (checked.status, checked.findings[0].rule) == expected
        session._reference = Verdict(status="passed")
        examined = session.examine(problem, a_candidate(problem, "fast"))
    assert (examined.status, examined.findings[0].rule) == expected
    assert message in examined.findings[0].message


def test_nor_is_it_while_a_candidate_is_timed(monkeypatch):
    finding = Finding(rule="memory.exhausted", message=EXHAUSTED)
    monkeypatch.setattr(
        "cudal1_ci.verification.session.measure",
        lambda *_, goes_on: Verdict(status="runtime_error", findings=(finding,)),
    )
    with SessionConfig().session("cuda:0", 3) as session:
        session._device = Device(kind="cuda", name="none", num_threads=1)
        session._uuid, session._gpu = "GPU-0", SimpleNamespace(memory_bytes=None)
        session._ask = lambda request, timeout_s: PASSED
        problem = a_problem()
        found = session.evaluate(problem, a_candidate(problem, "fast"))
    assert (found.verdict.status, found.measurements) == ("inconclusive", ())


@pytest.mark.parametrize(
    ("error", "meaning"),
    [(WorkerError("no torch"), SlotLost), (UnsupportedError("no GPU"), UnsupportedError)],
)
def test_a_verifier_that_does_not_start_leaves_nothing_behind(session, monkeypatch, error, meaning):
    def device():
        raise error

    monkeypatch.setattr(session, "device", device)
    with pytest.raises(meaning):
        LocalBackend(SessionConfig()).open(0, lambda: False)
    assert session.num_closed == 1


def test_there_is_no_backend_without_a_device():
    with pytest.raises(ConfigError, match="expected one or more"):
        LocalBackend(SessionConfig(), ())


@pytest.mark.starts_verifier
def test_a_real_verifier_in_a_thread():
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(TensorSpec(shape=(8, 8), dtype="float32"),)),
    )
    source = REFERENCE.format(offset=1)
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    wrong = Candidate(
        problem_id=problem.id,
        program=TextProgram(source=REFERENCE.format(offset=2), entry="Model"),
        proposer="test",
    )
    config = SessionConfig(trial=TrialConfig(measure_s=0.1))
    with Pool(LocalBackend(config, ("cpu",)), notice=print) as pool:
        (found,) = pool.map(
            [wrong],
            lambda candidate, verifier: verifier.evaluate(problem, candidate),
            is_over=lambda: False,
            run_status=Ending(),
        )
    assert found.result.verdict.status == "incorrect_values"
