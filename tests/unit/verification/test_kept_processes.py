"""A candidate that is timed by the process that was examined."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from types import SimpleNamespace

import msgspec
import pytest
import torch

from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.sandboxed.timing.reuse_runners import MOST_CASES
from cudal1_ci.sandboxed.timing.runner_groups import Crew
from cudal1_ci.sandboxed.timing.wait_times import Spent
from cudal1_ci.sandboxed.verifier import verifier as judge_module
from cudal1_ci.sandboxed.verifier.cases import Rejected
from cudal1_ci.sandboxed.verifier.reference_cache import MOST, Known
from cudal1_ci.sandboxed.verifier.verifier import Verifier
from cudal1_ci.sandboxed.wire import programs
from cudal1_ci.sandboxed.wire.arguments import Call
from cudal1_ci.sandboxed.wire.verdicts import Verdict
from cudal1_ci.sandboxed.wire.verifier import Check, Limits, Verified
from cudal1_ci.stats import speedups
from cudal1_ci.stats.stopping import FEWEST
from cudal1_ci.verification import Session
from cudal1_ci.verification.device_hold import MOST_AHEAD
from tests.unit.verification.test_session import (
    HEAD,
    QUICK,
    evaluate,
    passes,
    problem_of,
    tensor,
)

pytestmark = pytest.mark.starts_verifier

ROWS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return {returned}
"""
REFERENCE = ROWS.format(returned="torch.stack([self.fc(row) for row in x]) - self.mean")
FAST = ROWS.format(returned="self.fc(x) - self.mean")


@pytest.fixture(scope="module")
def keeping(device):
    config = msgspec.structs.replace(QUICK, num_launches=1, batch_us=20_000)
    with Session(config, device=device) as opened:
        yield opened


@pytest.mark.parametrize("number", [1, 2])
def test_it_has_one_launch_and_the_state_that_it_is_to_begin_with(keeping, number):
    fast = FAST + f"\n# {number}\n"
    evaluation = evaluate(keeping, problem_of(REFERENCE, tensor(32, 16)), fast)
    assert passes(evaluation.verdict), evaluation.verdict
    for measurement in evaluation.measurements:
        assert len(measurement.repetitions) == len(measurement.control) == 1


@pytest.mark.times
def test_its_one_launch_tells_how_fast_it_is(keeping):
    evaluation = evaluate(keeping, problem_of(REFERENCE, tensor(32, 16)), FAST)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    assert speedups.score(evaluation) > 1.5


def test_a_candidate_is_screened_once_and_confirmed_by_fresh_processes(session):
    problem = problem_of(REFERENCE, tensor(32, 16))
    screened = evaluate(session, problem, FAST, "screen")
    session.spent()
    confirmed = evaluate(session, problem, FAST, "confirm")
    assert "examine: load" not in session.spent(), "its examination stands"
    assert passes(screened.verdict) and passes(confirmed.verdict)
    assert (screened.phase, confirmed.phase) == ("screened", "confirmed")
    for one in screened.measurements:
        assert (len(one.repetitions), one.prior_spread) == (1, None)
    for one in confirmed.measurements:
        assert len(one.repetitions) >= FEWEST and one.prior_spread is not None


def test_processes_of_a_confirmation_start_before_the_device_is_held(session, monkeypatch):
    monkeypatch.setitem(MOST_AHEAD, "cpu", 2)
    problem = problem_of(REFERENCE, tensor(32, 16))
    for text in (FAST, FAST + "# 1\n", FAST.replace("self.fc(x) -", "1 + self.fc(x) - 1 -")):
        confirmed = evaluate(session, problem, text, "confirm")
        spent = session.spent()
        assert passes(confirmed.verdict), confirmed.verdict
        num_pairs, loaded = spent["ask start_ahead"][0], spent["start_ahead: load"][0]
        assert loaded == 6 * num_pairs, "two repetitions of three processes"
        # What chooses the length of a batch is the reference alone, once.
        assert spent.get("repeat: load", [0])[0] <= 1
    wrong = evaluate(session, problem, FAST.replace("self.mean\n", "2 * self.mean\n"), "confirm")
    assert wrong.verdict.status == "incorrect_values"


