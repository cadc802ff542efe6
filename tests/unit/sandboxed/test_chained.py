"""A gain that is there only where all inputs of a batch are there at once is none."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.timing.chained import NUM_CHAINS, Chains, difference_us

REFERENCE_US, CANDIDATE_US, MESSAGE_US = 40.0, 8.0, 100.0


def chains(candidate_us, kind="cpu", noise_us=1.0, seed=1):
    """36 steps of each program, of which a few were interrupted."""
    rng = random.Random(seed)

    def steps(call_us):
        return [
            MESSAGE_US + call_us + rng.expovariate(1 / noise_us) + 500 * (rng.random() < 0.1)
            for _ in range(36)
        ]

    lanes = [SimpleNamespace(name=name) for name in ("reference", "candidate")]
    case = SimpleNamespace(accelerator=SimpleNamespace(kind=kind))
    made = Chains(case, *lanes, rng, None, [], None, None, 8)
    made.found_us = {"reference": steps(REFERENCE_US), "candidate": steps(candidate_us)}
    made.num_chains = NUM_CHAINS
    made.exchange_us = lambda: MESSAGE_US
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_gone_in_chained_batches_is_refused(seed):
    found = chains(REFERENCE_US, seed=seed).contradiction(REFERENCE_US, CANDIDATE_US)
    assert found is not None
    assert (found.status, found.finding.rule) == ("reward_hack", "timing.chained")
    assert "saves 32 us" in found.finding.message


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_there_in_both_is_none_of_that(seed):
    assert chains(CANDIDATE_US, seed=seed).contradiction(REFERENCE_US, CANDIDATE_US) is None


def test_a_small_gain_is_not_looked_into():
    assert chains(REFERENCE_US).contradiction(REFERENCE_US, 0.95 * REFERENCE_US) is None


def test_noise_does_not_accuse():
    made = chains(REFERENCE_US, noise_us=400.0)
    assert made.contradiction(REFERENCE_US, CANDIDATE_US) is None


def test_a_call_that_a_device_hides_may_take_twice_as_long_alone():
    """Host and device, each of 20 us, overlap in a row. The reference is bound by its device."""
    assert chains(40.0, kind="cuda").contradiction(REFERENCE_US, 20.0) is None
    assert chains(40.0, kind="cuda").contradiction(REFERENCE_US, 5.0) is not None


def test_the_difference_of_steps_has_an_upper_bound():
    rng = random.Random(0)
    theirs, ours = ([base + rng.random() for _ in range(40)] for base in (10.0, 7.0))
    found, most = difference_us(theirs, ours, rng)
    assert found == pytest.approx(3.0, abs=0.3)
    assert found <= most < found + 0.5
