"""Fast variants of generated tasks, made by rules: most of what stage 1 learns from.

    HandMade(kinds=("torch", "triton")).propose(task.problem, (), n=16)

The generator writes steps that waste something, and knows which: for each there is a rule with one
or several better forms (rules/), found by its pattern wherever it stands (patterns.py). A variant
has all steps in their better form, or one of them; chains of what is left can be a Triton kernel
(kernels/), the whole a CUDA graph or compiled, and so can the task as it is (whole.py): what a
policy can always do, with an unknown family of work too. Nothing here is believed until the judge
has passed it, and nothing decides what is trained on: the splits do (tasks/splits.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Candidate, Exemplar, Problem, TextProgram
from model_training.tasks.families import FAMILIES
from model_training.tasks.record import Task
from model_training.variants.fused import fused
from model_training.variants.rule import Rule
from model_training.variants.rules import RULES
from model_training.variants.source import ENTRY
from model_training.variants.whole import compiled, graphed
from model_training.variants.written import Variant, subject_of, written_better

__all__ = ["HandMade", "Kind", "Variant", "variants_of"]

Kind = Literal["torch", "triton", "graph", "compile"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PROPOSER = "hand-made"


class HandMade:
    """The product's Proposer. Kinds other than `torch` need a GPU; `compile` costs seconds at the
    first call of every process. What the rules do not know stays as it is."""

    def __init__(self, kinds: Sequence[Kind] = ("torch",), rules: Sequence[Rule] = RULES):
        for kind in kinds:
            if kind not in KINDS:
                raise ConfigError(
                    f"variants.kinds: expected some of {', '.join(KINDS)}, got {kind!r}"
                )
        self.kinds, self.rules = tuple(kinds), tuple(rules)

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        """Up to n variants that are not among the exemplars, the most promising first. None of a
        problem that is no generated task: its text would have to be run."""
        if not is_generated(problem) or not isinstance(problem.reference, TextProgram):
            return []
        shown = {exemplar.candidate.id for exemplar in exemplars}
        candidates = [
            Candidate(
                problem_id=problem.id,
                program=TextProgram(source=one.text, entry=ENTRY),
                proposer=f"{PROPOSER}:{one.kind}",
                analysis=one.analysis,
                design=one.design,
                techniques=one.techniques,
            )
            for one in variants_in(problem.reference.source, self.kinds, self.rules)
        ]
        return [one for one in candidates if one.id not in shown][:n]


def variants_of(task: Task, kinds: Sequence[Kind] = KINDS) -> list[Variant]:
    """Of a generated task, each text once; none of others."""
    return variants_in(task.text, kinds) if task.source == "generated" else []


def is_generated(problem: Problem) -> bool:
    """Whether the problem is that of a generated task: `attention-17:get_inputs`."""
    name, _, function = (problem.workloads[0].source or "").partition(":")
    family, _, seed = name.rpartition("-")
    return family in FAMILIES and seed.isdigit() and function == "get_inputs"


def variants_in(text: str, kinds: Sequence[Kind], rules: Sequence[Rule] = RULES) -> list[Variant]:
    every = {one.text: one for one in reversed(list(made_of(text, kinds, rules)))}
    return list(every.values())[::-1]


def made_of(text: str, kinds: Sequence[Kind], rules: Sequence[Rule]) -> Iterator[Variant]:
    """Those with everything first, then those of one step."""
    subject = subject_of(text, rules)
    if subject is None:
        return
    written = written_better(subject) if "torch" in kinds else []
    yield from written[:1]
    if "triton" in kinds and (kernel := fused(subject, text)) is not None:
        yield kernel
    if "graph" in kinds:
        yield graphed(subject, subject.found)
        yield graphed(subject, ())
    if "compile" in kinds:
        yield compiled(subject, subject.found)
        yield compiled(subject, ())
    yield from written[1:]
