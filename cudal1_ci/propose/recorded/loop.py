"""Find the loops of a recorded call, and what is needed to write them in another way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.distributions import distribution
from cudal1_ci.propose.recorded.folded import folded, joined_parts
from cudal1_ci.propose.recorded.graph import VIEWS, Operation
from cudal1_ci.propose.recorded.helpers import mapped
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_expressions import lift_expression
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    BINARY,
    KEEPS_RANK,
    UNARY,
    Lifted,
    Refused,
    integer,
    is_impure,
    size_of,
    within,
)
from cudal1_ci.propose.recorded.reads import has_hidden_writes, is_unwritten
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.propose.recorded.spans import host_number
from cudal1_ci.propose.recorded.stacked import is_stack, stacked
from cudal1_ci.propose.recorded.turn_losses import loss
from cudal1_ci.propose.recorded.windows import Locals, Moving, Starts, is_fixed

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
KEEPS_SHAPE = UNARY.union(KEEPS_RANK, ("sort",)) - {"clamp", "clip"}
FLAT = frozenset(("flatten", "ravel"))
JUMPS = frozenset(
    (cst.Break, cst.Continue, cst.Return, cst.Yield, cst.Await, cst.Global, cst.Nonlocal)
)


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

    def lift(self, *, any_order: bool = False) -> Lift | None:
        """Return what writes expressions of the body for all turns; with `any_order` also of a
        loop that counts down."""
        changing = stored_names(self.node) | roots(self.target)
        changing -= self.filled_rows()
        if names_in(self.over) & changing:
            return None
        lift = Lift(self.file, self.call.source, self.operations, changing, None, lift_expression)
        lift.taken = {one.value for one in within(self.function) if isinstance(one, cst.Name)}
        lift.lines = [] if isinstance(self.node, cst.For) else None
        lift.helper, lift.stacked = mapped, stacked
        lift.folded, lift.joined = folded, joined_parts
        lift.loss, lift.distribution = loss, distribution
        lift.known_locals = self.known_locals
        lift.functional = self.call.source.functional(self.name)[0]
        if isinstance(self.target, cst.Name):
            lift.bounds = self.bounds(self.target.value, any_order=any_order, keep=lift.kept)
            if lift.bounds is not None:
                return lift
            if self.step_through(lift, self.target.value):
                return lift
        drawn = list(drawn_from(self.target, self.over))
        overs = [over for _, over in drawn if over is not None]
        if not self.is_even(overs):
            overs = [listed_tensor(one) or one for one in overs]
            if not all(is_name(one) or self.is_flat_view(one) for one in overs):
                return None
            lengths = ", ".join(f"len({self.named(lift, one)})" for one in overs)
            lift.turns = lift.kept(f"min({lengths})", "turns")
        for target, over in drawn:
            if over is None:
                first = next((one for _, one in drawn if one is not None), None)
                first = None if first is None else listed_tensor(first) or first
                first, dim = (None, 0) if first is None else slices_of(first)
                if first is None or not (is_name(first) or self.is_stack(first)):
                    return None
                code = self.code(first)
                high = lift.turns or (f"{code}.size({dim})" if dim else f"len({code})")
                sizes = frozenset([*self.sizes(), *([] if lift.turns else [(high, code, dim)])])
                lift.bounds = Bounds(target, 0, high, sizes)
            elif not self.draw(lift, target, over):
                return None
        return lift if drawn else None

    def step_through(self, lift: Lift, index: str) -> bool:
        """Know the positions of `for start in range(0, high, step)`."""
        over = self.over
        if not isinstance(over, cst.Call) or self.code(over.func) != "range" or len(over.args) != 3:
            return False
        low, high, step = (one.value for one in over.args)
        is_plain = self.code(low) == "0" and is_fixed(step, lift.changing)
        if not is_plain or (isinstance(self.node, cst.For) and rebinds(self.node.body, index)):
            return False
        lift.bounds = Bounds("", 0, f"len({self.code(over)})", frozenset(self.sizes()))
        lift.numbers[index] = Moving(self.code(step))
        lift.starts = Starts(high, self.known_locals())
        return True

    def known_locals(self) -> Locals:
        """Return what locals are that are bound once before the loop, to what is bound before."""
        bindings, (start, _) = self.bindings(), self.lines()
        found: dict[str, cst.BaseExpression | tuple[str, int]] = {}
        for name, ((line, assign), *more) in bindings.items():
            if more or assign is None or not 0 < line < start or len(assign.targets) > 1:
                continue
            read = [at for one in names_in(assign.value) for at, _ in bindings.get(one, [])]
            if is_name(assign.targets[0].target) and all(at < line for at in read):
                found[name] = assign.value
        return found | {code: (tensor, dim) for code, tensor, dim in self.sizes()}

    def draw(self, lift: Lift, target: str, over: cst.BaseExpression) -> bool:
        """Know what a name is that takes the rows of a tensor in turn."""
        graph, is_list = self.call.graph, False
        over, dim = slices_of(over)
        if self.is_stack(over):
            lift.modules[target] = self.code(over)
            return True
        if is_name(over):
            made = self.list_made_of(self.code(over))
            is_list, over = made is not None, over if made is None else made
        elif (read := listed_tensor(over)) is not None:
            is_list, over = True, read
        if is_name(over):
            held = graph.of(self.held(self.code(over), self.around()))
        elif self.is_flat_view(over) and lift.lines is not None:
            held = graph.of(self.operations[over][0].output)
        else:
            return False
        if held is None or len(held.shape) <= dim or (dim and lift.turns):
            return False
        turn = graph.of(self.held(target, self.inside))
        if is_list:
            if len(held.shape) != 1:
                return False
        elif not held.shape[dim] or (turn is not None and len(held.shape) != len(turn.shape) + 1):
            return False  # a function of the checkout may be all that reads the name
        code = self.named(lift, over)
        code = (
            f"{code}[:{' ' * (not lift.turns.isidentifier())}{lift.turns}]" if lift.turns else code
        )
        classes = self.classes_of(code)
        if classes is not None:
            lift.bounds = Bounds("", 0, f"len({code})", frozenset(self.sizes()))
            lift.class_names[target] = classes, code
        lift.known[target] = Lifted(code, len(held.shape) - 1, dim, is_new=False)
        lift.dtypes[target] = held.dtype
        return True

    def classes_of(self, name: str) -> str | None:
        """Return the labels whose classes a local lists in order: `torch.unique(labels)`."""
        bindings = self.bindings()
        (line, assign), *more = bindings.get(name, [(0, None)])
        call = None if assign is None or more else assign.value
        made = self.operations.get(call, []) if call is not None else []
        if not isinstance(call, cst.Call) or {one.name for one in made} != {"unique"}:
            return None
        given = [one.value for one in call.args]
        if isinstance(call.func, cst.Attribute) and self.code(call.func.value) != "torch":
            given = [call.func.value, *given]
        labels = given[0].value if len(given) == 1 and isinstance(given[0], cst.Name) else ""
        is_bound = all(at < line for at, _ in bindings.get(labels, [(line, None)]))
        span = made[-1].index, self.inside[-1].index
        is_same = all(
            is_unwritten(self.call, one, span) for one in (made[0].value(0), made[0].output)
        )
        is_same = is_same and not has_hidden_writes(self.call, made[0])
        return labels if is_bound and is_same else None

    def named(self, lift: Lift, node: cst.BaseExpression) -> str:
        """Return the name of a tensor, which an expression gets before the loop."""
        return self.code(node) if is_name(node) else lift.kept(self.code(node), "rows")

    def is_flat_view(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression has the elements of a tensor in one dimension, or some of
        its rows: `x.view(-1)`, `edges[1:]`."""
        if isinstance(node, cst.Subscript) and is_name(node.value) and len(node.slice) == 1:
            part = node.slice[0].slice
            is_fixed_part = isinstance(part, cst.Slice) and not within_calls(part)
            return is_fixed_part and node in self.operations
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return False
        given = [self.code(one) for one in node.args]
        name = node.func.attr.value
        is_flat = given == ["-1"] if name in ("view", "reshape") else name in FLAT and not given
        return is_flat and is_name(node.func.value) and node in self.operations

    def is_stack(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a list of modules that can be called as one."""
        return is_stack(self.file, self.node, node)

    def is_even(self, drawn: list[cst.BaseExpression]) -> bool:
        """Return whether tensors have the same number of rows for any inputs: `zip` ends with the
        shortest."""
        if len(drawn) < 2:
            return True
        names = []
        for one in drawn:
            made = self.list_made_of(self.code(one)) if is_name(one) else listed_tensor(one)
            names.append(self.code(made or one))
        tied = {names[0]}
        links = [*self.row_links()]
        for _ in links:
            for link in links:
                if link & tied:
                    tied |= link
        return tied.issuperset(names)

    def has_shape_of(self, name: str, other: str) -> bool:
        """Return whether a tensor was made before the loop with the shape of another one."""
        bindings, (start, last) = self.bindings(), self.lines()
        line, assign = bindings.get(name, [(0, None)])[0]
        if len(bindings.get(name, ())) != 1 or assign is None or line >= start:
            return False
        made = assign.value
        is_like = isinstance(made, cst.Call) and self.code(made.func).startswith("torch.")
        is_like = is_like and self.code(made.func).endswith("_like")  # type: ignore[attr-defined]
        like = made.args[0].value if is_like and made.args else made  # type: ignore[attr-defined]
        is_kept = all(at < line or at > last for at, _ in bindings.get(other, ()))
        return is_kept and shape_of(like) == other

    def row_links(self) -> Iterator[set[str]]:
        """Yield names of tensors, and code of sizes, that are of the same number of rows."""
        for code, tensor, dim in self.sizes():
            node = cst.parse_expression(code)
            read = size_read(node)
            if dim == 0 and (read is not None or isinstance(node, cst.Name | cst.Integer)):
                yield {code, tensor, read[0]} if read and not read[1] else {code, tensor}
        bindings, (start, last) = self.bindings(), self.lines()
        for name, (first, *more) in bindings.items():
            line, assign = first
            made = None if more or assign is None or line >= start else kept_rows(assign)
            if made in bindings and all(at < line or at > last for at, _ in bindings[made]):
                yield {name, made}

    def lines(self) -> tuple[int, int]:
        """Return the loop's first line and the last one that can run between its turns."""
        where = self.file.ranges[self.node]
        repeats = any(isinstance(one, cst.For | cst.While) for one in self.file.above(self.node))
        return where.start.line, len(self.file.lines) if repeats else where.end.line

    def parameters(self) -> list[str]:
        return [one.name.value for one in within(self.function) if isinstance(one, cst.Param)]

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

    def list_made_of(self, name: str) -> cst.BaseExpression | None:
        """Return the tensor whose numbers a local lists, if it is bound once, and the tensor's
        name too."""
        made: list[cst.BaseExpression | None] = []
        stored: list[str] = []
        for one in within(self.function.body):
            if isinstance(one, cst.SimpleStatementLine | cst.For | cst.With):
                stored += stored_names(one)
            if isinstance(one, cst.Assign) and stored_names(one) == {name}:
                made.append(listed_tensor(one.value))
        found = made[0] if len(made) == 1 else None
        if not isinstance(found, cst.Name) or stored.count(name) != 1 or found.value in stored:
            return None
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
        return Bounds(index, low, code, frozenset(self.sizes()))

    def is_of_host(self, node: cst.Call) -> bool:
        """Return whether a call reads a number of the host, or is an operation without effects."""
        if host_number(node) is not None:
            return True
        made = self.operations.get(node, [])
        return bool(made) and not any(map(is_impure, made))

    def sizes(self) -> Iterator[tuple[str, str, int]]:
        """Yield code that is the size of a dimension of a local tensor all through the loop."""
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
        bindings, (start, last) = self.bindings(), self.lines()

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
        for name, ((line, first), *more) in self.bindings().items():
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


def drawn_from(
    target: cst.BaseExpression, over: cst.BaseExpression
) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """Yield names with what they take the rows of; None for the number of a turn."""
    if isinstance(target, cst.Name):
        yield target.value, over
        return
    if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
        return
    names = [one.value for one in target.elements]
    plain = [one.value for one in over.args if not one.star and one.keyword is None]
    if len(plain) != len(over.args) or not isinstance(over.func, cst.Name):
        return
    if over.func.value == "enumerate" and len(plain) == 1 and len(names) == 2:
        if isinstance(names[0], cst.Name):
            yield names[0].value, None
            yield from drawn_from(names[1], plain[0])
    elif over.func.value == "zip" and len(plain) == len(names) and all(map(is_name, names)):
        for name, one in zip(names, plain, strict=True):
            yield cst.ensure_type(name, cst.Name).value, one


def slices_of(node: cst.BaseExpression) -> tuple[cst.BaseExpression, int]:
    """Return the tensor and the dimension whose slices an expression gives in turn:
    `x.unbind(1)`, `x.transpose(0, 1)`. Another expression gives its rows."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return node, 0
    given = [one.value for one in node.args]
    if is_name(node.func.value) and node.func.value.value != "torch":  # type: ignore[attr-defined]
        given = [node.func.value, *given]
    if not given or not is_name(given[0]):
        return node, 0
    dims = [portable(one) for one in given[1:]]
    name = node.func.attr.value
    if name == "unbind" and dims in ([], ["0"], ["1"]):
        return given[0], int(dims == ["1"])
    is_turned = name in ("transpose", "swapaxes") and sorted(dims) == ["0", "1"]
    is_permuted = name == "permute" and dims == ["1", "0", *map(str, range(2, len(dims)))]
    return (given[0], 1) if is_turned or is_permuted else (node, 0)


def rebinds(node: cst.CSTNode, name: str) -> bool:
    """Return whether lines bind a name."""
    binding = cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr
    return any(
        isinstance(o, cst.Name) and o.value == name
        for one in within(node)
        if isinstance(one, binding)
        for o in (within(one.target) if isinstance(one.target, cst.Tuple) else [one.target])
    )


def leaves(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the parts of a sum, a difference, a product or a quotient of whole numbers."""
    arithmetic = cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, arithmetic):
        yield from leaves(node.left)
        yield from leaves(node.right)
    else:
        yield node


