"""Run the contrastive loop of one target: questions to a model, verdicts, better questions.

Rewrites of the playbook come first, because they cost nothing. The model is shown variants: the
rewrites that passed, the original (speedup 1), and what earlier runs proved on this problem or on a
similar one. Each round is verified while the model still writes; the next one is shown the
verdicts. The loop ends when the rounds are over, when some of them brought nothing better, or when
the best is as fast as the device's memory allows.

This module knows the order of the rounds. `propose` decides what a prompt shows, the verifier what
a candidate is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.asking import Asker
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.context import context_of
from cudal1_ci.propose.llm.contrast import REFERENCE
from cudal1_ci.propose.llm.contrastive import Failed, Optimization
from cudal1_ci.propose.llm.fingerprint import likeness, operators
from cudal1_ci.propose.llm.prompt import render, render_repair
from cudal1_ci.propose.llm.servers import LanguageModel, Message
from cudal1_ci.propose.llm.task import Form, ProfileRow, Task, Variant
from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.propose.roofline import call_bytes, facts_of, roofline_share
from cudal1_ci.records import (
    Candidate,
    Device,
    Evaluation,
    Exemplar,
    ModelUse,
    Problem,
    Record,
    TextProgram,
    TreeProgram,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.stats import speedups

OPERATORS = "operators"
PROFILE = "profile"
LIKENESS = 0.5
"""Of the operators of two problems, above which a variant of one may teach the other."""
NUM_SIMILAR = 2
PUBLISHED = "published:"
NEAR_BOUND = 0.9
"""Of the speed that the device's memory allows: what is faster is left alone."""


class Known(Record, frozen=True, kw_only=True):
    """Hold what the archive keeps of a problem, to find it again from a similar one."""

    name: str
    operators: dict[str, int]


@dataclass
class Optimizer:
    """Hold a model and its settings for optimization."""

    model: LanguageModel
    config: OptimizerConfig
    contrast: ContrastConfig
    num_concurrent: int
    overlaps: bool
    """Whether it may write while something is timed: it has another device."""
    since: float
    """When the run began, in seconds since the epoch: what is newer in the archive is its own, and
    a run that resumes after a kill is shown what it was shown before."""

    def apart(self) -> Optimizer:
        """Return a copy for one of several threads, which can be ended independently."""
        return replace(self, model=self.model.apart())


def name_of(problem: Problem) -> str:
    """Return the name of a problem's target, for people."""
    target = problem.target
    return target.address if target else "a text"


def remember(problem: Problem, archive: Archive) -> None:
    """Keep what a similar problem will look for."""
    found = operators(reference_text(problem))
    if found and archive.noted(OPERATORS, problem.id, Known) is None:
        archive.note(OPERATORS, problem.id, Known(name=name_of(problem), operators=found))


def variants_of(
    problem: Problem,
    evaluations: Sequence[Evaluation],
    archive: Archive,
    device: Device,
    since: float,
) -> list[Variant]:
    """Return all variants that passed: the original, this run's, earlier runs' on this problem
    (those on the same device first), and the best of similar problems, labeled as such.
    """
    reference = Candidate(problem_id=problem.id, program=problem.reference, proposer=REFERENCE)
    original = Exemplar(candidate=reference, score=1.0)
    is_native = problem.target is not None and not problem.target.path.endswith(".py")
    found = [
        Variant(
            exemplar=original,
            text=reference_text(problem),
            language="cuda" if is_native else "python",
        )
    ]
    found += [shown(one, None) for one in evaluations if one.verdict.status == "passed"]
    # Kernels that others published are measured, and never shown.
    earlier = [
        one
        for one in archive.passed(problem.id, since)
        if not one.candidate.proposer.startswith(PUBLISHED)
    ]
    same = [one for one in earlier if is_like(one, device)]
    others = [one for one in earlier if not is_like(one, device)]
    found += [shown(one, None) for one in reversed(same)]
    found += [shown(one, f"measured on {name_on(one)}") for one in reversed(others)]
    found += similar(problem, archive, since)
    return [one for one in found if one.text.strip()]


def shown(evaluation: Evaluation, origin: str | None) -> Variant:
    """Return a passed evaluation in the form that a prompt shows."""
    exemplar = Exemplar(
        candidate=evaluation.candidate, score=speedups.score(evaluation), origin=origin
    )
    program = evaluation.candidate.program
    is_cuda = isinstance(program, TreeProgram) and not any(
        file.path.endswith(".py") for file in program.overlay
    )
    language: Literal["python", "cuda"] = "cuda" if is_cuda else "python"
    return Variant(exemplar=exemplar, text=variant_text(program), language=language)


def is_like(evaluation: Evaluation, device: Device) -> bool:
    """Return whether an evaluation was measured on such a device: the architecture decides what is
    fast.
    """
    on = evaluation.device
    return on is not None and (on.kind, on.name) == (device.kind, device.name)


def name_on(evaluation: Evaluation) -> str:
    return evaluation.device.name if evaluation.device else "another device"


def similar(problem: Problem, archive: Archive, since: float) -> list[Variant]:
    """Return the best variants of the problems whose operators are most similar to this one's."""
    own = operators(reference_text(problem))
    known = archive.all_noted(OPERATORS, Known, since)
    ranked = sorted(
        (
            (likeness(own, one.operators), key, one.name)
            for key, one in known.items()
            if key != problem.id
        ),
        reverse=True,
    )
    found: list[Variant] = []
    for alike, key, name in ranked:
        if alike < LIKENESS or len(found) == NUM_SIMILAR:
            break
        passed = [
            one
            for one in archive.passed(key, since)
            if not one.candidate.proposer.startswith(PUBLISHED)
        ]
        best = max(passed, key=speedups.score, default=None)
        if best is not None and speedups.score(best) > 1:
            found.append(shown(best, f"of a similar module, {name}"))
    return found


