"""Optimize one target: propose, verify and record candidates until nothing more is to be gained.

    entry = optimize_target(planned, strategies, context)

This is the only place where candidates are proposed, verified and recorded. `scan`, `sweep`,
`bench` and the collection for training pass lists of strategies and print what comes back. Every
evaluation is in the archive before anything else hears of it, and one that is there is used again.
One target's failure is that target's reason and never stops the others: this is one of the two
places that catch (the other is the command line).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from cudal1_ci.discover.plan import Planned
from cudal1_ci.errors import CudaL1Error, PromptError, WorkerError
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.examination import Examination
from cudal1_ci.optimize.llm_loop import (
    PUBLISHED,
    Loop,
    Optimizer,
    begin,
    known_profile,
    optimize,
)
from cudal1_ci.optimize.pointless import why_pointless
from cudal1_ci.optimize.ranking import (
    CONFIRMATION,
    SEEN,
    UNKNOWN,
    Count,
    Forecast,
    Situation,
    base_of,
    cells_of,
    is_source_edit,
    log_of,
    says_something,
    strategy_of,
)
from cudal1_ci.optimize.reasons import (
    AT_THE_BOUND,
    AT_THE_FLOOR,
    COVERED,
    DEVICE_IN_USE,
    FELL,
    FLOOR,
    INTERRUPTED,
    KERNEL_HINT,
    NEGLIGIBLE_HINT,
    NO_KERNEL_PROPOSED,
    NO_ROUND,
    NOT_RECORDED,
    NOTHING_PROPOSED,
    OVER_THE_LIMIT,
    SPENT,
    bug,
    hint_of_import,
    negligible,
    untried,
)
from cudal1_ci.optimize.references import reference_failure
from cudal1_ci.optimize.strategies import covering, noticed_by, proposed_by
from cudal1_ci.optimize.understanding import MOST_SHOWN, understanding_of
from cudal1_ci.pool import SlotLost
from cudal1_ci.processes.device_wait import (
    BESIDE_OTHERS_S,
    NOTICED_S,
    GaveUp,
    patient_until,
)
from cudal1_ci.propose import Noticed, RebasedStrategy, RecordingStrategy, Strategy
from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.llm.analysis_check import contradictions
from cudal1_ci.propose.llm.contrastive import Optimization
from cudal1_ci.propose.llm.hack_review.review import Review
from cudal1_ci.propose.wrappers.strategy import may_take_minutes
from cudal1_ci.records import (
    Candidate,
    Contradiction,
    Entry,
    Evaluation,
    NotTried,
    Problem,
    Target,
    Understanding,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.render.wording import time_text
from cudal1_ci.stats import speedups
from cudal1_ci.verification.confirmation import confirmed, is_jump

NUM_CONFIRMED = 2
"""Screened candidates of a target that are confirmed: what is proposed, and what may be."""
MOST_CONFIRMED = 4
"""More are, where none of the first was a gain."""
NEAR_THE_BOUND = 1.05
LATE_S = 180.0
"""With less left of the budget, what is confirmed is examined at once, and not when its target is
done or left for another one: something better may still be found."""
LEAST_CONFIRMED_S = 10.0
"""Seconds for a confirmation. With less left, only the first gain of a run is confirmed."""
SAVED_BY_A_NEW_RULE = 0.15
LITTLE = 0.5
"""Own part of a target's time, below which wrappers of it come before edits of its source."""
WHOLE_SHARE = {True: 0.5, False: 0.25}
"""Share of the time that is left, which the examination of a model as a whole may take: more where
it is compiled, which takes minutes."""
KNOWN_S = 0.01
"""Seconds that an evaluation takes that is known."""
MOST_LEFT_OUT = 20
"""Candidates beyond the limit of a round that are listed."""
UNDERSTANDING = "understanding"
"""The name under which a failure to say what a recording shows is kept."""
MODEL = "contrastive"
"""The name under which a failure of the model's loop is kept."""


