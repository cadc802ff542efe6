"""Define what a rule is, and what it sees.

A rule is a function over a parsed text. It explains and sorts. A program that no rule flags is not
proved honest. `convicts` is for text with only one meaning: patched clocks, answers stored under an
address. All other findings are shown next to the verifier's verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from cudal1_ci.records import Finding

LONGEST_EVIDENCE = 160
Text = TypeVar("Text")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule's name, whether it suffices for a verdict, and what it sees."""

    name: str
    convicts: bool
    summary: str


@dataclass(frozen=True)
class Sight:
    """A place that a rule saw: the 1-based line, and why it matters there."""

    line: int
    message: str


@dataclass(frozen=True)
class Check(Generic[Text]):
    """A rule and the function that applies it to one kind of text."""

    rule: Rule
    look: Callable[[Text], Iterator[Sight]]


def check(
    name: str,
    look: Callable[[Text], Iterator[Sight]],
    summary: str,
    *,
    convicts: bool = False,
) -> Check[Text]:
    """Return a rule with its function."""
    return Check(Rule(name=name, convicts=convicts, summary=summary), look)


def finding_of(rule: Rule, sight: Sight, lines: list[str]) -> Finding:
    """Return a sight as a record, with the line as evidence."""
    inside = 0 < sight.line <= len(lines)
    evidence = lines[sight.line - 1].strip()[:LONGEST_EVIDENCE] if inside else ""
    return Finding(
        rule=f"static.{rule.name}",
        message=sight.message,
        line=sight.line,
        evidence=evidence or None,
    )
