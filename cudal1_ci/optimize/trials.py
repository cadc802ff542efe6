"""Make the trials of what all proposals do together, within what is left of the budget.

Each evaluation is in the archive before the next one starts, and one that is there is used again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.reasons import DEVICE_IN_USE, INTERRUPTED, SPENT
from cudal1_ci.optimize.references import reference_failure
from cudal1_ci.pool import SlotLost
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import (
    CallCost,
    Candidate,
    Evaluation,
    LeftOut,
    Problem,
    Program,
    Workload,
    content_hash,
    program_identity,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.render.wording import STATUS_WORDS

T = TypeVar("T")
REFUSED = "the original refuses it: "
INVALID = f"{STATUS_WORDS['invalid_reference']}: calling the reference failed: "
"""What the reason begins with where a workload cannot be called."""
COST = "cost"
"""Kind of the archive's notes on what a call costs."""
FIRST_S = {"cpu": 45.0, "cuda": 30.0}
"""What a trial takes, before one was made."""
ENERGY_S = 1.0
"""A GPU's counter is renewed some ten times a second."""
LEAST_S = 5.0
TOO_LITTLE = "not reached: too little of the budget was left"


class NotReached(Exception):
    """Something was not measured, with the reason."""


@dataclass
class Trials:
    """The verifier, the time that is left, and what was not reached."""

    context: RunContext
    not_reached: list[LeftOut] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    kept_s: float = 0.0
    """Seconds that are kept for later trials."""
    was_cut: bool = False
    """Whether time was missing for a trial."""

    @property
    def kind(self) -> str:
        return self.context.session.device().kind

    def left_s(self) -> float:
        """Return what is left of the whole budget for the trials at hand."""
        return self.context.total_left_s() - self.kept_s

    def likely_s(self) -> float:
        """Return what a trial is likely to take."""
        return max(self.took_s, default=FIRST_S[self.kind])

    def attempt(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the answer, or None and note why there is none."""
        ending = self.context.ending
        try:
            with patient_until(lambda: self.left_s() < 0):
                return question()
        except NotReached as error:
            reason = str(error)
        except GaveUp:
            reason, self.was_cut = DEVICE_IN_USE, True
        except KeyboardInterrupt:
            reason, ending.was_interrupted = INTERRUPTED, True
        except (WorkerError, SlotLost) as error:
            reason = f"the verifier failed: {error}"
        self.not_reached.append(LeftOut(what=what, reason=reason))
        return None

    def evaluation(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Return a candidate's evaluation, known or new: confirmed, or with little time left a
        single repetition.

        Raises:
            NotReached: The reference cannot be verified, or there is no time.
        """
        context = self.context
        known = context.remembered(problem, candidate)
        if known is not None and known.verdict.status != "inconclusive":
            return known
        self.refuse_wrong(problem, "the reference cannot be verified: ")
        session, left_s = context.session, self.left_s()
        if left_s < 2 * self.likely_s():
            return self.kept(lambda: session.screen(problem, candidate, max(left_s, LEAST_S)))

        def confirmed() -> Evaluation:
            found = session.confirm(problem, candidate, self.most_s())
            if found.verdict.status == "inconclusive" and self.left_s() > 2 * self.likely_s():
                found = session.confirm(problem, candidate, self.most_s())  # the machine was busy
            return found

        return self.kept(confirmed)

    def screened(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Return what a candidate is worth by one repetition; measured again where it seems slower.
        Raises NotReached as `evaluation` does."""
        context = self.context
        known = context.remembered(problem, candidate)
        if known is not None:
            return known
        self.refuse_wrong(problem, REFUSED)
        return self.kept(lambda: context.session.screen(problem, candidate, self.most_s()))

    def confirmed(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Return what a screened candidate is worth by fresh processes. Raises NotReached."""
        self.refuse_late()
        session = self.context.session
        return self.kept(lambda: session.confirm(problem, candidate, self.most_s()))

    def most_s(self) -> float | None:
        """Return the seconds that a trial may take; None without a budget."""
        left_s = self.left_s()
        return None if math.isinf(left_s) else max(left_s, LEAST_S)

    def kept(self, trial: Callable[[], Evaluation]) -> Evaluation:
        """Return what a trial shows, once it is in the archive."""
        started_s = time.monotonic()
        found = trial()
        self.context.archive.record(found, self.context.policy)
        self.took_s.append(time.monotonic() - started_s)
        return found

    def refuse_wrong(self, problem: Problem, words: str) -> None:
        """Refuse a problem whose reference fails, or one that would be late. Raises NotReached."""
        self.refuse_late()
        why = reference_failure(problem, self.context)
        if why is not None:
            raise NotReached(words + why.splitlines()[0].removeprefix(INVALID))
        self.refuse_late(0.5)

    def recording(self, problem: Problem, workload: Workload) -> Recording:
        """Return the operations of a call of the reference. Raises NotReached."""
        self.refuse_late(0.2)
        found = self.context.session.record(problem, workload)
        if isinstance(found, str):
            raise NotReached(f"no call was recorded: {found}")
        return found

    def cost(self, program: Program, workload: Workload) -> CallCost:
        """Return what a call of a program takes besides its time. Raises NotReached."""
        context = self.context
        call = [workload.init, workload.call, workload.mode, *workload.dtypes]
        device = context.session.device()
        key = content_hash([program_identity(program), call, device.key, context.policy])
        known = context.archive.noted(COST, key, CallCost) if context.may_reuse else None
        if known is not None:
            return known
        self.refuse_late(0.3)
        energy_s = ENERGY_S if device.kind == "cuda" else 0.0
        found = context.session.price(program, workload, energy_s)
        if isinstance(found, str):
            raise NotReached(f"a call could not be profiled: {found}")
        context.archive.note(COST, key, found)
        return found

    def refuse_late(self, times: float = 1.0) -> None:
        """Refuse what is likely to end after the budget. Raises NotReached."""
        if self.context.ending.was_interrupted:
            raise NotReached(INTERRUPTED)
        if self.left_s() < times * self.likely_s():
            self.was_cut = True
            raise NotReached(TOO_LITTLE if self.left_s() > 0 else SPENT)
