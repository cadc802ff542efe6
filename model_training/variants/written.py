"""Variants of a task in plain PyTorch: its wasteful steps written better, all at once or one alone.

written_better(subject_of(text))[0].text     # the program as `ModelNew`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci.records import Record
from model_training.variants.rule import Match, Rule, matches
from model_training.variants.rules import RULES
from model_training.variants.shapes import Shapes, shapes_in
from model_training.variants.source import Extra, Program, Statement


class Variant(Record, frozen=True, kw_only=True):
    """A program that computes what a task does, and why it should be faster."""

    text: str
    kind: str
    """`torch`, `triton`, `graph`, `compile`: what has to be there to run it."""
    techniques: tuple[str, ...]
    analysis: str
    design: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A task that was read: its parts, the shapes before each statement, and what applies."""

    program: Program
    shapes: tuple[Shapes, ...]
    found: tuple[Match, ...]


def subject_of(text: str, rules: Sequence[Rule] = RULES) -> Subject | None:
    """What is known of a task, as far as these rules go; None for a text that the generator did not
    write. Runs it on tensors without storage (shapes.py)."""
    program = Program.of(text)
    if program is None:
        return None
    shapes = shapes_in(program, text)
    found = matches(program.forward, [known["x"] for known in shapes], rules)
    return Subject(program=program, shapes=tuple(shapes), found=tuple(found))


def written_better(subject: Subject) -> list[Variant]:
    """All steps in their first form; each step alone, which leaves the others as they are; all
    steps in their second form, and so on."""
    num_forms = max((len(one.forms) for one in subject.found), default=0)
    together = [rewritten(subject, subject.found, number) for number in range(num_forms)]
    alone = [rewritten(subject, [one], 0) for one in subject.found]
    return [*together[:1], *(alone if len(alone) > 1 else []), *together[1:]]


def rewritten(subject: Subject, chosen: Sequence[Match], number: int) -> Variant:
    """With these steps in the form of that number."""
    program = subject.program
    forward, extra = exchanged(program, chosen, number)
    return Variant(
        text=program.rendered(forward, extra),
        kind="torch",
        techniques=techniques_of(chosen, number),
        analysis=said(one.rule.why for one in chosen),
        design=said(one.form(number).design for one in chosen),
    )


def exchanged(
    program: Program,
    chosen: Sequence[Match],
    number: int,
    others: Mapping[int, list[Statement]] | None = None,
) -> tuple[list[Statement], Extra]:
    """The statements with those steps exchanged, and what they need; `others` are the statements
    for steps that begin there, in place of a form."""
    forward: list[Statement] = []
    init: list[str] = []
    place = 0
    for one in chosen:
        other = (others or {}).get(one.start)
        forward += program.forward[place : one.start]
        forward += other or one.statements(number)
        needed = None if other else one.form(number).init
        init += [needed] if needed else []
        place = one.end
    return [*forward, *program.forward[place:]], Extra(init=tuple(init))


def techniques_of(chosen: Sequence[Match], number: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.technique(number) for one in chosen))


def said(sentences: Iterable[str]) -> str:
    """Each sentence once, in a line."""
    return " ".join(dict.fromkeys(sentences))
