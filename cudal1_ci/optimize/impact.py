"""Measure what all proposals together do to the calls that contain them.

    report = with_impact(review(plan, context), plan, context)

Proposals are timed at half and double batch, and taken back where they are slower. What stays is
laid over one tree. On it the roots are verified and timed again, then a training step where one was
traced, next to `torch.compile` of the root. A share of the budget is kept for this
(`review.impact-share`); the report names what was not reached.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from cudal1_ci.discover.plan import Plan
from cudal1_ci.optimize.combination import Tree, combination, reader
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.own_compile import own_compilation
from cudal1_ci.optimize.roots import MOST_ROOTS, Root, parts_of, roots_of
from cudal1_ci.optimize.size_check import checked
from cudal1_ci.optimize.training_step import step_problem
from cudal1_ci.optimize.trials import Trials
from cudal1_ci.propose.apply import apply
from cudal1_ci.propose.wrappers.strategy import Wrappers
from cudal1_ci.propose.wrappers.table import COMPILE, compiled
from cudal1_ci.records import (
    Baseline,
    Candidate,
    Entry,
    Evaluation,
    Impact,
    InRoot,
    LeftOut,
    Measurement,
    Problem,
    Report,
    Target,
    Together,
    TreeProgram,
    Workload,
)
from cudal1_ci.records.record import Record
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.impact import COMPILE_OFF, headline_of
from cudal1_ci.render.wording import STATUS_WORDS
from cudal1_ci.stats import speedups

SHARE_OF_LONE_ROOTS = 0.3
OWN = "your torch.compile"
FAILS = "with the others {root} is not the same: {why}"
INTERRUPTED = "interrupted"


def kept_share(plan: Plan, config: ReviewConfig) -> float:
    """Return the share of the budget to keep for the impact: of `review.impact-share` a part where
    no root contains another target, as the search has timed such roots already."""
    posed = [one.target for one in plan.targets if one.problem is not None]
    has_others = any(root.contains_others for root in roots_of(plan, posed))
    return config.impact_share * (1.0 if has_others else SHARE_OF_LONE_ROOTS)


class Parts(Record, frozen=True, kw_only=True):
    """Targets' parts of one root, as the archive keeps them."""

    parts: dict[str, InRoot]


@dataclass
class RootTrial:
    """A root with what was measured of it."""

    root: Root
    evaluation: Evaluation | None = None
    step: tuple[Problem, Evaluation, Workload, str] | None = None

    @property
    def longest_us(self) -> float:
        """Return the time of the longest call that was measured."""
        measured = self.evaluation.measurements if self.evaluation else ()
        return max(map(speedups.reference_us, measured), default=0.0)

    @property
    def problem(self) -> Problem:
        assert self.root.planned.problem is not None
        return self.root.planned.problem


def with_impact(report: Report, plan: Plan, context: RunContext) -> Report:
    """Return a report with what its proposals do together. An interrupt keeps what was found."""
    proposed = [entry for entry in report.entries if entry.best is not None]
    if not proposed or not context.config.impact_share or report.ended == INTERRUPTED:
        return report
    context.progress.notice("impact: all proposals together")
    # The search may have ended early; this has time of its own.
    trials = Trials(replace(context, ending=Ending()))
    study = Study(plan, trials)
    report = study.of(report)
    is_cut = trials.was_cut and report.ended == "done"
    ended = INTERRUPTED if trials.context.ending.was_interrupted else "budget" if is_cut else None
    return msgspec.structs.replace(
        report,
        ended=ended or report.ended,
        elapsed_s=max(report.elapsed_s, time.monotonic() - context.started_s),
    )


