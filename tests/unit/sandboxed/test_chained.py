"""A gain that is there only where all inputs of a batch are there at once is none."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.timing.chained import CONFIRMED, Chains, difference_us
from cudal1_ci.sandboxed.verifier.cases import Rejected

REFERENCE_US, CANDIDATE_US, MESSAGE_US = 40.0, 8.0, 100.0


def chains(candidate_us, kind="cpu", noise_us=1.0, seed=1, reference_us=REFERENCE_US, of_chain=0.0):
    """Nine chains of eight steps of each program, of which a few were interrupted. `of_chain` is
    noise that all steps of a chain have."""
    rng = random.Random(seed)

    def chain(call_us):
        base_us = MESSAGE_US + call_us + (rng.expovariate(1 / of_chain) if of_chain else 0)
        return [
            base_us + rng.expovariate(1 / noise_us) + 500 * (rng.random() < 0.1) for _ in range(8)
        ]

    lanes = [SimpleNamespace(name=name) for name in ("reference", "candidate")]
    case = SimpleNamespace(accelerator=SimpleNamespace(kind=kind), chained=[])
    made = Chains(case, *lanes, rng, None, [], None, None, None, 8)
    made.found_us = {
        name: [chain(call_us) for _ in range(9)]
        for name, call_us in (("reference", reference_us), ("candidate", candidate_us))
    }
    made.exchange_us = lambda: MESSAGE_US
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_gone_in_chained_batches_is_refused(seed):
    found = chains(REFERENCE_US, seed=seed).contradiction(REFERENCE_US, CANDIDATE_US)
    assert found is not None
    assert (found.status, found.finding.rule) == ("reward_hack", "timing.chained")
    assert "saves 32 of 40 us" in found.finding.message


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_there_in_both_is_none_of_that(seed):
    assert chains(CANDIDATE_US, seed=seed).contradiction(REFERENCE_US, CANDIDATE_US) is None


def test_a_small_gain_is_not_looked_into():
    assert chains(REFERENCE_US).contradiction(REFERENCE_US, 0.95 * REFERENCE_US) is None


def test_what_no_repetition_shows_alone_several_show_together():
    made, alone = chains(REFERENCE_US), []
    with pytest.raises(Rejected, match="computes answers ahead"):
        for seed in range(40):
            made.found_us = chains(REFERENCE_US, noise_us=60.0, seed=seed).found_us
            alone.append(made.contradiction(REFERENCE_US, CANDIDATE_US))
    assert len(alone) >= CONFIRMED - 1


def test_a_gain_that_is_there_is_accused_by_no_number_of_repetitions():
    made = chains(REFERENCE_US)
    for seed in range(40):
        made.found_us = chains(CANDIDATE_US, noise_us=60.0, seed=seed).found_us
        made.contradiction(REFERENCE_US, CANDIDATE_US)  # raises where it accuses
    assert len(made.case.chained) == 40, "all were looked at together"


def test_noise_of_whole_chains_accuses_hardly_ever():
    """Steps of a chain are no independent ones: an honest gain of 12 %, and chains that take up to
    several times as long."""
    num_accused = 0
    for seed in range(200):
        made = chains(238.0, reference_us=270.0, of_chain=250.0, seed=seed)
        try:
            for repetition in range(5):
                again = chains(
                    238.0, reference_us=270.0, of_chain=250.0, seed=1000 * repetition + seed
                )
                made.found_us = again.found_us
                made.contradiction(270.0, 238.0)
        except Rejected:
            num_accused += 1
    assert num_accused <= 4


def test_noise_does_not_accuse():
    made = chains(REFERENCE_US, noise_us=400.0)
    assert made.contradiction(REFERENCE_US, CANDIDATE_US) is None


def test_a_call_that_a_device_hides_may_take_twice_as_long_alone():
    """Host and device, each of 20 us, overlap in a row. The reference is bound by its device."""
    assert chains(40.0, kind="cuda").contradiction(REFERENCE_US, 20.0) is None
    assert chains(40.0, kind="cuda").contradiction(REFERENCE_US, 5.0) is not None


def test_calls_that_take_longer_alone_need_not_save_more_alone():
    """As seen of an honest softmax on an H200: 63 us in a row, 268 us alone."""
    made = chains(0.0, kind="cuda")
    made.found_us = {
        name: [[MESSAGE_US + alone_us + 3.0 * step for step in range(8)] for _ in range(9)]
        for name, alone_us in (("reference", 268.0), ("candidate", 255.0))
    }
    assert made.contradiction(63.0, 16.0) is None


def test_the_difference_of_steps_has_an_upper_bound():
    rng = random.Random(0)
    theirs, ours = (
        [[base + rng.random() for _ in range(8)] for _ in range(5)] for base in (10.0, 7.0)
    )
    found, most = difference_us(theirs, ours, rng)
    assert found == pytest.approx(3.0, abs=0.3)
    assert found <= most < found + 0.5
