"""Optimize one target: propose, verify and record candidates until nothing more is to be gained.

    entry = optimize_target(planned, strategies, context)

This is the only place where candidates are proposed, verified and recorded. `scan`, `sweep`,
`bench` and the collection for training pass lists of strategies and print what comes back. Every
evaluation is in the archive before anything else hears of it, and one that is there is used again.
One target's failure is that target's reason and never stops the others: this is one of the two
places that catch (the other is the command line).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from cudal1_ci.discover.plan import Planned
from cudal1_ci.errors import CudaL1Error, PromptError, WorkerError
from cudal1_ci.optimize.context import RunContext, reference_of
from cudal1_ci.optimize.llm_loop import (
    PUBLISHED,
    Loop,
    Optimizer,
    begin,
    known_profile,
    optimize,
)
from cudal1_ci.optimize.strategies import covering, noticed_by, proposed_by
from cudal1_ci.optimize.understanding import MOST_SHOWN, understanding_of
from cudal1_ci.pool import SlotLost
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.propose import Noticed, RebasedStrategy, RecordingStrategy, Strategy
from cudal1_ci.propose.llm.analysis_check import contradictions
from cudal1_ci.propose.llm.contrastive import Optimization
from cudal1_ci.propose.llm.hack_review.review import Review
from cudal1_ci.propose.wrappers.strategy import may_take_minutes
from cudal1_ci.records import (
    Candidate,
    ContractCheck,
    Contradiction,
    Entry,
    Evaluation,
    NotTried,
    Problem,
    Target,
    TreeProgram,
    Understanding,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.records.report import TargetClass
from cudal1_ci.render.wording import time_text
from cudal1_ci.stats import speedups
from cudal1_ci.verification.confirmation import confirmed, is_jump

NUM_CONFIRMED = 2
"""Screened candidates of a target that are confirmed: what is proposed, and what may be."""
MOST_CONFIRMED = 4
"""More are, where none of the first was a gain."""
INTERRUPTED = "the run was interrupted"
SPENT = "not reached: the budget was spent"
FELL = "{reason}; what was verified before is kept, the rest was not tried"
NOTHING_PROPOSED = "nothing to try: no rewrite matches"
NO_KERNEL_PROPOSED = (
    "nothing to try: for a kernel the numbers of its launches are changed, and none are found here"
)
NEGLIGIBLE = (
    "left out: by itself it takes {share:.2g} % of the traced time, less than {least:.2g} % "
    "(`review.min-share`)"
)
NEGLIGIBLE_HINT = "to look at it all the same, set review.min-share = 0"
AT_THE_FLOOR: TargetClass = "at the floor"
FLOOR = AT_THE_FLOOR + ": {total} of {bound}"
"""Measured, and the least that any form of the call can take."""
NOT_RECORDED = "no call was recorded: {reason}"
COVERED = "the same is proposed as `{proposer}`"
OVER_THE_LIMIT = "more than {most} candidates in a round (`review.num-candidates`)"
OUT_OF_TURN = "other targets had their share of the budget"
NO_ROUND = "no round was left for it"
MOST_LEFT_OUT = 20
"""Candidates beyond the limit of a round that are listed."""
KERNEL_HINT = "give a model, which writes kernels: --model"
UNDERSTANDING = "understanding"
"""The name under which a failure to say what a recording shows is kept."""
MODEL = "contrastive"
"""The name under which a failure of the model's loop is kept."""


def optimize_target(planned: Planned, strategies: Sequence[Strategy], context: RunContext) -> Entry:
    """Try what the strategies propose for one target. Where nothing is proposed, nothing is run."""
    target, problem = planned.target, planned.problem
    if problem is None:
        return untried(planned, "")
    context.progress.target_started(target)
    context.forget(target)  # a try whose slot was lost may have failed as well
    search = TargetSearch(target, problem, strategies, context)
    with patient_until(context.is_over):
        reason, hint = reason_for_no_result(planned, search)
    if reason is None:
        return search.entry()
    context.progress.target_skipped(target, reason)
    entry = untried(replace(planned, hint=hint), reason)
    return msgspec.structs.replace(
        entry,
        understanding=search.understanding,
        near_misses=search.noticed.near_misses,
        not_tried=search.not_tried(reason),
        warnings=search.warnings(),
    )


