"""Write fast variants of generated tasks by rules: most of what stage 1 learns from.

    HandMade().propose(task.problem, (), n=16)

The generator writes steps that waste something, and knows which: for each there is a rule with one
or several better forms (rules/), found by its pattern wherever it stands (patterns.py). A variant
has all steps in their better form, or one of them. Nothing here is believed until the verifier has
passed it, and the splits decide what is trained on (tasks/splits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudal1_ci.records import Candidate, Exemplar, Problem, Record, TextProgram
from model_training.tasks.families import FAMILIES
from model_training.tasks.record import Task
from model_training.variants.rule import Match, Rule, matches
from model_training.variants.rules import RULES
from model_training.variants.shapes import Shapes, shapes_in
from model_training.variants.source import ENTRY, Program, Statement

PROPOSER = "hand-made"


class Variant(Record, frozen=True, kw_only=True):
    """Hold a program that computes what a task does, and why it should be faster."""

    text: str
    techniques: tuple[str, ...]
    analysis: str
    design: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Hold a task that was read: its parts, the shapes before each statement, what applies."""

    program: Program
    shapes: tuple[Shapes, ...]
    found: tuple[Match, ...]


class HandMade:
    """Propose variants as the product's proposers do. What the rules do not know stays as it is."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self.rules = tuple(rules)

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        """Return up to n variants that are not among the exemplars, the most promising first; none
        of a problem that is no generated task, whose text would have to be run."""
        if not is_generated(problem) or not isinstance(problem.reference, TextProgram):
            return []
        shown = {exemplar.candidate.id for exemplar in exemplars}
        candidates = [
            Candidate(
                problem_id=problem.id,
                program=TextProgram(source=one.text, entry=ENTRY),
                proposer=PROPOSER,
                analysis=one.analysis,
                design=one.design,
                techniques=one.techniques,
            )
            for one in variants_in(problem.reference.source, self.rules)
        ]
        return [one for one in candidates if one.id not in shown][:n]


def variants_of(task: Task) -> list[Variant]:
    """Return the variants of a generated task, each text once; none of other tasks."""
    return variants_in(task.text) if task.source == "generated" else []


def is_generated(problem: Problem) -> bool:
    """Return whether the problem is that of a generated task: `attention-17:get_inputs`."""
    name, _, function = (problem.workloads[0].source or "").partition(":")
    family, _, seed = name.rpartition("-")
    return family in FAMILIES and seed.isdigit() and function == "get_inputs"


def variants_in(text: str, rules: Sequence[Rule] = RULES) -> list[Variant]:
    """Return the variants of a task's text, each text once, the first of them in its place."""
    subject = subject_of(text, rules)
    if subject is None:
        return []
    every = {one.text: one for one in reversed(rewrites(subject))}
    return list(every.values())[::-1]


def subject_of(text: str, rules: Sequence[Rule] = RULES) -> Subject | None:
    """Return what these rules know of a task; None for a text that the generator did not write.
    Runs it on tensors without storage (shapes.py)."""
    program = Program.of(text)
    if program is None:
        return None
    shapes = shapes_in(program, text)
    found = matches(program.forward, [known["x"] for known in shapes], rules)
    return Subject(program=program, shapes=tuple(shapes), found=tuple(found))


def rewrites(subject: Subject) -> list[Variant]:
    """Rewrite all steps in their first form; each step alone, which leaves the others as they are;
    all steps in their second form, and so on."""
    num_forms = max((len(one.forms) for one in subject.found), default=0)
    together = [rewrite(subject, subject.found, number) for number in range(num_forms)]
    alone = [rewrite(subject, [one], 0) for one in subject.found]
    return [*together[:1], *(alone if len(alone) > 1 else []), *together[1:]]


def rewrite(subject: Subject, chosen: Sequence[Match], number: int) -> Variant:
    """Return the variant with these steps in the form of that number."""
    program, place = subject.program, 0
    forward: list[Statement] = []
    init: list[str] = []
    for one in chosen:
        forward += [*program.forward[place : one.start], *one.statements(number)]
        needed = one.form(number).init
        init += [needed] if needed else []
        place = one.end
    return Variant(
        text=program.rendered([*forward, *program.forward[place:]], init),
        techniques=tuple(dict.fromkeys(one.technique(number) for one in chosen)),
        analysis=in_a_line(one.rule.why for one in chosen),
        design=in_a_line(one.form(number).design for one in chosen),
    )


def in_a_line(sentences: Iterable[str]) -> str:
    """Join sentences, each once."""
    return " ".join(dict.fromkeys(sentences))
