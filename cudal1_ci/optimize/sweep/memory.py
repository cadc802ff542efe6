"""Remember the result of a target when a sweep was done with it, next to the evaluations.

A look is written only when everything was tried on a target. A target that was cut short by a
budget, an interrupt or a kill has none and is tried again; its finished evaluations then cost
nothing. A look holds the names of evaluations and not their contents: the archive has those, under
its own rule of reuse.

    note_look(planned, entry, context, means, is_settled=is_settled(problem, entry, context))
    entry = recalled(planned, look, context)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from cudal1_ci.discover.plan import Planned
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import NO_KERNEL_PROPOSED, NOTHING_PROPOSED, untried
from cudal1_ci.optimize.target import TargetSearch
from cudal1_ci.records import (
    Candidate,
    Entry,
    Evaluation,
    Problem,
    Record,
    Target,
    TreeProgram,
    content_hash,
    program_identity,
)
from cudal1_ci.records.archive import NEVER_REUSED
from cudal1_ci.stats import speedups

LOOK = "look"
"""Kind of the archive's notes."""
NOTHING_TO_TRY = (NOTHING_PROPOSED, NO_KERNEL_PROPOSED)


class Look(Record, frozen=True, kw_only=True):
    """A target, done."""

    target: str
    device: str
    """Name of what was measured on."""
    problem_id: str
    """Under which the archive has its evaluations."""
    code: str
    """`code_of` its problem."""
    device_key: str
    means: str
    """Hash of what was tried with: the verifier's settings, the proposers, the version of this."""
    at: float
    """Seconds since the epoch."""
    candidate_ids: tuple[str, ...] = ()
    skipped: str | None = None
    hint: str | None = None
    is_settled: bool
    """Whether each verdict would hold again; a busy machine or a missing package settles
    nothing."""
    times_us: dict[str, float]
    """Of one call of the original, by workload."""


def name_of(target: Target) -> str:
    """Return a name that stays the same while the target keeps its name and file."""
    return f"{target.kind} {target.address}"


def code_of(problem: Problem) -> str:
    """Hash of the code and of the shapes that it is called with. The ranges of values are left out:
    tests that draw their inputs show others each time."""
    calls = [
        without_ranges(msgspec.to_builtins((w.init, w.call, w.mode, w.atol, w.rtol, *w.dtypes)))
        for w in problem.workloads
    ]
    # Sorted: which of two took longer is another thing in each recording.
    return content_hash([program_identity(problem.reference), sorted(map(content_hash, calls))])


def without_ranges(value: Any) -> Any:
    """Return argument specs as plain data, without the values that tensors had."""
    if isinstance(value, dict):
        ranges = ("low", "high") if value.get("type") == "tensor" else ()
        return {key: without_ranges(each) for key, each in value.items() if key not in ranges}
    if isinstance(value, list | tuple):
        return [without_ranges(each) for each in value]
    return value


def note_look(
    planned: Planned, entry: Entry, context: RunContext, means: str, *, is_settled: bool
) -> None:
    """Keep what became of a target; what was kept of it on this device before is replaced."""
    assert planned.problem is not None
    device = context.session.device()
    look = Look(
        target=name_of(planned.target),
        device=device.name,
        problem_id=planned.problem.id,
        code=code_of(planned.problem),
        device_key=device.key,
        means=means,
        at=time.time(),
        candidate_ids=tuple(one.candidate.id for one in entry.evaluations),
        skipped=entry.skipped,
        hint=entry.hint,
        is_settled=is_settled,
        times_us={
            m.workload: speedups.reference_us(m) for e in entry.evaluations for m in e.measurements
        },
    )
    context.archive.note(LOOK, f"{device.name} {look.target}", look)


def is_settled(problem: Problem, entry: Entry, context: RunContext) -> bool:
    """Return whether another look would find the same, by the archive's rules."""
    if entry.skipped is None:
        is_told = entry.best is not None or not any(map(speedups.is_undecided, entry.evaluations))
        return is_told and all(one.verdict.status not in NEVER_REUSED for one in entry.evaluations)
    if entry.skipped in NOTHING_TO_TRY:
        return True
    known = context.remembered_reference(problem)
    # Of a reference that passed it was something else: that the verifier died, or a bug of ours.
    return known is not None and known.verdict.status != "passed"


def recalled(planned: Planned, look: Look, context: RunContext) -> Entry | None:
    """Return the entry of an unchanged target from the archive alone. Verdicts that would not hold
    again are left out. None where nothing is left, or less than was settled.
    """
    problem = planned.problem
    assert problem is not None
    if look.skipped is not None:
        entry = untried(planned, "")
        return msgspec.structs.replace(entry, skipped=look.skipped, hint=look.hint)
    search = TargetSearch(planned.target, problem, (), context)
    search.evaluations += evaluations_of(problem, look, context)
    search.reused = [one.candidate.id for one in search.evaluations]
    is_whole = len(search.evaluations) == len(look.candidate_ids)
    if not search.evaluations or (look.is_settled and not is_whole):
        return None
    best = speedups.best_examined(search.evaluations, problem.workloads)
    return msgspec.structs.replace(search.entry(), best=best)


def evaluations_of(problem: Problem, look: Look, context: RunContext) -> Iterator[Evaluation]:
    """Yield evaluations that may be used again, for this checkout: the archive may know another
    one.
    """
    for candidate_id in look.candidate_ids:
        key = context.session.device().key
        found = context.archive.lookup(look.problem_id, candidate_id, key, context.policy)
        if found is not None:
            candidate = moved(found.candidate, problem)
            yield msgspec.structs.replace(found, candidate=candidate)


def with_earlier(entry: Entry, known: Entry) -> Entry:
    """Merge this look and an earlier one at an unchanged target."""
    own = {one.candidate.id for one in entry.evaluations}
    evaluations = (
        *entry.evaluations,
        *(one for one in known.evaluations if one.candidate.id not in own),
    )
    return msgspec.structs.replace(
        entry,
        evaluations=evaluations,
        contradictions=(
            *entry.contradictions,
            *(one for one in known.contradictions if one.candidate_id not in own),
        ),
        reused=(*entry.reused, *(one for one in known.reused if one not in own)),
        best=speedups.best_examined(evaluations, entry.workloads),
    )


def moved(candidate: Candidate, problem: Problem) -> Candidate:
    """Return the candidate with the checkout's current folder."""
    if not isinstance(candidate.program, TreeProgram):
        return candidate
    assert isinstance(problem.reference, TreeProgram)
    program = msgspec.structs.replace(candidate.program, root=problem.reference.root)
    return msgspec.structs.replace(candidate, program=program)
