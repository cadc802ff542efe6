"""Find the parts of a recorded call that are worth compiling by themselves.

A region is a whole function, consecutive statements of one block, or one expression. What is not
fused stays outside: a region may be given the product that it begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.graph import Operation, time_us
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.traffic import bytes_of
from cudal1_ci.propose.wrappers.bodies import (
    UNREADABLE,
    Body,
    Ran,
    Reader,
    Reading,
    Unmovable,
    bodies_of,
)
from cudal1_ci.propose.wrappers.fusible import (
    BYTES_PER_US,
    CALL_US,
    Fusible,
    Saving,
    saving_of,
)

LEAST_BYTES = 0.1
"""Share of the call's bytes that a region saves, or all regions of it together."""
LEAST_LAUNCHES = 4
"""Launches that each call of a region saves where launches are what the call takes."""
LEAST_TIME = 0.05
"""Share of the recorded time that the operations of a region took."""
LEAST_BESIDE = 0.1
"""What another region saves of what the best one does, to be compiled next to it."""
MOST_BESIDE = 6
MAX_HOLES = 4
MAX_STATEMENTS = 60
AS_GOOD = 1.1
"""A function that is decorated is preferred to moved statements that save a little more."""


@dataclass(frozen=True)
class Region:
    """A part of a function that is compiled by itself."""

    body: Body
    statements: tuple[cst.CSTNode, ...] = ()
    """Consecutive ones; () for a whole function, or an expression."""
    expression: cst.BaseExpression | None = None
    ran: tuple[Ran, ...] = ()
    holes: tuple[cst.BaseExpression, ...] = ()
    saving: Saving = field(default=Saving())

    @property
    def is_whole_function(self) -> bool:
        return not self.statements and self.expression is None

    @property
    def operations(self) -> frozenset[int]:
        return frozenset(one.operation.index for one in self.ran)


