"""Forecast what a candidate is worth: the time that it is expected to save, and what a try costs.

    ranking = ranking_of(archive)
    forecast = ranking.forecast("compile", Situation("cuda", 1300.0, "memory-bound"))
    forecast.saving(log_best) / forecast.seconds

What earlier evaluations came to is counted in cells: strategy, kind of device, decade of the call's
time, class of the call. Counts of this package (`ranking.json`, made by experiments/ranking.py of
measured candidates) and those of the archive are added. A cell alone has few evaluations, so that
its means are shrunk to those of what it is a part of:

    mean = (sum + PRIOR * mean of what it is a part of) / (number + PRIOR)

from a family of strategies to the strategy, its cells on a kind of device, those of a decade of
time, and at last those of a class. For the chance to gain it is the posterior mean of a
Beta distribution, for the log of a gain that of a normal one, whose priors count as PRIOR
evaluations; the variance and the seconds are shrunk in the same way. Source: Gelman et al.,
Bayesian Data Analysis, 3rd edition, sections 2.4 and 2.6. What a new candidate saves is the
expected improvement over the best one: Jones, Schonlau & Welch, Journal of Global Optimization 13
(1998).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec

from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.wrappers.strategy import COMPILE_NAMES, GRAPH_NAMES, LAYOUTS
from cudal1_ci.propose.wrappers.table import COMPILED_REGION, CUDA_GRAPH
from cudal1_ci.records import Candidate, Evaluation
from cudal1_ci.records.archive import NEVER_REUSED, Archive
from cudal1_ci.stats import speedups
from cudal1_ci.verification.session import CUT

PRIOR = 3.0
"""Evaluations that a prior counts as."""
LEAST_LOG = math.log(1.05)
"""Less is no gain: a confirmation of it would rarely prove one."""
MOST_LOG = math.log(10.0)
"""Logs of speedups count up to it: ten times faster saves nine tenths, and more saves little."""
CHANCE, GAIN, SPREAD, SECONDS = 0.3, 0.3, 0.4, 15.0
"""Of a candidate of which nothing is known."""
CONFIRMATION = "confirmation"
"""The strategy under which the seconds of confirmations are counted."""
SEEN = "situation"
"""The kind of note under which the archive has what a problem's call was seen to be."""
UNKNOWN = "unknown"
SOURCE = "source edit"
OTHER = "other"
"""The strategy of a program without known edits."""
SETTINGS = frozenset((*LAYOUTS, "channels_last", "fp32_tensor_cores"))
"""Edits that change how operations run, and none of them."""
WRAPPED = (*COMPILE_NAMES, *GRAPH_NAMES, COMPILED_REGION, *LAYOUTS)


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """Hold what evaluations of a strategy came to, in calls of one sort."""

    strategy: str
    kind: str
    decade: int | None
    category: str
    number: int
    gains: int
    logs: float
    """Sum of the logarithms of the speedups that gained."""
    squares: float
    """Sum of their squares."""
    timed: int
    """How many have a known duration."""
    seconds: float
    """Sum of these durations."""


@dataclass(frozen=True)
class Situation:
    """Describe where a candidate is tried. The time is that of the recorded call, which is longer
    than a call that is timed; that one stands in where none was recorded."""

    kind: str
    time_us: float | None = None
    category: str = UNKNOWN


@dataclass(frozen=True)
class Tried:
    """Hold what a try of some edits came to."""

    operators: tuple[str, ...]
    log: float | None
    """Of the speedup; None of what did not pass."""
    seconds: float
    is_confirmation: bool = False


@dataclass(frozen=True)
class Count:
    """Hold what is counted of a try."""

    strategy: str
    where: Situation
    log: float | None
    seconds: float | None
    """None where that is not known."""


