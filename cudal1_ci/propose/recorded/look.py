"""Look at a recorded call with every rule: what each would change, and what it nearly matched.

A rule that raises costs what it would have found: its name and the error are kept, and the others
go on.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TypeVar

import libcst as cst

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.propose.recorded.aliases import mistaken
from cudal1_ci.propose.recorded.rule import Call, Change, Miss, RecordedRule
from cudal1_ci.propose.recorded.source import is_statement
from cudal1_ci.records import NearMiss

T = TypeVar("T")
MOST_SHOWN = 10
"""Near misses of one call."""
MAX_CODE_CHARS = 80


@dataclass
class Look:
    """What the rules found in one call."""

    call: Call
    changes: list[tuple[RecordedRule, Change]] = field(default_factory=list)
    misses: list[tuple[RecordedRule, Miss]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Why rules failed, by their names."""

    def attempt(self, name: str, do: Callable[[], T]) -> T | None:
        """Return what a rule gives; None where it raises, which is kept under its name."""
        try:
            return do()
        except CudaL1Error:
            raise
        except Exception as error:  # noqa: BLE001 (a bug of one rule costs that rule)
            self.failures.setdefault(name, error_text(error))
            return None

    def near_misses(self) -> tuple[NearMiss, ...]:
        """Return the nearest miss of each place that nothing is proposed for, in order of lines.
        Of several rules that miss the same statement the first one is heard, and of one rule what
        it said first."""
        large = [change for rule, change in self.changes if not rule.is_small]
        new = {node for change in large for node in change.new}
        changed = {one for change in large for one in statements_of(self.call, change)}
        found: dict[cst.CSTNode, NearMiss] = {}
        for rule, miss in self.misses:
            file = self.call.source.file(miss.file)
            if file is None or miss.statement in found or miss.statement in changed:
                continue
            if new.intersection(file.above(miss.node)):
                continue
            if not self.call.is_own(Change(miss.file, {miss.node: ""}, "")):
                continue
            found[miss.statement] = NearMiss(
                rule=rule.name,
                path=miss.file,
                line=file.ranges[miss.node].start.line,
                code=first_line(file.code(miss.node)),
                fact=miss.fact,
            )
        ordered = sorted(found.values(), key=lambda one: (one.path, one.line))
        return tuple(ordered[:MOST_SHOWN])


def look(rules: Sequence[RecordedRule], call: Call) -> Look:
    """Return what rules find in a call."""
    found = Look(call)
    for rule in rules:
        start = len(call.misses)
        changes = found.attempt(rule.name, partial(own_changes, rule, call))
        found.changes += [(rule, one) for one in changes or ()]
        found.misses += [(rule, one) for one in call.misses[start:]]
    return found


def own_changes(rule: RecordedRule, call: Call) -> list[Change]:
    """Return a rule's changes that are the target's business, and right in other calls too."""
    found = []
    for change in unique_changes(rule, call):
        if not call.is_own(change):
            continue
        names = mistaken(call, change)
        if names is None:
            found.append(change)
        else:
            fact = "only in this call `{}` and `{}` are one tensor".format(*names)
            node, statement = next(iter(change.new)), next(statements_of(call, change))
            call.misses.append(Miss(change.file, node, statement, fact))
    return found


def unique_changes(rule: RecordedRule, call: Call) -> Iterator[Change]:
    """Yield a rule's changes, the same expression once: a loop or a second call of a function
    runs it again. One that should read otherwise there is left out."""
    first: dict[object, Change | None] = {}
    for change in rule.find(call):
        for node in change.new:
            known = first.setdefault(node, change)
            if known is not None and known.new != change.new:
                first[node] = None
    yielded: set[int] = set()
    for one in first.values():
        if one is None or id(one) in yielded or any(first[node] is not one for node in one.new):
            continue
        yielded.add(id(one))
        yield one


def statements_of(call: Call, change: Change) -> Iterator[cst.CSTNode]:
    """Yield the statements that a change is in, or that it replaces."""
    file = call.source.file(change.file)
    for node in change.new if file is not None else ():
        assert file is not None
        yield next((one for one in (node, *file.above(node)) if is_statement(one)), node)


def error_text(error: Exception) -> str:
    """Return an error with the line that raised it."""
    (*frames,) = traceback.extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def first_line(code: str) -> str:
    """Return the first line of code, cut to 80 characters."""
    lines = [" ".join(one.split()) for one in code.strip().splitlines()] or [""]
    text = next((one for one in lines if one and not one.startswith("#")), lines[0])
    return text if len(text) <= MAX_CODE_CHARS else f"{text[: MAX_CODE_CHARS - 3]}..."
