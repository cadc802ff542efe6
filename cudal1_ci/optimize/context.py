"""Hold what a run works with: verifier, strategies, archive, budget and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from cudal1_ci.optimize.accept import Acceptor
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.ranking import CONFIRMATION, Ranking, Situation, shipped
from cudal1_ci.pool import Pool
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.llm.hack_review.review import Reviewer
from cudal1_ci.records import Candidate, Evaluation, Problem, Target, content_hash
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.progress import Progress
from cudal1_ci.stats import speedups
from cudal1_ci.verification.protocol import Verifier

LEAST_EXAMINED_S = 20.0
FASTEST, SLOWEST = 0.01, 10.0
"""Bounds of how much slower candidates are believed to be verified here than foreseen."""


@dataclass
class Pace:
    """What the targets of a run know of each other's time."""

    num_open: int = 1
    """Targets that are not done."""
    unconfirmed: dict[Target, float] = field(default_factory=dict)
    """Share of its time that a screened candidate saves, by target, until it is confirmed."""
    has_gain: bool = False
    """Whether there is a proposal: a gain that was confirmed and examined."""
    spent_s: float = 0.0
    foreseen_s: float = 0.0

    confirming_s: list[float] = field(default_factory=list)
    """What confirmations took."""
    examining_s: float = 0.0
    """The longest that the examination of a winner took: its contract, and its repository."""

    def add(self, spent_s: float, foreseen_s: float) -> None:
        """Learn how fast candidates are verified here."""
        self.spent_s += spent_s
        self.foreseen_s += foreseen_s

    def confirmation_s(self, foreseen_s: float) -> float:
        """Return the seconds that a confirmation is likely to take, which counts as one more."""
        return (foreseen_s + sum(self.confirming_s)) / (1 + len(self.confirming_s))

    def scaled(self, foreseen_s: float) -> float:
        """Return the seconds that something is likely to take here."""
        return foreseen_s * self.ratio

    @property
    def ratio(self) -> float:
        """Return how much slower candidates are verified here than foreseen."""
        ratio = self.spent_s / self.foreseen_s if self.foreseen_s else 1.0
        return max(FASTEST, min(ratio, SLOWEST))