class Finder:
    """Find the regions of one recorded call."""

    def __init__(self, call: Call):
        self.call, self.graph = call, call.graph
        self.fusible = Fusible(call.graph)
        values = call.graph.recording.values
        self.kind = "cuda" if any(one.device == "cuda" for one in values) else "cpu"
        launched = self.fusible.launched(call.graph.operations)
        self.launched = frozenset(one.index for one in launched)
        sizes = [bytes_of(one, call.graph) for one in launched]
        self.num_bytes = sum(sizes)
        call_us, per_us = CALL_US[self.kind], BYTES_PER_US[self.kind]
        total_us = sum(max(call_us, one / per_us) for one in sizes)
        self.is_launch_bound = call_us * len(sizes) >= total_us / 2
        self.total_us = sum(map(time_us, call.graph.operations))

    def regions(self) -> list[Region]:
        """Return regions that do not overlap and are worth it together, the best one first."""
        found = [one for body in bodies_of(self.call) for one in self.of(body)]
        found = [one for one in found if one.saving.saved_us > 0]
        if any(self.launched <= one.operations for one in found):
            return []  # nothing that takes time is left outside: the whole target is compiled
        chosen: list[Region] = []
        taken: set[int] = set()
        for one in sorted(found, key=self.preference):
            if not taken & one.operations:
                chosen.append(one)
                taken |= one.operations
        least_us = LEAST_BESIDE * chosen[0].saving.saved_us if chosen else 0.0
        chosen = [one for one in chosen if one.saving.saved_us >= least_us][:MOST_BESIDE]
        chosen.sort(key=lambda one: -one.saving.saved_us)
        return chosen if self.is_worth(chosen) else []

    def preference(self, region: Region) -> float:
        return -region.saving.saved_us * (AS_GOOD if region.is_whole_function else 1.0)

    def is_worth(self, regions: Sequence[Region]) -> bool:
        """Return whether regions save enough of the call to be tried."""
        if not regions:
            return False
        ran = {one.operation.index: one.operation for each in regions for one in each.ran}
        if sum(map(time_us, ran.values())) < LEAST_TIME * self.total_us:
            return False
        if sum(one.saving.saved_bytes for one in regions) >= LEAST_BYTES * self.num_bytes:
            return True
        return self.is_launch_bound and any(
            one.saving.saved_launches >= LEAST_LAUNCHES * one.saving.calls for one in regions
        )

    def of(self, body: Body) -> Iterator[Region]:
        """Yield the regions of a function."""
        reader = Reader(self.call, self.fusible, body)
        whole = self.whole_function(body, reader)
        if whole is not None:
            yield whole
        if not body.is_readable:
            return
        for block in blocks_of(body.function.body):
            if len(block) <= MAX_STATEMENTS:
                yield from self.runs(body, reader, block)
                for statement in block:
                    yield from self.expressions(body, reader, statement)

    # --- whole functions -------------------------------------------------------------------------

    def whole_function(self, body: Body, reader: Reader) -> Region | None:
        """Return a helper or a submodule's forward that can be compiled as it is."""
        if body.function.decorators or not body.is_readable:
            return None
        numbers = {one.frame for one in body.all}
        if not all(one.operation in self.fusible for one in body.all):
            return None
        if not all(reader.is_safe(one) for one in numbers):
            return None
        frames = self.graph.recording.frames
        if any(frames[one].caller is None for one in numbers):
            return None  # the target itself
        by_frame: dict[int, list[Operation]] = {}
        for one in body.all:
            by_frame.setdefault(one.frame, []).append(one.operation)
        saving = sum((self.saving(one) for one in by_frame.values()), start=Saving())
        return Region(body, ran=tuple(body.all), saving=saving)

    def saving(self, operations: Sequence[Operation]) -> Saving:
        return saving_of(self.fusible, operations, self.kind)

    # --- statements ------------------------------------------------------------------------------

    def runs(self, body: Body, reader: Reader, block: Sequence[cst.CSTNode]) -> Iterator[Region]:
        """Yield the longest runs of statements that can be moved together, without what saves
        nothing at their ends."""
        readings = [self.reading(body, reader, one) for one in block]
        last_end = -1
        for start, first in enumerate(readings):
            if first is None:
                continue
            stored: set[str] = set()
            end = start
            while end < len(block):
                reading = readings[end]
                if reading is None or any(stored & names_in(one) for one in reading.holes):
                    break
                stored |= stored_names(block[end])
                end += 1
                if is_return(block[end - 1]):
                    break
            if end <= last_end:
                continue  # part of the run before
            last_end = end
            yield from self.trimmed(body, block[start:end], readings[start:end])

    def reading(self, body: Body, reader: Reader, statement: cst.CSTNode) -> Reading | None:
        """Return what a statement runs; None if it cannot be moved."""
        if body.has_lost(statement):
            return None
        try:
            if isinstance(statement, cst.If):
                return self.branches(body, reader, statement)
            value = moved_value(statement)
            return None if value is None else reader.read(value)
        except Unmovable:
            return None

    def branches(self, body: Body, reader: Reader, statement: cst.If) -> Reading | None:
        """Return what an `if` without `return` runs; nothing of it may stay outside."""
        found = reader.read(statement.test)
        for block in blocks_of(statement):
            for one in block:
                reading = self.reading(body, reader, one)
                if reading is None or is_return(one):
                    return None
                found.ran += reading.ran
                found.holes += reading.holes
        return None if found.holes else found

    def trimmed(
        self, body: Body, block: Sequence[cst.CSTNode], readings: Sequence[Reading | None]
    ) -> Iterator[Region]:
        """Yield a run without the statements at its ends that save nothing."""
        first, last = 0, len(block)
        order = order_of(block)

        def region(first: int, last: int) -> Region:
            chosen = [one for one in readings[first:last] if one is not None]
            ran = [one for each in chosen for one in each.ran]
            holes = [one for each in chosen for one in each.holes]
            saving = self.saved_by(ran, order)
            statements = tuple(block[first:last])
            return Region(body, statements, None, tuple(ran), tuple(holes), saving)

        best = region(first, last)
        while last - first > 1:
            shorter = [region(first + 1, last), region(first, last - 1)]
            chosen = max(shorter, key=lambda one: one.saving.saved_us)
            if chosen.saving.saved_us < best.saving.saved_us:
                break
            best = chosen
            first, last = (first + 1, last) if chosen is shorter[0] else (first, last - 1)
        if best.ran and len({*map(id, best.holes)}) <= MAX_HOLES:
            yield best

    def saved_by(self, ran: Sequence[Ran], order: dict[cst.CSTNode, int]) -> Saving:
        """Return what is saved in all calls of a region, each fused by itself."""
        total = Saving()
        for turn in turns_of(ran, order):
            total += self.saving([one.operation for one in turn])
        return total

    # --- expressions -----------------------------------------------------------------------------

    def expressions(self, body: Body, reader: Reader, statement: cst.CSTNode) -> Iterator[Region]:
        """Yield the largest fused parts of what a statement evaluates outside of a run."""
        if not isinstance(statement, cst.SimpleStatementLine) or body.has_lost(statement):
            return
        kinds = cst.Assign | cst.AugAssign | cst.Return | cst.Expr
        pending: list[cst.CSTNode] = [
            one.value for one in statement.body if isinstance(one, kinds) and one.value is not None
        ]
        while pending:
            node = pending.pop()
            if isinstance(node, cst.BaseExpression):
                try:
                    reading = reader.read(node)
                except Unmovable:
                    pending += () if isinstance(node, UNREADABLE) else node.children
                    continue
                if reading.ran and len(reading.holes) <= MAX_HOLES and is_moved(node):
                    yield Region(
                        body,
                        expression=node,
                        ran=tuple(reading.ran),
                        holes=tuple(reading.holes),
                        saving=self.saved_by(reading.ran, order_of([node])),
                    )
                    pending += [child for hole in reading.holes for child in hole.children]
                    continue
            pending += node.children


