"""Give verifiers to targets, one step at a time: the one that saves most for each second is next.

    entries = Turns(targets, context).taken()

What a step is worth is the share of the traced time that the target takes, times what the step is
expected to save of it, for each second (ranking.py). A target that was not looked at counts as one
with an edit that is worth a try, so that each has its first candidate before doubtful ones of
others. To change the target costs the verification of its reference, which counts for all but the
one that a verifier is at. Without a budget, and with a model, all of a target is tried at once.

On a GPU the largest models come first. Each is compiled as a whole and replayed as a CUDA graph,
which is where most of the gain is when a call launches many small kernels. A run that stops after a
few modules could not say what the model gains. What takes minutes on top of a first gain waits for
the first try of the other models. Once a model is faster as a whole, the modules inside it count
for less.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.discover.plan import Planned
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.ranking import is_source_edit
from cudal1_ci.optimize.reasons import INTERRUPTED, untried
from cudal1_ci.optimize.roots import recorded_roots
from cudal1_ci.optimize.target import Step, TargetSearch, advance, entry_of, leave
from cudal1_ci.pool import SlotLost
from cudal1_ci.propose.wrappers.strategy import HOST
from cudal1_ci.records import Candidate, Entry
from cudal1_ci.stats import speedups
from cudal1_ci.verification.protocol import Verifier

FIRST_RATE = 0.004
"""Of a target that was not looked at: an edit of the source that saves a tenth, in 25 s."""
FIRST_S = 20.0
"""What it takes to look at one, and to try something."""
CHANGE_S = 15.0
"""What it takes to verify a reference again, of a target that another one followed."""
LEFT_INSIDE = 0.3
"""What a module's worth is multiplied by once the model around it is faster as a whole."""
NOTHING_LEFT = Step(None, 0.0, 1.0)
LAST = -9
"""How urgent a target is for which there is no time."""

Worth = tuple[int, float]
"""How urgent a target is, 0 the most and less the less; then what its next step is worth."""