@dataclass(frozen=True)
class Forecast:
    """Hold what is expected of a try."""

    chance: float
    """To gain."""
    log: float
    """Of the speedup, where it gains."""
    spread: float
    seconds: float
    is_new: bool
    """Whether nothing is known of the strategy itself."""

    def saving(self, best: float = 0.0) -> float:
        """Return the share of the reference's time that a try is expected to save, beyond what the
        best known program saves; `best` is the log of its speedup."""
        best, spread = max(best, 0.0), self.spread
        z = (self.log - best) / spread
        saved = math.exp(-best) * normal(z)
        saved -= math.exp(spread * spread / 2 - self.log) * normal(z - spread)
        return self.chance * max(0.0, saved)

    def beats(self, best: float) -> float:
        """Return the chance that a try is faster than the best known program."""
        return self.chance * normal((self.log - best) / self.spread)

    def above(self, log: float) -> Forecast:
        """Return the forecast of what is done to a program of that speedup."""
        return replace(self, log=self.log + log)


class Ranking:
    """Forecasts from cells."""

    def __init__(self, cells: Iterable[Cell] = ()):
        self._sums: dict[tuple[object, ...], list[float]] = {}
        self.add(cells)

    def add(self, cells: Iterable[Cell]) -> None:
        """Learn from more evaluations."""
        for cell in cells:
            sort = cell.strategy, cell.kind, cell.decade, cell.category
            for level in levels(*sort):
                known = self._sums.get(level, [0.0] * 6)
                numbers = cell_numbers(cell)
                self._sums[level] = [a + b for a, b in zip(known, numbers, strict=True)]

    def forecast(self, strategy: str, where: Situation) -> Forecast:
        """Return what is expected of a strategy."""
        chance, log, variance, seconds = CHANCE, GAIN, SPREAD**2, SECONDS
        gained = 0.0
        for level in levels(strategy, where.kind, decade_of(where.time_us), where.category):
            if level not in self._sums:
                continue
            number, gained, logs, squares, timed, spent_s = self._sums[level]
            own = max(0.0, squares - logs * logs / gained) if gained else 0.0
            variance = (own + PRIOR * variance) / (gained + PRIOR)
            log = (logs + PRIOR * log) / (gained + PRIOR)
            chance = (gained + PRIOR * chance) / (number + PRIOR)
            seconds = (spent_s + PRIOR * seconds) / (timed + PRIOR)
        spread = math.sqrt(variance * (1 + 1 / (gained + PRIOR)))
        is_new = (family_of(strategy), strategy) not in self._sums
        return Forecast(chance, log, spread, seconds, is_new)


def levels(
    strategy: str, kind: str, decade: int | None, category: str
) -> Iterator[tuple[object, ...]]:
    """Yield what a cell is a part of, the largest first. What is not known is a part of the larger
    ones alone."""
    if strategy != CONFIRMATION:  # it is no program
        yield (family_of(strategy),)
    yield family_of(strategy), strategy
    yield family_of(strategy), strategy, kind
    if decade is not None:
        yield family_of(strategy), strategy, kind, decade
        if category != UNKNOWN:
            yield family_of(strategy), strategy, kind, decade, category


def cell_numbers(cell: Cell) -> tuple[float, ...]:
    """Return what is added of cells."""
    return cell.number, cell.gains, cell.logs, cell.squares, cell.timed, cell.seconds


def decade_of(time_us: float | None) -> int | None:
    """Return the decade of a time: 3 from 1 ms to 10 ms."""
    return None if not time_us else math.floor(math.log10(time_us))


def strategy_of(operators: Sequence[str]) -> str:
    """Return what is counted together: the only operator, or what comes last on top of others.
    Graphs of training and of inference are graphs."""
    if operators and GRAPH_NAMES.issuperset(operators):
        return CUDA_GRAPH.name
    if len(operators) <= 1:
        return operators[0] if operators else OTHER
    return f"+{operators[-1]}" if operators[-1] in WRAPPED else "+"


def family_of(strategy: str) -> str:
    """Return what a strategy of which little is known is like."""
    if strategy.startswith("+"):
        return "combination"
    if strategy in COMPILE_NAMES:
        return "compilation"
    if strategy in SETTINGS:
        return "setting"
    own = (CUDA_GRAPH.name, COMPILED_REGION, CONFIRMATION)
    return strategy if strategy in own else SOURCE


def is_source_edit(candidate: Candidate) -> bool:
    """Return whether nothing but lines of the source is changed."""
    return all(family_of(one) == SOURCE for one in operators_of(candidate))


