"""One target: what is proposed for it, what the judge says of that, what is kept.

`improve` goes from a Planned target to its Entry, with what a run works with (`Bench`): rounds of
proposals, then a model in a loop with the judge. Every verdict is in the archive before anybody is
told of it, and one that is there already is used. One target's failure is that target's reason; it
never stops the others: this is one of the two places that catch (the other is the command line).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from cudal1_ci.discover.plan import Planned
from cudal1_ci.errors import CudaL1Error, PromptError, WorkerError
from cudal1_ci.optimize.llm_loop import Loop, Optimizer, begin, known_profile, optimize
from cudal1_ci.pool import Pool, SlotLost
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.propose import Proposer
from cudal1_ci.propose.llm.analysis_check import contradictions
from cudal1_ci.propose.llm.contrastive import Optimization
from cudal1_ci.propose.llm.hack_review.review import Review, Reviewer
from cudal1_ci.records import (
    Candidate,
    Contradiction,
    Entry,
    Evaluation,
    Exemplar,
    Problem,
    Record,
    Target,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.progress import Progress
from cudal1_ci.stats import speedups
from cudal1_ci.verification.confirmation import confirmed, is_jump
from cudal1_ci.verification.protocol import Judge

INTERRUPTED = "the run was interrupted"
SPENT = "not reached: the budget was spent"
FELL = "{reason}; what was judged before is kept, the rest was not tried"
NOTHING_PROPOSED = "nothing to try: no rewrite matches"
NO_KERNEL_PROPOSED = (
    "nothing to try: for a kernel the playbook changes numbers in its launches, and finds none here"
)
NEGLIGIBLE = (
    "left out: by itself it takes {share:.2g} % of the traced time, less than {least:.2g} % "
    "(`review.min-share`)"
)
NEGLIGIBLE_HINT = "to look at it all the same, set review.min-share = 0"
KERNEL_HINT = "give a model, which writes kernels: --model"


class ReviewConfig(Record, frozen=True, kw_only=True):
    """How much to try."""

    num_rounds: int = 2
    """Rounds of proposals; from the second on proposers see what passed before."""
    num_candidates: int = 12
    """Candidates of one proposer for one target in one round."""
    min_share: float = 0.001
    """Share (0..1) of the traced time below which rewrites of a target's own lines are not tried:
    they save less. Those of a whole module are, which may save time of what it calls."""
    budget_s: float | None = None
    """Wall-clock seconds for the whole review; None is until done."""


@dataclass
class Bench:
    """What a review works with: the judge, the proposers, the memory, and who is told."""

    session: Judge
    proposers: Sequence[Proposer]
    archive: Archive
    progress: Progress
    config: ReviewConfig
    policy: str
    """Hash of the judge's settings: evaluations under other settings are not re-used."""
    may_reuse: bool = True
    optimizer: Optimizer | None = None
    """A model that goes on where the proposers end; None where there is none."""
    reviewer: Reviewer | None = None
    """Another one, that is asked about its jumps."""
    started_s: float = field(default_factory=time.monotonic)
    ending: Ending = field(default_factory=Ending)
    pool: Pool | None = None
    """Several judges, of which `session` is the first; None where that is the only one."""
    made: dict[tuple[Target, str], Evaluation] = field(default_factory=dict)
    """What this run measured of a target, by the candidate's id: its seat may be lost, and another
    one goes on, or its turn ends and another one comes, also where what earlier runs found is not
    to be used."""
    turn_ends_s: float | None = None
    """Until when, by the monotonic clock, the target that is looked at may begin another candidate,
    as others wait for their turn; None where none does."""
    fallen: dict[Target, str] = field(default_factory=dict)
    """Of targets in the middle of which the judge died, why: of each something may be left to
    try."""
    was_deferred: bool = False
    """Whether a candidate was left for another turn."""

    def is_over(self) -> bool:
        """Asked before each thing that is tried, so what was not is known to be missing."""
        return not self.has_time(0.0)

    def has_time(self, needed_s: float) -> bool:
        """Whether so much is left of the budget; where it is not, something is missing."""
        budget_s = self.config.budget_s
        if budget_s is not None and time.monotonic() - self.started_s + needed_s > budget_s:
            self.ending.was_cut = True
        return not self.ending.is_early

    def with_judge(self, judge: Judge) -> Bench:
        """The same for one of several judges, in a thread of its own."""
        return replace(
            self,
            session=judge,
            optimizer=self.optimizer and self.optimizer.apart(),
            reviewer=self.reviewer and self.reviewer.apart(),
        )


