"""Find the loops of a recorded call, and what is needed to write them in another way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    BINARY,
    UNARY,
    Lifted,
    Refused,
    integer,
    within,
)
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.propose.rewrites.terms import names_in
from cudal1_ci.propose.rewrites.walk import roots, stored_names

FRESH = frozenset(
    (
        *("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like"),
        *("new_zeros", "new_ones", "new_empty", "new_full"),
    )
)
JUMPS = cst.Break | cst.Continue | cst.Return | cst.Yield | cst.Await | cst.Global | cst.Nonlocal


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

    @property
    def body(self) -> list[cst.BaseSmallStatement]:
        """Return its statements; [] if one is compound, or leaves the loop."""
        node = self.node
        if not isinstance(node, cst.For) or node.orelse or not isinstance(node.target, cst.Name):
            return []
        if any(isinstance(one, JUMPS) for one in within(node)):
            return []
        found: list[cst.BaseSmallStatement] = []
        for one in node.body.body:
            if not isinstance(one, cst.SimpleStatementLine) or len(one.body) != 1:
                return []
            found.append(one.body[0])
        return found

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

    def lift(self) -> Lift | None:
        """Return what writes expressions of the body for all turns."""
        over, target = self.over, self.target
        changing = stored_names(self.node) | roots(target)
        if not isinstance(target, cst.Name) or names_in(over) & changing:
            return None
        lift = Lift(self.file, self.call.source, self.operations, changing, None)
        lift.taken = {one.value for one in within(self.function) if isinstance(one, cst.Name)}
        lift.lines = [] if isinstance(self.node, cst.For) else None
        lift.bounds = self.bounds(target.value)
        if lift.bounds is not None:
            return lift
        graph = self.call.graph
        whole = graph.of(self.held(self.code(over), self.around())) if is_name(over) else None
        turn = graph.of(self.held(target.value, self.inside))
        if whole is None or turn is None or len(whole.shape) != len(turn.shape) + 1:
            return None
        lift.known[target.value] = Lifted(self.code(over), len(turn.shape), 0, is_new=False)
        lift.dtypes[target.value] = turn.dtype
        return lift

    def around(self) -> list[Operation]:
        """Return the operations of the function's own frames."""
        frames = {one.recorded.frame for one in self.inside}
        callers = {
            self.call.graph.recording.frames[one].caller for one in frames if one is not None
        }
        if isinstance(self.node, cst.For):
            return [one for one in self.inside if one.recorded.frame in frames]
        wanted = frames | callers  # before Python 3.12 a comprehension has a frame of its own
        first = min(one.index for one in self.inside)
        last = max(one.index for one in self.inside)
        near = self.call.graph.operations[max(first - 200, 0) : last + 200]
        return [one for one in near if one.recorded.frame in wanted]

    def bounds(self, index: str) -> Bounds | None:
        """Return what the loop counts, if it is over `range(high)` or `range(low, high)`."""
        over = self.over
        if not isinstance(over, cst.Call) or self.code(over.func) != "range":
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
        parts = [high.left, high.right] if isinstance(high, cst.BinaryOperation) else [high]
        if low < 0 or not all(isinstance(one, plain) for one in parts):
            return None
        for one in within(high):
            if isinstance(one, cst.Call) and not is_size(one):
                return None
        return Bounds(index, low, self.code(high), frozenset(self.sizes()))

    def sizes(self) -> Iterator[tuple[str, str, int]]:
        """Yield code that is the size of a dimension of a local tensor all through the loop."""
        assigned: dict[str, list[tuple[int, cst.BaseExpression | None]]] = {}
        for one in within(self.function.body):
            if isinstance(one, cst.SimpleStatementLine | cst.For | cst.With):
                line = self.file.ranges[one].start.line
                for name in stored_names(one):
                    value = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
                    known = assigned.setdefault(name, [])
                    known.append((line, value if isinstance(value, cst.Assign) else None))  # type: ignore[arg-type]
        start = self.file.ranges[self.node].start.line
        for name, found in assigned.items():
            line, assign = found[0]
            if len(found) != 1 or not isinstance(assign, cst.Assign) or line > start:
                continue
            for tensor, dim in shape_read(assign, name):
                if all(one[0] < line for one in assigned.get(tensor, [])):
                    yield name, tensor, dim
        for one in within(self.over):
            known_size = size_read(one)
            if known_size is not None:
                tensor, dim = known_size
                if all(o[0] < start for o in assigned.get(tensor, [])):
                    yield self.code(one), tensor, dim

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

    def is_own(self, name: str) -> bool:
        """Return whether a local is a number, or a tensor whose memory nothing else shares."""
        held = self.call.source.scope(self.inside[0]).get(name)
        if held is None or held.kind != "value":
            return held is not None and held.kind == "literal"
        return self.call.graph.made_by(
            held.value, *FRESH, *UNARY, *BINARY, "clone"
        ) is not None and (
            self.call.graph.made_by(held.value, *CASTS, "detach", "contiguous") is None
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


def not_batched(loop: Loop, refused: Refused) -> str:
    """Return why a loop that takes its turns from tensors is not batched, for people; "" for
    another one, such as a loop over layers."""
    changing = roots(loop.target)
    own = set(loop.operations)
    is_over_tensor = loop.lift() is not None and not isinstance(loop.over, cst.Call)
    for one in within(loop.node):
        if isinstance(one, cst.Subscript) and one in own and names_in(one) & changing:
            is_over_tensor = True
    return str(refused) if is_over_tensor else ""


def for_in(node: cst.BaseComp) -> cst.CompFor:
    return cst.ensure_type(node.for_in, cst.CompFor)


def is_name(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name)


def is_size(node: cst.Call) -> bool:
    """Return whether a call is `x.size(0)` or `len(x)`."""
    return size_read(node) is not None or (
        isinstance(node.func, cst.Name) and node.func.value == "len"
    )


def size_read(node: cst.CSTNode) -> tuple[str, int] | None:
    """Return tensor and dimension of `x.size(0)`, `x.shape[0]` and `len(x)`."""
    tensor: cst.BaseExpression | None = None
    dim: cst.BaseExpression = cst.Integer("0")
    if isinstance(node, cst.Call) and len(node.args) == 1:
        function, given = node.func, node.args[0].value
        if isinstance(function, cst.Attribute) and function.attr.value == "size":
            tensor, dim = function.value, given
        elif isinstance(function, cst.Name) and function.value == "len":
            tensor = given
    elif isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
        part = node.slice[0].slice
        if node.value.attr.value == "shape" and isinstance(part, cst.Index):
            tensor, dim = node.value.value, part.value
    if not isinstance(tensor, cst.Name) or not isinstance(dim, cst.Integer):
        return None
    return tensor.value, dim.evaluated_value


def shape_read(assign: cst.Assign, name: str) -> Iterator[tuple[str, int]]:
    """Yield tensors and dimensions whose size an assignment gives to a name."""
    if len(assign.targets) != 1:
        return
    target, value = assign.targets[0].target, assign.value
    if isinstance(target, cst.Name):
        found = size_read(value)
        if found is not None and target.value == name:
            yield found
    elif isinstance(target, cst.Tuple):
        shape = value
        if isinstance(shape, cst.Call) and not shape.args:
            shape = shape.func
        is_shape = isinstance(shape, cst.Attribute) and shape.attr.value in ("shape", "size")
        if isinstance(shape, cst.Attribute) and is_shape and isinstance(shape.value, cst.Name):
            for dim, one in enumerate(target.elements):
                if isinstance(one, cst.StarredElement):
                    return
                if isinstance(one.value, cst.Name) and one.value.value == name:
                    yield shape.value.value, dim
