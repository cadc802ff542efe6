"""Find helpers that have no call of their own, and ran in calls that were measured.

A change of a helper is measured by what calls it. Calls of measured targets are recorded on the
base, until each helper has run in one: their frames name the functions that ran. A helper that none
of them ran stays unmeasured.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.compare.bench import Bench, each
from cudal1_ci.compare.looks import Looks
from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.device_wait import GaveUp
from cudal1_ci.records import Entry, Target, Workload
from cudal1_ci.records.recording import Recording
from cudal1_ci.verification.protocol import Verifier

WITHIN = "it has no call of its own, and ran in measured calls of "
MOST_NAMED = 3


def helpers_within(others: Sequence[Entry], looks: Sequence[Looks], bench: Bench) -> list[Entry]:
    """Return the entries of targets that were not compared, with what ran them where something
    did that was measured."""
    ran: dict[int, set[str]] = {}
    helpers = [one for one in others if is_uncalled(one)]
    measured = [one for one in looks if one.measurements and one.refused is None]

    def work(one: Looks, verifier: Verifier) -> None:
        known: set[str] = set().union(*ran.values())
        if not all(has_run(helper.target, known) for helper in helpers):
            ran[id(one)] = functions_of(one, verifier, bench)

    if helpers:
        each(measured, work, lambda *_: None, bench, bench.is_over)
    return [within(one, measured, ran) if is_uncalled(one) else one for one in others]


def is_uncalled(entry: Entry) -> bool:
    """Return whether a target could not be called."""
    return entry.comparison is not None and entry.comparison.cause == "skipped"


def functions_of(one: Looks, verifier: Verifier, bench: Bench) -> set[str]:
    """Return functions that ran in measured calls of the base, as `path:qualname`. A guess of how
    it is called shows nothing."""
    found: set[str] = set()
    for workload in measured_workloads(one):
        try:
            with bench.patient():
                recording = verifier.record(one.pair.problem, workload)
        except (GaveUp, WorkerError):
            break
        if isinstance(recording, Recording):
            found |= {f"{frame.file}:{frame.function}" for frame in recording.frames}
    return found


def measured_workloads(one: Looks) -> list[Workload]:
    """Return the workloads under which both trees have times."""
    every = one.pair.problem.workloads
    return [call for call in every if call.name in one.measurements and not call.is_guess]


def within(entry: Entry, measured: Sequence[Looks], ran: dict[int, set[str]]) -> Entry:
    """Return the entry of a helper with the targets in whose calls it ran."""
    callers = [
        one.pair.target for one in measured if has_run(entry.target, ran.get(id(one), set()))
    ]
    if not callers:
        return entry
    named = ", ".join(one.qualname for one in callers[:MOST_NAMED])
    more = f" and {len(callers) - MOST_NAMED} more" if len(callers) > MOST_NAMED else ""
    assert entry.comparison is not None
    comparison = msgspec.structs.replace(
        entry.comparison,
        cause=None,
        reason=f"{WITHIN}{named}{more}",
        within=tuple(one.address for one in callers),
    )
    return msgspec.structs.replace(
        entry, skipped=comparison.reason, hint=None, comparison=comparison
    )


def has_run(target: Target, functions: set[str]) -> bool:
    """Return whether a function, or a method of a class, is among these."""
    method = f"{target.address}."
    return target.address in functions or any(one.startswith(method) for one in functions)