def improve(planned: Planned, bench: Bench) -> Entry:
    """Try every proposal for one target. Where there is none, nothing is run."""
    target, problem = planned.target, planned.problem
    if problem is None:
        return untried(planned, "")
    bench.progress.target_started(target)
    bench.fallen.pop(target, None)  # of a try whose seat was lost as well
    with patient_until(bench.is_over):
        return tried(planned, Attempt(target, problem, bench))


def tried(planned: Planned, attempt: Attempt) -> Entry:
    """What comes of a target that poses a problem, whatever happens."""
    target, problem, bench = planned.target, attempt.problem, attempt.bench
    try:
        first = attempt.next_candidates()
        is_negligible = speedups.is_negligible(problem, bench.config.min_share)
        optimizer = None if is_negligible else bench.optimizer
        is_worth = bool(first) or optimizer is not None
        if not is_worth and is_negligible:
            planned = replace(planned, hint=NEGLIGIBLE_HINT)
            reason: str | None = negligible(problem, bench.config)
        elif not is_worth and target.is_kernel:
            planned = replace(planned, hint=KERNEL_HINT)
            reason = NO_KERNEL_PROPOSED
        else:
            reason = reference_failure(target, problem, bench) if is_worth else NOTHING_PROPOSED
        if reason is None:
            judge(target, attempt, first)
            if optimizer is not None:
                ask_the_model(target, attempt, optimizer)
            return attempt.entry(target)
    except KeyboardInterrupt:
        bench.ending.was_interrupted = True
        if attempt.evaluations:
            return attempt.entry(target)
        reason = INTERRUPTED
    except GaveUp:
        if attempt.evaluations:
            return attempt.entry(target)
        reason = INTERRUPTED if bench.ending.was_interrupted else SPENT
    except WorkerError as error:
        reason = f"the judge failed: {error}"
        if attempt.evaluations:
            bench.fallen[target] = reason
            bench.progress.notice(f"{target.qualname}: {FELL.format(reason=reason)}")
            return attempt.entry(target)
    except (CudaL1Error, SlotLost):
        raise
    except Exception as error:  # noqa: BLE001 (a bug that one target meets costs that target only)
        tail = "".join(traceback.format_exception(error)[-3:])
        reason = f"this is a bug of cudal1-ci, please report it:\n{tail}"
    bench.progress.target_skipped(target, reason)
    return untried(planned, reason)


def negligible(problem: Problem, config: ReviewConfig) -> str:
    """Why what takes so little time is left out."""
    assert problem.share is not None
    return NEGLIGIBLE.format(share=100 * problem.share, least=100 * config.min_share)


