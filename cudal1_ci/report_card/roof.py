"""Compute how far a task is from its device's bound: what is left to win where nothing was won.

The bound is that of propose/roofline.py, for what the verifier counts in a call of the reference.
It is a lower bound: what is recurrent or not counted by torch takes longer in any case. What fits
into the L2 cache may take less, and a launch alone takes some microseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from cudal1_ci.errors import WorkerError
from cudal1_ci.propose.roofline import facts_of, least_us
from cudal1_ci.records import Demand, Device, Problem
from cudal1_ci.records.archive import Archive
from cudal1_ci.report_card.columns import BEST
from cudal1_ci.report_card.shape import TaskDocument
from cudal1_ci.report_card.worth import Worth, worth
from cudal1_ci.verification.protocol import Verifier

NOTE = "bench.demand"


def demand_of(session: Verifier, archive: Archive, problem: Problem) -> Demand | None:
    """Return what a call of the problem's reference demands of its device; computed once. None on a
    device without a data sheet, or where it cannot be counted, at no cost to the task.
    """
    if facts_of(session.device().name) is None:
        return None
    known = archive.noted(NOTE, problem.id, Demand)
    if known is None:
        try:
            # It tells of what it checked last: another task's, where this one's verdict was known.
            if session.check(problem).status != "passed":
                return None
            found = session.demand(problem.workloads[0].name)
        except WorkerError:  # the next request starts another verifier
            return None
        if isinstance(found, str):
            return None
        archive.note(NOTE, problem.id, found)
        known = found
    return known


def bound_us(demand: Demand | None, device: Device) -> float | None:
    """Return the least microseconds that a call takes on the device; None where that is
    not known.
    """
    facts = facts_of(device.name)
    return least_us(demand, facts) or None if demand and facts else None


def reference_us(task: TaskDocument) -> float | None:
    """Return the time of one call of the reference, over all its measurements."""
    trials = [trial for result in task.results for trial in result.trials]
    times = [m.reference_us for trial in trials for m in trial.measurements if m.reference_us]
    return statistics.median(times) if times else None


def distance(task: TaskDocument, found: Worth) -> float | None:
    """Return how many times the bound a call takes, by what counts in a column. None where either
    is not known.
    """
    taken_us = reference_us(task)
    if task.least_us is None or taken_us is None:
        return None
    return taken_us / found.speedup / task.least_us


def unmoved(tasks: Iterable[TaskDocument]) -> list[tuple[TaskDocument, float | None]]:
    """Return tasks on which `best` keeps the reference, with their distance, the farthest first."""
    found = [(task, worth(task, BEST)) for task in tasks]
    kept = [(task, distance(task, one)) for task, one in found if one.solver == "reference"]
    return sorted(kept, key=lambda pair: -(pair[1] or 0.0))
