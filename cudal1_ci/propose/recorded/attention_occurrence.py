"""Say where a matched attention is written, and write values as code that holds there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.attention_code import names_of_code
from cudal1_ci.propose.recorded.attention_match import Attention, Step
from cudal1_ci.propose.recorded.attention_text import Body, Branch, Site, bare
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import Place, Source

T = TypeVar("T")


class Refused(Exception):
    """Raised where the text does not guarantee the rewrite, with the fact that is missing."""


def needed(found: T | None, fact: str = "") -> T:
    """Return what was found; refuse where nothing was, and say which fact is missing."""
    if found is None:
        raise Refused(fact)
    return found


@dataclass(frozen=True)
class Mask:
    """A mask, with the branches that it is applied in."""

    step: Step
    site: Site
    branches: tuple[Branch, ...]
    space: int
    """How many dimensions the scores have where it is applied."""


@dataclass(frozen=True)
class Occurrence:
    """A matched attention, in the function that computes its result."""

    call: Call
    found: Attention
    place: Place
    body: Body
    statements: Mapping[cst.CSTNode, Site] = field(default_factory=dict)
    """Statements that only compute scores or weights, by node."""
    masks: Sequence[Mask] = ()
    folded: Operation | None = None
    """The view of 3-D scores that gives them their heads."""

    @property
    def graph(self) -> Graph:
        return self.call.graph

    @property
    def source(self) -> Source:
        return self.call.source

    @property
    def final(self) -> Operation:
        return self.found.final

    @property
    def rank(self) -> int:
        return self.graph.num_dims(self.found.product.output)

    @property
    def chain(self) -> list[Operation]:
        """Return the operations whose results are scores or weights."""
        found = self.found
        return [found.product, *(one.operation for one in found.steps), found.softmax, *found.after]

    @functools.cached_property
    def base(self) -> list[Branch]:
        """Return the branches that the result is in."""
        return self.body.branches(self.place.node)

    @property
    def first(self) -> tuple[int, int]:
        """Return where the first statement of the attention starts."""
        return min(self.body.start(one) for one in [*self.statements, self.place.statement])

    @property
    def last(self) -> tuple[int, int]:
        """Return where the statement of the result starts."""
        return self.body.start(self.place.statement)

    def inner(self, node: cst.CSTNode) -> tuple[Branch, ...]:
        """Return the branches that a node is in and the result is not."""
        return tuple(one for one in self.body.branches(node) if one not in self.base)

    def sites(self, operation: Operation) -> list[tuple[Body, Site]]:
        """Return where an operation is written: in its own function, then where that is called,
        up to the function of the result."""
        number = operation.recorded.frame
        span = operation.recorded.span
        found: list[tuple[Body, Site]] = []
        while number is not None:
            frame = self.graph.recording.frames[number]
            fact = "part of it is not in a function of this checkout"
            file = needed(self.source.file(frame.file), fact)
            site = needed(Body.site(file, needed(span, fact)), fact)
            if frame.function.endswith(">"):
                raise Refused(fact)
            if number == self.final.recorded.frame:
                if site.function is not self.body.function:
                    raise Refused("part of it is in another function of the same name")
                return [*found, (self.body, site)]
            function = needed(site.function, "part of it is outside of any function")
            found.append((Body(file, function), site))
            number, span = frame.caller, frame.call
        raise Refused("part of it is computed before the function of the result is called")

    def own_site(self, operation: Operation, fact: str = "") -> Site:
        """Return where the function of the result itself writes an operation; where it does not,
        refuse with this fact."""
        (_, site), *outer = self.sites(operation)
        if outer:
            raise Refused(fact)
        return site

    def chain_names(self, frame: int | None) -> set[str]:
        """Return the names that scores and weights have in a frame."""
        values = {one.output for one in self.chain}
        found = {
            name
            for one in self.graph.operations
            if one.recorded.frame == frame
            for name, held in self.source.scope(one).items()
            if held.value in values and not name.startswith(".")
        }
        if frame == self.final.recorded.frame:
            found |= {one.target for one in self.statements.values() if one.target is not None}
        return found

    def code(
        self, value: int | None, reader: Operation | None = None, position: int = 0
    ) -> str | None:
        """Return code of a value that is bound wherever the result is computed: the name by which
        an operation reads it, if it has several."""
        at, source = self.final, self.source
        code = None if reader is None else source.name_read(value, reader, at, position)
        code = code or source.expression(value, at)
        return None if code is None else self.bound(bare(code))

    def bound(self, code: str | None, guard: Sequence[Branch] = ()) -> str | None:
        """Return code if all its names are bound whenever the result is computed."""
        if code is None:
            return None
        inside = [*self.base, *guard]
        is_bound = all(self.body.is_bound(name, inside) for name in names_of_code(code))
        return code if is_bound else None

    def repeated(self, node: cst.BaseExpression, made: Operation, at: Operation) -> str | None:
        """Return an expression's code if it means the same at another place of its function."""
        before, after = self.source.scope(made), self.source.scope(at)
        is_same = made.recorded.frame == at.recorded.frame and all(
            before.get(name) == after.get(name) for name in names_in(node)
        )
        return bare(portable(node)) if is_same else None

    def argument_node(
        self, operation: Operation, position: int, name: str
    ) -> cst.BaseExpression | None:
        """Return an argument's expression."""
        if position < len(operation.recorded.args):
            span = operation.recorded.span
            frame = self.source.frame(operation)
            file = None if frame is None else self.source.file(frame.file)
            site = None if file is None or span is None else Body.site(file, span)
            if site is not None and isinstance(site.node, cst.AugAssign):
                return (site.node.target, site.node.value)[position] if position < 2 else None
            found = self.source.operands(operation)
            return found[position] if position < len(found) else None
        place = self.source.place(operation)
        if place is None or not isinstance(place.node, cst.Call):
            return None
        named = {one.keyword.value: one.value for one in place.node.args if one.keyword is not None}
        return named.get(name)

    def argument_code(self, operation: Operation, position: int, name: str) -> str | None:
        """Return an argument's code where the result is computed, perhaps in the function that
        calls its own."""
        node = self.argument_node(operation, position, name)
        if node is None or operation.recorded.frame == self.final.recorded.frame:
            return None if node is None else self.repeated(node, operation, self.final)
        before, after = self.source.scope(operation), self.source.scope(self.final)
        for one in names_in(node):
            held = before.get(one)
            is_same = held is None or held.kind in ("module", "value")
            if held != after.get(one) or not is_same:
                return None
        return portable(node)


def located(call: Call, found: Attention) -> Occurrence:
    """Return where an attention is written."""
    place = needed(call.source.place(found.final))
    body = Body(needed(call.source.file(place.file)), needed(place.function))
    if "scaled_dot_product_attention(" in body.file.code(body.function):
        raise Refused("its function calls scaled_dot_product_attention where that is wanted")
    return Occurrence(call, found, place, body)
