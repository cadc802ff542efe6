"""Find the loops of a recorded call, and what is needed to write them in another way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.branches import chosen_value
from cudal1_ci.propose.recorded.graph import VIEWS, Operation
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    BINARY,
    UNARY,
    Refused,
    integer,
    is_impure,
    within,
)
from cudal1_ci.propose.recorded.loop_text import (
    JUMPS,
    for_in,
    is_size,
    leaves,
    rebinds,
    shape_of,
    shape_read,
    size_read,
    sizes_made,
)
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.propose.recorded.spans import host_number

FRESH = frozenset(
    (
        *("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like"),
        *("new_zeros", "new_ones", "new_empty", "new_full", "clone"),
    )
)
SHARING = VIEWS | {
    *("getitem", "chunk", "split", "unbind", "detach", "narrow", "select", "unfold", "to"),
    *("view_as", "diagonal", "t", "tensor_split", "hsplit", "vsplit", "numpy", "data"),
    *("float", "double", "half", "bfloat16", "type", "type_as", "squeeze_", "unsqueeze_"),
}
"""Operations whose result may be in the memory of what they read."""


@dataclass(frozen=True)
class Loop:
    """A loop or a comprehension, with the operations of its body."""

    name: str
    """Of its file."""
    file: File
    node: cst.For | cst.BaseComp
    function: cst.FunctionDef
    operations: dict[cst.CSTNode, list[Operation]]
    inside: tuple[Operation, ...]
    call: Call

    @property
    def target(self) -> cst.BaseExpression:
        node = self.node
        return node.target if isinstance(node, cst.For) else for_in(node).target

    @property
    def over(self) -> cst.BaseExpression:
        node = self.node
        return node.iter if isinstance(node, cst.For) else for_in(node).iter

    @functools.cached_property
    def body(self) -> list[cst.BaseSmallStatement]:
        """Return its statements; [] if one is compound, or leaves the loop."""
        node = self.node
        if not isinstance(node, cst.For) or node.orelse:
            return []
        if any(type(one) in JUMPS for one in within(node)):
            return []
        found: list[cst.BaseSmallStatement] = []
        for one in node.body.body:
            if not isinstance(one, cst.SimpleStatementLine) or len(one.body) != 1:
                return []
            found.append(one.body[0])
        return found

    @functools.cached_property
    def chosen_body(self) -> list[cst.BaseSmallStatement]:
        """Return its statements, with one for a branch that gives a name or a list one of several
        values; [] if it has another one."""
        block = self.node.body if isinstance(self.node, cst.For) else None
        if not isinstance(block, cst.IndentedBlock) or self.node.orelse:  # type: ignore[union-attr]
            return []
        if any(type(one) in JUMPS for one in within(block)):
            return []
        found: list[cst.BaseSmallStatement] = []
        for one in block.body:
            if isinstance(one, cst.If):
                made = chosen_value(one)
                own = [each for each in made[:-1] if each in self.file.ranges]
                stored = [name for each in own for name in stored_names(each)]
                if not made or any(self.times_bound(name) > 1 for name in stored):
                    return []
                found += made
            elif isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1:
                found.append(one.body[0])
            else:
                return []
        return found

    def times_bound(self, name: str) -> int:
        """Return in how many statements of the loop a name is bound."""
        return sum(
            name in stored_names(one)
            for one in within(self.node)
            if isinstance(one, cst.BaseSmallStatement)
        )

    def code(self, node: cst.CSTNode) -> str:
        return self.file.code(node)

    def held(self, name: str, operations: Sequence[Operation]) -> int | None:
        """Return the tensor that a local always is; None if it is none."""
        found: set[int | None] = set()
        for one in operations:
            held = self.call.source.scope(one).get(name)
            if held is not None:
                found.add(held.value)
        return None if not found or None in found else max(one for one in found if one is not None)

    def has_shape_of(self, name: str, other: str) -> bool:
        """Return whether a tensor was made before the loop with the shape of another one."""
        bindings, (start, last) = self.bindings, self.lines()
        line, assign = bindings.get(name, [(0, None)])[0]
        if len(bindings.get(name, ())) != 1 or assign is None or line >= start:
            return False
        made = assign.value
        is_like = isinstance(made, cst.Call) and self.code(made.func).startswith("torch.")
        is_like = is_like and self.code(made.func).endswith("_like")  # type: ignore[attr-defined]
        like = made.args[0].value if is_like and made.args else made  # type: ignore[attr-defined]
        is_kept = all(at < line or at > last for at, _ in bindings.get(other, ()))
        return is_kept and shape_of(like) == other

    def lines(self) -> tuple[int, int]:
        """Return the loop's first line and the last one that can run between its turns."""
        where = self.file.ranges[self.node]
        repeats = any(isinstance(one, cst.For | cst.While) for one in self.file.above(self.node))
        return where.start.line, len(self.file.lines) if repeats else where.end.line

    def parameters(self) -> list[str]:
        return [one.name.value for one in within(self.function) if isinstance(one, cst.Param)]

    @functools.cached_property
    def bindings(self) -> dict[str, list[tuple[int, cst.Assign | None]]]:
        """Return the lines that bind each local, with the assignment if it is a plain one."""
        found: dict[str, list[tuple[int, cst.Assign | None]]] = {
            name: [(0, None)] for name in self.parameters()
        }
        for one in within(self.function.body):
            targets: list[cst.BaseExpression] = []
            if isinstance(one, cst.Assign):
                targets = [o.target for o in one.targets if not isinstance(o.target, cst.Subscript)]
            elif isinstance(one, cst.For | cst.NamedExpr | cst.AnnAssign | cst.AugAssign):
                targets = [one.target]
            elif isinstance(one, cst.AsName):
                targets = [one.name]
            for target in targets:
                for name in roots(target):
                    assign = one if isinstance(one, cst.Assign) else None
                    line = self.file.ranges[one].start.line
                    found.setdefault(name, []).append((line, assign))
        return found

    def filled_rows(self) -> set[str]:
        """Return the tensors of which each turn reads and writes only its own row."""
        target, node = self.target, self.node
        if isinstance(target, cst.Tuple) and self.code(self.over).startswith("enumerate("):
            target = target.elements[0].value
        if not isinstance(node, cst.For) or not isinstance(target, cst.Name):
            return set()
        wanted = {
            name
            for one in within(node.body)
            if isinstance(one, cst.Assign)
            for t in one.targets
            if isinstance(t.target, cst.Subscript)
            for name in roots(t.target)
        }
        found = set()
        for name in wanted:
            seen = [o for o in within(node.body) if isinstance(o, cst.Name) and o.value == name]
            above = [self.file.parents.get(one) for one in seen]
            is_row = all(
                isinstance(one, cst.Subscript)
                and one.value in seen
                and isinstance(one.slice[0].slice, cst.Index)
                and self.code(one.slice[0].slice.value) == target.value
                for one in above
            )
            if is_row and self.is_unshared(name):
                found.add(name)
        return found

    def is_unshared(self, name: str) -> bool:
        """Return whether no other local can be a view of a tensor."""
        graph = self.call.graph
        held = self.call.source.scope(self.inside[0]).get(name)
        if held is None or held.kind != "value":
            return False
        maker = graph.made_by(held.value)
        if maker is not None and maker.name in SHARING:
            return False
        first = self.inside[0].index
        readers = graph.readers.get(held.value or 0, [])
        places = {one: self.call.source.place(one) for one in readers if one.index < first}
        return not any(
            one.name in SHARING and (place is None or place.node is not self.over)
            for one, place in places.items()
        )

    def bounds(
        self,
        index: str,
        *,
        any_order: bool = False,
        keep: Callable[[str, str], str] | None = None,
    ) -> Bounds | None:
        """Return what the loop counts, if it is over `range(high)` or `range(low, high)`.

        Args:
            index: The name that counts.
            any_order: Whether it may count down.
            keep: Returns a name for code that runs before the loop. Without it, no number of
                operations is counted to.
        """
        over = self.over
        if any_order and isinstance(over, cst.Call) and self.code(over.func) == "reversed":
            over = over.args[0].value
        if not isinstance(over, cst.Call) or self.code(over.func) != "range":
            return None
        if isinstance(self.node, cst.For) and rebinds(self.node.body, index):
            return None
        given = [one.value for one in over.args if not one.star and one.keyword is None]
        if len(given) != len(over.args) or len(given) not in (1, 2):
            return None
        low = 0
        if len(given) == 2:
            try:
                low = integer(given[0])
            except Refused:
                return None
        high = given[-1]
        plain = cst.Name | cst.Attribute | cst.Integer | cst.Subscript | cst.Call
        parts = list(leaves(high))
        if low < 0 or not all(isinstance(one, plain) for one in parts):
            return None
        calls = [one for one in within(high) if isinstance(one, cst.Call) and not is_size(one)]
        code = self.code(high)
        if calls:
            is_number = isinstance(self.node, cst.For) and all(map(self.is_of_host, calls))
            if keep is None or not is_number:
                return None
            code = keep(f"max({code}, 0)", "count")
        return Bounds(index, low, code, frozenset(self.sizes))

    def is_of_host(self, node: cst.Call) -> bool:
        """Return whether a call reads a number of the host, or is an operation without effects."""
        if host_number(node) is not None:
            return True
        made = self.operations.get(node, [])
        return bool(made) and not any(map(is_impure, made))

    @functools.cached_property
    def sizes(self) -> tuple[tuple[str, str, int], ...]:
        """Return code that is the size of a dimension of a local tensor all through the loop."""
        return tuple(self.find_sizes())

    def find_sizes(self) -> Iterator[tuple[str, str, int]]:
        """Yield code of sizes with the tensor and the dimension."""
        assigned: dict[str, list[tuple[int, cst.BaseExpression | None]]] = {
            name: [(0, None)] for name in self.parameters()
        }
        for one in within(self.function.body):
            if isinstance(one, cst.SimpleStatementLine | cst.For | cst.With):
                line = self.file.ranges[one].start.line
                for name in stored_names(one):
                    value = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
                    known = assigned.setdefault(name, [])
                    known.append((line, value if isinstance(value, cst.Assign) else None))  # type: ignore[arg-type]
        bindings, (start, last) = self.bindings, self.lines()

        def is_bound_between(tensor: str, line: int) -> bool:
            return any(line <= at <= last for at, _ in bindings.get(tensor, []))

        for name, found in assigned.items():
            line, assign = found[0]
            if len(found) != 1 or not isinstance(assign, cst.Assign) or line > start:
                continue
            for tensor, dim in shape_read(assign, name):
                if not is_bound_between(tensor, line):
                    yield name, tensor, dim
        yield from self.sizes_made(assigned)
        for one in within(self.over):
            known_size = size_read(one)
            if known_size is not None:
                tensor, dim = known_size
                if not is_bound_between(tensor, start):
                    yield self.code(one), tensor, dim

    def sizes_made(
        self, assigned: dict[str, list[tuple[int, cst.BaseExpression | None]]]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield the sizes with which tensors are made before the loop: `torch.zeros(n, m)`."""
        start, last = self.lines()
        for name, ((line, first), *more) in self.bindings.items():
            if more or first is None or line >= start:
                continue
            if not isinstance(first.targets[0].target, cst.Name):
                continue
            for dim, size in enumerate(sizes_made(first.value)):
                read = names_in(size) - {"self"}
                lines = [at[0] for one in read for at in assigned.get(one, [])]
                if all(at < line or at > last for at in lines):
                    yield self.code(size), name, dim

    def is_read_after(self, names: set[str]) -> bool:
        """Return whether the function reads names elsewhere than in the loop, but for those that
        another loop binds."""
        last = self.file.ranges[self.node].end.line
        repeats = any(isinstance(one, cst.For | cst.While) for one in self.file.above(self.node))

        def reads(node: cst.CSTNode, wanted: set[str]) -> bool:
            if node is self.node or not wanted:
                return False
            if isinstance(node, cst.For):
                wanted = wanted - roots(node.target)
            if isinstance(node, cst.BaseComp):
                wanted = wanted - roots(for_in(node).target)
            if isinstance(node, cst.Name) and node.value in wanted:
                parent = self.file.parents.get(node)
                if isinstance(parent, cst.AssignTarget | cst.Arg) and (
                    isinstance(parent, cst.AssignTarget) or parent.keyword is node
                ):
                    return False
                if isinstance(parent, cst.Attribute) and parent.attr is node:
                    return False
                return repeats or self.file.ranges[node].start.line > last
            return any(reads(child, wanted) for child in node.children)

        return reads(self.function.body, names)

    def is_fresh(self, name: str) -> bool:
        """Return whether a local is a tensor that was made to be filled."""
        first, graph = self.inside[0], self.call.graph
        held = self.call.source.scope(first).get(name)
        if held is None or graph.made_by(held.value, *FRESH) is None:
            return False
        before = [one for one in graph.readers.get(held.value or 0, []) if one.index < first.index]
        return not before  # no view of it was taken

    def shapes(self, node: cst.CSTNode) -> set[tuple[int, ...]]:
        """Return the shapes of what an expression was in the turns, but for what it wrote into."""
        graph = self.call.graph
        made = (one for one in self.operations.get(node, ()) if one.name != "setitem")
        found = (graph.of(one.output) for one in made)
        return {one.shape for one in found if one is not None}

    def is_own(self, name: str) -> bool:
        """Return whether a local is a number, or a tensor whose memory nothing else shares."""
        held = self.call.source.scope(self.inside[0]).get(name)
        if held is None or held.kind != "value":
            return held is not None and held.kind == "literal"
        return self.call.graph.made_by(
            held.value, *FRESH, *UNARY, *BINARY, "clone"
        ) is not None and (
            self.call.graph.made_by(held.value, *ALIASING, "detach", "contiguous") is None
        )


def loops_in(call: Call) -> Iterator[Loop]:
    """Yield the loops and comprehensions whose bodies made operations."""
    where: dict[str, dict[cst.CSTNode, list[Operation]]] = {}
    for one in call.graph.operations:
        place = call.source.place(one)
        if place is not None:
            where.setdefault(place.file, {}).setdefault(place.node, []).append(one)
    for name, operations in where.items():
        file = call.source.file(name)
        assert file is not None
        found: dict[cst.CSTNode, list[Operation]] = {}
        for node, made in operations.items():
            for above in file.above(node):
                if isinstance(above, cst.For | cst.ListComp | cst.GeneratorExp):
                    found.setdefault(above, []).extend(made)
        for loop, inside in found.items():
            assert isinstance(loop, cst.For | cst.ListComp | cst.GeneratorExp)
            function = next((f for f in file.above(loop) if isinstance(f, cst.FunctionDef)), None)
            if function is not None:
                ordered = tuple(sorted(inside, key=lambda one: one.index))
                yield Loop(name, file, loop, function, operations, ordered, call)


def shown_loop(loop: Loop) -> str:
    """Return the first line of a loop, for people."""
    text = " ".join(loop.code(loop.node).strip().split("\n")[0].split())
    return text if len(text) <= 80 else f"{text[:77]}..."
