"""Select which earlier variants a prompt shows: CUDA-L1's contrast.

Variants are grouped in buckets of similar speedup. A prompt gets N variants from N different
buckets. Faster buckets are more likely; variants of one bucket are equally likely. So the prompt
has competitive code, and code that differs in speed. Training draws from the same function.

Source: arXiv 2507.14111, section 2.4.3, equation 1: P(bucket) is proportional to exp((mean - mean
of means) / temperature). There are three departures. The means are standardized: centring alone
changes no softmax, and one temperature then suits every problem. The means are means of logarithms:
twice as fast and half as fast are equally far from 1. For the same reason a bucket's width is a
ratio. Width and temperature are not published: the defaults are ours.

For comparison the module also has islands (FunSearch), random variants, and none.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from cudal1_ci.propose.llm.config import ContrastConfig, SamplerName
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.task import Variant

NUM_ISLANDS = 4


def select(
    variants: Sequence[Variant], config: ContrastConfig, rng: random.Random
) -> list[Variant]:
    """Return at most `num_exemplars` variants, from slow to fast. The first of near-duplicates
    counts; otherwise order does not matter. The same variants and `rng` state give the same choice.
    """
    usable = distinct([one for one in variants if one.exemplar.score > 0])
    usable.sort(key=lambda one: (one.exemplar.score, one.exemplar.candidate.id))
    chosen = SAMPLERS[config.sampler](usable, config, rng)
    return sorted(chosen, key=lambda one: one.exemplar.score)


def distinct(variants: Sequence[Variant]) -> list[Variant]:
    """Return variants without near-duplicates: the first of each form remains."""
    found: dict[str, Variant] = {}
    for one in variants:
        found.setdefault(fingerprint(one.text), one)
    return list(found.values())


def buckets(variants: Sequence[Variant], width: float) -> list[list[Variant]]:
    """Return variants grouped by speedup, the slowest bucket first."""
    found: dict[int, list[Variant]] = {}
    for one in variants:
        found.setdefault(math.floor(math.log(one.exemplar.score) / math.log1p(width)), []).append(
            one
        )
    return [found[key] for key in sorted(found)]


def weights(means: Sequence[float], temperature: float) -> list[float]:
    """Return the tempered softmax over standardized means; uniform if the means are equal."""
    center, spread = statistics.fmean(means), statistics.pstdev(means)
    if spread == 0:
        return [1.0] * len(means)
    return [math.exp((mean - center) / spread / temperature) for mean in means]


def by_bucket(
    variants: Sequence[Variant], config: ContrastConfig, rng: random.Random
) -> list[Variant]:
    """Return one variant from each of N distinct buckets; more from a bucket only if there are too
    few buckets.
    """
    left = buckets(variants, config.bucket_width)
    chosen: list[Variant] = []
    while left and len(chosen) < config.num_exemplars:
        means = [
            statistics.fmean(math.log(one.exemplar.score) for one in bucket) for bucket in left
        ]
        (bucket,) = rng.choices(left, weights(means, config.temperature))
        left.remove(bucket)
        chosen.append(rng.choice(bucket))
    return chosen


def by_island(
    variants: Sequence[Variant], config: ContrastConfig, rng: random.Random
) -> list[Variant]:
    """Return variants from one of several separate populations, faster ones more likely (FunSearch,
    doi:10.1038/s41586-023-06924-6, without its resets). The reference is on every island.
    """
    islands: list[list[Variant]] = [[] for _ in range(NUM_ISLANDS)]
    for one in variants:
        if one.exemplar.candidate.proposer == REFERENCE:
            for island in islands:
                island.append(one)
        else:
            islands[int(one.exemplar.candidate.id, 16) % NUM_ISLANDS].append(one)
    left = list(rng.choice([island for island in islands if island] or [[]]))
    chosen: list[Variant] = []
    while left and len(chosen) < config.num_exemplars:
        logs = [math.log(one.exemplar.score) for one in left]
        (one,) = rng.choices(left, weights(logs, config.temperature))
        left.remove(one)
        chosen.append(one)
    return chosen


def at_random(
    variants: Sequence[Variant], config: ContrastConfig, rng: random.Random
) -> list[Variant]:
    return rng.sample(variants, min(config.num_exemplars, len(variants)))


def nothing(
    variants: Sequence[Variant],  # noqa: ARG001
    config: ContrastConfig,  # noqa: ARG001
    rng: random.Random,  # noqa: ARG001
) -> list[Variant]:
    return []


REFERENCE = "reference"
"""The proposer of the original code as a variant, with the speedup 1."""

Sampler = Callable[[Sequence[Variant], ContrastConfig, random.Random], list[Variant]]
SAMPLERS: dict[SamplerName, Sampler] = {
    "bucket": by_bucket,
    "island": by_island,
    "random": at_random,
    "none": nothing,
}
