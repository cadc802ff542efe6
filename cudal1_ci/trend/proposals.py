"""What became of proposals: accepted, open (proven and never applied) or outdated.

The lines of the history are events in their order: a proposal that is proven is open, a `Fate` says
what later code says of it, and the same proposal proven again after that is open again (somebody
took it back). Ages count from the first time it was proven to the last commit of the history, never
to today: the page of a history is the same whenever it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cudal1_ci.trend.commits import Commits
from cudal1_ci.trend.evidence import TextOf, fate_of
from cudal1_ci.trend.record import Fate, FateWord, Gain, History, Machine, Proposal
from cudal1_ci.trend.series import hardware, machines_of


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a proposal gains on one device, as measured last."""

    machine: Machine
    gains: tuple[Gain, ...]

    @property
    def saved_us(self) -> float:
        """Of a training step where it is known how often the workloads are called in one, else of
        one call of each: by the lower bounds of the speedups."""
        known = [g.calls_per_step for g in self.gains if g.calls_per_step is not None]
        counts = [
            (
                1.0 if not known else g.calls_per_step or 0.0,
                g.reference_us * (1 - 1 / g.speedup_low),
            )
            for g in self.gains
        ]
        return math.fsum(count * saved for count, saved in counts)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A proposal with what became of it."""

    proposal: Proposal
    fate: FateWord
    proven_at: int
    """Place of the first commit at which it was proven, since it is open."""
    settled_at: int | None
    """Place of the commit that accepted it, or replaced what it would change."""
    measured: tuple[Measured, ...]
    age_commits: int
    age: timedelta | None

    @property
    def saved_us(self) -> float:
        return max((one.saved_us for one in self.measured), default=0.0)


@dataclass
class _Standing:
    proposal: Proposal
    proven_at: int
    measured: dict[str, Proposal]
    fate: FateWord = "open"
    settled_at: int | None = None


def proposals_of(history: History, commits: Commits) -> list[Told]:
    """Every proposal of the commits, those that save the most first."""
    machines = machines_of(history)
    told = []
    for standing in _standings(events_of(history), commits).values():
        end = standing.settled_at if standing.fate == "accepted" else len(commits.all) - 1
        end = len(commits.all) - 1 if end is None else end
        by_hardware = {
            hardware(machines[key]): Measured(machine=machines[key], gains=one.gains)
            for key, one in standing.measured.items()
            if key in machines
        }
        told.append(
            Told(
                proposal=standing.proposal,
                fate=standing.fate,
                proven_at=standing.proven_at,
                settled_at=standing.settled_at,
                measured=tuple(by_hardware.values()),
                age_commits=max(0, end - standing.proven_at),
                age=_between(commits, standing.proven_at, end),
            )
        )
    return sorted(told, key=lambda one: -one.saved_us)


def settled(
    events: Sequence[Proposal | Fate],
    commit: str,
    text_of: TextOf,
    is_before: Callable[[str], bool],
) -> list[Fate]:
    """What the code of a commit says of the proposals before it that is not known of them yet."""
    fates = []
    for standing in _standings(events, None).values():
        proposal = standing.proposal
        if proposal.commit == commit or not is_before(proposal.commit):
            continue
        fate = fate_of(proposal.before, proposal.after, text_of)
        if fate is not None and fate != standing.fate:
            fates.append(Fate(proposal=proposal.id, commit=commit, fate=fate))
    return fates


def events_of(history: History) -> list[Proposal | Fate]:
    """What happened to proposals, in the order of the lines."""
    return [entry for entry in history.entries if isinstance(entry, Proposal | Fate)]


def _standings(events: Sequence[Proposal | Fate], commits: Commits | None) -> dict[str, _Standing]:
    standings: dict[str, _Standing] = {}
    for entry in events:
        place = commits.place(entry.commit) if commits else 0
        if place is None:
            continue
        if isinstance(entry, Proposal):
            _prove(standings, entry, place)
        elif entry.proposal in standings:
            one = standings[entry.proposal]
            one.fate = entry.fate
            one.settled_at = None if entry.fate == "open" else place
    return standings


def _prove(standings: dict[str, _Standing], proposal: Proposal, place: int) -> None:
    one = standings.get(proposal.id)
    if one is None or one.fate != "open":
        one = standings[proposal.id] = _Standing(proposal, place, {})
    one.measured.pop(proposal.device, None)  # the last one measured is the last one listed
    one.measured[proposal.device] = proposal


def _between(commits: Commits, start: int, end: int) -> timedelta | None:
    first, last = commits.all[start].date, commits.all[end].date
    return None if first is None or last is None else max(last - first, timedelta())


def open_of(told: Sequence[Told]) -> list[tuple[Told, int]]:
    """Of each target the open proposal that saves the most, and how many others there are."""
    by_target: dict[str, list[Told]] = {}
    for one in told:
        if one.fate == "open":
            by_target.setdefault(one.proposal.target, []).append(one)
    return [(same[0], len(same) - 1) for same in by_target.values()]
