"""A candidate that is timed by the process that was examined."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import msgspec
import pytest

from cudal1_ci import score
from cudal1_ci.trial import Session
from cudal1_ci.worker import judge as judge_module
from cudal1_ci.worker import kept as kept_module
from cudal1_ci.worker.cases import Rejected
from cudal1_ci.worker.judge import Judge
from cudal1_ci.worker.known import MOST, Known
from tests.unit.trial.test_session import QUICK, evaluate, problem_of, tensor

pytestmark = pytest.mark.alone

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
    assert evaluation.verdict.status == "passed", evaluation.verdict
    (measurement,) = evaluation.measurements
    assert len(measurement.launches) == len(measurement.control) == 1
    assert score.score(evaluation) > 1.5


def test_what_its_timed_calls_return_is_compared_too(keeping):
    # Examining it takes fewer calls than this, and timing it more: seven batches of several.
    late = ROWS.format(returned="(self.fc(x) - self.mean) * (1 if self.calls < 30 else 0)")
    problem = problem_of(REFERENCE, tensor(32, 16))
    verdict = evaluate(keeping, problem, late).verdict
    assert (verdict.status, verdict.findings[0].rule) == ("incorrect_values", "values.timed")
    assert evaluate(keeping, problem, FAST).verdict.status == "passed"


def test_one_that_fails_elsewhere_is_timed_in_a_new_process(keeping):
    picky = ROWS.format(returned="self.fc(x.view(32, 16)) - self.mean")
    evaluation = evaluate(keeping, problem_of(REFERENCE, tensor(32, 16)), picky)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    rules = [finding.rule for finding in evaluation.verdict.findings]
    assert "shape.specialized" in rules and evaluation.measurements


def a_case(name: str, num_bytes: int):
    """A case that holds so much."""
    fields = dict.fromkeys(("expected", "fewer_rows", "other_state", "oracle"))
    return SimpleNamespace(
        name=name,
        findings=[],
        trials=[],
        init_tensors=[],
        state=[SimpleNamespace(nbytes=num_bytes)],
        source=SimpleNamespace(made=[]),
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


def judge_of(monkeypatch, make_case) -> Judge:
    """One that learns by this function."""
    monkeypatch.setattr(judge_module, "make_case", make_case)
    builds = SimpleNamespace(forget_checkouts=lambda: None)
    template = SimpleNamespace(build_for=lambda *_: None, builds=builds)
    return Judge(1, SimpleNamespace(kind="cpu", memory_bytes=lambda: 2**30), template)


def checked(judge: Judge, name: str, *workloads: str, **settings):
    problem = {"name": name, "workloads": [{"name": one} for one in workloads]}
    usual = {"seed": 0, "memory_bytes": None, "weights": "checkpoint", "precision": "strict"}
    usual["store"] = None
    limits = {"load_s": 1.0, "call_s": 1.0}
    return judge.check(problem=problem, limits=limits, **usual, **settings)


def test_a_problem_that_comes_again_is_known(monkeypatch):
    learned = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        learned.append(problem["name"])
        return a_case(workload["name"], 0)

    judge = judge_of(monkeypatch, make_case)

    def check(name: str, key: str | None):
        reply = checked(judge, name, f"{name}'s", key=key)
        assert reply["status"] == "passed" and list(judge.cases) == [f"{name}'s"]

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
    [(True, ("one",), [True]), (True, ("one", "two"), [False, False]), (False, ("one",), [False])],
)
def test_processes_of_the_only_workload_are_kept_where_that_is_asked_for(
    monkeypatch, keeps, workloads, holds
):
    held = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        held.append(hold is not None)
        return a_case(workload["name"], 0)

    checked(judge_of(monkeypatch, make_case), "a", *workloads, keeps=keeps)
    assert held == holds


def test_what_was_kept_of_a_reference_that_is_refused_ends_at_once(monkeypatch):
    ended = []

    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        stack = ExitStack()
        stack.callback(ended.append, "reference")
        runner = SimpleNamespace(pause=lambda: None, kill=lambda: None)
        monkeypatch.setattr(kept_module, "tensor_bytes", lambda case: 0)
        case = SimpleNamespace(accelerator=SimpleNamespace(memory_bytes=lambda: 2**30))
        hold(case, "reference", runner, stack)
        raise Rejected("degenerate", "reference.constant", "the same for all inputs")

    reply = checked(judge_of(monkeypatch, make_case), "a", "one", keeps=True)
    assert (reply["status"], ended) == ("degenerate", ["reference"])


@pytest.mark.parametrize(("num_launches", "keeps"), [(1, True), (5, False)])
def test_a_session_with_one_launch_asks_for_that(device, monkeypatch, num_launches, keeps):
    asked = []

    def ask(session, request, timeout_s):
        asked.append(request)
        return {"status": "passed", "findings": []}

    monkeypatch.setattr(Session, "_ask_beside", ask)
    config = msgspec.structs.replace(QUICK, num_launches=num_launches)
    with Session(config, device=device) as session:
        session.check(problem_of(REFERENCE, tensor(32, 16)))
    assert [one["keeps"] for one in asked] == [keeps]