class Study:
    """What is learned of the proposals of one report."""

    def __init__(self, plan: Plan, trials: Trials):
        self.plan, self.trials = plan, trials
        self.planned = {one.target: one for one in plan.targets}
        self.mains: dict[str, str] = {}
        """The workload of each root that was recorded."""

    def of(self, report: Report) -> Report:
        """Return the report with all that was reached."""
        entries = [self.sized(entry) for entry in report.entries]
        proposed = [entry for entry in entries if is_combinable(entry)]
        roots = roots_of(self.plan, [entry.target for entry in proposed])
        for root in roots[MOST_ROOTS:]:
            self.leave_out(root.name, f"only {MOST_ROOTS} roots are timed")
        roots = roots[:MOST_ROOTS]
        parts = self.parts(roots)
        entries = [with_parts(entry, parts.get(entry.target, ())) for entry in entries]
        proposed = sorted(
            (entry for entry in entries if is_combinable(entry)), key=saving_us, reverse=True
        )
        used = {part.root for found in parts.values() for part in found}
        timed = [RootTrial(root) for root in roots if root.name in used]
        tree = self.settled(proposed, timed)
        impact = self.impact(tree, timed)
        entries = [with_clock(entry, impact, self.mains) for entry in entries]
        together = None
        if tree.patch:
            together = Together(
                patch=tree.patch,
                included=tuple(entry.target.address for entry in tree.entries),
                left_out=tree.left_out,
                not_reached=tuple(self.trials.not_reached),
            )
        return msgspec.structs.replace(
            report, entries=tuple(entries), impact=impact or None, together=together
        )

    def leave_out(self, what: str, reason: str) -> None:
        self.trials.not_reached.append(LeftOut(what=what, reason=reason))

    def sized(self, entry: Entry) -> Entry:
        """Return an entry whose proposal holds at other sizes. No more than half of the time is
        spent on them."""
        planned = self.planned.get(entry.target)
        if entry.best is None or planned is None or planned.problem is None:
            return entry
        trials, left_s = self.trials, self.trials.context.total_left_s()
        if not trials.kept_s and not math.isinf(left_s):
            trials.kept_s = left_s / 2
        found = trials.attempt(
            f"{entry.target.qualname} at other sizes",
            partial(checked, entry, planned.problem, planned.others, trials),
        )
        return found or entry

    def parts(self, roots: Sequence[Root]) -> dict[Target, tuple[InRoot, ...]]:
        """Return what targets with proposals take of each root that calls them."""
        self.trials.kept_s = 0.0
        found: dict[Target, tuple[InRoot, ...]] = {}
        for root in roots:
            parts = self.trials.attempt(root.name, partial(self.parts_in, root))
            for target, part in (parts or {}).items():
                found[target] = (*found.get(target, ()), part)
        return found

    def parts_in(self, root: Root) -> dict[Target, InRoot]:
        """Return the parts of one root, from a recorded call of it. Raises NotReached."""
        trials, problem = self.trials, root.planned.problem
        assert problem is not None
        workload = main_workload(problem.workloads)
        self.mains[root.name] = workload.name
        archive, device = trials.context.archive, trials.context.session.device()
        names = {one.address: one for one in root.parts}
        key = " ".join([problem.id, device.key, *sorted(names)])
        known = archive.noted("parts", key, Parts)
        if known is None:
            recording = trials.recording(problem, workload)
            parts = parts_of(recording, root.name, root.parts)
            known = Parts(parts={target.address: part for target, part in parts.items()})
            archive.note("parts", key, known)
        return {names[name]: part for name, part in known.parts.items()}

    def settled(self, proposed: Sequence[Entry], timed: Sequence[RootTrial]) -> Tree:
        """Return the tree under which every root that was reached computes the same. Where one
        does not, the proposal that it is right without is left out."""
        kept, left_out = list(proposed), list[LeftOut]()
        while True:
            tree = combination(self.plan.root, kept)
            failed = self.first_failure(tree, timed)
            if failed is None:
                break
            trial, why = failed
            culprit = self.culprit(tree, trial) or tree.entries[-1]
            reason = FAILS.format(root=trial.root.name, why=why)
            left_out.append(LeftOut(what=culprit.target.address, reason=reason))
            kept = [entry for entry in kept if entry is not culprit]
        return replace(tree, left_out=(*tree.left_out, *left_out))

    def first_failure(self, tree: Tree, timed: Sequence[RootTrial]) -> tuple[RootTrial, str] | None:
        """Verify and time the roots on a tree, until one is not the same."""
        for trial in timed:
            trial.evaluation = None
            if not tree.overlay:
                continue
            trial.evaluation = timed_alone(tree, trial) or self.trials.attempt(
                trial.root.name,
                partial(self.trials.evaluation, trial.problem, tree.candidate(trial.problem)),
            )
            if trial.evaluation is None:
                continue
            self.tell(trial.root.name, trial.evaluation)
            if has_failed(trial.evaluation):
                return trial, why_failed(trial.evaluation)
        return None

    def tell(self, what: str, evaluation: Evaluation) -> None:
        """Show progress."""
        said = [headline_of(one).times for one in impacts_of(what, evaluation)]
        words = ", ".join(said) or why_failed(evaluation)
        self.trials.context.progress.notice(f"impact: {what}: {words}")

    def culprit(self, tree: Tree, trial: RootTrial) -> Entry | None:
        """Return the proposal without which a root is right, those that save least first."""
        inside = [one for one in tree.entries if one.target in trial.root.parts]
        for entry in reversed(inside):
            others = [one for one in tree.entries if one is not entry]
            smaller = combination(self.plan.root, others)
            found = self.trials.attempt(
                f"{trial.root.name} without {entry.target.qualname}",
                partial(self.trials.evaluation, trial.problem, smaller.candidate(trial.problem)),
            )
            if found is None:
                return None
            if not has_failed(found):
                return entry
        return None

    def impact(self, tree: Tree, timed: Sequence[RootTrial]) -> tuple[Impact, ...]:
        """Return what the tree does to the roots and their steps, then what it is next to."""
        reached: list[RootTrial] = []
        for trial in timed:
            if trial.evaluation is not None and trial.evaluation.measurements:
                reached.append(trial)
            elif trial.evaluation is not None:
                self.leave_out(trial.root.name, why_failed(trial.evaluation))
        reached.sort(key=lambda one: (not one.root.contains_others, -one.longest_us))
        for trial in reached:
            trial.step = self.step(tree, trial)
        found: list[Impact] = []
        for trial in reached:
            found += self.impact_of(tree, trial)
        return tuple(found)

    def step(
        self, tree: Tree, trial: RootTrial
    ) -> tuple[Problem, Evaluation, Workload, str] | None:
        """Return a training step of a root on the tree, where the trace has seen one."""
        workload = next((w for w in trial.problem.workloads if w.steps is not None), None)
        if workload is None or workload.mode != "train" or workload.steps is None:
            return None
        what, optimizer = f"a training step of {trial.root.name}", workload.steps.optimizer
        problem = step_problem(trial.problem, workload, optimizer or "")
        if problem is None:
            self.leave_out(what, f"its optimizer is not one of torch.optim: {optimizer}")
            return None
        found = self.trials.attempt(
            what, lambda: self.trials.evaluation(problem, tree.candidate(problem))
        )
        if found is None:
            return None
        self.tell(what, found)
        if not found.measurements:
            self.leave_out(what, why_failed(found))
            return None
        return problem, found, workload, optimizer or ""

    def impact_of(self, tree: Tree, trial: RootTrial) -> list[Impact]:
        """Return the impacts of one root: its calls, the longest first, and its step."""
        problem, evaluation = trial.problem, trial.evaluation
        assert evaluation is not None
        others = self.baselines(tree, trial)
        by_name = {one.name: one for one in problem.workloads}
        found: list[Impact] = []
        for measured in sorted(evaluation.measurements, key=speedups.reference_us, reverse=True):
            workload = by_name.get(measured.workload)
            one = impact_on(trial.root.name, measured, evaluation)
            if one is None or workload is None:
                continue
            compiled_root, own = others.get(workload.name, (None, None))
            one = msgspec.structs.replace(one, mode=workload.mode, compiled=compiled_root, own=own)
            is_first = all(other.mode != workload.mode for other in found)
            found.append(self.priced(one, problem, tree, workload) if is_first else one)
        if trial.step is not None:
            step_of_root, measured_step, workload, optimizer = trial.step
            for measured in measured_step.measurements:
                step = impact_on(trial.root.name, measured, measured_step)
                if step is not None:
                    step = msgspec.structs.replace(
                        step, kind="step", mode="train", optimizer=optimizer
                    )
                    calls = step_of_root.workloads[0]
                    found.append(self.priced(step, step_of_root, tree, calls))
        return found

    def priced(self, impact: Impact, problem: Problem, tree: Tree, workload: Workload) -> Impact:
        """Return an impact with memory, launches, energy and the timelines."""
        after = tree.candidate(problem).program
        costs = [
            self.trials.attempt(
                f"launches and memory of {impact.root}",
                partial(self.trials.cost, program, workload),
            )
            for program in (problem.reference, after)
        ]
        if None in costs:
            return impact
        return msgspec.structs.replace(impact, before=costs[0], after=costs[1])

    def baselines(
        self, tree: Tree, trial: RootTrial
    ) -> dict[str, tuple[Baseline | None, Baseline | None]]:
        """Return by workload what `torch.compile` of the root gains instead, and what the tree
        gains where the project compiles the root itself."""
        problem = trial.problem
        names = [one.name for one in problem.workloads]
        if not self.may_compile():
            off = Baseline(name="torch.compile", reason=COMPILE_OFF)
            return dict.fromkeys(names, (off, None))
        whole = apply(problem, None, [COMPILE])
        found = self.compared("torch.compile", problem, whole, trial)
        own = self.own(tree, trial)
        return {name: (found.get(name), own.get(name)) for name in names}

    def may_compile(self) -> bool:
        """Return whether the settings let torch.compile be tried here."""
        wrappers = [one for one in self.trials.context.strategies if isinstance(one, Wrappers)]
        return any(COMPILE in one.wrappers for one in wrappers)

    def compared(
        self, name: str, problem: Problem, candidate: Candidate | None, trial: RootTrial
    ) -> dict[str, Baseline]:
        """Return what another candidate is worth, by workload."""
        if candidate is None:
            found: dict[str, Baseline] = {}
            return found
        evaluation = self.trials.attempt(
            f"{name} of {trial.root.name}", lambda: self.trials.evaluation(problem, candidate)
        )
        if evaluation is None:
            return {}
        if not evaluation.measurements:
            failed = Baseline(name=name, reason=why_failed(evaluation))
            return {one.name: failed for one in problem.workloads}
        return {one.workload: baseline_of(name, one) for one in evaluation.measurements}

    def own(self, tree: Tree, trial: RootTrial) -> dict[str, Baseline]:
        """Return what the tree gains over the root as the project compiles it."""
        discovery, problem = self.plan.discovery, trial.problem
        if discovery is None or not isinstance(problem.reference, TreeProgram):
            return {}
        read = reader(self.plan.root)
        texts = (read(path) or "" for path in discovery.facts if path.endswith(".py"))
        decorator = own_compilation(texts, trial.root.planned.target.last_name)
        if decorator is None:
            return {}
        rewrite = replace(COMPILE, name="own_compile", apply=compiled(decorator))
        base = apply(problem, None, [rewrite])
        patched = apply(problem, tree.candidate(problem), [rewrite])
        if base is None or patched is None:
            return {}
        compiled_problem = msgspec.structs.replace(problem, reference=base.program)
        candidate = msgspec.structs.replace(patched, problem_id=compiled_problem.id)
        return self.compared(OWN, compiled_problem, candidate, trial)