def test_one_that_cannot_be_started_ahead_is_judged_by_its_repetition(session, monkeypatch):
    monkeypatch.setitem(MOST_AHEAD, "cpu", 2)
    problem = problem_of(REFERENCE, tensor(32, 16))
    once = """
import os, pathlib
marks = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
marks.mkdir(parents=True, exist_ok=True)
(marks / str(len(list(marks.iterdir())))).touch()
if len(list(marks.iterdir())) > 2:
    raise ImportError("not again")
"""
    evaluation = evaluate(session, problem, once + FAST, "confirm")
    assert (evaluation.verdict.status, evaluation.measurements) == ("compile_error", ())
    assert "not again" in evaluation.verdict.findings[0].message
    assert session.spent()["ask start_ahead"][0] == 1, "it passed its examination"


def test_what_has_the_statements_of_its_reference_is_not_timed(session):
    evaluation = evaluate(
        session, problem_of(REFERENCE, tensor(32, 16)), REFERENCE + "# a\n", "screen"
    )
    assert (evaluation.verdict.status, evaluation.measurements) == ("passed", ())
    assert "timing.same_program" in {one.rule for one in evaluation.verdict.findings}


def test_what_its_timed_calls_return_is_compared_too(keeping):
    # Examining it takes fewer calls than this, and timing it more: seven batches of several.
    late = ROWS.format(returned="(self.fc(x) - self.mean) * (1 if self.calls < 30 else 0)")
    problem = problem_of(REFERENCE, tensor(32, 16))
    verdict = evaluate(keeping, problem, late).verdict
    assert (verdict.status, verdict.findings[0].rule) == ("incorrect_values", "values.timed")
    assert passes(evaluate(keeping, problem, FAST).verdict)


def test_one_that_fails_elsewhere_is_timed_in_a_new_process(keeping):
    picky = ROWS.format(returned="self.fc(x.view(32, 16)) - self.mean")
    evaluation = evaluate(keeping, problem_of(REFERENCE, tensor(32, 16)), picky)
    verdict = evaluation.verdict
    assert passes(verdict), verdict
    if verdict.status == "passed":
        assert "shape.specialized" in {one.rule for one in verdict.findings}
        assert evaluation.measurements


SMALL = """
class Model(nn.Module):
    def forward(self, x):
        for _ in range(20):
            x = torch.relu(x) + 1
        return x
"""
UNUSED_KERNEL = """
import triton
import triton.language as tl

@triton.jit
def nothing(x, BLOCK: tl.constexpr):
    pass
"""


@pytest.mark.gpu
def test_a_program_with_kernels_is_timed_where_no_profiler_has_been():
    config = msgspec.structs.replace(QUICK, num_launches=1, batch_us=20_000)
    with Session(config, device="cuda") as opened:
        problem = problem_of(SMALL, tensor(32, 16))
        plain = evaluate(opened, problem, SMALL + "\n# the same\n")
        with_kernel = evaluate(opened, problem, UNUSED_KERNEL + SMALL)
    assert with_kernel.kernels, "they were looked at"
    for evaluation in (plain, with_kernel):
        assert 0.9 < speedups.estimate(evaluation) < 1.1


def test_a_process_waits_for_the_next_candidate_where_it_needs_a_context(keeping, device):
    problem = problem_of(REFERENCE, tensor(32, 16))
    keeping.check(problem)
    statuses, asked = [], []
    for number in range(3):
        wrong = " * 2" if number == 1 else ""
        text = ROWS.format(returned=f"self.fc(x){wrong} - self.mean") + f"\n# waits {number}\n"
        program = TextProgram(source=HEAD + text, entry="Model")
        candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
        statuses.append(keeping.examine(problem, candidate).status)
        asked.append(keeping.spent_on_runners)
    assert statuses == ["passed", "incorrect_values", "passed"]
    # Each is loaded by one process, and one is begun meanwhile. The first wrong answer takes two
    # more: they learn whether the reference's signs are free, and what rounding decides.
    assert [one["fork"][0] for one in asked] == [1, 3, 1]
    assert ["wake" in one for one in asked] == [device == "cuda"] * 3


