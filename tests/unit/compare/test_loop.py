"""Pairs are measured once, alarms again, and the budget is kept: with a judge that is told."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import threading
import time

import msgspec
import pytest

from cudal1_ci.compare.bench import Bench
from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.compare.contracts import OTHER_OUTPUTS
from cudal1_ci.compare.looks import NO_BUDGET, UNCONFIRMED
from cudal1_ci.compare.loop import SPENT, compare
from cudal1_ci.compare.pairs import Pair, Pairs
from cudal1_ci.errors import WorkerError
from cudal1_ci.pool import Pool, SlotLost
from cudal1_ci.processes.device_wait import until
from cudal1_ci.records import (
    Comparison,
    ContractCheck,
    Entry,
    Evaluation,
    Finding,
    Verdict,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import PlainProgress, SilentProgress
from tests.fakes import CPU, FakeBackend, a_candidate, a_problem, a_target, a_workload
from tests.unit.stats.test_regression import measured


class Verifier:
    """Answers each trial of a pair with the next of its ratios, or of its verdicts."""

    def __init__(self, **answers):
        self.answers = {name: list(given) for name, given in answers.items()}
        self.asked = []
        self.examined = []
        self.contracts = {}
        """By name: what an examination of the contract answers, or raises."""

    def device(self):
        return CPU

    def evaluate(self, problem, candidate):
        name = candidate.program.source
        self.asked.append((name, problem.workloads[0].atol))
        answer = self.answers[name].pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Verdict):
            return Evaluation(candidate=candidate, verdict=answer)
        if isinstance(answer, str):
            verdict = Verdict(status=answer, findings=(Finding(rule="x", message="off by 1"),))
            return Evaluation(candidate=candidate, verdict=verdict)
        ratios = answer if isinstance(answer, tuple) else (answer,)
        measurements = [
            msgspec.structs.replace(measured(ratio), workload=workload.name)
            for ratio, workload in zip(ratios, problem.workloads, strict=True)
        ]
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=tuple(measurements),
            device=CPU,
        )

    def examine_contract(self, problem, evaluation):
        name = evaluation.candidate.program.source
        self.examined.append(name)
        answer = self.contracts.get(name, HELD)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.structs.replace(evaluation, contract=answer, contract_s=2.0)


NOISY = Verdict(status="inconclusive", findings=(Finding(rule="timing.noisy", message="too busy"),))
HELD = (ContractCheck(aspect="dtype float64", result="held"),)
BROKEN = (ContractCheck(aspect="dtype float64", result="broken", detail="it fails"),)


def a_pair(name: str, *workloads) -> Pair:
    problem = a_problem(f"class Model: {name!r}", *workloads)
    return Pair(
        target=a_target(qualname=name), problem=problem, head=a_candidate(problem, source=name)
    )


@pytest.fixture
def run(tmp_path):
    def compared(judge: Verifier, *pairs: Pair, **more):
        with Archive.open(tmp_path / "archive.sqlite") as archive:
            bench = Bench(
                session=judge,
                archive=archive,
                progress=SilentProgress(),
                config=CompareConfig(num_devices=more.pop("num_devices", 1)),
                policy="p",
                **more,
            )
            entries, ended = compare(Pairs(pairs=pairs, others=()), bench)
        return {one.target.qualname: one.comparison for one in entries}, ended

    return compared


def test_progress_counts_what_cannot_be_compared_and_says_why(tmp_path):
    other = Entry(
        target=a_target(qualname="Plain"),
        skipped="no workload",
        comparison=Comparison(verdict="skipped", reason="no workload"),
    )
    stream = io.StringIO()
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        bench = Bench(
            session=Verifier(),
            archive=archive,
            progress=PlainProgress(stream),
            config=CompareConfig(num_devices=1),
            policy="p",
        )
        entries, _ = compare(Pairs(pairs=(), others=(other,)), bench)
    assert entries == [other]
    assert stream.getvalue().splitlines() == [
        "1 target to look at",
        f"[1/1] {other.target.path}:Plain: skipped: no workload",
    ]


def names(judge):
    return [name for name, _ in judge.asked]


def test_a_regression_was_found_again_after_all_others_had_their_turn(run):
    judge = Verifier(slow=[1.2] * 3, same=[1.0], fast=[0.8] * 3)
    found, ended = run(judge, a_pair("slow"), a_pair("same"), a_pair("fast"))
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts == {"slow": "regression", "same": "same", "fast": "improvement"}
    assert names(judge) == ["slow", "same", "fast", "slow", "fast", "slow", "fast"]
    assert ended == "done"


def test_an_alarm_that_is_not_found_again_is_none(run):
    judge = Verifier(slow=[1.2, 1.0])
    found, _ = run(judge, a_pair("slow"))
    assert found["slow"].verdict == "same"
    assert len(found["slow"].rows[0].measurements) == 2


def test_the_more_is_compared_the_more_often_it_is_measured(run):
    judge = Verifier(slow=[1.2] * 4)
    found, _ = run(judge, a_pair("slow"), num_devices=3300)
    assert found["slow"].verdict == "regression"
    assert len(judge.asked) == 4


def test_the_worst_workload_decides(run):
    judge = Verifier(one=[(0.5, 1.2)] * 3)
    found, _ = run(judge, a_pair("one", a_workload("a"), a_workload("b")))
    assert [row.verdict for row in found["one"].rows] == ["improvement", "regression"]
    assert found["one"].verdict == "regression"


def test_other_outputs_are_noted_and_times_compared_all_the_same(run):
    judge = Verifier(other=["incorrect_values", 1.2, 1.2, 1.2])
    found, _ = run(judge, a_pair("other"))
    assert found["other"].verdict == "regression"
    assert found["other"].output_change == "off by 1"
    assert judge.asked == [("other", None), *[("other", float("inf"))] * 3]


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (
            "runtime_error",
            "inconclusive",
            "the head fails with what the base takes: off by 1",
        ),
        (
            "incorrect_shape",
            "inconclusive",
            "off by 1: calls that return other things are not timed against each other",
        ),
        ("invalid_reference", "skipped", "the base cannot be timed like this: off by 1"),
        ("degenerate", "skipped", "times of the base would mean little: off by 1"),
        ("inconclusive", "inconclusive", "off by 1"),
        (WorkerError("it died"), "inconclusive", "the verifier failed: it died"),
    ],
)
def test_what_cannot_be_timed_has_its_reason(run, answer, verdict, reason):
    judge = Verifier(bad=[answer], same=[1.0])
    found, _ = run(judge, a_pair("bad"), a_pair("same"))
    assert (found["bad"].verdict, found["bad"].reason) == (verdict, reason)
    assert found["same"].verdict == "same"


@pytest.mark.parametrize("provenance", ["synthetic", "config"])
def test_a_guess_of_how_it_is_called_convicts_nobody(run, provenance):
    guess = msgspec.structs.replace(a_workload(), provenance=provenance)
    judge = Verifier(slow=[1.5], same=[1.0])
    found, _ = run(judge, a_pair("slow", guess), a_pair("same", guess))
    assert found["slow"].verdict == "inconclusive"
    assert "declare a workload" in found["slow"].rows[0].reason
    assert found["same"].verdict == "same"


def test_what_the_budget_does_not_reach_is_named(run):
    judge = Verifier(first=[1.0], second=[1.0])
    found, ended = run(judge, a_pair("first"), a_pair("second"), budget_s=-1.0)
    assert ended == "budget"
    assert {one.reason for one in found.values()} == {SPENT}
    assert {one.verdict for one in found.values()} == {"skipped"}


# --- other uses ------------------------------------------------------------------------------


def test_other_uses_are_tried_once_after_all_times_and_change_no_verdict(run):
    judge = Verifier(slow=[1.2] * 3, same=[1.0])
    judge.contracts = {"same": BROKEN}
    found, ended = run(judge, a_pair("slow"), a_pair("same"))
    assert judge.examined == ["slow", "same"]
    assert names(judge) == ["slow", "same", "slow", "slow"]
    assert (found["same"].verdict, ended) == ("same", "done")
    assert found["same"].broken == BROKEN
    assert found["slow"].contract == HELD
    assert found["slow"].contract_s == 2.0


def test_where_the_outputs_changed_no_other_use_is_tried(run):
    judge = Verifier(other=["incorrect_values", 1.0], bad=["runtime_error"])
    found, _ = run(judge, a_pair("other"), a_pair("bad"))
    assert judge.examined == []
    (line,) = found["other"].contract
    assert (line.result, line.detail) == ("not_tried", OTHER_OUTPUTS)
    assert found["bad"].contract is None


def test_what_was_tried_in_an_earlier_run_is_not_tried_again(run):
    judge = Verifier(same=[1.0])
    judge.contracts = {"same": BROKEN}
    first, _ = run(judge, a_pair("same"))
    again, _ = run(judge, a_pair("same"))
    assert judge.examined == ["same"]
    assert again["same"].broken == first["same"].broken == BROKEN
    assert again["same"].contract_s == 2.0


def test_other_uses_are_left_out_where_the_settings_say_so(run):
    judge = Verifier(same=[1.0], other=["incorrect_values", 1.0])
    found, _ = run(judge, a_pair("same"), a_pair("other"), examines=False)
    assert judge.examined == []
    assert found["same"].contract is found["other"].contract is None


def test_a_budget_that_leaves_no_time_for_other_uses_is_not_cut_short(run):
    judge = Verifier(same=[1.0])
    found, ended = run(judge, a_pair("same"), budget_s=10.0, clock=timed(judge, 11.0))
    assert (judge.examined, ended) == ([], "done")
    assert found["same"].contract[0].detail == NO_BUDGET


def test_a_judge_that_dies_at_other_uses_costs_no_time_and_is_asked_again(run):
    judge = Verifier(same=[1.0])
    judge.contracts = {"same": WorkerError("it died")}
    found, _ = run(judge, a_pair("same"))
    assert (found["same"].verdict, found["same"].broken) == ("same", ())
    assert found["same"].contract[0].detail == "the verifier failed: it died"
    judge.contracts = {}
    found, _ = run(judge, a_pair("same"))
    assert found["same"].contract == HELD


def timed(judge: Verifier, look_s: float):
    """A clock on which each trial takes that long."""
    return lambda: len(judge.asked) * look_s


def test_an_alarm_that_the_budget_leaves_unconfirmed_is_none(run):
    judge = Verifier(slow=[1.2])
    found, ended = run(judge, a_pair("slow"), budget_s=10.0, clock=timed(judge, 11.0))
    assert ended == "budget"
    assert found["slow"].verdict == "inconclusive"
    assert found["slow"].rows[0].reason == UNCONFIRMED + NO_BUDGET
    assert len(found["slow"].rows[0].measurements) == 1


def test_noise_leaves_a_target_unclear_and_an_alarm_open(run):
    """Otherwise noise at the second look would let a slowdown pass the gate."""
    judge = Verifier(calm=[NOISY], slow=[1.2, NOISY, NOISY])
    found, _ = run(judge, a_pair("calm"), a_pair("slow"))
    assert (found["calm"].verdict, found["calm"].cause) == ("inconclusive", "noisy")
    assert (found["slow"].verdict, found["slow"].cause) == ("inconclusive", "unmeasured")
    assert found["slow"].rows[0].reason == UNCONFIRMED + "too busy"


def test_a_budget_ends_while_another_process_has_the_device(run):
    class Waiting(Verifier):
        def evaluate(self, problem, candidate):
            if not self.answers[candidate.program.source]:
                free_s = time.monotonic() + 10.0
                until(lambda _: threading.Event().wait(0.01) or time.monotonic() > free_s)
            return super().evaluate(problem, candidate)

    judge = Waiting(slow=[1.2], second=[])
    found, ended = run(judge, a_pair("slow"), a_pair("second"), budget_s=1.0)
    assert ended == "budget"
    assert found["slow"].rows[0].reason == UNCONFIRMED + NO_BUDGET
    assert (found["second"].verdict, found["second"].reason) == ("skipped", SPENT)
    found, ended = run(Waiting(slow=[]), a_pair("slow"), budget_s=1.0)
    assert (ended, found["slow"].verdict) == ("budget", "inconclusive"), "its look is known"
    assert found["slow"].rows[0].reason == UNCONFIRMED + NO_BUDGET


def test_the_budget_is_kept_for_alarms_rather_than_for_more_targets(run):
    judge = Verifier(same=[1.0], slow=[1.2] * 3, third=[1.0], fourth=[1.0])
    pairs = map(a_pair, ("same", "slow", "third", "fourth"))
    found, ended = run(judge, *pairs, budget_s=50.0, clock=timed(judge, 10.0))
    assert names(judge) == ["same", "slow", "third", "slow", "slow"]
    assert found["slow"].verdict == "regression"
    assert (found["fourth"].verdict, found["fourth"].reason) == ("skipped", SPENT)
    assert ended == "budget"


def test_all_targets_have_their_turn_before_what_got_faster_is_measured_again(run):
    judge = Verifier(fast=[0.5] * 3, second=[1.0], third=[1.0], fourth=[1.0])
    pairs = map(a_pair, ("fast", "second", "third", "fourth"))
    found, _ = run(judge, *pairs, budget_s=55.0, clock=timed(judge, 10.0))
    assert names(judge) == ["fast", "second", "third", "fourth", "fast", "fast"]
    assert found["fast"].verdict == "improvement"


def test_slowdowns_are_measured_again_before_what_got_faster(run):
    judge = Verifier(fast=[0.5] * 3, slow=[1.2] * 3)
    _, ended = run(judge, *map(a_pair, ("fast", "slow")), budget_s=35.0, clock=timed(judge, 10.0))
    assert names(judge)[:3] == ["fast", "slow", "slow"]
    assert ended == "budget"


def test_an_alarm_that_cannot_be_measured_again_is_none(run):
    judge = Verifier(slow=[1.2, "inconclusive", WorkerError("it died")])
    found, _ = run(judge, a_pair("slow"))
    assert found["slow"].verdict == "inconclusive"
    assert found["slow"].rows[0].reason == UNCONFIRMED + "the verifier failed: it died"


def test_what_is_known_is_not_measured_again_and_each_look_is_its_own(run):
    run(Verifier(slow=[1.2, 1.3, 1.2]), a_pair("slow"))
    again = Verifier()
    found, _ = run(again, a_pair("slow"))
    assert again.asked == []
    assert len(found["slow"].rows[0].measurements) == 3
    fresh = Verifier(slow=[1.0])
    found, _ = run(fresh, a_pair("slow"), may_reuse=False)
    assert found["slow"].verdict == "same"


def test_the_traced_time_says_what_comes_first(run):
    judge = Verifier(small=[1.0], large=[1.0], guessed=[1.0])
    guess = msgspec.structs.replace(a_workload(share=0.9), provenance="synthetic")
    run(
        judge,
        a_pair("guessed", guess),
        a_pair("small", a_workload(share=0.1)),
        a_pair("large", a_workload(share=0.6)),
    )
    assert names(judge) == ["large", "small", "guessed"]


def test_what_was_changed_comes_before_what_uses_it(run):
    def because(reason, pair):
        target = msgspec.structs.replace(pair.target, selected_because=reason)
        return dataclasses.replace(pair, target=target)

    judge = Verifier(caller=[1.0], changed=[1.0], large=[1.0])
    run(
        judge,
        because("calls pkg/model.py:changed", a_pair("caller", a_workload(share=0.9))),
        because("changed", a_pair("changed", a_workload(share=0.1))),
        because("changed", a_pair("large", a_workload(share=0.2))),
    )
    assert names(judge) == ["large", "changed", "caller"]


def test_of_those_that_use_a_change_the_root_call_comes_first(run):
    def using(name, **times):
        pair = a_pair(name, msgspec.structs.replace(a_workload(share=0.01), **times))
        target = msgspec.structs.replace(pair.target, selected_because="calls pkg/model.py:changed")
        return dataclasses.replace(pair, target=target)

    judge = Verifier(root=[1.0], middle=[1.0])
    run(
        judge,
        using("middle", traced_us=100.0, num_calls=12),
        using("root", traced_us=2000.0, num_calls=1),
    )
    assert names(judge) == ["root", "middle"]


# --- on several slots -------------------------------------------------------------------------


@pytest.fixture
def run_on_two(tmp_path):
    """A run on two slots; of each number, the verifiers that it has one after the other."""

    def compared(verifiers, *pairs: Pair, budget_s=None, **more):
        notices: list[str] = []
        several = {number: iter(each) for number, each in enumerate(verifiers)}
        backend = FakeBackend(lambda number: next(several[number]))
        with (
            Archive.open(tmp_path / "archive.sqlite") as archive,
            Pool(backend, notice=notices.append, is_of_one_kind=True) as pool,
        ):
            bench = Bench(
                session=pool.first,
                pool=pool,
                archive=archive,
                progress=SilentProgress(),
                config=CompareConfig(),
                policy="p",
                budget_s=budget_s,
                **more,
            )
            entries, ended = compare(Pairs(pairs=pairs, others=()), bench)
        return {one.target.qualname: one.comparison for one in entries}, ended, notices

    return compared


def answering(**answers):
    """A verifier that answers each look at a pair with one ratio."""
    return Verifier(**{name: [ratio] * 4 for name, ratio in answers.items()})


def test_two_slots_find_what_one_finds(run, run_on_two):
    answers = {"slow": 1.2, "same": 1.0, "fast": 0.8}
    one, two = answering(**answers), answering(**answers)
    found, ended, notices = run_on_two([[one], [two]], *map(a_pair, answers))
    assert ended == "done"
    assert notices == []
    assert {name: each.verdict for name, each in found.items()} == {
        "slow": "regression",
        "same": "same",
        "fast": "improvement",
    }
    assert {name: len(each.rows[0].measurements) for name, each in found.items()} == {
        "slow": 3,
        "same": 1,
        "fast": 3,
    }
    assert sorted(names(one) + names(two)) == ["fast"] * 3 + ["same"] + ["slow"] * 3
    assert sorted(one.examined + two.examined) == ["fast", "same", "slow"]
    assert {each.contract for each in found.values()} == {HELD}


def test_a_pair_whose_slot_is_lost_is_measured_by_another(run_on_two):
    both = threading.Barrier(2)

    class Lost(Verifier):
        def evaluate(self, problem, candidate):
            both.wait(10)
            raise SlotLost("the machine is gone")

    class Other(Verifier):
        def evaluate(self, problem, candidate):
            if not self.asked:
                both.wait(10)
            return super().evaluate(problem, candidate)

    answers = {"first": [1.0] * 4, "second": [1.0] * 4}
    later = Verifier(**answers)
    found, ended, notices = run_on_two([[Lost(), later], [Other(**answers)]], *map(a_pair, answers))
    assert ended == "done"
    assert {one.verdict for one in found.values()} == {"same"}
    assert notices == ["lost slot-0: the machine is gone"]


def test_a_pair_with_which_slots_are_lost_has_its_reason(run_on_two):
    class Lost(Verifier):
        def evaluate(self, problem, candidate):
            if candidate.program.source == "fatal":
                raise SlotLost("out of memory")
            return super().evaluate(problem, candidate)

    verifiers = [[Lost(same=[1.0] * 4) for _ in range(5)] for _ in range(2)]
    found, ended, _ = run_on_two(verifiers, a_pair("fatal"), a_pair("same"))
    assert ended == "done"
    assert (found["same"].verdict, found["fatal"].verdict) == ("same", "inconclusive")
    assert found["fatal"].reason == "its verifier died 3 times: out of memory"


def test_what_the_budget_does_not_reach_on_two_slots_is_named(run_on_two):
    found, ended, _ = run_on_two(
        [[Verifier()], [Verifier()]], a_pair("a"), a_pair("b"), budget_s=-1.0
    )
    assert ended == "budget"
    assert {one.reason for one in found.values()} == {SPENT}


def test_an_interrupt_on_two_slots_is_one(run_on_two):
    class Interrupted(Verifier):
        def evaluate(self, problem, candidate):
            os.kill(os.getpid(), signal.SIGINT)
            self.is_closed.wait(10)
            raise WorkerError("it ended")

    with pytest.raises(KeyboardInterrupt):
        run_on_two([[Interrupted()], [Interrupted()]], a_pair("a"))
