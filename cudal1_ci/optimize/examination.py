"""Examine what would be proposed of a target: its contract, and what its repository says of it.

    examination = Examination(target, problem, evaluations)
    examination.run(context)
    examination.proposed()   # the index of what may be proposed

What was confirmed is faster. It is proposed once its contract was tried, and code, tests and
examples of its repository were asked. Where one of these refuses it, the next best has its turn.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.records import ContractCheck, Evaluation, Problem, Target, TreeProgram
from cudal1_ci.render.wording import acceptance_text
from cudal1_ci.stats import speedups

UNEXAMINED = (
    "something faster was confirmed, and the budget was spent before its contract was examined"
)


class Examination:
    """What is examined of the evaluations of one target, a list that the search adds to."""

    def __init__(self, target: Target, problem: Problem, evaluations: list[Evaluation]):
        self.target, self.problem, self.evaluations = target, problem, evaluations
        self.waits = False
        """Whether something was confirmed that is not examined yet, so that it is not proposed."""
        self.known_ids: set[str] = set()
        """Candidates that were examined and may be proposed, also where a faster one waits."""

    @property
    def is_due(self) -> bool:
        """Return whether proposals are examined here. Texts of a task are not proposed to anyone
        who calls them otherwise."""
        return isinstance(self.problem.reference, TreeProgram)

    def has_confirmed(self) -> bool:
        """Return whether a gain was confirmed."""
        return self.best() is not None

    def best(self) -> int | None:
        """Return the index of the best candidate that nothing was found against."""
        return speedups.best(self.evaluations, self.problem.workloads)

    def proposed(self) -> int | None:
        """Return the index of what is proposed: the best one, or the best one that was examined
        where another waits for that."""
        if not self.waits:
            return self.best()
        known = [n for n, one in enumerate(self.evaluations) if one.candidate.id in self.known_ids]
        place = speedups.best([self.evaluations[n] for n in known], self.problem.workloads)
        return None if place is None else known[place]

    def warnings(self) -> tuple[str, ...]:
        """Return what to say where there was no time for an examination."""
        return (UNEXAMINED,) if self.waits and self.has_confirmed() else ()

    def run(self, context: RunContext) -> None:
        """Examine what would be proposed, until the best candidate breaks nothing."""
        pace, began_s = context.pace, time.monotonic()
        self.waits = self.is_due
        while self.waits:
            place = self.best()
            if place is None:
                break
            winner = self.evaluations[place]
            examined = self.examine(context, winner)
            if examined is winner:
                self.known_ids.add(winner.candidate.id)
                break
            self.evaluations[place] = examined
            context.keep(self.target, examined)
            pace.examining_s = max(pace.examining_s, time.monotonic() - began_s)
        self.waits = False
        self.note_gain(context)

    def note_gain(self, context: RunContext) -> None:
        """Note whether there is a proposal. Only then is time kept for what it is worth."""
        context.pace.has_gain |= self.proposed() is not None

    def examine(self, context: RunContext, winner: Evaluation) -> Evaluation:
        """Return an evaluation with its contract and, unless that is broken, with what its
        repository says; the same where nothing is new. On a GPU the repository's programs, which
        run on the CPU, run while the contract is checked."""
        if winner.contract is not None or context.session.device().kind == "cpu":
            checked = winner if winner.contract is not None else self.check(context, winner)
            if checked.is_refused:
                return checked
            return self.report(context, checked, self.ask_repository(context, checked))
        pool = ThreadPoolExecutor(1)
        try:
            answer = pool.submit(self.ask_repository, context, winner)
            checked = self.check(context, winner)
            accepted = msgspec.structs.replace(checked, acceptance=answer.result().acceptance)
        finally:
            pool.shutdown(wait=False)
        return checked if checked.is_refused else self.report(context, checked, accepted)

    def check(self, context: RunContext, winner: Evaluation) -> Evaluation:
        """Return an evaluation with its contract; the same where the settings leave it out."""
        try:
            found = context.session.examine_contract(self.problem, winner)
        except WorkerError as error:
            missing = ContractCheck(
                aspect="contract", result="not_tried", detail=f"the verifier failed: {error}"
            )
            return msgspec.structs.replace(winner, contract=(missing,))
        return winner if found.contract is None else found

    def ask_repository(self, context: RunContext, winner: Evaluation) -> Evaluation:
        """Return an evaluation with what its repository says, and report nothing."""
        if context.acceptor is None or winner.acceptance is not None:
            return winner
        return context.acceptor.accepted(winner, context.left_s(), self.target.qualname)

    def report(self, context: RunContext, before: Evaluation, after: Evaluation) -> Evaluation:
        """Report what the repository says, if that is new, and return `after`; else `before`."""
        if after.acceptance is None or after.acceptance is before.acceptance:
            return before
        text = acceptance_text(after.acceptance)
        context.progress.notice(f"{self.target.qualname}: {text}")
        return after

    def is_refused(self, context: RunContext, index: int) -> bool:
        """Return whether code of the repository relies on what a screened candidate leaves out. It
        is read before anything is measured again."""
        if context.acceptor is None:
            return False
        before = self.evaluations[index]
        found = self.report(context, before, context.acceptor.searched(before))
        self.evaluations[index] = found
        return found.is_refused