class Tensor:
    """So large, and on a device or in the host's memory."""

    def __init__(self, nbytes: int, place: str = "gpu") -> None:
        self.nbytes, self.place = nbytes, place

    @property
    def is_cuda(self) -> bool:
        return self.place != "host"

    @property
    def device(self) -> str:
        return self.place

    @property
    def data(self) -> Tensor:
        return self

    @data.setter
    def data(self, other: Tensor) -> None:
        self.place = other.place

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def cpu(self) -> Tensor:
        return Tensor(self.nbytes, "host")

    def to(self, place: str) -> Tensor:
        return Tensor(self.nbytes, place)


def a_case(name: str, num_bytes: int):
    """A case that holds so much."""
    fields = dict.fromkeys(("expected", "fewer_rows", "other_state", "contract"))
    return SimpleNamespace(
        name=name,
        findings=[],
        trials=[],
        oracle=[],
        lost={},
        tolerances=[],
        init_tensors=[],
        state=[Tensor(num_bytes)],
        source=SimpleNamespace(made=[], pool=None),
        remembers=False,
        changes_environment=False,
        **fields,
    )


def test_what_is_known_takes_an_eighth_of_the_memory_and_the_last_one_is_kept_anyway():
    known = Known()
    for name in ("a", "b", "c"):
        known.keep(name, ({"w": a_case(name, 60)}, []), 1000)
    assert [known.find(name) is not None for name in ("a", "b", "c")] == [False, True, True]
    known.find("b")
    known.keep("large", ({"w": a_case("large", 900)}, []), 1000)
    assert list(known.learned) == ["large"]


def places_of(known: Known) -> dict[str, str]:
    return {key: cases["w"].state[0].place for key, (cases, _) in known.learned.items()}


def test_what_the_device_has_no_room_for_is_put_aside_and_comes_back_when_it_is_asked_for():
    known = Known()
    for name in ("a", "b", "c"):
        known.keep(name, ({"w": a_case(name, 60)}, []), 1000, 8 * 100)
    assert places_of(known) == {"a": "host", "b": "gpu", "c": "gpu"}
    found, _ = known.find("a")
    assert found["w"].name == "a"
    assert places_of(known) == {"b": "host", "c": "gpu", "a": "gpu"}
    known.keep("d", ({"w": a_case("d", 60)}, []), 1000, 8 * 100)
    assert places_of(known) == {"c": "host", "a": "gpu", "d": "gpu"}, "c has b's place"
    known.keep("large", ({"w": a_case("large", 900)}, []), 1000, 8 * 120)
    assert places_of(known) == {"a": "host", "d": "host", "large": "gpu"}
    known.clear()
    assert known.find("d") is None and not known.aside


def test_what_is_sooner_learned_again_than_copied_is_forgotten_and_the_others_stay():
    known, size = Known(), 6 * 10**9
    for name, took_s in (("slow", 10.0), ("quick", 1.0), ("at hand", 10.0)):
        known.keep(name, ({"w": a_case(name, size)}, []), 8 * size, 8 * 2 * size, took_s)
    assert places_of(known) == {"slow": "host", "at hand": "gpu"}
    assert known.find("quick") is None


def test_what_there_is_no_room_for_aside_pushes_nobody_out():
    known = Known()
    for name, size in (("small", 60), ("large", 900), ("at hand", 60)):
        known.keep(name, ({"w": a_case(name, size)}, []), 8 * 70, 8 * 100)
    assert places_of(known) == {"small": "host", "at hand": "gpu"}


def test_tensors_that_were_in_the_hosts_memory_stay_there():
    known = Known()
    for name in ("a", "b"):
        case = a_case(name, 60)
        case.state.append(Tensor(60, "host"))
        known.keep(name, ({"w": case}, []), 8 * 100, 8 * 200)
    assert places_of(known) == {"a": "host", "b": "gpu"}
    known.find("a")
    cases, _ = known.learned["a"]
    assert [one.place for one in cases["w"].state] == ["gpu", "host"]


