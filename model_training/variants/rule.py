"""Describe a better way to write a wasteful step: what it looks like, and its better forms."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_training.variants.patterns import Pattern, filled
from model_training.variants.shapes import Shape
from model_training.variants.source import Statement


@dataclass(frozen=True, kw_only=True)
class Form:
    """Hold statements that compute the same as a rule's pattern, with less work."""

    text: str
    design: str
    """A sentence of how; the rule says why."""
    technique: str | None = None
    """Where it is another than the rule's."""
    needs_rows: bool = False
    """Whether it is right for a matrix of several rows alone, as `x` where the statements begin."""
    init: str | None = None
    """A statement that `__init__` needs."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Hold a pattern (`before`, patterns.py) and its forms, the one that should be fastest
    first."""

    technique: str
    why: str
    """A sentence of what the pattern wastes."""
    before: str
    forms: tuple[Form, ...]

    @functools.cached_property
    def pattern(self) -> Pattern:
        return Pattern.of(self.before)


@dataclass(frozen=True, kw_only=True)
class Match:
    """Hold a rule that applies to the statements from `start` to `end`."""

    rule: Rule
    forms: tuple[Form, ...]
    """Those that are right here."""
    start: int
    end: int
    bound: dict[str, str]

    def form(self, number: int) -> Form:
        """Return the form of a number, or the last of fewer."""
        return self.forms[min(number, len(self.forms) - 1)]

    def statements(self, number: int) -> list[Statement]:
        return Statement.of(filled(self.form(number).text, self.bound))

    def technique(self, number: int) -> str:
        return self.form(number).technique or self.rule.technique


def matches(
    forward: Sequence[Statement], shapes: Sequence[Shape | None], rules: Sequence[Rule]
) -> list[Match]:
    """Return what applies, in the order of the statements; `shapes` are those of `x` before each,
    None where it is not known. Where two overlap, the longer one."""
    found = sorted(every(forward, shapes, rules), key=lambda one: one.start - one.end)
    kept: list[Match] = []
    for one in found:
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda one: one.start)


def every(
    forward: Sequence[Statement], shapes: Sequence[Shape | None], rules: Sequence[Rule]
) -> Iterator[Match]:
    for start in range(len(forward)):
        for rule in rules:
            bound = rule.pattern.match(forward[start:])
            forms = tuple(
                one for one in rule.forms if not one.needs_rows or is_of_rows(shapes[start])
            )
            if bound is not None and forms:
                end = start + len(rule.pattern.nodes)
                yield Match(rule=rule, forms=forms, start=start, end=end, bound=bound)


def is_of_rows(shape: Shape | None) -> bool:
    return shape is not None and len(shape) == 2 and shape[0] > 1