def is_combinable(entry: Entry) -> bool:
    """Return whether an entry has a proposal that is a patch of a checkout."""
    if entry.best is None:
        return False
    return isinstance(entry.evaluations[entry.best].candidate.program, TreeProgram)


def with_parts(entry: Entry, parts: Sequence[InRoot]) -> Entry:
    ordered = sorted(parts, key=lambda one: -one.time_us)
    return msgspec.structs.replace(entry, in_roots=tuple(ordered))


def with_clock(entry: Entry, impact: Sequence[Impact], mains: dict[str, str]) -> Entry:
    """Return an entry with its parts of roots as the verifier timed them; a recorded call is
    slower."""
    timed_us = {
        one.root: one.before_us
        for one in impact
        if one.kind == "call" and one.workload == mains.get(one.root)
    }
    parts = [
        msgspec.structs.replace(one, time_us=one.share * timed_us[one.root])
        if one.root in timed_us
        else one
        for one in entry.in_roots
    ]
    return with_parts(entry, parts)


def saving_us(entry: Entry) -> float:
    """Return what a proposal saves of a root's call; of the target's own where no root is known."""
    assert entry.best is not None
    evaluation = entry.evaluations[entry.best]
    low = max(speedups.score(evaluation), 1e-9)
    own_us = max(map(speedups.reference_us, evaluation.measurements), default=0.0)
    time_us = max((one.time_us for one in entry.in_roots), default=own_us)
    return time_us * (1 - 1 / low)


