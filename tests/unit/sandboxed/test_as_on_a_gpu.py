"""A launch by the way of a GPU, whose inputs are written after the clock has started and whose
outputs are copied, with a processor in its place."""

from __future__ import annotations

import random
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.forkserver.handles import RunnerHandle
from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.timing import (
    batch_length,
    chained,
    clock,
    nearby,
    round_times,
    rounds,
    timed_checks,
    timed_rounds,
)
from cudal1_ci.sandboxed.timing import reuse_runners as kept_module
from cudal1_ci.sandboxed.timing.batch_length import ClockConfig, timed_slots
from cudal1_ci.sandboxed.timing.clock import launch
from cudal1_ci.sandboxed.timing.reuse_runners import Kept
from cudal1_ci.sandboxed.verifier.cases import Limits, Rejected
from cudal1_ci.sandboxed.verifier.correctness import examine
from cudal1_ci.sandboxed.verifier.memory_plan import Plan
from cudal1_ci.sandboxed.verifier.reference import make_case
from cudal1_ci.sandboxed.wire.runner import AskCached, CachedBytes
from cudal1_ci.verification.crossing import problem_on_wire
from tests.unit.verification.test_session import HEAD, problem_of, tensor

LIMITS = Limits(60.0, 30.0)
CONFIG = ClockConfig(batch_us=1.0, max_calls=8, num_rounds=3, repetition_s=60.0, memory_bytes=2**30)
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x):
        y = self.fc(x)
        return {returned}