def is_moved(node: cst.BaseExpression) -> bool:
    """Return whether an expression can be what a function returns."""
    return isinstance(node, cst.BinaryOperation | cst.Call | cst.UnaryOperation | cst.Subscript)


def blocks_of(node: cst.CSTNode) -> Iterator[list[cst.CSTNode]]:
    """Yield the blocks of a function, without those of functions within it."""
    if isinstance(node, cst.IndentedBlock):
        yield [*node.body]
    for child in node.children:
        if not isinstance(child, cst.FunctionDef | cst.ClassDef | cst.BaseExpression):
            yield from blocks_of(child)


def moved_value(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """Return what a statement assigns to local variables, or returns; None of others."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    line = statement.body[0]
    if isinstance(line, cst.Return):
        return line.value
    if isinstance(line, cst.AnnAssign):
        return line.value if isinstance(line.target, cst.Name) else None
    if not isinstance(line, cst.Assign) or not all(is_local(one.target) for one in line.targets):
        return None
    return line.value


def is_local(target: cst.BaseExpression) -> bool:
    """Return whether a target is a local variable, or several."""
    if isinstance(target, cst.Tuple | cst.List):
        return all(is_local(one.value) for one in target.elements)
    return isinstance(target, cst.Name)


def is_return(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], cst.Return
    )


def order_of(nodes: Iterable[cst.CSTNode]) -> dict[cst.CSTNode, int]:
    """Return the order in which expressions are evaluated: inner ones before outer ones."""
    found: dict[cst.CSTNode, int] = {}

    def into(node: cst.CSTNode) -> None:
        for child in node.children:
            into(child)
        found[node] = len(found)

    for one in nodes:
        into(one)
    return found


def turns_of(ran: Iterable[Ran], order: dict[cst.CSTNode, int]) -> list[list[Ran]]:
    """Return what each call of a region runs: in a loop, and in each call of its function, its
    expressions are evaluated again from the first one."""
    found: list[list[Ran]] = []
    for one in sorted(ran, key=lambda one: (one.frame, one.operation.index)):
        if not found or begins_again(found[-1], one, order):
            found.append([])
        found[-1].append(one)
    return found


def begins_again(turn: Sequence[Ran], one: Ran, order: dict[cst.CSTNode, int]) -> bool:
    """Return whether an operation is of the next turn."""
    before = turn[-1]
    if before.frame != one.frame or before.node is None or one.node is None:
        return True
    if before.node is not one.node:
        return order[one.node] < order[before.node]
    if before.child is not None or one.child is not None:
        return before.child != one.child
    return any(r.node is one.node and r.operation.name == one.operation.name for r in turn)