def main_workload(workloads: Sequence[Workload]) -> Workload:
    """Return the workload that takes most of the traced time; else the first."""
    return max(workloads, key=lambda one: one.share or 0.0)


def has_failed(evaluation: Evaluation) -> bool:
    """Return whether a tree is not the same as the reference; noise is no failure of it."""
    return evaluation.verdict.status not in ("passed", "inconclusive", "harness_error")


def why_failed(evaluation: Evaluation) -> str:
    """Return the verdict in words, with its first finding."""
    first = next(iter(evaluation.verdict.findings), None)
    words = STATUS_WORDS[evaluation.verdict.status]
    return f"{words}: {first.message}" if first else words


def impacts_of(root: str, evaluation: Evaluation) -> list[Impact]:
    """Return what an evaluation of a root says, by workload."""
    found = [impact_on(root, one, evaluation) for one in evaluation.measurements]
    return [one for one in found if one is not None]


def timed_alone(tree: Tree, trial: RootTrial) -> Evaluation | None:
    """Return what the search measured of a root that uses no other target with a proposal, where
    the tree changes its files no further; None where the root has to be measured."""
    target = trial.root.planned.target
    if trial.root.parts != (target,):
        return None
    texts = {one.path: one.text for one in tree.overlay}
    for entry in tree.entries:
        if entry.target != target or entry.best is None:
            continue
        found = entry.evaluations[entry.best]
        program = found.candidate.program
        has_all = {one.workload for one in found.measurements} == {
            one.name for one in trial.problem.workloads
        }
        if has_all and isinstance(program, TreeProgram):
            same = all(texts.get(one.path) == one.text for one in program.overlay)
            return found if same else None
    return None


def impact_on(root: str, measured: Measurement, evaluation: Evaluation) -> Impact | None:
    """Return what a measurement of a root says."""
    found = speedups.speedup(measured)
    if found is None:
        return None
    return Impact(
        root=root,
        workload=measured.workload,
        before_us=speedups.reference_us(measured),
        after_us=speedups.candidate_us(measured),
        low=found.low,
        high=found.high,
        is_confirmed=evaluation.phase != "screened",
    )


def baseline_of(name: str, measured: Measurement) -> Baseline:
    found = speedups.speedup(measured)
    if found is None:
        return Baseline(name=name, reason="too little was measured")
    return Baseline(
        name=name, speedup=found.estimate, speedup_low=found.low, speedup_high=found.high
    )
