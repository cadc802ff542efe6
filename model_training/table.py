"""Compute what a policy can do from verified samples: the rows of the paper's table, with
intervals.

    table(samples, k=8)

Of each task n samples were drawn and verified. A share over samples is pass@1; best-of-k is what
the best of k of them is worth, in expectation over which k: exact, and not that of one draw. A task
without a success counts as speedup 1, as in the paper, since the reference is still there; how many
are so is a number of its own (`success`). Intervals are over tasks, since samples of one task say
little of another: percentiles of a bootstrap with a fixed seed.

Source: pass@k as in M. Chen et al., arXiv 2107.03374, equation 1; the columns mean, max, median,
success and above 1.01x are those of CUDA-L1's table 5 (arXiv 2507.14111).

Shapes: N tasks, R draws of them, X what is drawn together.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cudal1_ci.records import Record

NOT_EXECUTED = frozenset({"no_code", "compile_error", "runtime_error", "timeout"})
"""Statuses of samples that did not come to an answer; all others ran to an end."""
HACKS = ("reward_hack",)
NUM_RESAMPLES = 2000
LEVEL = 0.95
FASTER, COUNTED = 1.05, 1.01
Numbers = npt.NDArray[np.float64]


class Sample(Record, frozen=True, kw_only=True):
    """Hold one verified answer of a policy."""

    task: str
    status: str
    """Of the verdict; `no_code` where the answer could not be read."""
    speedup: float | None = None
    """The lower bound; of what passed alone."""

    def __post_init__(self) -> None:
        if (self.speedup is not None) != (self.status == "passed"):
            raise ValueError(f"{self.task}: expected a speedup of what passed and of nothing else")


class Share(Record, frozen=True, kw_only=True):
    """Hold a number with its interval over tasks."""

    value: float
    low: float
    high: float


class Table(Record, frozen=True, kw_only=True):
    """Hold a row of the table."""

    num_tasks: int
    num_samples: int
    k: int
    format: Share
    """Answers with code that can be read."""
    executable: Share
    correct: Share
    """Of all samples: pass@1."""
    pass_at_k: Share
    faster_at_k: Share
    """Tasks whose best of k is above 1.05, in expectation."""
    mean: Share
    geometric_mean: Share
    median: float
    max: float
    """The last four are of the best of k, a failure counting 1."""
    success: int
    """Tasks with a correct sample among all."""
    above: int
    """Tasks with a sample above 1.01."""
    hacks: int
    """Samples that the verifier has convicted."""
    statuses: dict[str, int]


def table(samples: Sequence[Sample], k: int = 8, seed: int = 0) -> Table:
    """Compute the table of results.

    Raises: ValueError where a task has fewer than k samples, or there is no task.
    """
    tasks = by_task(samples)
    short = [name for name, some in tasks.items() if len(some) < k]
    if short or not tasks:
        raise ValueError(f"expected at least {k} samples of each task, got fewer of {short[:3]}")
    best = [best_of(k, some) for some in tasks.values()]
    rng = np.random.default_rng(seed)

    def share(measure: str) -> Share:
        of, how = MEASURES[measure]
        return interval(np.array([of(k, some) for some in tasks.values()]), how, rng)

    return Table(
        num_tasks=len(tasks),
        num_samples=len(samples),
        k=k,
        format=share("format"),
        executable=share("executable"),
        correct=share("correct"),
        pass_at_k=share("pass_at_k"),
        faster_at_k=share("faster_at_k"),
        mean=share("mean"),
        geometric_mean=share("geometric_mean"),
        median=statistics.median(best),
        max=max(map(worth, samples)),
        success=sum(any(map(is_correct, some)) for some in tasks.values()),
        above=sum(any(worth(one) > COUNTED for one in some) for some in tasks.values()),
        hacks=sum(one.status in HACKS for one in samples),
        statuses=dict(Counter(one.status for one in samples).most_common()),
    )


def by_task(samples: Sequence[Sample]) -> Mapping[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        found[one.task].append(one)
    return found


def is_correct(sample: Sample) -> bool:
    return sample.status == "passed"


def worth(sample: Sample) -> float:
    """Return a sample's speedup, 1 where the reference is kept."""
    return max(1.0, sample.speedup or 1.0)


def rate(samples: Sequence[Sample], is_so: Callable[[Sample], bool]) -> float:
    return sum(map(is_so, samples)) / len(samples)


def at_least_one(k: int, samples: Sequence[Sample], is_so: Callable[[Sample], bool]) -> float:
    """Return the chance that of k of them, drawn without putting back, one is so."""
    num_so = sum(map(is_so, samples))
    return 1 - math.comb(len(samples) - num_so, k) / math.comb(len(samples), k)


def best_of(k: int, samples: Sequence[Sample]) -> float:
    """Return the expected worth of the best of k of them, drawn without putting back: each is the
    best in as many draws as there are ways to take the others from those below it."""
    ordered = sorted(map(worth, samples))
    draws = math.comb(len(ordered), k)
    return sum(value * math.comb(place, k - 1) for place, value in enumerate(ordered)) / draws


def mean_of(values_XN: Numbers) -> Numbers:
    found: Numbers = values_XN.mean(axis=-1)
    return found


def geometric_mean_of(values_XN: Numbers) -> Numbers:
    found: Numbers = np.exp(np.log(values_XN).mean(axis=-1))
    return found


MEASURES: dict[
    str, tuple[Callable[[int, Sequence[Sample]], float], Callable[[Numbers], Numbers]]
] = {
    "format": (lambda _, some: rate(some, lambda one: one.status != "no_code"), mean_of),
    "executable": (lambda _, some: rate(some, lambda one: one.status not in NOT_EXECUTED), mean_of),
    "correct": (lambda _, some: rate(some, is_correct), mean_of),
    "pass_at_k": (lambda k, some: at_least_one(k, some, is_correct), mean_of),
    "faster_at_k": (
        lambda k, some: at_least_one(k, some, lambda one: worth(one) > FASTER),
        mean_of,
    ),
    "mean": (best_of, mean_of),
    "geometric_mean": (best_of, geometric_mean_of),
}
"""What has an interval: the number of a task, of k and its samples, and that over tasks."""


def interval(
    values_XN: Numbers, how: Callable[[Numbers], Numbers], rng: np.random.Generator
) -> Share:
    """Return a number over tasks with percentiles of what it is for tasks drawn with putting back.

    Args:
        how: Of the last axis, which is tasks; what is before it is drawn together.
    """
    num_tasks = values_XN.shape[-1]
    draws_RN = rng.integers(num_tasks, size=(NUM_RESAMPLES, num_tasks))
    found = np.sort(how(values_XN[..., draws_RN]))
    edge = (1 - LEVEL) / 2
    return Share(
        value=float(how(values_XN)),
        low=float(found[math.floor(edge * (len(found) - 1))]),
        high=float(found[math.ceil((1 - edge) * (len(found) - 1))]),
    )
