"""Pair the targets to compare: those that a change touches, in both of its trees.

Workloads are the head's, as it is called now; the base is the reference. A target whose file was
renamed is the same. One that has another name or place is paired with one that was removed, where
signature and body say that it is the same (renamed.py); else it is new, and the old one was
removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudal1_ci.compare.renamed import renamed
from cudal1_ci.discover import Discovery
from cudal1_ci.discover.kernel_problems import with_native_files
from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.records import (
    Candidate,
    Change,
    Comparison,
    ComparisonVerdict,
    Entry,
    Problem,
    Target,
    TreeProgram,
)
from cudal1_ci.records.comparison import Cause

PROPOSER = "pull_request"
"""Who wrote the head."""
IS_NEW = "it is not in the base"
IS_REMOVED = "nothing in the head has its name or its code"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target in both trees."""

    target: Target
    problem: Problem
    """The base, under the head's workloads."""
    head: Candidate
    previous: str | None = None
    """`path:qualname` in the base, where that is another one."""

    @property
    def num_comparisons(self) -> int:
        return len(self.problem.workloads)

    @property
    def share(self) -> float:
        """Return the share of the traced time, where that is known."""
        return sum(workload.share or 0.0 for workload in self.problem.workloads)

    @property
    def inclusive_us(self) -> float:
        """Return the traced time of its calls, with what they call."""
        calls = self.problem.workloads
        return sum((one.traced_us or 0.0) * (one.num_calls or 1) for one in calls)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Hold all targets that a change touches."""

    pairs: tuple[Pair, ...]
    others: tuple[Entry, ...]
    """What cannot be compared, each with its verdict and reason."""


def pairs_of(head: Plan, base: Discovery, change: Change) -> Pairs:
    """Pair the targets of `head`, the plan of what the change touches in its tree, with those of
    the base's tree.
    """
    before = {file.path: file.previous_path or file.path for file in change.files}
    known = {(target.path, target.qualname) for target in base.targets}
    assert head.discovery is not None, "a survey keeps what it read"
    paths = {place.module: path for path, place in head.discovery.modules.places.items()}
    fresh = [
        planned.target
        for planned in head.targets
        if (before.get(planned.target.path, planned.target.path), planned.target.qualname)
        not in known
    ]
    moved = renamed(fresh, Path(head.root), head.removed, Path(base.root))
    pairs, others, gone = [], [], dict[Target, Entry]()
    for planned in head.targets:
        target = planned.target
        old = moved.get((target.path, target.qualname))
        if target in fresh and old is None:
            others.append(not_compared(planned, "new", IS_NEW))
        elif planned.problem is None:
            reason = planned.reason or "no workload"
            others.append(not_compared(planned, "skipped", reason, "skipped"))
        else:
            program = planned.problem.reference
            assert isinstance(program, TreeProgram)
            path = paths[program.import_path.partition(":")[0]]
            if old is None:
                reference = as_in(base, program, before.get(path, path), target)
            else:
                reference = as_in(base, program, old.path, target, old.qualname)
            if reference is None:
                others.append(not_compared(planned, "new", "what launches it is not in the base"))
            else:
                pairs.append(pair(planned, reference, program, old))
                continue
        if old is not None:
            gone[old] = lost(old, f"it is {target.address} in the head", target)
    measured = {moved.get((one.target.path, one.target.qualname)) for one in pairs}
    others += [
        gone.get(target) or lost(target, IS_REMOVED)
        for target in head.removed
        if target not in measured
    ]
    return Pairs(pairs=tuple(pairs), others=tuple(others))


def lost(target: Target, reason: str, now: Target | None = None) -> Entry:
    """Return the entry of a target that the head does not have, or has elsewhere (`now`)."""
    cause: Cause = "lost"
    if now is not None:
        cause = "renamed" if now.path == target.path else "moved"
    return Entry(
        target=target,
        skipped=reason,
        comparison=Comparison(verdict="removed", reason=reason, cause=cause),
    )


def pair(
    planned: Planned, reference: TreeProgram, program: TreeProgram, old: Target | None = None
) -> Pair:
    assert planned.problem is not None
    # Without its target: what launches a kernel is compared, and nothing is asked of a candidate
    # for one. Kernels of one launcher are one measurement.
    problem = Problem(reference=reference, workloads=planned.problem.workloads)
    head = Candidate(problem_id=problem.id, program=program, proposer=PROPOSER)
    previous = None if old is None else old.address
    return Pair(target=planned.target, problem=problem, head=head, previous=previous)


def as_in(
    base: Discovery, program: TreeProgram, path: str, target: Target, qualname: str = ""
) -> TreeProgram | None:
    """Return the head's program as it is in the base, where its file was at `path`, and its name
    perhaps another one."""
    place = base.modules.places.get(path)
    if place is None:
        return None
    qualname = qualname or program.import_path.partition(":")[2]
    found = TreeProgram(
        root=str(Path(base.root).resolve()),
        import_root=place.import_root,
        import_path=f"{place.module}:{qualname}",
        digest=base.imports.digest(path),
    )
    return with_native_files(found, base) if target.is_kernel else found


def not_compared(
    planned: Planned, verdict: ComparisonVerdict, reason: str, cause: Cause | None = None
) -> Entry:
    """Return the entry of a target that is in one tree alone, or cannot be called."""
    return Entry(
        target=planned.target,
        skipped=reason,
        hint=planned.hint if verdict == "skipped" else None,
        workloads=planned.workloads,
        comparison=Comparison(verdict=verdict, reason=reason, cause=cause),
    )


def in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Sort pairs. Targets that were changed themselves come before those that use them, the largest
    share of the traced time first. Of those that use them the ones whose calls take the most come
    first, with all that they call: root calls show what a change means. Guessed calls come last.
    """

    def place(one: Pair) -> tuple[bool, bool, float]:
        is_guessed = all(w.is_guess for w in one.problem.workloads)
        uses_change = one.target.only_uses_change
        return is_guessed, uses_change, -(one.inclusive_us if uses_change else one.share)

    return sorted(pairs, key=place)