@dataclass
class RunContext:
    """Hold what a run works with; the same for `scan`, `sweep`, `bench` and training."""

    session: Verifier
    strategies: Sequence[Strategy]
    archive: Archive
    progress: Progress
    config: ReviewConfig
    policy: str
    """Hash of the verifier's settings: evaluations under other settings are not re-used."""
    since: float | None = None
    """When the run began, in seconds since the epoch; earlier than now where it resumes another.
    What was recorded since then is the run's own."""
    may_reuse: bool = True
    """Whether what earlier runs found stands in for a new evaluation."""
    optimizer: Optimizer | None = None
    """A model that proposes after the strategies; None where there is none."""
    reviewer: Reviewer | None = None
    """Another model, that is asked about jumps of the first one."""
    started_s: float = field(default_factory=time.monotonic)
    ending: Ending = field(default_factory=Ending)
    pool: Pool | None = None
    """Several verifiers; `session` is the first. None where that is the only one."""
    made: dict[tuple[Target, str], Evaluation] = field(default_factory=dict)
    """What this run measured of a target, by the candidate's id. A slot may be lost, and a target
    may be taken up again, also where earlier runs are not to be used."""
    fallen: dict[Target, str] = field(default_factory=dict)
    """Targets during which the verifier died, with the reason."""
    failures: dict[tuple[Target, str], str] = field(default_factory=dict)
    """Strategies that failed on a target, by the strategy's name, with the reason."""
    ranking: Ranking = field(default_factory=lambda: Ranking(shipped()))
    """What is expected of candidates."""
    pace: Pace = field(default_factory=Pace)
    acceptor: Acceptor | None = None
    """Asks the repository about what would be proposed; None for texts that have none."""
    impact_share: float = 0.0
    """Share of the budget that is kept for what all proposals do together."""

    def is_over(self) -> bool:
        """Return whether the run ends. Asked before each thing that is tried, so that what was not
        tried is known to be missing."""
        if self.left_s() < 0:
            self.ending.was_cut = True
        return self.ending.is_early

    def left_s(self) -> float:
        """Return how much is left of the budget for the search."""
        budget_s = self.config.budget_s
        if budget_s is None or not self.pace.has_gain:
            return self.total_left_s()
        return self.total_left_s() - self.impact_share * budget_s

    def total_left_s(self) -> float:
        """Return how much is left of the whole budget."""
        budget_s = self.config.budget_s
        return math.inf if budget_s is None else self.started_s + budget_s - time.monotonic()

    @property
    def num_slots(self) -> int:
        """Return how many verifiers there are."""
        return self.pool.backend.num_slots if self.pool else 1

    def reserved_s(self) -> float:
        """Return what the confirmations of what was found need of the budget, if each takes as long
        as the longest but one has taken: what is not confirmed is not proposed. A single long one
        is no rule, and a confirmation ends with the budget."""
        if not self.pace.unconfirmed:
            return 0.0
        foreseen_s = self.ranking.forecast(
            CONFIRMATION, Situation(self.session.device().kind)
        ).seconds
        known_s = sorted(self.pace.confirming_s)[:-1]
        longest_s = max([self.pace.confirmation_s(foreseen_s), *known_s])
        return longest_s * math.ceil(len(self.pace.unconfirmed) / self.num_slots)

    def most_s(self, foreseen_s: float, whole_share: float = 0.0) -> float | None:
        """Return the seconds that the examination of a candidate may take: what is left for its
        target, or half as much again as is foreseen, and no more than a quarter of what is left.
        A model as a whole has its `whole_share` of that. None without a budget."""
        left_s = self.left_s()
        if math.isinf(left_s):
            return None
        if whole_share:
            return max(LEAST_EXAMINED_S, left_s * whole_share)
        share_s = left_s * self.num_slots / max(1, self.pace.num_open)
        return max(
            LEAST_EXAMINED_S, min(max(share_s, 1.5 * self.pace.scaled(foreseen_s)), left_s / 4)
        )

    def most_for_reference_s(self) -> float | None:
        """Return the seconds that a target's reference may take: a quarter of what is left, so that
        one large model leaves time for others, and up to half where few targets are left. None
        without a budget."""
        left_s = self.left_s()
        if math.isinf(left_s):
            return None
        share = min(0.5, max(0.25, self.num_slots / max(1, self.pace.num_open)))
        return max(LEAST_EXAMINED_S, share * left_s)

    def with_verifier(self, verifier: Verifier) -> RunContext:
        """Return the same for one of several verifiers, in a thread of its own."""
        return replace(
            self,
            session=verifier,
            optimizer=self.optimizer and self.optimizer.apart(),
            reviewer=self.reviewer and self.reviewer.apart(),
        )

    @property
    def reference_policy(self) -> str:
        """Return the policy under which verdicts on references are kept: the reference as a
        candidate has the same program, and times."""
        return content_hash(["reference", self.policy])

    def remembered(self, problem: Problem, candidate: Candidate) -> Evaluation | None:
        """Return what the archive knows of a candidate on this device under these settings: what
        this run found before it was cut short, else what an earlier run decided."""
        return self._known(problem, candidate, self.policy)

    def remembered_reference(self, problem: Problem) -> Evaluation | None:
        """Return what the archive knows of a problem's reference."""
        return self._known(problem, reference_of(problem), self.reference_policy)

    def _known(self, problem: Problem, candidate: Candidate, policy: str) -> Evaluation | None:
        key = (problem.id, candidate.id, self.session.device().key, policy)
        found = None if self.since is None else self.archive.newest(*key, self.since)
        if found is None and self.may_reuse:
            found = self.archive.lookup(*key)
            if found is not None and speedups.is_undecided(found):
                return None
        # What is stored may name another checkout and an older proposer of the same program.
        return msgspec.structs.replace(found, candidate=candidate) if found else None

    def failed(self, target: Target) -> dict[str, str]:
        """Return why strategies failed on a target, by the strategy's name."""
        return {name: reason for (one, name), reason in [*self.failures.items()] if one == target}

    def forget(self, target: Target) -> None:
        """Forget what failed on a target, which is taken up again."""
        self.fallen.pop(target, None)
        for name in self.failed(target):
            del self.failures[target, name]

    def keep(self, target: Target, evaluation: Evaluation) -> None:
        """Record an evaluation, in the archive before anything else hears of it. What the
        repository says of it holds for this state of the tree, and has a memory of its own."""
        self.archive.record(msgspec.structs.replace(evaluation, acceptance=None), self.policy)
        self.made[target, evaluation.candidate.id] = evaluation


def reference_of(problem: Problem) -> Candidate:
    """Return the reference of a problem as a candidate for itself."""
    return Candidate(problem_id=problem.id, program=problem.reference, proposer="reference")
