"""Simulate how often the interval of a measurement misses the truth at any of its looks.

A run is twelve repetitions of a candidate that is as fast as its reference. Candidate and control
share the reference, as in a repetition. It fails where the interval excludes the truth after any
number of repetitions from two on. Repetitions spread by a multiple of what the prior says; as
normal values, as Student's t with three degrees of freedom, or with a spread that the prior
describes in the mean alone. The second table is what the interval buys: after how many repetitions
the product stops for an effect, and how often the verdict is a gain. The third is what it gains to
give up claims that are out of reach, and how many gains are lost by it.

    python experiments/sequential_errors.py --output assets/results/sequential-errors.json
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from cudal1_ci.records import Device, Measurement, Repetition
from cudal1_ci.stats import speedups
from cudal1_ci.stats.sequential import LEVEL, MIXTURE, REACH, WEIGHT, half_width_of
from cudal1_ci.stats.stopping import (
    EFFECT_SHARE,
    FEWEST,
    FUTILE_HALF_WIDTH,
    HOPELESS_SPEEDUP,
    MOST,
    is_settled,
)

NUM_RUNS = 100_000
SPREADS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Multiples of the prior's spread."""
NOISES = ("normal", "t3", "varying")
EFFECTS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
PRIOR_SPREADS = (0.005, 0.03)
"""Of a call of 100 us on an H200, and of one of 10 us, or of a CPU."""
NUM_MEASURED = 2000


def noise(kind: str, spread: float, rng: np.random.Generator, num_runs: int) -> np.ndarray:
    """Return the log times of three processes in twelve repetitions: [num_runs, 3, 12]."""
    shape = (num_runs, 3, MOST)
    is_heavy = kind == "t3"
    values = rng.standard_t(3, shape) / math.sqrt(3) if is_heavy else rng.standard_normal(shape)
    if kind == "varying":  # the prior itself: an inverse gamma of WEIGHT degrees of freedom
        factors = np.sqrt(WEIGHT / rng.chisquare(WEIGHT, (num_runs, 1, 1)))
        values = values * factors
    return values * spread / math.sqrt(2)


def half_widths(ratios: np.ndarray, control: np.ndarray | None, count: int) -> np.ndarray:
    """Return what sequential.half_width does, of many runs at once, for a prior's spread of 1."""
    seen = ratios[:, :count]
    squares = WEIGHT + ((seen - seen.mean(1, keepdims=True)) ** 2).sum(1)
    degrees = WEIGHT + count
    if control is not None:
        squares = squares + (control[:, :count] ** 2).sum(1)
        degrees += count
    growth = 1 + count * MIXTURE
    bound = (math.sqrt(growth) / LEVEL) ** (2 / degrees)
    if bound >= growth:
        return np.full(len(seen), np.inf)
    return np.sqrt(squares * (bound - 1) / (1 - bound / growth) / count)


def errors(kind: str, spread: float, num_runs: int, seed: int) -> dict[str, Any]:
    """Return the share of runs that miss the truth by each look, with and without a control."""
    times = noise(kind, spread, np.random.default_rng(seed), num_runs)
    ratios, control = times[:, 0] - times[:, 1], times[:, 0] - times[:, 2]
    found: dict[str, Any] = {"noise": kind, "spread": spread, "num_runs": num_runs}
    for name, beside in (("with_control", control), ("alone", None)):
        missed = np.zeros(num_runs, dtype=bool)
        shares = []
        for count in range(FEWEST, MOST + 1):
            half = half_widths(ratios, beside, count)
            missed |= np.abs(ratios[:, :count].mean(1)) > half
            shares.append(round(float(missed.mean()), 5))
        found[name] = shares
    return found


def measured(effect: float, prior_spread: float, rng: random.Random) -> Measurement:
    """Return a measurement as the product stops it."""
    ratios: list[Repetition] = []
    control: list[Repetition] = []
    while not is_settled(ratios, control, 0.01, "cpu", prior_spread):
        times = [100 * math.exp(rng.gauss(0, prior_spread / math.sqrt(2))) for _ in range(3)]
        pairs = ((times[1] / effect, ratios), (times[2], control))
        for other_us, several in pairs:
            one = Repetition(reference_us=(times[0],), candidate_us=(other_us,), num_calls=1)
            several.append(one)
    return Measurement(
        workload="w",
        repetitions=tuple(ratios),
        control=tuple(control),
        prior_spread=prior_spread,
        device=Device(kind="cpu", name="simulated"),
    )


def worth(effect: float, prior_spread: float, num_runs: int) -> dict[str, Any]:
    """Return how measurements of an effect end."""
    rng = random.Random(1)
    found = [measured(effect, prior_spread, rng) for _ in range(num_runs)]
    intervals = [interval for one in found if (interval := speedups.speedup(one)) is not None]
    return {
        "effect": effect,
        "prior_spread": prior_spread,
        "repetitions": statistics.median(len(one.repetitions) for one in found),
        "gains": sum(map(speedups.is_gain, found)) / len(found),
        "misses": sum(not one.low <= effect <= one.high for one in intervals) / len(found),
    }