def optimize_target(planned: Planned, strategies: Sequence[Strategy], context: RunContext) -> Entry:
    """Try what the strategies propose for one target. Where nothing is proposed, nothing is run."""
    if planned.problem is None:
        return untried(planned, "")
    search = TargetSearch(planned.target, planned.problem, strategies, context)
    while advance(search):
        pass
    context.ending.was_cut |= search.was_cut
    return entry_of(search, planned)


def advance(search: TargetSearch) -> bool:
    """Do what is worth most on a target; return whether anything may be left to do."""
    return guarded(search, search.advance)


def leave(search: TargetSearch) -> None:
    """Examine what was confirmed of a target before another one has its turn."""
    guarded(search, search.examine_confirmed)


def guarded(search: TargetSearch, act: Callable[[], bool]) -> bool:
    """Do something on a target and return what it returns. Where it fails, keep the reason and
    return False."""
    context = search.context
    try:
        noticed_s = NOTICED_S if context.num_slots == 1 else BESIDE_OTHERS_S
        with patient_until(context.is_over, context.progress.waiting, noticed_s):
            return act()
    except KeyboardInterrupt:
        context.ending.was_interrupted = True
        search.reason = INTERRUPTED
    except GaveUp:
        # With several verifiers it was most likely another one of this run.
        late = DEVICE_IN_USE if context.num_slots == 1 else SPENT
        search.reason = INTERRUPTED if context.ending.was_interrupted else late
        search.was_cut = not context.ending.was_interrupted
    except WorkerError as error:
        search.reason = f"the verifier failed: {error}"
        if search.evaluations:
            context.fallen[search.target] = search.reason
            message = FELL.format(reason=search.reason)
            context.progress.notice(f"{search.target.qualname}: {message}")
    except (CudaL1Error, SlotLost):
        raise
    except Exception as error:  # noqa: BLE001 (a bug that one target meets costs that target only)
        search.reason = bug(error)
        search.evaluations.clear()
    context.pace.unconfirmed.pop(search.target, None)
    return False


def entry_of(search: TargetSearch, planned: Planned) -> Entry:
    """Return what came of a target, or why nothing did."""
    reason = search.reason or (search.cut_by() if search.was_cut else None)
    if search.evaluations or reason is None:
        return search.entry()
    search.context.progress.target_skipped(search.target, reason)
    hint = search.hint or hint_of_import(reason) or planned.hint
    entry = untried(replace(planned, hint=hint), reason)
    return msgspec.structs.replace(
        entry,
        understanding=search.understanding,
        near_misses=search.noticed.near_misses,
        not_tried=search.not_tried(reason),
        warnings=search.warnings(),
    )


