"""Variants whose chains of elements and rows are Triton kernels; what is between them is written
better where a rule knows how."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence

from model_training.variants.kernels.fusion import fuse, norms_of, translated
from model_training.variants.rule import Match
from model_training.variants.shapes import shapes_in
from model_training.variants.source import Extra, Statement
from model_training.variants.written import Subject, Variant, exchanged, said, techniques_of

WHY = "The chain of elementwise and row operators reads and writes memory for each of them."
DESIGN = "One Triton kernel keeps what is between in registers: one read and one write."
TECHNIQUE = "custom kernel"
MEAN = "x = x.mean().reshape(1)"
_MEAN = re.compile(r"x = (?P<value>\(.*\))\.mean\(\)\.reshape\(1\)")


def fused(subject: Subject, text: str) -> Variant | None:
    """None where nothing is worth a kernel."""
    plain = [one for one in subject.found if one.forms[0].init is None]
    chosen = [one for one in plain if not is_fusible(subject, one)]
    found = fused_with(subject, text, chosen)
    if found is None:
        return None
    forward, extra = found
    return Variant(
        text=subject.program.rendered(forward, extra),
        kind="triton",
        techniques=(TECHNIQUE, *(one for one in techniques_of(chosen, 0) if one != TECHNIQUE)),
        analysis=said([WHY, *(one.rule.why for one in chosen)]),
        design=said([DESIGN, *(one.form(0).design for one in chosen)]),
    )


def is_fusible(subject: Subject, match: Match) -> bool:
    """Whether a kernel takes all statements of a step as they are."""
    steps = split_means(subject.program.forward[match.start : match.end])
    rows = [one for one in steps if one.text != MEAN]
    shapes = subject.shapes[match.start]
    return translated(rows, shapes, norms_of(subject.program)) is not None


def fused_with(
    subject: Subject, text: str, chosen: Sequence[Match]
) -> tuple[list[Statement], Extra] | None:
    """The program with those steps exchanged first."""
    forward, _ = exchanged(subject.program, chosen, 0)
    program = dataclasses.replace(subject.program, forward=tuple(split_means(forward)))
    return fuse(program, shapes_in(program, text), program.forward)


def split_means(forward: Sequence[Statement]) -> list[Statement]:
    """The mean of all rows as a statement of its own, after that of the rows."""
    found: list[Statement] = []
    for one in forward:
        match = _MEAN.fullmatch(one.text)
        if match is None:
            found.append(one)
            continue
        value = ast.unparse(ast.parse(match["value"], mode="eval").body)
        found += Statement.of(f"x = {value}\n{MEAN}")
    return found
