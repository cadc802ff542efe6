"""Take out of a recurrence what does not depend on its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.branches import chosen_value
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, Swap, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.rule import Change


@dataclass
class Hoist:
    """A loop whose turns need each other, but not for everything."""

    loop: Loop
    lift: Lift
    bounds: Bounds
    lines: list[str] = field(default_factory=list)
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    by_code: dict[str, str] = field(default_factory=dict)
    chosen: set[cst.BaseExpression] = field(default_factory=set)
    """Values that branches choose."""
    turned: dict[str, str] = field(default_factory=dict)
    """Tensors with their turns first, by name."""

    def change(self) -> Change:
        """Return the loop with less in it; raise Refused if nothing leaves it."""
        body = self.loop.chosen_body
        if not body or not self.is_safe(body):
            raise Refused
        read: set[str] = set()
        for line in cst.ensure_type(self.loop.node, cst.For).body.body:
            if isinstance(line, cst.If):
                self.branch(line, body)
        for one in body:
            if getattr(one, "value", None) in self.chosen:
                read |= stored_names(one)
                continue
            value = getattr(one, "value", None)
            if not isinstance(one, cst.Assign | cst.AugAssign | cst.Expr) or value is None:
                raise Refused
            self.expression(value)
            read |= names_in(value)
            target = one.targets[0].target if isinstance(one, cst.Assign) else None
            if isinstance(target, cst.Name) and target.value not in read:
                self.remember(target.value, value, body)
            read |= stored_names(one)
        if not self.lines:
            raise Refused
        for statement in body:
            self.fuse(statement)
        for name, code in self.turned.items():
            if any(name in names_in(cst.parse_module(line)) for line in self.lines):
                self.lines.insert(0, f"{name} = {code}")
        loop = self.loop.node.with_changes(leading_lines=[])
        text = self.loop.code(cst.ensure_type(loop.visit(SwapLines(self.new)), cst.For))
        made = {name for line in self.lines for name in stored_names(cst.parse_module(line))}
        if any(made & names_in(cst.parse_module(line)) for line in self.lift.lines or ()):
            raise Refused
        lines = [*(self.lift.lines or []), *self.lines]
        return Change(
            file=self.loop.name,
            new={self.loop.node: "\n".join([*lines, text])},
            modules=frozenset(("torch",)),
            found=" ".join(self.loop.code(self.loop.node).strip().split("\n")[0].split()),
        )

    def branch(self, node: cst.If, body: list[cst.BaseSmallStatement]) -> None:
        """Move the values out of the loop between which a branch chooses."""
        lines = []
        for one in chosen_value(node):
            target = one.targets[0].target if isinstance(one, cst.Assign) else None
            if not isinstance(one, cst.Assign) or not isinstance(target, cst.Name):
                raise Refused
            if sum(target.value in stored_names(each) for each in body) != 1:
                raise Refused
            lifted = self.lift.lift(one.value)
            if lifted.turns is None or lifted.is_kept:
                raise Refused
            code = self.picked(one.value, lifted, target.value)
            whole = self.by_code[lifted.code]
            self.lift.known[target.value] = replace(lifted, code=whole, is_computed=True)
            self.chosen |= {each.value for each in body if is_same(each, one)}  # type: ignore[attr-defined]
            lines.append(f"{target.value} = {code}")
        self.new[node] = "\n".join(lines)

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
            lifted = Lifted(hoisted, lifted.rank, lifted.turns, lifted.is_kept, lifted.is_new, True)
        elif lifted.is_computed and lifted.turns is not None:
            return
        elif lifted.turns and not lifted.is_kept:
            whole = self.lift.free_name(f"{name}_all")
            self.turned[whole] = lifted.first().code
            lifted = Lifted(whole, lifted.rank, 0, is_new=False)
        self.lift.known[name] = lifted

    def expression(self, node: cst.BaseExpression) -> None:
        """Move the largest parts of an expression that can leave the loop."""
        if isinstance(node, cst.Lambda | cst.BaseComp | cst.BooleanOperation):
            return
        lifted = None
        if self.lift.varies(node):
            with suppress(Refused):
                lifted = self.lift.lift(node)
        if lifted is not None and lifted.turns is not None and not lifted.is_kept:
            if lifted.is_computed and not isinstance(node, cst.Name):
                self.new[node] = self.picked(node, lifted)
            return
        if isinstance(node, cst.IfExp):
            return
        for child in node.children:
            for one in expressions(child):
                self.expression(one)

    def picked(self, node: cst.BaseExpression, lifted: Lifted, name: str = "") -> str:
        """Assign an expression before the loop, and return its turn."""
        if lifted.code not in self.by_code:
            name = self.lift.free_name(f"{name or self.short_name(node)}_all")
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

    def fuse(self, node: cst.CSTNode) -> None:
        """Write `moved[t] + self.linear(state)` as one product that adds, and
        `z * c + (1 - z) * h` of gates as one interpolation."""
        for child in node.children:
            self.fuse(child)
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Add):
            return
        added, product = self.new.get(node.left), node.right
        if added is None:
            added, product = self.new.get(node.right), node.left
        if added is not None and isinstance(product, cst.Call):
            weight = self.weight_of(product, node)
            if weight is not None:
                state = self.lift.code(product.args[0].value)
                self.new[node] = f"torch.addmm({added}, {state}, {weight})"
            return
        lerp = self.lerp(node)
        if lerp is not None:
            self.new[node] = lerp

    def weight_of(self, call: cst.Call, total: cst.BinaryOperation) -> str | None:
        """Return the transposed weight of a linear without bias, of a matrix as state."""
        graph = self.loop.call.graph
        found = self.loop.operations.get(call, [])
        sums = self.loop.operations.get(total, [])
        function = call.func
        if not found or not sums or not isinstance(function, cst.Attribute) or len(call.args) != 1:
            return None
        if any(self.lift.varies(one) for one in (function,)) or self.lift.code(
            function.value
        ) not in ("self",):
            return None
        for one in (*found, *sums):
            values = [graph.of(one.value(i)) for i in (0, 1)]
            if any(v is None or len(v.shape) != 2 for v in values):
                return None
            if len({v.dtype for v in values if v is not None}) != 1:
                return None
        name = function.attr.value
        for one in found:
            weight = graph.of(one.value(1))
            is_its = weight is not None and weight.path.split(".")[-2:] == [name, "weight"]
            if one.name != "linear" or not is_its or one.value(2) is not None:
                return None
        if not self.is_without_bias(name):
            return None
        code = f"self.{name}.weight.t()"
        if code not in self.by_code:
            self.by_code[code] = self.lift.free_name(f"{name}_weight")
            self.lines.append(f"{self.by_code[code]} = {code}")
        return self.by_code[code]

    def is_without_bias(self, name: str) -> bool:
        """Return whether the class makes a linear that never has a bias."""
        file = self.loop.file
        owner = next((a for a in file.above(self.loop.node) if isinstance(a, cst.ClassDef)), None)
        made = [
            one.value
            for one in (within(owner) if owner is not None else ())
            if isinstance(one, cst.Assign) and file.code(one.targets[0].target) == f"self.{name}"
        ]
        if len(made) != 1 or not isinstance(made[0], cst.Call):
            return False
        options = [file.code(one.value) for one in made[0].args if code_of(one.keyword) == "bias"]
        return options == ["False"] and file.code(made[0].func) in ("nn.Linear", "torch.nn.Linear")

    def lerp(self, node: cst.BinaryOperation) -> str | None:
        """Return the interpolation that `z * c + (1 - z) * h` is, for what gates bound."""
        graph = self.loop.call.graph
        for near, far in ((node.left, node.right), (node.right, node.left)):
            parts = factors(near)
            others = factors(far)
            if parts is None or others is None:
                continue
            for z, c in (parts, parts[::-1]):
                for rest, h in (others, others[::-1]):
                    gate = self.loop.code(z)
                    if not isinstance(z, cst.Name) or self.loop.code(rest) != f"(1 - {gate})":
                        continue
                    if not all(isinstance(one, cst.Name) for one in (c, h)):
                        continue
                    made = self.loop.operations.get(node, [])
                    if not made or not all(self.is_bounded(one, z, c) for one in made):
                        continue
                    held = {
                        (v.dtype, v.shape)
                        for one in made
                        for n in (z, c, h)
                        if (v := graph.of(self.held_at(one, n))) is not None
                    }
                    if len(held) == 1:
                        return f"torch.lerp({self.loop.code(h)}, {self.loop.code(c)}, {gate})"
        return None

    def held_at(self, operation: Operation, node: cst.BaseExpression) -> int | None:
        held = self.loop.call.source.scope(operation).get(self.loop.code(node))
        return None if held is None else held.value

    def is_bounded(
        self, operation: Operation, gate: cst.BaseExpression, candidate: cst.BaseExpression
    ) -> bool:
        """Return whether a gate is within 0 and 1, and what it lets in is finite."""
        graph = self.loop.call.graph
        return (
            graph.made_by(self.held_at(operation, gate), "sigmoid") is not None
            and graph.made_by(self.held_at(operation, candidate), "tanh", "sigmoid") is not None
        )


class SwapLines(Swap):
    """Put code in the place of expressions, and lines in the place of branches."""

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        if isinstance(original_node, cst.If) and original_node in self.new:
            return cst.FlattenSentinel(cst.parse_module(self.new[original_node]).body)
        return super().on_leave(original_node, updated_node)


def is_same(one: cst.BaseSmallStatement, other: cst.Assign) -> bool:
    """Return whether a statement binds the name that another one does."""
    return isinstance(one, cst.Assign) and stored_names(one) == stored_names(other)


def code_of(node: cst.Name | None) -> str:
    return "" if node is None else node.value


def factors(node: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return the factors of a product."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return node.left, node.right
    return None


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
