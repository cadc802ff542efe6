"""Processes that are kept for more than one launch."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager

import pytest

from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.timing.reuse_runners import Kept
from cudal1_ci.sandboxed.verifier.failures import RunnerFailure
from tests.unit.sandboxed.messages import text
from tests.unit.sandboxed.test_crews import FakeCase

PROGRAMS = {name: text(name) for name in ("reference", "candidate", "control")}


class Case(FakeCase):
    """With a state."""

    name = "rows"
    accelerator = Cpu()
    state_slots = ({"key": "weight"},)
    state = ("weights",)

    def load_state(self, runner, state, limits):
        assert state is self.state
        runner.said.append("state")


def take(kept, case, programs=PROGRAMS):
    return kept.take(case, programs, None, 1, random.Random(0)).runners


@contextmanager
def examined(kept, case):
    """A candidate's process, held as examining it leaves it."""
    with ExitStack() as stack:
        runner = stack.enter_context(case.runner(None, PROGRAMS["candidate"], None, False))
        kept.hold(case.name, runner, stack.pop_all())
        yield runner


def test_the_process_that_was_examined_is_timed_beside_references_that_stay():
    kept, case = Kept(None), Case()
    with examined(kept, case) as first:
        lent = take(kept, case)
    assert lent["candidate"] is first and first.said == ["pause", "state", "pause"]
    references = [lent["reference"], lent["control"]]
    assert [one.is_trusted for one in references] == [True, True]
    assert [one.is_new for one in references] == [True, True]
    kept.dismiss()
    assert first.said[-2:] == ["kill", "end"]
    with examined(kept, case) as second:
        lent = take(kept, case)
    assert lent["candidate"] is second and [lent["reference"], lent["control"]] == references
    assert [one.said for one in references] == [["pause", "state", "pause"]] * 2
    assert len(case.started) == 4
    kept.close()
    assert [one.said[-1] for one in references] == ["end"] * 2


def test_one_that_was_not_held_is_started_and_timed_again_in_the_same_process():
    kept, case = Kept(None), Case()
    first = take(kept, case)["candidate"]
    assert first.said == ["pause"]
    assert take(kept, case)["candidate"] is first


def test_calls_are_counted_by_the_reference_that_stays():
    kept, case = Kept(None), Case()
    case.program = PROGRAMS["reference"]
    with kept.reference(case, None) as alone:
        assert alone.is_trusted
    assert take(kept, case)["reference"] is alone
    with pytest.raises(RunnerFailure), kept.reference(case, None):
        raise RunnerFailure("raised", "it takes no such inputs")
    assert alone.said[-1] == "end"
    with kept.reference(case, None) as another:
        assert another is not alone


def test_whoever_is_lent_them_ends_none():
    kept, case = Kept(None), Case()
    crew = kept.take(case, PROGRAMS, None, 1, random.Random(0))
    crew.end()
    assert all("end" not in one.said for one in case.started)


def test_another_problem_has_references_of_its_own():
    kept, case, other = Kept(None), Case(), Case()
    references = [take(kept, case)[name] for name in ("reference", "control")]
    kept.dismiss()
    take(kept, other)
    assert [one.said[-1] for one in references] == ["end"] * 2
    assert len(other.started) == 3


def test_one_that_cannot_be_started_leaves_the_others_to_be_closed():
    kept, case = Kept(None), Case(failing=2)
    with pytest.raises(RunnerFailure):
        take(kept, case)
    kept.dismiss()
    kept.close()
    ended = [one.said[-1] for i, one in enumerate(case.started, 1) if i != 2]
    assert ended == ["end"] * 2


def test_a_module_without_a_state_is_lent_none():
    kept = Kept(None)
    case = Case()
    case.state_slots = ()
    with examined(kept, case) as runner:
        take(kept, case)
    assert runner.said == ["pause", "pause"]