"""
OF_ALL_KINDS = "y, y.argmax(-1), y.mean(), y > 0, torch.fft.fft(y), y[:0], {'z': y.double().sum(0)}"
CONSTANT = MODEL.replace(
    "y = self.fc(x)",
    """self.calls = getattr(self, 'calls', 0) + 1
        y = self.fc(x if self.calls < 30 else torch.ones_like(x))""",
)


MODES = ("train", pytest.param("infer", marks=pytest.mark.slow))
"""Training calls forward as inference does, and then backward."""


class Elsewhere(Cpu):
    """What the judge does not take for the processor that its runners are on."""

    kind = "elsewhere"
    spin_s = 0.001

    def __init__(self) -> None:
        super().__init__()
        self.num_flushed = 0

    def flush(self) -> None:
        self.num_flushed += 1


@pytest.fixture
def timed(template, monkeypatch):
    """What a launch says of a text that was examined, by processes that are kept. Its times
    accuse no program: a batch of eight calls is short beside an exchange on a busy processor."""
    monkeypatch.setitem(round_times.RECONCILIATION, Elsewhere.kind, (1.0, 1e6))
    monkeypatch.setattr(chained, "SLACK_US", 1e6)
    monkeypatch.setitem(kept_module.MOST_CASES, Elsewhere.kind, 1)
    kept = Kept(template)

    def launched(mode: str, reference: str, text: str, between=None, num_calls=8, kind=Elsewhere):
        accelerator = kind()
        given = tensor(32, 16, requires_grad=mode == "train")
        problem = problem_on_wire(problem_of(reference, given, mode=mode))
        (workload,) = problem.workloads
        case = make_case(template, accelerator, problem, workload, LIMITS, 0, hold=kept.keep)
        program = replace(problem.reference, source=HEAD + text)
        found = examine(case, template, program, LIMITS, profiles=True, hold=kept.hold)
        slots = timed_slots(case, found.call)

        def again():
            rng = random.Random(0)
            found = launch(case, kept, program, slots, LIMITS, CONFIG, rng, num_calls=num_calls)
            assert found[1] is None, "no clock contradicts another one"
            return found[0]

        said = again()
        if between is not None:
            between(kept)
            said = again()
        return said, accelerator

    yield launched
    kept.dismiss()
    kept.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("returned", ["y.relu()", OF_ALL_KINDS], ids=["one", "all kinds"])
def test_a_program_has_its_times(timed, mode, returned):
    text = MODEL.format(returned=returned)
    said, accelerator = timed(mode, text, text + "\n")
    assert len(said.candidate_us) == len(said.reference_us) == CONFIG.num_rounds
    assert accelerator.num_flushed > 3 * CONFIG.num_rounds


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("share", "cached"), [(2**40, 0), (16, 0), (16, 2**40)])
def test_references_let_memory_go_between_launches_and_take_it_again(
    timed, mode, share, cached, monkeypatch
):
    """Beside inputs and outputs, and those that were outgrown, it has been lent its state. A little
    that was lent stays, unless much was cached of what a call needs."""
    ask = RunnerHandle.ask

    def asked(runner, request, timeout_s):
        if isinstance(request, AskCached):
            return CachedBytes(num_bytes=cached)
        return ask(runner, request, timeout_s)

    monkeypatch.setattr(RunnerHandle, "ask", asked)

    def shared(runner) -> int:
        maps = Path(f"/proc/{runner.process.group}/maps").read_text()
        return len({line.split()[4] for line in maps.splitlines() if "memfd:segment" in line})

    def between(kept):
        ((_, crew),) = kept.references.values()
        references = list(crew.runners.values())
        before = [shared(one) for one in references]
        assert len(before) == 2 and min(before) >= 3
        monkeypatch.setattr(kept_module, "KEPT_SHARE", share)
        kept.let_go(Elsewhere())
        now = [shared(one) for one in references]
        if share == 16 and not cached:
            assert now == before
        else:
            assert [set(one.segments) for one in references] == [{"state"}] * 2
            assert now == [1 + len(one.outgrown.get("state", ())) for one in references]

    text = MODEL.format(returned="y.relu()")
    said, _ = timed(mode, text, text + "\n", between)
    assert len(said.reference_us) == CONFIG.num_rounds


def test_a_reference_that_cannot_let_go_is_kept_no_longer(timed, monkeypatch):
    def between(kept):
        monkeypatch.setattr(kept_module, "KEPT_SHARE", 2**40)
        ((_, crew),) = kept.references.values()
        before = dict(crew.runners)
        before["control"].kill()
        kept.let_go(Elsewhere())
        assert not kept.references
        assert all(runner.ended for runner in before.values())

    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n", between)
    assert len(said.control_us) == CONFIG.num_rounds


def test_a_launch_ends_when_every_round_says_the_same(timed, monkeypatch):
    """What does: test_plain_launches.py."""
    looked = []

    def is_plain(lanes, cost_us, config):
        looked.append([len(lane.spans_us) for lane in lanes.values()])
        return len(looked) == 4

    monkeypatch.setattr(rounds, "is_plain", is_plain)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, num_rounds=6))
    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n")
    assert len(said.candidate_us) == len(said.control_us) == 4
    assert looked == [[number] * 3 for number in range(1, 5)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("batch_us", "is_short"), [(1.0, False), (1e7, True)])
def test_where_batches_are_too_short_there_are_more_and_calls_come_before_each(
    timed, monkeypatch, mode, batch_us, is_short
):
    """On what was there before: the values of the batch are written after it."""
    steps = {}
    send, write = RunnerHandle.send, timed_rounds.Round.write

    def sent(runner, request, *rest):
        steps.setdefault(id(runner.segments.get("inputs")), []).append(
            "rehearse" if getattr(request, "num_calls", 0) and request.spin_s else request.op
        )
        return send(runner, request, *rest)

    def written(one, segment):
        steps.setdefault(id(segment), []).append("write")
        write(one, segment)

    monkeypatch.setattr(RunnerHandle, "send", sent)
    monkeypatch.setattr(timed_rounds.Round, "write", written)
    monkeypatch.setattr(chained, "NUM_CHAINS", 0)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, batch_us=batch_us))
    text = MODEL.format(returned="y.relu()")
    said, _ = timed(mode, text, text + "\n")
    num_rounds = CONFIG.num_rounds * (rounds.MORE_ROUNDS if is_short else 1)
    assert len(said.candidate_us) == len(said.control_us) == num_rounds
    rehearsed = [some for some in steps.values() if "rehearse" in some]
    assert len(rehearsed) == 3
    for some in rehearsed:
        assert some.count("rehearse") >= num_rounds
        for number, step in enumerate(some):
            if step == "rehearse":
                assert some[number : number + 3] == ["rehearse", "write", "batch"]


@pytest.mark.parametrize("kind", [Elsewhere, Cpu])
def test_no_call_is_made_on_what_was_never_given(timed, monkeypatch, kind):
    """A round fills one place of each set of inputs. The call that comes before a batch is on one
    that the round before has filled: a program may refuse zeros, as one of probabilities does. So
    are those that come ahead of an exchange and in chained batches, which are made here in any
    case."""
    monkeypatch.setattr(chained, "LEAST_GAIN", -10.0)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, batch_us=1e7))
    text = MODEL.replace("y =", "assert bool((x != 0).any())\n        y =").format(returned="y")
    said, _ = timed("infer", text, text + "\n", kind=kind)
    more = rounds.MORE_ROUNDS if kind is Elsewhere else 1
    assert len(said.candidate_us) == CONFIG.num_rounds * more


@pytest.mark.parametrize(("num_calls", "found"), [(None, 5), (8, 3)])
def test_a_batch_holds_what_the_device_has_room_for_now(timed, monkeypatch, num_calls, found):
    """Two launches: the first of a candidate each, or of one after the other. The reference is
    looked at under the first plan, which has room for fewer calls than are wanted."""
    plans = []

    def plan_of(case, config):
        plans.append(case.plan)
        return Plan(most_calls=3 if len(plans) == 1 else 5, num_places=2, num_lanes=3)

    monkeypatch.setattr(clock, "plan_of", plan_of)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, batch_us=1e6))
    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n", lambda kept: None, num_calls)
    assert said.num_calls == found


def test_a_batch_is_planned_anew_when_it_is_known_how_many_calls_are_wanted(timed, monkeypatch):
    known = []

    def plan_of(case, config):
        known.append(case.num_calls)
        return Plan(most_calls=2, num_places=2, num_lanes=3)

    monkeypatch.setattr(clock, "plan_of", plan_of)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, batch_us=1e6))
    text = MODEL.format(returned="y.relu()")
    timed("infer", text, text + "\n", num_calls=None)
    assert known == [None, CONFIG.max_calls]


@pytest.mark.parametrize(
    ("most_error", "steady_after", "expected"),
    [(0.03, 5, 5), (0.03, 99, 12), (0.03, 0, 3), (None, 99, 3)],
)
def test_a_launch_has_more_rounds_until_they_agree(
    timed, monkeypatch, most_error, steady_after, expected
):
    def is_steady(lanes, cost_us, config):
        return most_error is None or len(lanes["candidate"].spans_us) >= steady_after

    monkeypatch.setattr(rounds, "is_steady", is_steady)
    monkeypatch.setattr(f"{__name__}.CONFIG", replace(CONFIG, most_error=most_error))
    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n")
    assert len(said.candidate_us) == len(said.control_us) == expected


def test_close_and_spoiled_rounds_come_early_and_after_the_last(timed, monkeypatch):
    """Who keeps answers by less than all of an input from some call on is wrong in the former, and
    who computes where outputs are taken in the latter."""
    follows, new_round = [], timed_rounds.new_round

    def recorded(case, room, stock, rng, last=None):
        follows.append(last is not None)
        return new_round(case, room, stock, rng, last)

    for module in (batch_length, rounds):
        monkeypatch.setattr(module, "new_round", recorded)
    monkeypatch.setattr(rounds, "EARLY_ROUNDS", 1)
    monkeypatch.setattr(rounds, "CLOSE_SHARE", 0.0)
    monkeypatch.setattr(rounds, "SPOILED_SHARE", 0.0)
    monkeypatch.setattr(chained, "NUM_CHAINS", 0)
    text = MODEL.format(returned="y")
    timed("infer", text, text + "\n")
    wanted = [False, True, False, False, False, True, False]
    assert follows[-len(wanted) - 1 :] == [*wanted, False], "then what an exchange costs"


@pytest.mark.parametrize("kind", [Elsewhere, Cpu])
def test_inputs_are_gone_before_outputs_are_taken_and_there_after(timed, monkeypatch, kind):
    steps, send = [], RunnerHandle.send

    def sent(runner, request, *rest):
        if request.op in ("batch", "deliver") and (inputs := runner.segments.get("inputs")):
            steps.append((request.op, bool(inputs.flat().any())))
        return send(runner, request, *rest)

    monkeypatch.setattr(RunnerHandle, "send", sent)
    text = MODEL.format(returned="y")
    timed("infer", text, text + "\n", kind=kind)
    assert {op for op, are_there in steps if not are_there} == {"deliver"}


@pytest.mark.parametrize("explains", [True, False])
def test_a_round_that_is_off_is_made_again_nearby_by_both(timed, monkeypatch, explains):
    """They stay in step: running statistics are compared after it."""
    played, left, off = [], [True], SimpleNamespace(got=torch.zeros(1))

    def strays_of(got, expected, budget):
        return off if left and left.pop() else None

    def are_jumps(strays, nearby, values):
        assert strays == {0: off}
        for _ in range(3):
            nearby(1)
            assert values(0).shape[0] == 8
        return explains

    def nearby_round(one, stock):
        found = timed_rounds.nearby_round(one, stock)
        assert found.where == one.where and found.seed == one.seed
        assert not torch.equal(found.staged, one.staged)
        played.append(one)
        return found

    is_close = timed_checks.is_close
    monkeypatch.setattr(
        timed_checks, "is_close", lambda *values: is_close(*values) and not (left and values)
    )
    monkeypatch.setattr(timed_checks, "strays_of", strays_of)
    monkeypatch.setattr(timed_checks, "are_jumps", are_jumps)
    monkeypatch.setattr(nearby, "nearby_round", nearby_round)
    text = MODEL.format(returned="self.norm(y)").replace(
        "self.fc = nn.Linear(16, 8)", "self.fc, self.norm = nn.Linear(16, 8), nn.BatchNorm1d(8)"
    )
    if explains:
        said, _ = timed("train", text, text + "\n", num_calls=8)
        assert len(said.candidate_us) == CONFIG.num_rounds
    else:
        with pytest.raises(Rejected, match="off by 0, while separate trials were right"):
            timed("train", text, text + "\n", num_calls=8)
    assert len(played) == 3 and len({id(one) for one in played}) == 1


def test_no_more_rounds_are_held_than_are_needed(timed, monkeypatch):
    made, held = [], []

    def new_round(case, room, stock, rng, last=None, num_calls=None):
        held.append(sum(one() is not None for one in made) - (last is not None))
        one = timed_rounds.new_round(case, room, stock, rng, last, num_calls)
        made.append(weakref.ref(one))
        return one

    for module in (batch_length, rounds):
        monkeypatch.setattr(module, "new_round", new_round)
    monkeypatch.setattr(chained, "LEAST_GAIN", -10.0)  # there are chained batches in any case
    text = MODEL.format(returned="y.relu()")
    timed("infer", text, text + "\n")
    assert len(held) > CONFIG.num_rounds + 4 and set(held) == {0}


def test_it_is_known_since_when_rounds_of_a_launch_count(timed, monkeypatch):
    """Of each launch, the second one too."""
    counts = []

    def new_round(case, *rest, **last):
        counts.append(case.counts)
        return timed_rounds.new_round(case, *rest, **last)

    for module in (batch_length, rounds):
        monkeypatch.setattr(module, "new_round", new_round)
    text = MODEL.format(returned="y.relu()")
    timed("infer", text, text + "\n", between=lambda kept: counts.append(None))
    for launch_ in (counts[: counts.index(None)], counts[counts.index(None) + 1 :]):
        assert launch_ == sorted(launch_) and not launch_[0]
        assert launch_.count(True) >= CONFIG.num_rounds


@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_follow_from_inputs_that_come_late_is_wrong(timed, mode):
    with pytest.raises(Rejected, match="timed call is off"):
        timed(mode, MODEL.format(returned="y.relu()"), CONSTANT.format(returned="y.relu()"))


def test_what_disturbed_the_exchange_before_the_rounds_is_not_taken_off(timed, monkeypatch):
    """By what it said then, a batch would have taken no time at all."""
    looked = []

    def measured_exchanges(case, lane, one, limits):
        looked.append(lane)
        return [1.0 if lane.spans_us else 1e9] * 9

    monkeypatch.setattr(rounds, "measured_exchanges", measured_exchanges)
    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n", num_calls=1)
    assert [lane.name for lane in looked] == ["reference"] * len(looked)
    assert said.reference_us == tuple(span - 1.0 for span in looked[-1].spans_us)


def test_on_a_cpu_all_lanes_exchange_between_rounds_and_the_candidate_s_does_not_count(
    timed, monkeypatch
):
    looked = []

    def exchange_us(case, lane, one, limits):
        looked.append(lane)
        return 1e9 if lane.name == "candidate" or not lane.spans_us else 1.0

    monkeypatch.setattr(rounds, "exchange_us", exchange_us)
    text = MODEL.format(returned="y.relu()")
    said, _ = timed("infer", text, text + "\n", kind=Cpu)
    names = [lane.name for lane in looked]
    before, between = names[: rounds.NUM_EXCHANGES], names[rounds.NUM_EXCHANGES :]
    assert set(before) == {"reference"}
    assert between and len(between) % 3 == 0
    for place in range(0, len(between), 3):
        assert sorted(between[place : place + 3]) == ["candidate", "control", "reference"]
    reference, control = (
        next(lane for lane in reversed(looked) if lane.name == name)
        for name in ("reference", "control")
    )
    cost_us = 1.0 + rounds.first_quartile([*reference.colds_us, *control.colds_us])
    assert said.reference_us == tuple(
        (span - cost_us) / said.num_calls for span in reference.spans_us
    )
