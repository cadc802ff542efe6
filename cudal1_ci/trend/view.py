"""Sort a history for a person: what stays slower comes first, then the targets, the worst first.

A step to slower counts until later steps undo it. A break is no step: a gain from a new driver does
not undo a loss in the code. Text and page show the same view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ci.stats.regression import RELATIVE
from cudal1_ci.trend.record import History, Run
from cudal1_ci.trend.series import Commit, Commits, Series, Step, all_series, hardware


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A step with its series, and the place at which it was undone."""

    series: Series
    step: Step
    undone_at: int | None

    @property
    def is_standing(self) -> bool:
        """Return whether a step is a regression that no later step has undone."""
        return self.step.ratio > 1 and self.undone_at is None


@dataclass(frozen=True, kw_only=True)
class TargetView:
    """A target on all hardware, under all workloads."""

    number: int
    target: str
    series: tuple[Series, ...]

    @property
    def path(self) -> str:
        return self.target.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.target.partition(":")[2]


@dataclass(frozen=True, kw_only=True)
class View:
    """Hold everything that is shown."""

    repository: str
    commits: Commits
    devices: tuple[str, ...]
    steps: tuple[Seen, ...]
    targets: tuple[TargetView, ...]

    @property
    def standing(self) -> tuple[Seen, ...]:
        return tuple(seen for seen in self.steps if seen.is_standing)

    def commit(self, place: int) -> Commit:
        return self.commits.all[place]


def view(history: History, commits: Commits) -> View:
    """Return the view of a history."""
    every = all_series(history, commits)
    steps = [seen for one in every for seen in _step_views(one)]
    steps.sort(key=lambda s: (not s.is_standing, -abs(math.log(s.step.ratio)), s.series.target))
    runs = history.of(Run)
    return View(
        repository=runs[-1].repository if runs else "",
        commits=commits,
        devices=tuple(dict.fromkeys(hardware(one.machine)[1] for one in every)),
        steps=tuple(steps),
        targets=_targets(every, steps),
    )


def _targets(every: list[Series], steps: list[Seen]) -> tuple[TargetView, ...]:
    """Sort targets, the worst first: by the largest lasting step, then by all steps together."""
    by_target: dict[str, list[Series]] = {}
    for one in every:
        by_target.setdefault(one.target, []).append(one)
    standing: dict[str, float] = {}
    for seen in steps:
        if seen.is_standing:
            target = seen.series.target
            standing[target] = max(standing.get(target, 1.0), seen.step.ratio)

    def badness(target: str) -> tuple[float, float, str]:
        return -standing.get(target, 1.0), -max(one.change for one in by_target[target]), target

    return tuple(
        TargetView(number=number, target=target, series=tuple(by_target[target]))
        for number, target in enumerate(sorted(by_target, key=badness), 1)
    )


def _step_views(series: Series) -> list[Seen]:
    limit = 1 + RELATIVE[series.machine.kind]
    return [
        Seen(series=series, step=step, undone_at=_undone_at(series.steps[number:], limit))
        for number, step in enumerate(series.steps)
    ]


def _undone_at(steps: Sequence[Step], limit: float) -> int | None:
    """Place at which the first of some steps and those that follow it amount to nothing."""
    product = steps[0].ratio
    for step in steps[1:]:
        product *= step.ratio
        if product <= limit:
            return step.place
    return None