class Attempt:
    """What was tried on one problem in this run, and what is left to try."""

    def __init__(self, target: Target, problem: Problem, bench: Bench):
        self.target = target
        self.problem = problem
        self.bench = bench
        self.evaluations: list[Evaluation] = []
        self.reused: list[str] = []
        self.work: Optimization | None = None
        """What a model was asked."""
        self.longest_s = 0.0
        """Of the candidates that were measured, what one has taken: the next may take as long."""
        self.review = Review(bench.reviewer, problem, bench.is_over) if bench.reviewer else None
        self.seen: set[str] = set()

    def has_time_for(self, candidate: Candidate) -> bool:
        """Whether it is likely to be judged within the budget. The first one always is begun, so
        that a run whose budget is less than a candidate takes gets on all the same."""
        bench = self.bench
        if bench.is_over():
            return False
        own = (self.target, candidate.id) in bench.made
        if own or remembered(self.problem, candidate, bench) is not None:
            return True
        ends_s = bench.turn_ends_s
        if ends_s is not None and self.longest_s:
            if time.monotonic() + self.longest_s > ends_s:
                bench.was_deferred = True
                return False
            return True
        return bench.has_time(self.longest_s)

    def next_candidates(self) -> list[Candidate]:
        """What the proposers say, shown what passed, that was not tried in this run yet."""
        found = []
        num_candidates = self.bench.config.num_candidates
        for proposer in self.bench.proposers:
            exemplars = exemplars_of(self.evaluations)
            for candidate in proposer.propose(self.problem, exemplars, num_candidates):
                if candidate.id not in self.seen:
                    self.seen.add(candidate.id)
                    found.append(candidate)
        return found

    def entry(self, target: Target) -> Entry:
        """What is known so far."""
        return Entry(
            target=target,
            workloads=self.problem.workloads,
            evaluations=tuple(self.evaluations),
            model_use=self.work.use() if self.work else None,
            opinion_use=self.review.use() if self.review else None,
            contradictions=self.contradictions(),
            reused=tuple(self.reused),
            best=speedups.best(self.evaluations, self.problem.workloads),
        )

    def contradictions(self) -> tuple[Contradiction, ...]:
        """What models claim of this problem, and was measured to be otherwise."""
        by_models = [one for one in self.evaluations if one.candidate.generation is not None]
        if not by_models:
            return ()
        bench = self.bench
        rows = known_profile(self.problem, bench.archive, bench.session.device())
        return tuple(
            found for one in by_models for found in contradictions(one, self.problem, rows)
        )


def reference_failure(target: Target, problem: Problem, bench: Bench) -> str | None:
    """Why the reference cannot be judged, in one paragraph; None when it can."""
    reference = Candidate(problem_id=problem.id, program=problem.reference, proposer="reference")
    known = bench.made.get((target, reference.id)) or remembered(problem, reference, bench)
    verdict = known.verdict if known else bench.session.check(problem)
    if known is None:
        found = Evaluation(candidate=reference, verdict=verdict, device=bench.session.device())
        keep(target, found, bench)
    if verdict.status == "passed":
        return None
    findings = "; ".join(finding.message for finding in verdict.findings)
    tail = "\n".join(verdict.log.strip().splitlines()[-3:])
    return f"{verdict.status}: {findings or 'the reference could not be run'}" + (
        f"\n{tail}" if tail else ""
    )


def judge(target: Target, attempt: Attempt, first: list[Candidate]) -> None:
    """Rounds of proposals and verdicts for a reference that runs."""
    bench = attempt.bench
    candidates = first
    for number in range(bench.config.num_rounds):
        if number:
            candidates = attempt.next_candidates()
        if not candidates:
            return
        fresh = [
            c
            for c in candidates
            if (target, c.id) not in bench.made and remembered(attempt.problem, c, bench) is None
        ]
        bench.session.build_ahead(attempt.problem, fresh)
        for candidate in bench.session.in_turn(candidates, bench.is_over):
            if not attempt.has_time_for(candidate):
                return
            evaluate(target, candidate, attempt)


def ask_the_model(target: Target, attempt: Attempt, optimizer: Optimizer) -> None:
    """The contrastive loop, after the rewrites that cost nothing."""
    problem, bench = attempt.problem, attempt.bench

    def measure(workload: str) -> list[dict[str, Any]] | str:
        if bench.session.check(problem).status != "passed":  # known from an earlier run until now
            return "the reference could not be looked at"
        return bench.session.profile(workload, is_candidate=False)

    loop = Loop(
        problem=problem,
        evaluations=attempt.evaluations,
        evaluate=lambda candidate: evaluate(target, candidate, attempt),
        is_over=bench.is_over,
        archive=bench.archive,
        device=bench.session.device(),
        measure=measure,
        told=lambda use, num_open: bench.progress.model_asked(target, use, num_open),
    )
    try:
        attempt.work = begin(loop, optimizer)
        optimize(loop, optimizer, attempt.work)
        for candidate in together(attempt):
            if not attempt.has_time_for(candidate):
                return
            evaluate(target, candidate, attempt)
    except (PromptError, WorkerError) as error:  # what the rewrites came to stays
        bench.progress.notice(f"{target.qualname}: the model is asked no more: {error}")
        if isinstance(error, WorkerError):
            bench.fallen[target] = f"the judge failed: {error}"