def given_up(kind: str, spread: float, prior: float, effect: float, runs: int) -> dict[str, Any]:
    """Return how runs end that stop where a claim is out of reach, and that do not."""
    times = noise(kind, spread * prior, np.random.default_rng(2), runs)
    ratios, control = times[:, 0] - times[:, 1] + math.log(effect), times[:, 0] - times[:, 2]
    floor = math.log1p(speedups.RELATIVE_FLOOR)
    found: dict[str, Any] = {"noise": kind, "spread": spread, "prior": prior, "effect": effect}
    ends = {name: np.zeros(runs, dtype=int) for name in ("before", "now")}
    gains = {name: np.zeros(runs, dtype=bool) for name in ends}
    for count in range(FEWEST, MOST + 1):
        mean, of_control = ratios[:, :count].mean(1), control[:, :count].mean(1)
        half = prior * half_widths(ratios / prior, control / prior, count)
        most_stray = np.abs(of_control) + prior * half_widths(control / prior, None, count)
        low = mean - np.hypot(half, of_control)
        is_gain = (low > floor) & (low > np.log1p(np.expm1(most_stray)))
        is_over = (half <= np.maximum(0.01, EFFECT_SHARE * np.abs(mean))) | (mean + half < floor)
        is_over |= (mean < math.log(HOPELESS_SPEEDUP)) & (mean + half < 0)
        is_over |= (mean < floor) & (half <= FUTILE_HALF_WIDTH) | (count == MOST)
        squares = WEIGHT * prior**2 + (control[:, :count] ** 2).sum(1)
        squares += ((ratios[:, :count] - mean[:, None]) ** 2).sum(1)
        seen = np.sqrt(squares / (WEIGHT + 2 * count))
        own, both = WEIGHT + MOST, WEIGHT + 2 * MOST
        needed = np.maximum(floor, seen * half_width_of(MOST, own, own))
        needed += seen * half_width_of(MOST, both, both)
        best = mean + REACH * seen * math.sqrt((MOST - count) / (MOST * count))
        for name in ends:
            stops = is_over | (best < needed) if name == "now" and count > FEWEST else is_over
            is_new = stops & (ends[name] == 0)
            ends[name][is_new], gains[name][is_new] = count, is_gain[is_new]
    for name in ends:
        found[f"repetitions_{name}"] = round(float(ends[name].mean()), 2)
        found[f"gains_{name}"] = round(float(gains[name].mean()), 5)
    return found | {"lost": round(float((gains["before"] & ~gains["now"]).mean()), 5)}


def table(document: dict[str, Any]) -> str:
    """Render both tables as Markdown."""
    lines = [
        "| noise | spread, of the prior's | missed after 2 | by 5 | by 12 | without a control |",
        "|---" * 6 + "|",
    ]
    for one in document["errors"]:
        first, fifth, last = (one["with_control"][n - FEWEST] for n in (FEWEST, 5, MOST))
        lines.append(
            f"| {one['noise']} | {one['spread']} | {first:.2%} | {fifth:.2%} | {last:.2%} "
            f"| {one['alone'][-1]:.2%} |"
        )
    lines += ["", "| effect | spread | repetitions | gains | misses |", "|---" * 5 + "|"]
    for one in document["worth"]:
        lines.append(
            f"| {one['effect']} | {one['prior_spread']} | {one['repetitions']:.0f} "
            f"| {one['gains']:.1%} | {one['misses']:.2%} |"
        )
    lines += [
        "",
        "| noise | spread, of the prior's | prior | effect | repetitions | gains | lost |",
    ]
    lines += ["|---" * 7 + "|"]
    for one in document["given_up"]:
        lines.append(
            f"| {one['noise']} | {one['spread']} | {one['prior']} | {one['effect']} "
            f"| {one['repetitions_before']:.1f}, {one['repetitions_now']:.1f} now "
            f"| {one['gains_before']:.1%} | {one['lost']:.2%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=NUM_RUNS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    document: dict[str, Any] = {
        **provenance(),
        "level": LEVEL,
        "weight": WEIGHT,
        "mixture": MIXTURE,
        "errors": [
            errors(kind, spread, options.runs, seed)
            for seed, (kind, spread) in enumerate((k, s) for k in NOISES for s in SPREADS)
        ],
        "worth": [
            worth(effect, spread, min(NUM_MEASURED, options.runs))
            for spread in PRIOR_SPREADS
            for effect in EFFECTS
        ],
        "given_up": [
            given_up(kind, spread, prior, effect, options.runs)
            for kind in NOISES
            for spread in (1.0, 3.0)
            for prior in PRIOR_SPREADS
            for effect in EFFECTS[:-2]
        ],
    }
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(table(document))


if __name__ == "__main__":
    main()