def profile_of(
    problem: Problem, archive: Archive, device: Device, measure: Callable[[str], Any]
) -> list[dict[str, Any]] | str:
    """Return the profile of the reference; measured once for a device and then remembered."""
    known = archive.noted(PROFILE, profile_key(problem, device), list[dict[str, Any]])
    if known is not None:
        return known
    found: list[dict[str, Any]] | str = measure(problem.workloads[0].name)
    if not isinstance(found, str):
        archive.note(PROFILE, profile_key(problem, device), found)
    return found


def known_profile(problem: Problem, archive: Archive, device: Device) -> tuple[ProfileRow, ...]:
    """Return the remembered profile; empty where there is none."""
    rows = archive.noted(PROFILE, profile_key(problem, device), tuple[ProfileRow, ...])
    return rows or ()


def profile_key(problem: Problem, device: Device) -> str:
    return f"{problem.id}/{device.key}/{problem.workloads[0].name}"


@dataclass
class Loop:
    """Hold what an LLM optimization of a target needs from its run."""

    problem: Problem
    evaluations: Sequence[Evaluation]
    """Of this run, growing."""
    evaluate: Callable[[Candidate], Evaluation]
    is_over: Callable[[], bool]
    archive: Archive
    device: Device
    measure: Callable[[str], list[dict[str, Any]] | str]
    """Where the time of the reference's call under a workload goes, or why that is not known."""
    told: Callable[[ModelUse, int], None]
    """What was asked so far, and how many answers are to come."""

    def is_near_bound(self) -> bool:
        """Return whether the best is about as fast as the device can read the inputs."""
        facts = facts_of(self.device.name) if self.device.kind == "cuda" else None
        first = self.problem.workloads[0]
        num_bytes = call_bytes(first.call)
        times_us = [
            speedups.candidate_us(measured)
            for one in self.evaluations
            for measured in one.measurements
            if measured.workload == first.name
        ]
        if facts is None or num_bytes is None or not times_us:
            return False
        return roofline_share(min(times_us), num_bytes, facts) > NEAR_BOUND


def begin(loop: Loop, optimizer: Optimizer) -> Optimization:
    """Return a model's work on a problem, before its first question."""
    remember(loop.problem, loop.archive)
    base = task_of(loop, optimizer)
    budget_tokens = optimizer.config.prompt_tokens

    def prompt(shown: Sequence[Variant]) -> list[Message]:
        return render(msgspec.structs.replace(base, variants=tuple(shown)), budget_tokens)

    def repair(failed: Failed) -> list[Message]:
        why = failed.why.message if isinstance(failed.why, Unusable) else failed.why.verdict
        return render_repair(base, failed.answer, why, budget_tokens)

    work = Optimization(
        problem=loop.problem,
        asker=Asker(optimizer.model, loop.archive, optimizer.num_concurrent, loop.is_over),
        config=optimizer.config,
        contrast=optimizer.contrast,
        wanted=(base.name.rpartition(".")[2], "ModelNew", "Model"),
        prompt=prompt,
        repair=repair,
        told=lambda num_open: loop.told(work.use(), num_open),
    )
    return work


def task_of(loop: Loop, optimizer: Optimizer) -> Task:
    """Return the prompt input without exemplars."""
    problem = loop.problem
    found = profile_of(problem, loop.archive, loop.device, loop.measure)
    rows = found if isinstance(found, str) else msgspec.convert(found, tuple[ProfileRow, ...])
    return Task(
        problem=problem,
        name=answer_name(problem),
        form=form_of(problem),
        context=context_of(problem),
        device=loop.device,
        profile=rows or "no operator was seen",
        answer_tokens=optimizer.model.identity.max_tokens,
    )


def answer_name(problem: Problem) -> str:
    """Return the name that the answer has to define."""
    if isinstance(problem.reference, TextProgram):
        return "ModelNew"
    if problem.target is not None:
        return problem.target.last_name if problem.target.is_kernel else problem.target.qualname
    return problem.reference.import_path.partition(":")[2]


def form_of(problem: Problem) -> Form:
    """Return the form of the answer's code."""
    target = problem.target
    if isinstance(problem.reference, TextProgram):
        return "module_text"
    if target is not None and target.is_kernel:
        return "triton" if target.kind == "triton_kernel" else "cuda"
    return "patch"


def optimize(loop: Loop, optimizer: Optimizer, work: Optimization) -> None:
    """Run rounds until there is nothing more to gain. Interrupts pass through and cancel open
    requests.
    """
    best, without_gain = speedups.highest(loop.evaluations), 0
    for number in range(optimizer.config.num_rounds):
        variants = variants_of(
            loop.problem, loop.evaluations, loop.archive, loop.device, optimizer.since
        )
        with closing(work.round(number, variants)) as answers:
            # A model that shares the device is silent while something is timed.
            for candidate in answers if optimizer.overlaps else list(answers):
                if loop.is_over():
                    return
                work.judged(loop.evaluate(candidate))
        if loop.is_over() or loop.is_near_bound():
            return
        highest = speedups.highest(loop.evaluations)
        without_gain = 0 if highest > best else without_gain + 1
        best = highest
        if without_gain >= optimizer.config.patience:
            return