def test_what_lies_in_the_hosts_memory_takes_no_room_of_the_device():
    known = Known()

    def keep(name: str, far: int) -> None:
        case = a_case(name, 40)
        case.state.append(Tensor(far, "host"))
        free = 8 * 1000 - known.num_far(known.learned) - far
        known.keep(name, ({"w": case}, []), 8 * 100, free)

    keep("a", 0)
    keep("large", 2000)
    assert places_of(known) == {"a": "gpu", "large": "gpu"}, "the last one stays in any case"
    keep("b", 600)
    assert places_of(known) == {"a": "gpu", "b": "gpu"}, "the host has no room for it"
    keep("c", 600)
    assert places_of(known) == {"a": "host", "b": "gpu", "c": "gpu"}
    keep("d", 0)
    assert places_of(known) == {"c": "gpu", "d": "gpu"}, "b and c are too much for the host"


def test_on_a_processor_what_is_known_is_bounded_by_both_shares_of_its_memory():
    known = Known(has_gpu=False)
    for name in "abcd":
        case = a_case(name, 0)
        case.state = [Tensor(60, "host")]
        known.keep(name, ({"w": case}, []), 8 * 100, 8 * 100 - known.num_far(known.learned))
    assert list(known.learned) == ["c", "d"] and list(known.aside) == ["c"]


@pytest.mark.gpu
def test_a_tensor_that_was_put_aside_is_what_it_was():
    known, values = Known(), torch.arange(15.0, device="cuda")
    case = a_case("a", 0)
    case.state = [values.view(3, 5).t(), values[::2]]
    for name, one in (("a", case), ("b", a_case("b", 900))):
        known.keep(name, ({"w": one}, []), 1000, 8 * 1000)
    assert [one.device.type for one in case.state] == ["cpu", "cuda"], "the second has gaps"
    known.find("a")
    assert all(one.is_cuda for one in case.state)
    assert [one.stride() for one in case.state] == [(1, 5), (2,)]
    assert case.state[0].tolist() == values.view(3, 5).t().tolist()


def judge_of(monkeypatch, make_case) -> Verifier:
    """One that learns by this function."""
    monkeypatch.setattr(judge_module, "make_case", make_case)
    builds = SimpleNamespace(forget_checkouts=lambda: None)
    template = SimpleNamespace(
        build_for=lambda *_: None, builds=builds, awake_s=time.monotonic, spent=Spent()
    )
    return Verifier(1, SimpleNamespace(kind="cpu", memory_bytes=lambda: 2**30), template)


def checked(judge: Verifier, name: str, *workloads: str, **settings):
    call = Call()
    problem = programs.Problem(
        reference=programs.TextProgram(source=name, entry="Model"),
        workloads=tuple(programs.Workload(name=one, call=call) for one in workloads),
    )
    usual = {"seed": 0, "memory_bytes": None, "weights": "checkpoint", "precision": "strict"}
    usual["store"] = usual["share_bytes"] = None
    request = Check(problem=problem, limits=Limits(1.0, 1.0), **usual, **settings)
    return judge.check(request).verdict


def test_what_served_the_last_problem_ends_before_another_one_is_learned(monkeypatch):
    ended = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        assert ended == [problem.reference.source], "before"
        assert not judge.kept.references
        return a_case(workload.name, 0)

    judge = judge_of(monkeypatch, make_case)
    for name in ("a", "b"):
        crew = Crew()
        crew.stack.callback(ended.append, name)
        judge.kept.references["last"] = (a_case("last", 0), crew)
        assert checked(judge, name, "w", key=name).status == "passed"
        ended.clear()
    judge.kept.references["w"] = served = (judge.cases["w"], Crew())
    assert checked(judge, "b", "w", key="b").status == "passed"
    assert judge.kept.references["w"] is served, "a problem that is known goes on with its own"