class Turns:
    """The targets of a run, those that are most urgent first, and what becomes of them."""

    def __init__(self, targets: Sequence[Planned], context: RunContext):
        self.targets, self.context = targets, context
        self.entries: list[Entry | None] = [None] * len(targets)
        self.searches: dict[int, TargetSearch] = {}
        self.posed = [n for n, one in enumerate(targets) if one.problem is not None]
        is_traced = any(share_of(targets[n]) for n in self.posed)
        unknown = context.config.min_share if is_traced else 1.0
        self.weights = {n: share_of(targets[n]) or unknown for n in self.posed}
        self.changes = context.config.budget_s is not None and context.optimizer is None
        self.inside = inside_of(targets)
        self.whole = self.whole_first()
        """Targets whose wrappers come before all else."""
        self.gained: set[str] = set()
        """Models that became faster as wholes."""
        self.worths = {n: self.worth(n, FIRST_RATE) for n in self.posed}
        """Of targets that are not done."""
        self.held: set[int] = set()
        """Targets that a verifier is at."""
        context.pace.num_open = len(self.posed)

    def whole_first(self) -> set[int]:
        """Return the models that are tried as wholes first."""
        if not self.posed or self.context.session.device().kind != "cuda":
            return set()
        return {n for n in self.posed if self.inside_share(n) > self.weights[n]}

    def inside_share(self, number: int) -> float:
        """Return the share of the traced time of what is inside of a target."""
        return self.inside.get(self.targets[number].target.address, 0.0)

    def taken(self) -> list[Entry | None]:
        """Return the entry of each target; None for those that were not reached."""
        if self.context.pool is not None:
            self.side_by_side()
        else:
            self.one_by_one()
        self.end_what_is_open()
        if not self.context.ending.is_early:
            for number, planned in enumerate(self.targets):
                if planned.problem is None:
                    self.entries[number] = untried(planned, "")
        return self.entries

    def one_by_one(self) -> None:
        """Take turns with one verifier."""
        number = None
        try:
            while self.worths and not self.context.is_over():
                number = max(self.worths, key=self.worth_now)
                self.visit(number, self.context)
                if self.context.ending.was_interrupted:
                    return
        except KeyboardInterrupt:
            self.context.ending.was_interrupted = True
            if number is not None and number not in self.searches:
                self.entries[number] = untried(self.targets[number], INTERRUPTED)

    def side_by_side(self) -> None:
        """Take turns with several verifiers."""
        pool, context = self.context.pool, self.context
        assert pool is not None

        def turn(number: int, verifier: Verifier) -> None:
            self.visit(number, context.with_verifier(verifier))
            if number not in self.worths and not context.ending.is_early:
                context.progress.target_ended(self.targets[number].target)

        outcomes = pool.map(
            self.posed,
            turn,
            is_over=context.is_over,
            run_status=context.ending,
            worth=self.worth_now,
            is_open=lambda number: number in self.worths,
        )
        for number, outcome in zip(self.posed, outcomes, strict=True):
            planned = self.targets[number]
            if outcome.reason is None:
                continue
            self.worths.pop(number, None)
            if self.entries[number] is None:
                self.entries[number] = untried(planned, outcome.reason)
                context.progress.target_skipped(planned.target, outcome.reason)
            else:
                context.fallen[planned.target] = outcome.reason

    def visit(self, number: int, context: RunContext) -> None:
        """Do what is worth most on a target, until another one is worth more."""
        planned = self.targets[number]
        assert planned.problem is not None
        search = self.searches.get(number)
        if search is None:
            search = TargetSearch(planned.target, planned.problem, context.strategies, context)
            self.searches[number] = search
            if number in self.whole:
                own = self.weights[number]
                search.own_part = own / (own + self.inside_share(number))
        search.context = context
        self.held.add(number)
        try:
            while advance(search):
                step = search.next_step() or NOTHING_LEFT
                later = step.saving / (step.seconds + CHANGE_S)
                if step.candidate is not None and is_of_own_lines(step.candidate):
                    self.whole.discard(number)
                self.worths[number] = self.worth(number, later)
                now = self.worth(number, step.rate)
                stays = number in self.whole and not search.examination.has_confirmed()
                leaves = self.changes and not stays and may_leave(search, step)
                if leaves and self.is_outbid(now):
                    leave(search)
                    self.note_gain(search)
                    return
            self.end(number)
        except SlotLost:
            del self.searches[number]  # another verifier begins again, with what was kept
            raise
        finally:
            self.held.discard(number)

    def is_outbid(self, worth: Worth) -> bool:
        """Return whether a target that waits is worth more."""
        others = [self.worth_now(one) for one in self.worths.copy() if one not in self.held]
        return max(others, default=worth) > worth

    def worth_now(self, number: int) -> Worth:
        """Return what a target is worth that waits; nothing, where what was found needs the time
        that is left."""
        urgency, rate = self.worths.get(number, (LAST, 0.0))
        is_new = number not in self.searches
        reserved_s = self.context.reserved_s()
        is_late = reserved_s > 0 and self.context.left_s() < reserved_s + FIRST_S
        if self.changes and is_new and is_late:
            return LAST, 0.0
        is_covered = not self.gained.isdisjoint(recorded_roots(self.targets[number]))
        return urgency, rate * (LEFT_INSIDE if is_covered else 1.0)

    def end(self, number: int) -> None:
        """Keep what became of a target that is done."""
        self.worths.pop(number, None)
        self.context.pace.num_open -= 1
        self.entries[number] = entry_of(self.searches[number], self.targets[number])
        self.note_gain(self.searches[number])

    def note_gain(self, search: TargetSearch) -> None:
        """Note whether a model is faster as a whole."""
        best = search.examination.proposed()
        if best is not None and not is_source_edit(search.evaluations[best].candidate):
            self.gained.add(search.target.address)

    def end_what_is_open(self) -> None:
        """Keep what became of targets that were begun, and note whether time was missing."""
        for number, search in self.searches.items():
            if number in self.worths:
                search.was_cut = bool(search.pending) and not self.context.ending.was_interrupted
                search.reason = search.reason or search.cut_by()
                self.end(number)
        self.context.ending.was_cut |= any(one.was_cut for one in self.searches.values())

    def worth(self, number: int, rate: float) -> Worth:
        """Return what a step of a target is worth."""
        planned = self.targets[number]
        problem, least = planned.problem, self.context.config.min_share
        is_last = problem is not None and speedups.is_negligible(problem, least)
        urgency = -2 * planned.target.only_uses_change - is_last
        if number in self.whole:
            search = self.searches.get(number)
            is_first = search is None or not search.examination.has_confirmed()
            return urgency + is_first, self.inside_share(number) * rate
        return urgency, self.weights[number] * rate


def may_leave(search: TargetSearch, step: Step) -> bool:
    """Return whether a verifier may leave a target: a reference is verified for a first edit."""
    is_edit = step.candidate is not None and is_source_edit(step.candidate)
    return bool(search.evaluations) or not is_edit


def is_of_own_lines(candidate: Candidate) -> bool:
    """Return whether a candidate edits lines of a model for their own time. What only takes out a
    wait for the device lets a CUDA graph hold the whole model."""
    return is_source_edit(candidate) and any(one.technique != HOST for one in candidate.edits)


def share_of(planned: Planned) -> float:
    """Return the share of the traced time that a target takes, without targets inside of it."""
    return sum(w.share or 0.0 for w in planned.workloads)


def inside_of(targets: Sequence[Planned]) -> dict[str, float]:
    """Return the traced share of what is inside of each model, by its address."""
    found: dict[str, float] = {}
    for planned in targets:
        for one in planned.workloads:
            if one.root and one.root != planned.target.address:
                found[one.root] = found.get(one.root, 0.0) + (one.share or 0.0)
    return found
