"""Variants whose chains of elements and rows are Triton kernels; what is between them is written
better where a rule knows how."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence

from model_training.variants.kernels.fusion import IMPORTS, fuse, norms_of, translated
from model_training.variants.kernels.scans import DESIGN as SCAN_DESIGN
from model_training.variants.kernels.scans import WHY as SCAN_WHY
from model_training.variants.kernels.scans import scan_of, statements
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
    looped = next((one for one in chosen if scan_of(one) is not None), None)
    scan = scan_of(looped) if looped is not None else None
    others = {looped.start: statements(looped, scan)} if looped and scan else {}
    forward, _ = exchanged(subject.program, chosen, 0, others)
    program = dataclasses.replace(subject.program, forward=tuple(split_means(forward)))
    defined = {"scan": scan.shaped} if scan else {}
    found = fuse(program, shapes_in(program, text, defined), program.forward)
    if found is None and scan is None:
        return None
    lines, extra = found or (program.forward, Extra(imports=IMPORTS))
    definitions = (*((scan.definition,) if scan else ()), *extra.definitions)
    written = [one for one in chosen if one is not looped]
    reasons = [*((SCAN_WHY,) if scan else ()), *((WHY,) if found else ())]
    designs = [*((SCAN_DESIGN,) if scan else ()), *((DESIGN,) if found else ())]
    return Variant(
        text=program.rendered(lines, dataclasses.replace(extra, definitions=definitions)),
        kind="triton",
        techniques=(TECHNIQUE, *techniques_of(written, 0)),
        analysis=said([*reasons, *(one.rule.why for one in written)]),
        design=said([*designs, *(one.form(0).design for one in written)]),
    )


def is_fusible(subject: Subject, match: Match) -> bool:
    """Whether a kernel takes all statements of a step as they are."""
    steps = split_means(subject.program.forward[match.start : match.end])
    rows = [one for one in steps if one.text != MEAN]
    shapes = subject.shapes[match.start]
    return translated(rows, shapes, norms_of(subject.program)) is not None


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