def reason_for_no_result(planned: Planned, search: TargetSearch) -> tuple[str | None, str | None]:
    """Search, and return why nothing was verified, with what would help; None where something
    was."""
    context, hint = search.context, planned.hint
    try:
        reason, hint = search.run(hint)
    except KeyboardInterrupt:
        context.ending.was_interrupted = True
        reason = INTERRUPTED
    except GaveUp:
        reason = INTERRUPTED if context.ending.was_interrupted else SPENT
    except WorkerError as error:
        reason = f"the verifier failed: {error}"
        if search.evaluations:
            context.fallen[search.target] = reason
            context.progress.notice(f"{search.target.qualname}: {FELL.format(reason=reason)}")
    except (CudaL1Error, SlotLost):
        raise
    except Exception as error:  # noqa: BLE001 (a bug that one target meets costs that target only)
        reason = bug(error)
        search.evaluations.clear()
    return (None if search.evaluations else reason), hint


def bug(error: Exception) -> str:
    """Return what to say of an error that nothing foresaw."""
    tail = "".join(traceback.format_exception(error)[-3:])
    return f"this is a bug of cudal1-ci, please report it:\n{tail}"


class TargetSearch:
    """Hold what was tried on one problem in this run, and what is left to try."""

    def __init__(
        self,
        target: Target,
        problem: Problem,
        strategies: Sequence[Strategy],
        context: RunContext,
    ):
        self.target, self.problem = target, problem
        self.strategies, self.context = strategies, context
        self.evaluations: list[Evaluation] = []
        self.own: list[Evaluation] = []
        """Without kernels that others published and the reference itself: what a model is shown."""
        self.reused: list[str] = []
        self.work: Optimization | None = None
        """What a model was asked."""
        self.longest_s = 0.0
        """What a candidate has taken that was measured: the next one may take as long."""
        reviewer = context.reviewer
        self.review = Review(reviewer, problem, context.is_over) if reviewer else None
        self.seen: set[str] = set()
        self.recording: Recording | None = None
        self.no_recording: str | None = None
        """Why there is none, where one was asked for."""
        self.recorded_bases: set[str] = set()
        """Faster programs that were recorded."""
        self.was_asked = False
        """Whether a recording was asked for."""
        self.understanding: Understanding | None = None
        self.noticed = Noticed()
        self.found_by_strategies: dict[str, Candidate] = {}
        """What was proposed, tried or not, by its id."""
        self.left_out: dict[str, str] = {}
        """Why candidates were left out, by their ids."""

    def look(self) -> tuple[list[Candidate], str | None]:
        """Return what is to be tried first, and why nothing of it is; None where there is no
        reason. `scan --dry-run` does the same and no more."""
        first = self.next_candidates()
        self.understand()
        return first, self.floor()

    def run(self, hint: str | None) -> tuple[str | None, str | None]:
        """Verify the reference, then rounds of proposals, then a model's. Returns why nothing was
        tried, with what would help."""
        problem, context = self.problem, self.context
        first, floor = self.look()
        if floor is not None:
            return floor, None
        is_negligible = speedups.is_negligible(problem, context.config.min_share)
        optimizer = None if is_negligible else context.optimizer
        if not first and optimizer is None:
            failed = context.failed(self.target)
            if failed:
                return next(iter(failed.values())), hint
            if is_negligible:
                return negligible(problem, context.config.min_share), NEGLIGIBLE_HINT
            if self.target.is_kernel:
                return NO_KERNEL_PROPOSED, KERNEL_HINT
            return NOTHING_PROPOSED, hint
        failure = reference_failure(problem, context)
        if failure is not None:
            return failure, hint
        self.rounds(first)
        if optimizer is not None:
            self.ask_the_model(optimizer)
        self.confirm_best()
        return None, hint

    def rounds(self, candidates: list[Candidate]) -> None:
        """Verify candidates, and what is proposed in the light of them."""
        context = self.context
        for number in range(context.config.num_rounds):
            if number:
                candidates = self.next_candidates()
            if not candidates or not self.verify(candidates):
                return

    def verify(self, candidates: Sequence[Candidate]) -> bool:
        """Verify candidates in turn; return whether there was time for all of them."""
        context = self.context
        fresh = [
            one
            for one in candidates
            if (self.target, one.id) not in context.made
            and context.remembered(self.problem, one) is None
        ]
        context.session.build_ahead(self.problem, fresh)
        for candidate in context.session.in_turn(candidates, context.is_over):
            if not self.has_time_for(candidate):
                return False
            if context.config.budget_s is not None and may_take_minutes(candidate):
                self.confirm_first()
            self.evaluate(candidate)
        return True

    def examine_winners(self) -> None:
        """Examine the contract of what would be proposed, until the best candidate breaks no line
        of it. Texts of a task are not proposed to anyone who calls them otherwise."""
        context, problem = self.context, self.problem
        while (place := speedups.best(self.evaluations, problem.workloads)) is not None:
            winner = self.evaluations[place]
            if winner.contract is not None or not isinstance(problem.reference, TreeProgram):
                return
            try:
                examined = context.session.examine_contract(problem, winner)
            except WorkerError as error:
                missing = ContractCheck(
                    aspect="contract", result="not_tried", detail=f"the verifier failed: {error}"
                )
                examined = msgspec.structs.replace(winner, contract=(missing,))
            if examined.contract is None:  # the settings leave it out
                return
            self.evaluations[place] = examined
            context.keep(self.target, examined)

    def next_candidates(self) -> list[Candidate]:
        """Return what the strategies propose that was not tried in this run yet. Of two with the
        same edits the first one is heard. One that fails costs what it would have proposed."""
        found: list[Candidate] = []
        for strategy in self.strategies:
            try:
                recording = self.recorded() if isinstance(strategy, RecordingStrategy) else None
                most = self.context.config.num_candidates
                more = 0 if self.target.is_kernel else MOST_LEFT_OUT
                proposed = [
                    *proposed_by(strategy, self.problem, recording, self.evaluations, most + more),
                    *self.on_top(strategy, most),
                ]
            except CudaL1Error:
                raise
            except Exception as error:  # noqa: BLE001 (a bug of one strategy costs that strategy)
                self.failed(strategy.name, bug(error))
                continue
            heard: list[Candidate] = []
            for candidate in proposed:
                if candidate.id in self.seen:
                    continue
                self.found_by_strategies[candidate.id] = candidate
                other = covering(candidate, found)
                if other is not None:
                    self.seen.add(candidate.id)
                    self.left_out[candidate.id] = COVERED.format(proposer=other.proposer)
                elif len(heard) == most:
                    self.left_out[candidate.id] = OVER_THE_LIMIT.format(most=most)
                else:
                    self.seen.add(candidate.id)
                    self.left_out.pop(candidate.id, None)
                    heard.append(candidate)
            found += heard
        return found

    def on_top(self, strategy: Strategy, most: int) -> Sequence[Candidate]:
        """Return what a strategy proposes on top of a faster program, which is recorded too."""
        if not isinstance(strategy, RebasedStrategy) or not self.evaluations:
            return ()
        base = strategy.base(self.evaluations)
        if base is None or base.id in self.recorded_bases or self.recorded() is None:
            return ()
        self.recorded_bases.add(base.id)
        problem = msgspec.structs.replace(self.problem, reference=base.program)
        found = self.context.session.record(problem, problem.workloads[0])
        if isinstance(found, str):
            return ()
        return strategy.propose_on(self.problem, base, found, most)

    def recorded(self) -> Recording | None:
        """Return the operations of one call of the reference under the first workload, recorded
        once; None where that is not possible."""
        if not self.was_asked and not self.target.is_kernel and self.problem.workloads:
            found = self.context.session.record(self.problem, self.problem.workloads[0])
            if isinstance(found, str):
                self.no_recording = found
            else:
                self.recording = found
        self.was_asked = True
        return self.recording

    def understand(self) -> None:
        """Keep what the recorded call showed, if a strategy asked for one."""
        recording = self.recording
        if recording is None:
            return
        device = self.context.session.device()
        try:
            found = understanding_of(recording, self.problem, device, self.target.path)
            shown = found.operations[:MOST_SHOWN]
            self.understanding = msgspec.structs.replace(found, operations=shown)
            self.noticed = noticed_by(self.strategies, self.problem, recording, self.target.path)
        except Exception as error:  # noqa: BLE001 (what is shown of a target costs no proposal)
            self.failed(UNDERSTANDING, bug(error))

    def floor(self) -> str | None:
        """Return that the target is at the floor, under each of its workloads; None if it is not,
        or a backward pass, of which nothing is recorded, takes part of the time."""
        known, problem, session = self.understanding, self.problem, self.context.session
        if known is None or known.category != AT_THE_FLOOR:
            return None
        if any(one.mode != "infer" for one in problem.workloads):
            return None
        for one in problem.workloads[1:]:
            found = session.record(problem, one)
            if isinstance(found, str):
                return None
            other = understanding_of(found, problem, session.device(), self.target.path)
            if other.category != AT_THE_FLOOR:
                return None
        return FLOOR.format(total=time_text(known.total_us), bound=time_text(known.bound_us))

    def not_tried(
        self, reason: str | None = None, besides: Sequence[Candidate] = ()
    ) -> tuple[NotTried, ...]:
        """Return what was proposed and not verified, `besides` some, with the reason of each, or
        of all."""
        tried = {one.candidate.id for one in self.evaluations} | {one.id for one in besides}
        return tuple(
            NotTried(
                proposer=one.proposer, reason=self.left_out.get(number) or reason or self.cut_by()
            )
            for number, one in self.found_by_strategies.items()
            if number not in tried
        )

    def cut_by(self) -> str:
        """Return why candidates had no turn, of which nothing else is known."""
        context = self.context
        if context.ending.was_interrupted:
            return INTERRUPTED
        if context.ending.was_cut:
            return SPENT
        if context.was_deferred:
            return OUT_OF_TURN
        return context.fallen.get(self.target) or NO_ROUND

    def warnings(self) -> tuple[str, ...]:
        """Return what failed on the target: the recording, strategies and single rules."""
        failed = self.context.failed(self.target)
        has_none = self.no_recording is not None and self.evaluations
        return (
            *((NOT_RECORDED.format(reason=self.no_recording),) if has_none else ()),
            *(f"{name}: {reason}" for name, reason in failed.items()),
            *self.noticed.failures,
        )

    def failed(self, strategy: str, reason: str) -> None:
        """Keep why a strategy gave nothing more."""
        self.context.failures[self.target, strategy] = reason
        self.context.progress.notice(f"{self.target.qualname}, {strategy}: {reason}")

    def has_time_for(self, candidate: Candidate) -> bool:
        """Return whether a candidate is likely to be verified within the budget. The first one is
        always begun, so that a run whose budget is less than a candidate takes makes progress."""
        context = self.context
        if context.is_over():
            return False
        own = (self.target, candidate.id) in context.made
        if own or context.remembered(self.problem, candidate) is not None:
            return True
        ends_s = context.turn_ends_s
        if ends_s is not None and self.longest_s:
            if time.monotonic() + self.longest_s > ends_s:
                context.was_deferred = True
                return False
            return True
        return context.has_time(self.longest_s)

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """Return the archive's evaluation of a candidate on this device, or make a new one, which
        is recorded first. A jump is measured twice, and where it holds another model may be
        asked."""
        target, problem, context = self.target, self.problem, self.context
        own = context.made.get((target, candidate.id))
        if own is not None:  # it was reported when it was made
            self.longest_s = max(self.longest_s, own.elapsed_s or 0.0)
            self.found(own)
            return own
        context.progress.candidate_started(target, candidate)
        known = context.remembered(problem, candidate)
        evaluation = known or context.session.screen(problem, candidate)
        if known is None:
            self.longest_s = max(self.longest_s, evaluation.elapsed_s or 0.0)
            if candidate.generation is not None:
                evaluation = self.doubted(evaluation)
            context.keep(target, evaluation)
        else:
            self.reused.append(candidate.id)
        self.found(evaluation)
        context.progress.candidate_judged(target, evaluation, known is not None)
        return evaluation

    def confirm_best(self) -> None:
        """Measure the best screened candidates in fresh processes, for only these are shown as
        faster, and examine their contract. Where a line is broken, the next ones have their turn.
        """
        context, workloads = self.context, self.problem.workloads
        for number, index in enumerate(speedups.promising(self.evaluations, workloads)):
            if number >= NUM_CONFIRMED:
                self.examine_winners()
            has_gain = speedups.best(self.evaluations, workloads) is not None
            most = NUM_CONFIRMED if has_gain else MOST_CONFIRMED
            if number >= most or context.is_over():
                break
            self.confirm(index)
        self.examine_winners()

    def confirm_first(self) -> None:
        """Confirm the best screened candidate now, for what comes next may take the rest of the
        budget."""
        workloads = self.problem.workloads
        found = speedups.promising(self.evaluations, workloads)
        has_gain = speedups.best(self.evaluations, workloads) is not None
        if found and not has_gain and not self.context.is_over():
            self.confirm(found[0])

    def confirm(self, index: int) -> None:
        """Measure a screened candidate in fresh processes."""
        context, screened = self.context, self.evaluations[index]
        context.progress.candidate_started(self.target, screened.candidate)
        evaluation = context.session.confirm(self.problem, screened.candidate)
        context.keep(self.target, evaluation)
        self.evaluations[index] = evaluation
        self.own[:] = [evaluation if one is screened else one for one in self.own]
        context.progress.candidate_judged(self.target, evaluation, False)

    def found(self, evaluation: Evaluation) -> None:
        """Keep an evaluation of this run."""
        self.evaluations.append(evaluation)
        candidate = evaluation.candidate
        is_published = candidate.proposer.startswith(PUBLISHED)
        if not is_published and candidate.program != self.problem.reference:
            self.own.append(evaluation)

    def doubted(self, evaluation: Evaluation) -> Evaluation:
        """Return what a model's candidate is worth after a second look, where it claims a jump."""
        has_jumped = is_jump(evaluation, speedups.highest(self.own))
        if has_jumped:
            evaluation = confirmed(self.context.session, self.problem, evaluation)
        if self.review is not None:
            evaluation = self.review.of(evaluation, has_jumped=has_jumped)
        return evaluation

    def ask_the_model(self, optimizer: Optimizer) -> None:
        """Run the contrastive loop, after the strategies that cost nothing; then what it wrote is
        combined with what gained before."""
        problem, context = self.problem, self.context

        def measure(workload: str) -> list[dict[str, Any]] | str:
            if context.session.check(problem).status != "passed":  # known from an earlier run
                return "the reference could not be looked at"
            return context.session.profile(workload, is_candidate=False)

        loop = Loop(
            problem=problem,
            evaluations=self.own,
            evaluate=self.evaluate,
            is_over=context.is_over,
            archive=context.archive,
            device=context.session.device(),
            measure=measure,
            told=lambda use, num_open: context.progress.model_asked(self.target, use, num_open),
        )
        try:
            self.work = begin(loop, optimizer)
            optimize(loop, optimizer, self.work)
            # The best that the model wrote with what gained; nothing where it gained nothing.
            self.verify([one for one in self.next_candidates() if one.generation is not None])
        except (PromptError, WorkerError) as error:  # what the strategies came to stays
            self.failed(MODEL, str(error))
            if isinstance(error, WorkerError):
                context.fallen[self.target] = f"the verifier failed: {error}"

    def entry(self) -> Entry:
        """Return what came of the target."""
        return Entry(
            target=self.target,
            workloads=self.problem.workloads,
            understanding=self.understanding,
            near_misses=self.noticed.near_misses,
            not_tried=self.not_tried(),
            warnings=self.warnings(),
            evaluations=tuple(self.evaluations),
            model_use=self.work.use() if self.work else None,
            opinion_use=self.review.use() if self.review else None,
            contradictions=self.contradictions(),
            reused=tuple(self.reused),
            best=speedups.best(self.evaluations, self.problem.workloads),
        )

    def contradictions(self) -> tuple[Contradiction, ...]:
        """Return what models claim of this problem that was measured to be otherwise."""
        by_models = [one for one in self.evaluations if one.candidate.generation is not None]
        if not by_models:
            return ()
        context = self.context
        rows = known_profile(self.problem, context.archive, context.session.device())
        return tuple(
            found for one in by_models for found in contradictions(one, self.problem, rows)
        )