def together(attempt: Attempt) -> list[Candidate]:
    """The best that the model wrote with the rewrites that gained; none where it gained nothing."""
    return [one for one in attempt.next_candidates() if one.generation is not None]


def evaluate(target: Target, candidate: Candidate, attempt: Attempt) -> Evaluation:
    """Add the archive's evaluation of this candidate on this device, or a new one, which is in the
    archive and in the attempt before anybody is told of it. A jump is measured twice, and when it
    was found again another model may be asked for its opinion."""
    problem, bench = attempt.problem, attempt.bench
    own = bench.made.get((target, candidate.id))
    if own is not None:  # it was told when it was made
        attempt.longest_s = max(attempt.longest_s, own.elapsed_s or 0.0)
        attempt.evaluations.append(own)
        return own
    bench.progress.candidate_started(target, candidate)
    known = remembered(problem, candidate, bench)
    evaluation = known or bench.session.evaluate(problem, candidate)
    if known is None:
        attempt.longest_s = max(attempt.longest_s, evaluation.elapsed_s or 0.0)
        if candidate.generation is not None:
            evaluation = doubted(evaluation, attempt)
        keep(target, evaluation, bench)
    else:
        attempt.reused.append(candidate.id)
    attempt.evaluations.append(evaluation)
    bench.progress.candidate_judged(target, evaluation, known is not None)
    return evaluation


def keep(target: Target, evaluation: Evaluation, bench: Bench) -> None:
    """In the archive, and for another turn, or a seat that goes on where this one is lost."""
    bench.archive.record(evaluation, bench.policy)
    bench.made[target, evaluation.candidate.id] = evaluation


def doubted(evaluation: Evaluation, attempt: Attempt) -> Evaluation:
    """What a model's candidate is worth after a second look, where it claims a jump."""
    has_jumped = is_jump(evaluation, speedups.highest(attempt.evaluations))
    if has_jumped:
        evaluation = confirmed(attempt.bench.session, attempt.problem, evaluation)
    if attempt.review is not None:
        evaluation = attempt.review.of(evaluation, has_jumped=has_jumped)
    return evaluation


def remembered(problem: Problem, candidate: Candidate, bench: Bench) -> Evaluation | None:
    """What the archive knows of a candidate on this device, under these settings; nothing where
    the machine was too busy then to tell."""
    if not bench.may_reuse:
        return None
    device_key = bench.session.device().key
    known = bench.archive.lookup(problem.id, candidate.id, device_key, bench.policy)
    if known is not None and speedups.is_undecided(known):
        return None
    # What is stored may name another checkout and an older proposer of the same program.
    return msgspec.structs.replace(known, candidate=candidate) if known else None


def exemplars_of(evaluations: Sequence[Evaluation]) -> list[Exemplar]:
    """Passed candidates with their scores, best first."""
    scored = [
        Exemplar(candidate=e.candidate, score=speedups.score(e))
        for e in evaluations
        if e.verdict.status == "passed"
    ]
    return sorted(scored, key=lambda exemplar: -exemplar.score)


def untried(planned: Planned, reason: str) -> Entry:
    """The entry of a target that was not judged: its own reason, or that of the whole run."""
    if planned.problem is None:
        reason = planned.reason or reason
    return Entry(
        target=planned.target, skipped=reason, hint=planned.hint, workloads=planned.workloads
    )