@dataclass(frozen=True)
class Step:
    """What may be done next on a target."""

    candidate: Candidate | None
    """To be verified; None is the confirmation of what was found."""
    saving: float
    """Share of the target's time that it is expected to save."""
    seconds: float

    @property
    def rate(self) -> float:
        return self.saving / self.seconds


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
        self.pending: list[Candidate] = []
        """What is proposed, and has not had its turn."""
        self.num_rounds = 0
        self.known_ids: set[str] = set()
        """Pending candidates that were evaluated before."""
        self.reason: str | None = None
        """Why nothing more was tried, where that is not the end of what there is."""
        self.hint: str | None = None
        self.asks_model = False
        self.was_cut = False
        """Whether time was missing for what is pending."""
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
        self.own_part = 1.0
        """Part of its time that edits of its source can save; the rest is of targets inside."""
        self.found_by_strategies: dict[str, Candidate] = {}
        """What was proposed, tried or not, by its id."""
        self.left_out: dict[str, str] = {}
        """Why candidates were left out, by their ids."""
        self.examination = Examination(target, problem, self.evaluations)

    def look(self) -> tuple[list[Candidate], str | None]:
        """Return what is to be tried first, and why nothing of it is; None where there is no
        reason. `scan --dry-run` does the same and no more."""
        first = self.next_candidates()
        self.understand()
        return first, self.floor()

    def advance(self) -> bool:
        """Do what is worth most, once; return whether anything may be left to do."""
        if not self.num_rounds:
            return self.begin()
        step = self.next_step()
        if step is None:
            return self.finish()
        if step.candidate is None:
            is_late = self.context.total_left_s() < LATE_S
            self.confirm_best(examines=is_late or not self.pending)
        else:
            candidate = self.ready(step.candidate)
            if self.context.is_over():  # it was waited for
                self.pending.append(candidate)
                return True
            self.evaluate(candidate)
            if not self.pending and self.num_rounds < self.context.config.num_rounds:
                self.num_rounds += 1
                self.take_up(self.next_candidates())
        return True

    def begin(self) -> bool:
        """Look at the call, and verify the reference. Returns whether there is something to try,
        and keeps why there is not, with what would help."""
        problem, context = self.problem, self.context
        context.progress.target_started(self.target)
        context.forget(self.target)  # a try whose slot was lost may have failed as well
        self.num_rounds = 1
        first, self.reason = self.look()
        if self.reason is not None:
            return False
        is_negligible = speedups.is_negligible(problem, context.config.min_share)
        self.asks_model = context.optimizer is not None and not is_negligible
        if not first and not self.asks_model:
            self.reason, self.hint = self.nothing_to_try(is_negligible)
            return False
        self.reason = reference_failure(problem, context)
        if self.reason is None:
            self.take_up(first)
        return self.reason is None

    def nothing_to_try(self, is_negligible: bool) -> tuple[str, str]:
        """Return why nothing is proposed, and what would help. A call that cannot be recorded may
        be one that the reference itself refuses."""
        failed = next(iter(self.context.failed(self.target).values()), "")
        if self.no_recording:
            failed = reference_failure(self.problem, self.context) or failed
        if failed:
            return failed, ""
        if is_negligible:
            reason = negligible(self.problem, self.context.config.min_share)
            return reason, NEGLIGIBLE_HINT
        if self.target.is_kernel:
            return NO_KERNEL_PROPOSED, KERNEL_HINT
        return NOTHING_PROPOSED, ""

    def finish(self) -> bool:
        """Ask a model, where there is one, and confirm the best. Nothing is left then."""
        self.was_cut = bool(self.pending) and not self.is_at_the_bound()
        optimizer = self.context.optimizer
        if self.asks_model and optimizer is not None:
            self.ask_the_model(optimizer)
        self.confirm_best()
        return False

    def take_up(self, candidates: Sequence[Candidate]) -> None:
        """Have candidates wait for their turn, while what they compile is built."""
        context = self.context
        own = {
            one.id
            for one in candidates
            if (self.target, one.id) in context.made
            or context.remembered(self.problem, one) is not None
        }
        self.known_ids |= own
        self.pending += candidates
        context.session.build_ahead(self.problem, [one for one in candidates if one.id not in own])

    def ready(self, candidate: Candidate) -> Candidate:
        """Take a candidate from those that wait: this one, or others while it is built."""
        others = [one for one in self.pending if one is not candidate]
        chosen = next(
            iter(self.context.session.in_turn([candidate, *others], self.context.is_over))
        )
        self.pending.remove(chosen)
        return chosen

    def next_step(self) -> Step | None:
        """Return what saves most for each second; None where nothing is left, or no time. A first
        edit of the source is tried before compilations; of equals the first one is."""
        context, best = self.context, self.best_log()
        found_already = context.pace.unconfirmed.get(self.target, 0.0)
        if not self.pending and not found_already:
            return None
        if context.is_over() or self.is_at_the_bound():
            return None
        steps = [
            self.step(one, is_confirmed=not found_already)
            for one in self.first_of(self.pending)
            if one.id in self.known_ids or self.has_time_for(self.forecast(one).seconds)
        ]
        if context.config.budget_s is not None and found_already:
            # What may be beaten soon need not be confirmed.
            stays = math.prod(1 - self.forecast(one).beats(best) for one in self.pending)
            steps.append(Step(None, found_already * stays, self.confirmation_s()))
        return max(steps, key=lambda step: step.rate, default=None)

    def first_of(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return what may be tried first: edits of the source, where nothing was tried yet, and
        most of the time is the target's own."""
        if self.evaluations or self.own_part < LITTLE:
            return candidates
        sources = [one for one in candidates if is_source_edit(one) and not is_published(one)]
        return sources or candidates

    def in_order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Sort candidates as they are expected to be tried."""
        ordered = sorted(candidates, key=lambda one: -self.step(one).rate)
        first = self.first_of(ordered)[:1]
        return [*first, *(one for one in ordered if one not in first)]

    def step(self, candidate: Candidate, *, is_confirmed: bool = True) -> Step:
        """Return what a candidate is expected to save, and its seconds; with those of a
        confirmation, if a gain `is_confirmed` for itself. An edit of the source by a rule of which
        nothing is known is worth a try."""
        best, found = self.best_log(), self.forecast(candidate)
        if is_published(candidate):
            return Step(candidate, 0.0, found.seconds)
        is_edit = is_source_edit(candidate)
        least = SAVED_BY_A_NEW_RULE if found.is_new and is_edit else 0.0
        more_s = found.beats(best) * self.confirmation_s() if is_confirmed else 0.0
        saving = max(found.saving(best), least) * (self.own_part if is_edit else 1.0)
        return Step(candidate, saving, found.seconds + more_s)

    def confirmation_s(self) -> float:
        """Return what a confirmation is likely to take."""
        foreseen_s = self.context.ranking.forecast(CONFIRMATION, self.situation()).seconds
        return self.context.pace.confirmation_s(foreseen_s)

    def forecast(self, candidate: Candidate) -> Forecast:
        """Return what is expected of a candidate; of what is known, that it takes no time."""
        operators = operators_of(candidate)
        found = self.context.ranking.forecast(strategy_of(operators), self.situation())
        found = found.above(base_of(operators, self.logs()) or 0.0)
        is_known = candidate.id in self.known_ids
        return replace(found, seconds=KNOWN_S) if is_known else found

    def logs(self) -> dict[tuple[str, ...], float]:
        """Return the logs of the speedups that were measured, by their edits."""
        logs = [(operators_of(one.candidate), log_of(one)) for one in self.evaluations]
        return {operators: log for operators, log in logs if log is not None}

    def situation(self) -> Situation:
        """Return what a try is counted under."""
        kind, seen = self.context.session.device().kind, self.understanding
        if seen is None:
            return Situation(kind)
        return Situation(kind, seen.total_us, seen.category or UNKNOWN)

    def best_log(self) -> float:
        """Return the log of the highest speedup that was found, 0 of none."""
        return max([0.0, *(log_of(one) or 0.0 for one in self.evaluations)])

    def is_at_the_bound(self) -> bool:
        """Return whether a candidate takes what its memory traffic, or a launch, takes at least:
        nothing can be gained then."""
        seen = self.understanding
        if seen is None or seen.bound_us is None or seen.bound not in ("memory", "launches"):
            return False
        if len(self.problem.workloads) > 1 or self.problem.workloads[0].mode != "infer":
            return False
        return any(
            speedups.candidate_us(measured) <= NEAR_THE_BOUND * seen.bound_us
            for one in self.evaluations
            for measured in one.measurements
        )

    def verify(self, candidates: Sequence[Candidate]) -> None:
        """Verify candidates in turn, as long as there is time."""
        self.context.session.build_ahead(self.problem, candidates)
        for candidate in self.context.session.in_turn(candidates, self.context.is_over):
            if not self.has_time_for(self.forecast(candidate).seconds):
                self.was_cut = True
                return
            self.evaluate(candidate)

    def next_candidates(self) -> list[Candidate]:
        """Return what the strategies propose that was not tried in this run yet. Of two with the
        same edits the first one is heard. One that fails costs what it did not propose before."""
        found: list[Candidate] = []
        for strategy in self.strategies:
            proposed: list[Candidate] = []
            try:
                recording = self.recorded() if isinstance(strategy, RecordingStrategy) else None
                most = self.context.config.num_candidates
                more = 0 if self.target.is_kernel else MOST_LEFT_OUT
                proposed += proposed_by(
                    strategy, self.problem, recording, self.evaluations, most + more
                )
                proposed += self.on_top(strategy, most)
            except (CudaL1Error, GaveUp):
                raise
            except Exception as error:  # noqa: BLE001 (a bug of one strategy costs that strategy)
                self.failed(strategy.name, bug(error))
            heard: list[Candidate] = []
            for candidate in proposed:
                if candidate.id in self.seen:
                    continue
                self.found_by_strategies[candidate.id] = candidate
                other = covering(candidate, found)
                why = why_pointless(candidate, self.problem, self.recording)
                if other is not None or why is not None:
                    self.seen.add(candidate.id)
                    covered = COVERED.format(proposer=other.proposer) if other else ""
                    self.left_out[candidate.id] = covered or str(why)
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
        return strategy.propose_on(self.problem, base, found, self.evaluations, most)

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
            key = f"{self.problem.id} {device.kind}"
            self.context.archive.note(SEEN, key, self.situation())
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
        if self.was_cut:
            return SPENT
        if self.is_at_the_bound():
            return AT_THE_BOUND
        return context.fallen.get(self.target) or NO_ROUND

    def warnings(self) -> tuple[str, ...]:
        """Return what failed on the target: the recording, strategies and single rules."""
        failed = self.context.failed(self.target)
        has_none = self.no_recording is not None and self.evaluations
        return (
            *self.examination.warnings(),
            *((NOT_RECORDED.format(reason=self.no_recording),) if has_none else ()),
            *(f"{name}: {reason}" for name, reason in failed.items()),
            *self.noticed.failures,
        )

    def failed(self, strategy: str, reason: str) -> None:
        """Keep why a strategy gave nothing more."""
        self.context.failures[self.target, strategy] = reason
        self.context.progress.notice(f"{self.target.qualname}, {strategy}: {reason}")

    def has_time_for(self, seconds: float) -> bool:
        """Return whether a candidate is likely to be verified within the budget, and what was found
        to be confirmed. The first one of a target is begun in any case, so that a run whose budget
        is less than a candidate takes makes progress."""
        needed_s = self.context.pace.scaled(seconds) if self.evaluations else 0.0
        return self.context.left_s() > needed_s + self.context.reserved_s()

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """Return the archive's evaluation of a candidate on this device, or make a new one, which
        is recorded first. A jump is measured twice, and where it holds another model may be
        asked."""
        target, problem, context = self.target, self.problem, self.context
        own = context.made.get((target, candidate.id))
        if own is not None:  # it was reported when it was made
            self.found(own)
            return own
        context.progress.candidate_started(target, candidate)
        known = context.remembered(problem, candidate)
        foreseen_s = self.forecast(candidate).seconds
        whole_share = WHOLE_SHARE[may_take_minutes(candidate)] if self.own_part < LITTLE else 0.0
        most_s = context.most_s(foreseen_s, whole_share)
        evaluation = known or context.session.screen(problem, candidate, most_s)
        if known is None:
            self.learn(evaluation)
            if candidate.generation is not None:
                evaluation = self.doubted(evaluation)
            context.keep(target, evaluation)
        else:
            self.reused.append(candidate.id)
        self.found(evaluation)
        context.progress.candidate_judged(target, evaluation, known is not None)
        return evaluation

    def learn(self, evaluation: Evaluation) -> None:
        """Learn from an evaluation for the rest of the run."""
        where, found = self.situation(), self.forecast(evaluation.candidate)
        self.context.pace.add(evaluation.elapsed_s, found.seconds)
        seconds = evaluation.elapsed_s / self.context.pace.ratio
        operators, log = operators_of(evaluation.candidate), log_of(evaluation)
        base = base_of(operators, self.logs())
        if base is not None and says_something(evaluation):
            gained = None if log is None else log - base
            count = Count(strategy_of(operators), where, gained, seconds)
            self.context.ranking.add(cells_of([count]))

    def confirm_best(self, *, examines: bool = True) -> None:
        """Measure the best screened candidates in fresh processes, for only these are shown as
        faster. Examine their contract too, unless more is tried first. Where a line is broken, the
        next ones have their turn."""
        context, examination, began_s = self.context, self.examination, time.monotonic()
        found = speedups.promising(self.evaluations, self.problem.workloads)
        refused = partial(examination.is_refused, context)
        for number, index in enumerate(one for one in found if not refused(one)):
            if number >= NUM_CONFIRMED and examines:
                examination.run(context)
            most = NUM_CONFIRMED if examination.has_confirmed() else MOST_CONFIRMED
            if number >= most or context.is_over() or self.is_beaten(index):
                break
            if self.confirming_left_s() < LEAST_CONFIRMED_S and context.pace.has_gain:
                self.was_cut = True
                break
            self.confirm(index)
        if examines:
            examination.run(context)
        else:
            examination.waits = examination.is_due
        examination.note_gain(context)
        if found:
            context.pace.unconfirmed.pop(self.target, None)
            context.pace.confirming_s.append(time.monotonic() - began_s)

    def examine_confirmed(self) -> bool:
        """Examine what was confirmed and waits for it."""
        if self.examination.waits:
            self.examination.run(self.context)
        return True

    def confirming_left_s(self) -> float:
        """Return the seconds that are left for a confirmation, before its winner is examined."""
        return self.context.total_left_s() - self.context.pace.examining_s

    def is_beaten(self, index: int) -> bool:
        """Return whether what is confirmed is faster than a screened candidate may be."""
        place = self.examination.best()
        highs = [one.high for one in speedups.speedups(self.evaluations[index])]
        return place is not None and max(highs) < speedups.score(self.evaluations[place])

    def confirm(self, index: int) -> None:
        """Measure a screened candidate in fresh processes."""
        context, screened = self.context, self.evaluations[index]
        context.progress.candidate_started(self.target, screened.candidate)
        left_s = self.confirming_left_s()
        most_s = None if math.isinf(left_s) else max(left_s, LEAST_CONFIRMED_S)
        evaluation = context.session.confirm(self.problem, screened.candidate, most_s)
        context.keep(self.target, evaluation)
        self.evaluations[index] = evaluation
        self.own[:] = [evaluation if one is screened else one for one in self.own]
        context.progress.candidate_judged(self.target, evaluation, False)

    def found(self, evaluation: Evaluation) -> None:
        """Keep an evaluation of this run, and what is to be confirmed of it."""
        self.evaluations.append(evaluation)
        workloads = self.problem.workloads
        place = self.examination.best()
        confirmed = 0.0 if place is None else log_of(self.evaluations[place]) or 0.0
        for index in speedups.promising(self.evaluations, workloads)[:1]:
            saved = math.exp(-confirmed) - math.exp(-(log_of(self.evaluations[index]) or 0.0))
            if saved > 0:
                self.context.pace.unconfirmed[self.target] = saved
        candidate = evaluation.candidate
        if not is_published(candidate) and candidate.program != self.problem.reference:
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
            best=self.examination.proposed(),
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


def is_published(candidate: Candidate) -> bool:
    """Return whether others published a candidate: it comes last, as it is built meanwhile."""
    return candidate.proposer.startswith(PUBLISHED)