def negligible(problem: Problem, min_share: float) -> str:
    """Return why what takes so little time is left out."""
    assert problem.share is not None
    return NEGLIGIBLE.format(share=100 * problem.share, least=100 * min_share)


def reference_failure(problem: Problem, context: RunContext) -> str | None:
    """Return why the reference cannot be verified, in one paragraph; None when it can."""
    verdict = reference_verdict(problem, context).verdict
    if verdict.status == "passed":
        return None
    findings = "; ".join(finding.message for finding in verdict.findings)
    tail = "\n".join(verdict.log.strip().splitlines()[-3:])
    return f"{verdict.status}: {findings or 'the reference could not be run'}" + (
        f"\n{tail}" if tail else ""
    )


def reference_verdict(problem: Problem, context: RunContext) -> Evaluation:
    """Return the verdict on a problem's reference, known or new; a new one is recorded."""
    known = context.remembered_reference(problem)
    if known is not None:
        return known
    verdict = context.session.check(problem)
    found = Evaluation(
        candidate=reference_of(problem), verdict=verdict, device=context.session.device()
    )
    context.archive.record(found, context.reference_policy)
    return found


def untried(planned: Planned, reason: str) -> Entry:
    """Return the entry of a target that was not verified: its own reason, or that of the run."""
    if planned.problem is None:
        reason = planned.reason or reason
    return Entry(
        target=planned.target, skipped=reason, hint=planned.hint, workloads=planned.workloads
    )