def base_of(operators: Sequence[str], known: dict[tuple[str, ...], float]) -> float | None:
    """Return the highest log among measured programs with some of these edits; 0 of a single one,
    None where none was measured."""
    if len(operators) <= 1 or GRAPH_NAMES.issuperset(operators):
        return 0.0
    found = [log for some, log in known.items() if set(some) < set(operators)]
    return max(found, default=None)


def cells_of(counts: Iterable[Count]) -> list[Cell]:
    """Return counts in cells."""
    sums: dict[tuple[str, str, int | None, str], list[float]] = defaultdict(lambda: [0.0] * 6)
    for one in counts:
        where = one.where
        found = sums[one.strategy, where.kind, decade_of(where.time_us), where.category]
        log = None if one.log is None or one.log < LEAST_LOG else min(one.log, MOST_LOG)
        of_time = (one.seconds is not None, one.seconds or 0.0)
        row = (1, log is not None, log or 0.0, (log or 0.0) ** 2, *of_time)
        found[:] = [a + b for a, b in zip(found, row, strict=True)]
    return [
        Cell(*sort, int(n), int(gains), round(logs, 4), round(squares, 4), int(timed), round(s, 1))
        for sort, (n, gains, logs, squares, timed, s) in sorted(sums.items(), key=str)
    ]


def counts_of(tries: Sequence[Tried], where: Situation) -> Iterator[Count]:
    """Yield what is counted of tries of one problem on one device. What is combined counts by what
    it adds to the best of its parts. A confirmation counts by its seconds, and for the speedup
    where no screening is known."""
    known: dict[tuple[str, ...], float] = {}
    for one in tries:
        if one.log is not None:
            known[one.operators] = max(one.log, known.get(one.operators, one.log))
    screened = {one.operators for one in tries if not one.is_confirmation}
    for one in tries:
        if one.is_confirmation:
            yield Count(CONFIRMATION, where, None, one.seconds)
        base = base_of(one.operators, known)
        if base is None or (one.is_confirmation and one.operators in screened):
            continue
        log = None if one.log is None else one.log - base
        seconds = None if one.is_confirmation else one.seconds
        yield Count(strategy_of(one.operators), where, log, seconds)


def learned(archive: Archive) -> Iterator[Count]:
    """Yield what is counted of the evaluations in an archive."""
    found: dict[tuple[str, str], list[Evaluation]] = defaultdict(list)
    for _, one in archive.recorded():
        if one.device is not None and says_something(one):
            found[one.candidate.problem_id, one.device.key].append(one)
    seen = archive.all_noted(SEEN, Situation)
    for (problem_id, _), evaluations in found.items():
        device = evaluations[0].device
        assert device is not None
        where = seen.get(f"{problem_id} {device.kind}")
        if where is None:
            times = [speedups.reference_us(m) for one in evaluations for m in one.measurements[:1]]
            where = Situation(device.kind, speedups.geometric_mean(times) if times else None)
        tries = [tried(one) for one in evaluations if operators_of(one.candidate)]
        yield from counts_of(tries, where)


def says_something(evaluation: Evaluation) -> bool:
    """Return whether a verdict is on the candidate: also where its time was spent."""
    was_cut = any(one.rule == CUT for one in evaluation.findings)
    return was_cut or evaluation.verdict.status not in NEVER_REUSED


def tried(evaluation: Evaluation) -> Tried:
    """Return what an evaluation came to."""
    return Tried(
        operators_of(evaluation.candidate),
        log_of(evaluation),
        evaluation.elapsed_s,
        evaluation.phase == "confirmed",
    )


def log_of(evaluation: Evaluation) -> float | None:
    """Return the log of a candidate's speedup; None where it was not measured."""
    found = speedups.estimate(evaluation)
    return math.log(found) if found > 0 else None


@cache
def shipped() -> tuple[Cell, ...]:
    """Return the counts of this package."""
    text = Path(__file__).with_name("ranking.json").read_bytes()
    return tuple(msgspec.json.decode(text, type=list[Cell]))


def ranking_of(archive: Archive) -> Ranking:
    """Return forecasts from the counts of this package and of an archive."""
    return Ranking((*shipped(), *cells_of(learned(archive))))


def normal(z: float) -> float:
    """Return the chance that a standard normal number is below z."""
    return math.erfc(-z / math.sqrt(2)) / 2