def test_references_of_a_few_workloads_are_kept_and_the_last_used_stay(monkeypatch):
    ended = []
    kept = judge_of(monkeypatch, None).kept
    most = MOST_CASES["cpu"]

    def keep(name: str):
        case = a_case(name, 0)
        case.accelerator = SimpleNamespace(kind="cpu", memory_bytes=lambda: 2**30)
        stack = ExitStack()
        stack.callback(ended.append, name)
        runner = SimpleNamespace(
            pause=lambda: None, kill=lambda: None, let_go=lambda names, most_bytes, timeout_s: None
        )
        kept.keep(case, "reference", runner, stack)
        return case

    first, *_ = [keep(str(number)) for number in range(most)]
    monkeypatch.setattr(first, "state_slots", (), raising=False)
    lent = kept.take(first, {"reference": None}, None, 1, random.Random(0))
    assert list(lent.runners) == ["reference"]
    keep("another")
    assert (ended, list(kept.references)[-2:]) == (["1"], ["0", "another"])
    keep("another")
    assert ended == ["1", "another"], "of an earlier problem with a workload of that name"
    kept.close()
    assert sorted(ended) == sorted(["1", "another", *map(str, {0, *range(2, most)}), "another"])


def test_a_problem_that_comes_again_is_known(monkeypatch):
    learned = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        learned.append(problem.reference.source)
        return a_case(workload.name, 0)

    judge = judge_of(monkeypatch, make_case)

    def check(name: str, key: str | None):
        reply = checked(judge, name, f"{name}'s", key=key)
        assert reply.status == "passed" and list(judge.cases) == [f"{name}'s"]

    for name in ("a", "b", "a", "b"):
        check(name, name)
    assert learned == ["a", "b"]
    check("a", None)
    assert learned == ["a", "b", "a"]
    for number in range(MOST - 1):
        check(str(number), str(number))
    learned.clear()
    check("b", "b")  # the one that was asked for last, of the first two
    check("a", "a")
    assert learned == ["a"]


@pytest.mark.parametrize(
    ("keeps", "workloads", "holds"),
    [
        (True, ("one",), [True]),
        (True, ("one", "two"), [True, True]),
        (True, tuple("abcde"), [False] * 5),
        (False, ("one",), [False]),
    ],
)
def test_processes_of_a_few_workloads_are_kept_where_that_is_asked_for(
    monkeypatch, keeps, workloads, holds
):
    held = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        held.append(hold is not None)
        return a_case(workload.name, 0)

    checked(judge_of(monkeypatch, make_case), "a", *workloads, keeps=keeps)
    assert held == holds


def test_what_was_kept_of_a_reference_that_is_refused_ends_at_once(monkeypatch):
    ended = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        stack = ExitStack()
        stack.callback(ended.append, "reference")
        runner = SimpleNamespace(
            pause=lambda: None, kill=lambda: None, let_go=lambda names, most_bytes, timeout_s: None
        )
        accelerator = SimpleNamespace(kind="cpu", memory_bytes=lambda: 2**30)
        case = SimpleNamespace(name="one", accelerator=accelerator)
        hold(case, "reference", runner, stack)
        raise Rejected("degenerate", "reference.constant", "the same for all inputs")

    reply = checked(judge_of(monkeypatch, make_case), "a", "one", keeps=True)
    assert (reply.status, ended) == ("degenerate", ["reference"])


@pytest.mark.parametrize(("num_launches", "keeps"), [(1, True), (5, False), (None, True)])
def test_a_session_that_screens_or_has_one_launch_asks_for_that(
    device, monkeypatch, num_launches, keeps
):
    asked = []

    def ask(session, request, timeout_s):
        asked.append(request)
        return Verified(verdict=Verdict(status="passed"))

    monkeypatch.setattr(Session, "_ask_beside", ask)
    config = msgspec.structs.replace(QUICK, num_launches=num_launches)
    with Session(config, device=device) as session:
        session.check(problem_of(REFERENCE, tensor(32, 16)))
    assert [one.keeps for one in asked] == [keeps]
