"""A gain that is there only where all inputs of a batch are there at once is none."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.timing.chained import CONFIRMED, Chains, resampled, savings
from cudal1_ci.sandboxed.verifier.cases import ChainedSteps, Rejected

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
    made = Chains(case, *lanes, rng, None, [], None, None, None, None, 8)
    made.found_us = {
        name: [chain(call_us) for _ in range(9)]
        for name, call_us in (("reference", reference_us), ("candidate", candidate_us))
    }
    made.exchange_us = lambda: MESSAGE_US
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_gone_in_chained_batches_is_refused(seed):
    found = chains(REFERENCE_US, seed=seed).contradiction([REFERENCE_US] * 4, [CANDIDATE_US] * 4)
    assert found is not None
    assert (found.status, found.finding.rule) == ("reward_hack", "timing.chained")
    assert "saves 32 of 40 us" in found.finding.message


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_that_is_there_in_both_is_none_of_that(seed):
    assert (
        chains(CANDIDATE_US, seed=seed).contradiction([REFERENCE_US] * 4, [CANDIDATE_US] * 4)
        is None
    )


def test_a_small_gain_is_not_looked_into():
    assert chains(REFERENCE_US).contradiction([REFERENCE_US] * 4, [0.95 * REFERENCE_US] * 4) is None


def test_what_no_repetition_shows_alone_several_show_together():
    made, alone = chains(REFERENCE_US), []
    with pytest.raises(Rejected, match="computes answers ahead"):
        for seed in range(40):
            made.found_us = chains(REFERENCE_US, noise_us=60.0, seed=seed).found_us
            alone.append(made.contradiction([REFERENCE_US] * 4, [CANDIDATE_US] * 4))
    assert len(alone) >= CONFIRMED - 1


def test_a_gain_that_is_there_is_accused_by_no_number_of_repetitions():
    made = chains(REFERENCE_US)
    for seed in range(40):
        made.found_us = chains(CANDIDATE_US, noise_us=60.0, seed=seed).found_us
        made.contradiction([REFERENCE_US] * 4, [CANDIDATE_US] * 4)  # raises where it accuses
    assert len(made.case.chained) == 40, "all were looked at together"


def test_noise_of_whole_chains_accuses_hardly_ever():
    """Steps of a chain are no independent ones: an honest gain of 12 %, and chains that take up to
    several times as long."""
    num_accused = 0
    for seed in range(100):
        made = chains(238.0, reference_us=270.0, of_chain=250.0, seed=seed)
        try:
            for repetition in range(5):
                again = chains(
                    238.0, reference_us=270.0, of_chain=250.0, seed=1000 * repetition + seed
                )
                made.found_us = again.found_us
                made.contradiction([270.0] * 4, [238.0] * 4)
        except Rejected:
            num_accused += 1
    assert num_accused <= 1


def busy(call_us, rng, num=8):
    """Rounds of a repetition beside other work. Most of it lasts for the whole repetition."""
    slower = 1 + rng.expovariate(2.0)
    return [call_us * (slower + rng.expovariate(4.0)) for _ in range(num)]


def accused_within(num_repetitions, chained_us, seed):
    """Return whether a candidate that saves 30 % of 2.6 ms in unchained batches is accused on a
    busy machine, when it takes `chained_us` in chained ones."""
    rng = random.Random(seed)
    made = chains(chained_us, reference_us=2600.0, of_chain=400.0, seed=seed)
    try:
        for _ in range(num_repetitions):
            again = chains(
                chained_us, reference_us=2600.0, of_chain=400.0, seed=rng.randrange(10**6)
            )
            made.found_us = again.found_us
            made.contradiction(busy(2600.0, rng), busy(1820.0, rng))
    except Rejected:
        return True
    return False


def test_a_busy_machine_accuses_hardly_ever_and_still_finds_a_missing_gain():
    honest = sum(accused_within(6, 1820.0, seed) for seed in range(100))
    assert honest <= 1, f"{honest} of 100 honest candidates were accused"
    cheats = sum(accused_within(12, 2600.0, seed) for seed in range(30))
    assert cheats >= 24, f"{cheats} of 30 were found"


def test_noise_does_not_accuse():
    made = chains(REFERENCE_US, noise_us=400.0)
    assert made.contradiction([REFERENCE_US] * 4, [CANDIDATE_US] * 4) is None


def test_a_call_that_a_device_hides_may_take_twice_as_long_alone():
    """Host and device, each of 20 us, overlap in a row. The reference is bound by its device."""
    assert chains(40.0, kind="cuda").contradiction([REFERENCE_US] * 4, [20.0] * 4) is None
    assert chains(40.0, kind="cuda").contradiction([REFERENCE_US] * 4, [5.0] * 4) is not None


def test_calls_that_take_longer_alone_need_not_save_more_alone():
    """As seen of an honest softmax on an H200: 63 us in a row, 268 us alone."""
    made = chains(0.0, kind="cuda")
    made.found_us = {
        name: [[MESSAGE_US + alone_us + 3.0 * step for step in range(8)] for _ in range(9)]
        for name, alone_us in (("reference", 268.0), ("candidate", 255.0))
    }
    assert made.contradiction([63.0] * 4, [16.0] * 4) is None


def test_resampling_draws_whole_repetitions_and_their_pairs():
    ones = [
        ChainedSteps([([10.0 * n], [7.0 * n])] * 4, [(3.0 * n, 2.0 * n)] * 4, 1.0) for n in (1, 2)
    ]
    found = savings(ones[:1])
    assert (found.reference_us, found.candidate_us, found.gain_us) == (3.0, 2.0, 1.0)
    assert (found.alone_us, found.ours_alone_us, found.chained_us) == (9.0, 6.0, 3.0)
    assert found.beyond_us(0.5) == 2.5
    drawn = {
        tuple(one.rounds_us[0][0] for one in resampled(ones, random.Random(seed)))
        for seed in range(30)
    }
    assert drawn == {(3.0, 3.0), (3.0, 6.0), (6.0, 3.0), (6.0, 6.0)}
