"""One task's turn: its reference, then column by column.

One of the places that catch: what goes wrong in a column is that column's failure, and never stops
the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cudal1_ci.errors import CudaL1Error, PromptError, WorkerError
from cudal1_ci.optimize.llm_loop import Loop, Optimizer, begin, optimize
from cudal1_ci.pool import SlotLost
from cudal1_ci.processes.device_wait import GaveUp, patient_until
from cudal1_ci.records import (
    Candidate,
    Demand,
    Evaluation,
    Exemplar,
    Finding,
    Verdict,
    content_hash,
)
from cudal1_ci.report_card.combinations import rounds
from cudal1_ci.report_card.crowded import crowded_because, was_crowded
from cudal1_ci.report_card.documents import standing_of, task_document, trial_document
from cudal1_ci.report_card.roof import bound_us, demand_of
from cudal1_ci.report_card.shape import TaskDocument, TrialDocument
from cudal1_ci.report_card.solvers import BEST, CONTRASTIVE
from cudal1_ci.report_card.tasks import Task
from cudal1_ci.report_card.work import Bench, judged_columns, missing_because, target_of
from cudal1_ci.stats import speedups
from cudal1_ci.verification import cuda_l1
from cudal1_ci.verification.confirmation import confirmed, is_jump

DOUBTS = "bench.cuda-l1"


class Turn:
    """A task with what was found so far."""

    def __init__(self, task: Task, bench: Bench, machine: str) -> None:
        self.task, self.bench, self.machine = task, bench, machine
        self.target = target_of(task)
        self.evaluations: dict[str, list[Evaluation]] = {}
        self.trials: dict[str, list[TrialDocument]] = {}
        self.failures: dict[str, str] = {}
        self.demand: Demand | None = None
        self.published: set[tuple[str, str, str]] = set()
        """Of the trials, which a column may have twice."""

    def taken(self) -> TaskDocument:
        """The task, after every column had its turn or the run is over."""
        with patient_until(self.bench.is_over):
            return self._taken()

    def _taken(self) -> TaskDocument:
        bench = self.bench
        try:
            verdict = self.reference()
            standing, reason = standing_of(verdict)
            if standing == "judged":
                self.demand = demand_of(bench.session, bench.archive, self.task.problem)
                self.columns()
        except KeyboardInterrupt:
            bench.ending.was_interrupted = True
            verdict, standing, reason = Verdict(status="inconclusive"), "missing", None
        except GaveUp:
            verdict, standing, reason = Verdict(status="inconclusive"), "missing", None
        except WorkerError as error:
            verdict = Verdict(status="harness_error")
            standing, reason = "invalid", f"the judge failed: {error}"
        crowded = [name for name, found in self.trials.items() if any(map(was_crowded, found))]
        if standing == "judged" and not self.is_whole():
            standing = "missing"
        if standing == "missing":
            reason = missing_because(bench)
        elif reason is not None:
            bench.progress.target_skipped(self.target, f"{standing}: {reason}")
        elif crowded:
            standing, reason = "missing", crowded_because(crowded)
            bench.progress.notice(f"{self.task.name}: {reason}")
        return task_document(
            self.task,
            self.machine,
            standing,
            reason,
            findings=verdict.findings,
            trials={
                name: self.trials[name] for name in bench.config.columns if name in self.trials
            },
            failures=self.failures,
            demand=self.demand,
            least_us=bound_us(self.demand, bench.session.device()) if self.demand else None,
        )

    def is_whole(self) -> bool:
        return set(self.trials) == set(judged_columns(self.bench.config.columns))

    def reference(self) -> Verdict:
        """The judge's verdict on the reference."""
        bench, problem = self.bench, self.task.problem
        candidate = Candidate(
            problem_id=problem.id, program=problem.reference, proposer="reference"
        )
        known = bench.known(bench.archive, candidate, bench.check_key)
        if known is not None:
            return known.verdict
        verdict = bench.session.check(problem)
        evaluation = Evaluation(candidate=candidate, verdict=verdict, device=bench.session.device())
        bench.archive.record(evaluation, bench.check_key)
        return verdict

    def columns(self) -> None:
        """Every column that there is time for; its trials are published once it is through."""
        bench, problem = self.bench, self.task.problem
        first = {name: self.first_of(name) for name in bench.proposers}
        fresh = [
            one
            for name, found in first.items()
            for one in found
            if bench.known(bench.archive_of(name), one, bench.judge) is None
        ]
        if fresh:
            bench.session.build_ahead(problem, fresh)
        for name in judged_columns(bench.config.columns):
            if bench.is_over():
                return
            self.evaluations[name] = []
            published: list[TrialDocument] = []
            if name == CONTRASTIVE:
                assert bench.optimizer is not None, "the command line has seen to it"
                self.guarded(name, self.asker(bench.optimizer, published))
            elif name == BEST:
                self.guarded(name, self.combiner(published))
            else:
                self.guarded(name, self.rounds(name, first[name], published))
            if bench.ending.is_early:
                return
            self.trials[name] = published

    def first_of(self, column: str) -> list[Candidate]:
        """A proposer's first round; empty where it fails."""
        propose, count = self.bench.proposers[column].propose, self.bench.config.num_candidates
        return self.guarded(column, lambda: propose(self.task.problem, (), count)) or []

    def guarded(self, column: str, work: Callable[[], Any]) -> Any:
        """What the work returns; None where it failed, which is then the column's failure."""
        try:
            return work()
        except KeyboardInterrupt:
            self.bench.ending.was_interrupted = True
            return None
        except GaveUp:  # the run is over
            return None
        except (PromptError, WorkerError) as error:
            self.failures[column] = str(error)
        except (CudaL1Error, SlotLost):
            raise
        except Exception as error:  # noqa: BLE001 (a bug that one task meets costs one column)
            tail = "".join(traceback.format_exception(error)[-3:])
            self.failures[column] = f"this is a bug of cudal1-ci, please report it:\n{tail}"
        self.bench.progress.notice(f"{self.task.name}, {column}: {self.failures[column]}")
        return None

    def rounds(
        self, column: str, first: Sequence[Candidate], published: list[TrialDocument]
    ) -> Callable[[], None]:
        """Rounds of a proposer, as the product makes them."""
        bench, problem = self.bench, self.task.problem

        def work() -> None:
            candidates, seen = list(first), {one.id for one in first}
            for number in range(bench.config.num_rounds):
                if number:
                    shown = exemplars_of(self.evaluations[column])
                    again = bench.proposers[column].propose(
                        problem, shown, bench.config.num_candidates
                    )
                    candidates = [one for one in again if one.id not in seen] if shown else []
                    seen |= {one.id for one in candidates}
                for candidate in bench.session.in_turn(candidates, bench.is_over):
                    if bench.is_over():
                        return
                    self.evaluated(column, candidate, published)

        return work

    def combiner(self, published: list[TrialDocument]) -> Callable[[], None]:
        """What the other columns found, together."""

        def work() -> None:
            session = self.bench.session
            for made in rounds(self.task.problem, self.evaluations, session.device().kind):
                for candidate in session.in_turn(made, self.bench.is_over):
                    if self.bench.is_over():
                        return
                    self.evaluated(BEST, candidate, published)

        return work

    def asker(self, optimizer: Optimizer, published: list[TrialDocument]) -> Callable[[], None]:
        """The product's loop with a model, which is shown what the playbook found."""
        bench, problem = self.bench, self.task.problem
        shown = list(self.evaluations.get("playbook", ()))

        def judged(candidate: Candidate) -> Evaluation:
            shown.append(self.evaluated(CONTRASTIVE, candidate, published))
            return shown[-1]

        def work() -> None:
            loop = Loop(
                problem=problem,
                evaluations=shown,
                evaluate=judged,
                is_over=bench.is_over,
                archive=bench.archive,
                device=bench.session.device(),
                measure=self.profiled,
                told=lambda use, num_open: bench.progress.model_asked(self.target, use, num_open),
            )
            optimize(loop, optimizer, begin(loop, optimizer))

        return work

    def profiled(self, workload: str) -> list[dict[str, Any]] | str:
        if self.bench.session.check(self.task.problem).status != "passed":
            return "the reference could not be looked at"
        return self.bench.session.profile(workload, is_candidate=False)

    def evaluated(
        self, column: str, candidate: Candidate, published: list[TrialDocument]
    ) -> Evaluation:
        """What is known of a candidate, or a trial of it, which is in the archive before anybody is
        told."""
        bench, problem = self.bench, self.task.problem
        archive, trial = bench.archive_of(column), (problem.id, column, candidate.id)
        bench.progress.candidate_started(self.target, candidate)
        known = bench.known(archive, candidate, bench.judge)
        if known is None:
            evaluation = bench.session.evaluate(problem, candidate)
            if candidate.generation is not None and is_jump(
                evaluation, speedups.highest(self.evaluations[column])
            ):
                evaluation = confirmed(bench.session, problem, evaluation)
            archive.record(evaluation, bench.judge)
            bench.made.add(trial)
        else:
            evaluation = msgspec.structs.replace(known, candidate=candidate)
        doubted = self.doubted(column, evaluation) if bench.config.policy == "cuda-l1" else None
        self.evaluations[column].append(evaluation)
        is_reused = known is not None and (trial not in bench.made or trial in self.published)
        self.published.add(trial)
        published.append(trial_document(evaluation, is_reused=is_reused, doubted=doubted))
        if known is None or is_reused:  # else it was told before its seat was lost
            bench.progress.candidate_judged(self.target, evaluation, is_reused)
        return evaluation

    def doubted(self, column: str, evaluation: Evaluation) -> Finding | None:
        """Why CUDA-L1's rules throw the times away, found once and remembered."""
        bench, archive = self.bench, self.bench.archive_of(column)
        key = "/".join(
            (
                self.task.problem.id,
                evaluation.candidate.id,
                bench.session.device().key,
                content_hash(evaluation.measurements),
            )
        )
        known = archive.noted(DOUBTS, key, tuple[Finding, ...])
        if known is None:
            earlier = [
                one
                for other in self.evaluations[column]
                for one in cuda_l1.speedups(other)
                if one is not None
            ]
            found = cuda_l1.doubt(
                bench.session, self.task.problem, evaluation, max(earlier, default=None)
            )
            known = (found,) if found else ()
            archive.note(DOUBTS, key, known)
        return known[0] if known else None


def exemplars_of(evaluations: Sequence[Evaluation]) -> list[Exemplar]:
    """Those that passed, best first."""
    passed = [one for one in evaluations if one.verdict.status == "passed"]
    scored = [Exemplar(candidate=one.candidate, score=speedups.score(one)) for one in passed]
    return sorted(scored, key=lambda one: -one.score)
