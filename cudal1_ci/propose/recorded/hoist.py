"""Take out of a recurrence what does not depend on its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.lift import Lift, Lifted, Refused, Swap
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.rule import Call, Change
from cudal1_ci.propose.recorded.source import names_read
from cudal1_ci.propose.rewrites.walk import roots, stored_names


@dataclass
class Hoist:
    """A loop whose turns need each other, but not for everything."""

    loop: Loop
    lift: Lift
    bounds: Bounds
    lines: list[str] = field(default_factory=list)
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    by_code: dict[str, str] = field(default_factory=dict)

    def change(self) -> Change:
        """Return the loop with less in it; raise Refused if nothing leaves it."""
        body = self.loop.body
        if not body or not self.is_safe(body):
            raise Refused
        read: set[str] = set()
        for one in body:
            value = getattr(one, "value", None)
            if not isinstance(one, cst.Assign | cst.AugAssign | cst.Expr) or value is None:
                raise Refused
            self.expression(value)
            read |= names_read(value)
            target = one.targets[0].target if isinstance(one, cst.Assign) else None
            if isinstance(target, cst.Name) and target.value not in read:
                self.remember(target.value, value, body)
            read |= stored_names(one)
        if not self.lines:
            raise Refused
        loop = self.loop.node.with_changes(leading_lines=[])
        text = self.loop.code(cst.ensure_type(loop.visit(Swap(self.new)), cst.For))  # type: ignore[arg-type]
        lines = [*(self.lift.lines or []), *self.lines]
        return Change(
            file=self.loop.name,
            new={self.loop.node: "\n".join([*lines, text])},
            found=" ".join(self.loop.code(self.loop.node).strip().split("\n")[0].split()),
        )

    def is_safe(self, body: list[cst.BaseSmallStatement]) -> bool:
        """Return whether turns change nothing but their locals and tensors made to be filled."""
        for one in body:
            if isinstance(one, cst.Assign):
                for target in one.targets:
                    if not isinstance(target.target, cst.Name | cst.Tuple | cst.Subscript):
                        return False
        for name in stored_in_place(body):
            if not self.loop.is_fresh(name):
                return False
        first, last = self.loop.inside[0].index, self.loop.inside[-1].index
        between = self.loop.call.graph.operations[first : last + 1]
        return not any(one.name.endswith("_") for one in between)

    def remember(
        self, name: str, value: cst.BaseExpression, body: list[cst.BaseSmallStatement]
    ) -> None:
        """Know what a local is for all turns, if it is assigned once and needs no earlier turn."""
        if sum(name in stored_names(one) for one in body) != 1:
            return
        try:
            lifted = self.lift.lift(value)
        except Refused:
            return
        hoisted = self.by_code.get(lifted.code)
        if hoisted is not None:
            lifted = Lifted(
                hoisted, lifted.rank, lifted.turns, lifted.is_kept, lifted.is_new, True
            )
        elif lifted.is_computed and lifted.turns is not None:
            return
        self.lift.known[name] = lifted

    def expression(self, node: cst.BaseExpression) -> None:
        """Move the largest parts of an expression that can leave the loop."""
        if isinstance(node, cst.Lambda | cst.BaseComp | cst.IfExp | cst.BooleanOperation):
            return
        lifted = None
        if self.lift.varies(node):
            try:
                lifted = self.lift.lift(node)
            except Refused:
                pass
        if lifted is not None and lifted.turns is not None and not lifted.is_kept:
            if lifted.is_computed and not isinstance(node, cst.Name):
                self.new[node] = self.picked(node, lifted)
            return
        for child in node.children:
            for one in expressions(child):
                self.expression(one)

    def picked(self, node: cst.BaseExpression, lifted: Lifted) -> str:
        """Assign an expression before the loop, and return its turn."""
        if lifted.code not in self.by_code:
            name = self.lift.free_name(f"{self.short_name(node)}_all")
            self.lines.append(f"{name} = {lifted.code}")
            self.by_code[lifted.code] = name
        name, index = self.by_code[lifted.code], self.bounds.index
        if self.bounds.low:
            index = f"{index} - {self.bounds.low}"
        return f"{name}[{', '.join([*[':'] * (lifted.turns or 0), index])}]"

    def short_name(self, node: cst.BaseExpression) -> str:
        """Return what a value is called: as its local, its submodule, or its operation."""
        parent = self.loop.file.parents.get(node)
        if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
            return parent.targets[0].target.value
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            return node.func.attr.value.strip("_")
        return self.lift.operation(node).name.strip("_")


def expressions(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield the outermost expressions of a node."""
    if isinstance(node, cst.BaseExpression):
        yield node
        return
    for child in node.children:
        yield from expressions(child)


def stored_in_place(body: list[cst.BaseSmallStatement]) -> set[str]:
    """Return the locals into which a body writes."""
    found: set[str] = set()
    for one in body:
        if isinstance(one, cst.Assign):
            for target in one.targets:
                if isinstance(target.target, cst.Subscript):
                    found |= roots(target.target)
    return found


def find_hoisted(call: Call) -> Iterator[Change]:
    """Find recurrences whose turns compute what needs no state."""
    for loop in loops_in(call):
        lift = loop.lift() if isinstance(loop.node, cst.For) else None
        if lift is None or lift.bounds is None:
            continue
        try:
            yield Hoist(loop, lift, lift.bounds).change()
        except Refused:
            continue
