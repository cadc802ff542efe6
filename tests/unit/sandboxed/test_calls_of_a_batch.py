"""How many calls a timed batch holds, in the first launch of a candidate and after it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.timing.batch_length import ClockConfig, more_calls
from cudal1_ci.sandboxed.verifier import verifier as judge_module
from cudal1_ci.sandboxed.verifier.verifier import Verifier
from cudal1_ci.sandboxed.wire.verifier import Clock, Times
from tests.unit.sandboxed.messages import text

TIMES = Times(
    reference_us=(1.0,), candidate_us=(1.0,), control_us=(1.0,), num_calls=201, phases_s={}
)
CONFIG = ClockConfig(
    batch_us=10_000, max_calls=400, num_rounds=6, repetition_s=2, memory_bytes=2**30
)


@pytest.mark.parametrize(
    ("num_calls", "shortest_us", "most_calls", "expected"),
    [
        (100, 5000, 400, 100),  # half of what is wanted is enough
        (100, 2500, 400, 201),
        (100, 2500, 150, 150),  # what the memory holds
        (10, 10, 400, 81),  # the reference takes as many times as long
        (60, 10, 400, 81),  # in a later launch too
        (90, 10, 400, 90),
    ],
)
def test_a_faster_candidate_gets_more_calls_and_its_reference_bears_them(
    num_calls, shortest_us, most_calls, expected
):
    alone = 100 if num_calls == 100 else 10
    case = SimpleNamespace(
        num_calls=alone,
        plan=SimpleNamespace(most_calls=most_calls),
        accelerator=SimpleNamespace(kind="cuda"),
    )
    assert more_calls(case, num_calls, shortest_us, CONFIG) == expected


def test_a_launch_begins_with_the_calls_of_the_last_one_until_another_candidate_comes(monkeypatch):
    begun = []

    def launch(case, crews, program, slots, limits, config, rng, num_calls=None):
        begun.append(num_calls)
        return TIMES, None

    monkeypatch.setattr(judge_module, "launch", launch)
    here = SimpleNamespace(memory_bytes=lambda is_alone: 2**30, kind="cpu")
    judge = Verifier(1, here, SimpleNamespace())
    judge.limits = None

    def two_launches():
        judge.examine(text())
        judge.at_hand, judge.slots = {"w": SimpleNamespace(counts=False)}, {"w": []}
        clock = Clock(batch_us=1.0, max_calls=1, num_rounds=1, repetition_s=1.0)
        for _ in range(2):
            judge.repeat("w", clock)

    two_launches()
    two_launches()
    assert begun == [None, 201, None, 201]