def listed_tensor(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor that `x.tolist()` lists."""
    is_call = isinstance(node, cst.Call) and not node.args
    if not is_call or not isinstance(node.func, cst.Attribute):  # type: ignore[attr-defined]
        return None
    return node.func.value if node.func.attr.value == "tolist" else None  # type: ignore[attr-defined]


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


def kept_rows(assign: cst.Assign) -> str | None:
    """Return the local whose shape all assigned names have for certain."""
    value = assign.value
    is_sort = (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value == "sort"
    )
    are_names = all(isinstance(one.target, cst.Name) for one in assign.targets)
    return shape_of(value) if are_names or is_sort else None


def shape_of(node: cst.BaseExpression) -> str | None:
    """Return the local whose shape an expression has for certain."""
    if isinstance(node, cst.Name):
        return node.value
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    x = node.func.value
    if isinstance(x, cst.Name) and x.value in ("torch", "F"):
        x = node.args[0].value if node.args and node.args[0].keyword is None else x
    return shape_of(x) if node.func.attr.value in KEEPS_SHAPE else None


def for_in(node: cst.BaseComp) -> cst.CompFor:
    return cst.ensure_type(node.for_in, cst.CompFor)


def within_calls(node: cst.CSTNode) -> bool:
    """Return whether a part of an expression is a call."""
    return any(isinstance(one, cst.Call) for one in within(node))


def is_name(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name)


def is_size(node: cst.Call) -> bool:
    """Return whether a call is `x.size(0)` or `len(x)`."""
    return size_read(node) is not None or (
        isinstance(node.func, cst.Name) and node.func.value == "len"
    )


def size_read(node: cst.CSTNode) -> tuple[str, int] | None:
    """Return tensor and dimension of a size whose dimension is counted from the first."""
    found = size_of(node)
    return found if found is not None and found[1] >= 0 else None


def sizes_made(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the sizes of a tensor that `torch.zeros(a, b)` makes."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return []
    root, name = node.func.value, node.func.attr.value
    if not isinstance(root, cst.Name) or root.value != "torch":
        return []
    given = [one.value for one in node.args if one.keyword is None and not one.star]
    if name == "full":
        given = given[:1]
    elif name not in ("zeros", "ones", "empty"):
        return []
    if len(given) == 1 and isinstance(given[0], cst.Tuple | cst.List):
        given = [one.value for one in given[0].elements]
    elif name == "full":
        return []
    return [] if any(isinstance(one, cst.StarredElement) for one in given) else given


def shape_read(assign: cst.Assign, name: str) -> Iterator[tuple[str, int]]:
    """Yield tensors and dimensions whose size an assignment gives to a name."""
    if len(assign.targets) != 1:
        return
    target, value = assign.targets[0].target, assign.value
    if isinstance(target, cst.Name):
        found = size_read(value)
        if found is not None and target.value == name:
            yield found
    elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        for each, size in zip(target.elements, value.elements, strict=False):
            found = size_read(size.value)
            if found is not None and is_name(each.value) and each.value.value == name:  # type: ignore[attr-defined]
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


def branch_of(node: cst.BaseSuite) -> list[cst.BaseSmallStatement]:
    """Return the statements of a branch, if all but the last one bind a name; else []."""
    lines = list(node.body) if isinstance(node, cst.IndentedBlock) else []
    found = [o for one in lines if isinstance(one, cst.SimpleStatementLine) for o in one.body]
    if len(found) != len(lines) or not all(isinstance(one, cst.Assign) for one in found[:-1]):
        return []
    return found


def chosen_value(node: cst.If) -> list[cst.BaseSmallStatement]:
    """Return the statement `x = a if test else b` that branches are, after what their lines bind;
    [] for others. Parts of it are those of the file."""
    last = node.orelse
    other = chosen_value(last) if isinstance(last, cst.If) else []
    other = branch_of(last.body) if isinstance(last, cst.Else) else other
    own = branch_of(node.body)
    if not own or not other:
        return []
    pairs = list(zip(own, other, strict=False))
    if len(own) == len(other) > 1 and all(isinstance(o, cst.Assign) for o in (*own, *other)):
        chosen = [chosen_assign(node, one, two) for one, two in pairs]  # type: ignore[arg-type]
        if all(chosen):
            return [one for one in chosen if one is not None]
    (*before, first), (*more, second) = own, other
    if isinstance(first, cst.Assign) and isinstance(second, cst.Assign):
        assign = chosen_assign(node, first, second)
        return [] if assign is None else [*before, *more, assign]
    if isinstance(first, cst.Expr) and isinstance(second, cst.Expr):
        calls = [one.value for one in (first, second) if isinstance(one.value, cst.Call)]
        names = [portable(one.func) for one in calls]
        is_same = len(names) == 2 and names[0] == names[1] and names[0].endswith(".append")
        if not is_same or any(len(one.args) != 1 for one in calls):
            return []
        values = [one.args[0].value for one in calls]
        value = cst.IfExp(test=node.test, body=values[0], orelse=values[1])
        call = calls[0].with_changes(args=[cst.Arg(value)])
        return [*before, *more, first.with_changes(value=call)]
    return []


def chosen_assign(node: cst.If, first: cst.Assign, second: cst.Assign) -> cst.Assign | None:
    """Return `x = a if test else b` of a branch that binds x to one or the other."""
    targets = [portable(one.targets[0].target) for one in (first, second)]
    is_same = len(first.targets) == len(second.targets) == 1 and targets[0] == targets[1]
    if not is_same or not is_name(first.targets[0].target):
        return None
    value = cst.IfExp(test=node.test, body=first.value, orelse=second.value)
    return first.with_changes(value=value)
