"""Find loops over one dimension that carry an elementwise recurrence, and run them in one kernel.

Eager code launches several small kernels a step, and each reads and writes the whole state. One
Triton kernel keeps the state in registers: a program has some elements of it, and does all steps.
The old loop stays for what the kernel does not take: other dtypes, gradients, tensors on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds, plus
from cudal1_ci.propose.recorded.joins import is_empty_list, kind_and_dimension, reads_of
from cudal1_ci.propose.recorded.lifted import Refused, integer, is_whole, within
from cudal1_ci.propose.recorded.loop import FRESH, Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_text import JUMPS, is_size
from cudal1_ci.propose.recorded.recurrence_axes import Axis, Dims, Leaf, Tile, broadcast, fresh_dims
from cudal1_ci.propose.recorded.recurrence_terms import Terms
from cudal1_ci.propose.recorded.statements import append_of

ZEROS = frozenset(("zeros", "zeros_like", "new_zeros"))


@dataclass
class State:
    """What a step hands on to the next one."""

    name: str
    dims: Dims
    shape: tuple[int, ...]
    leaf: Leaf | None
    """What it is before the loop."""
    number: str = "0.0"
    """What all its elements are before the loop, if it has no leaf."""


@dataclass
class Output:
    """What the loop makes."""

    name: str
    tile: Tile
    kind: str
    """`stack` or `cat` of a list, `write` into a tensor, or `final`: the value after the loop."""
    dim: int = 0
    """Of the steps."""
    leaf: Leaf | None = None
    """Of a tensor that is written to."""
    backwards: bool = False
    """Whether the last step comes first."""
    join: cst.Call | None = None
    target: str = ""
    """The local that holds it after the loop."""


@dataclass
class Scan:
    """A loop whose steps a kernel can do."""

    loop: Loop
    terms: Terms
    backwards: bool
    states: dict[str, State] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    """What changes around the loop."""
    before: list[cst.CSTNode] = field(default_factory=list)
    """Statements that only the old loop needs."""
    after: list[str] = field(default_factory=list)
    """Lines that follow the old loop."""
    containers: set[str] = field(default_factory=set)
    """Names of the lists and tensors that the loop fills."""

    def read(self) -> None:
        """Read the loop; raise Refused if a kernel cannot do it."""
        node = cst.ensure_type(self.loop.node, cst.For)
        self.containers = {name for one in self.body() for name in container_of(one)}
        for one in self.body():
            self.statement(one)
        for state in self.states.values():
            self.close(state)
        stored = stored_names(node) - self.containers
        if self.loop.is_read_after(roots(node.target)):
            raise Refused
        for name in sorted(stored - roots(node.target)):
            if self.loop.is_read_after({name}):
                made = self.terms.local.get(name)
                if made is None or made.dtype != "float32":
                    raise Refused
                self.outputs.append(Output(name, made, "final", target=name))
        if not self.outputs or not self.states:
            raise Refused
        self.check_axes()
        self.move()

    def body(self) -> list[cst.BaseSmallStatement]:
        node = cst.ensure_type(self.loop.node, cst.For)
        if node.orelse or any(type(one) in JUMPS for one in within(node)):
            raise Refused
        found: list[cst.BaseSmallStatement] = []
        for one in node.body.body:
            if not isinstance(one, cst.SimpleStatementLine):
                raise Refused
            found += one.body
        return found

    # --- statements ------------------------------------------------------------------------------

    def statement(self, node: cst.BaseSmallStatement) -> None:
        if isinstance(node, cst.Assign):
            targets = [one.target for one in node.targets]
            if len(targets) == 1 and isinstance(targets[0], cst.Tuple):
                self.unpack(targets[0], node.value)
                return
            made = self.terms.tile(node.value)
            for target in targets[::-1]:
                if isinstance(target, cst.Name):
                    made = self.assign(target.value, made)
                elif isinstance(target, cst.Subscript):
                    self.write(target, made)
                else:
                    raise Refused
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            self.update(node, node.target.value)
        elif isinstance(node, cst.Expr):
            self.append(node)
        else:
            raise Refused

    def assign(self, name: str, made: Tile) -> Tile:
        if made.is_number or name in self.containers:
            raise Refused
        self.terms.lines.append((name, made.code))
        self.terms.local[name] = replace(made, code=name)
        return self.terms.local[name]

    def unpack(self, target: cst.Tuple, value: cst.BaseExpression) -> None:
        """Read `a, b = b, a + b`."""
        if not isinstance(value, cst.Tuple) or len(value.elements) != len(target.elements):
            raise Refused
        names = [cst.ensure_type(one.value, cst.Name).value for one in target.elements]
        made = [self.terms.tile(one.value) for one in value.elements]
        for name, one in zip(names, made, strict=True):
            self.terms.lines.append((f"new_{name}", one.code))
        for name, one in zip(names, made, strict=True):
            self.assign(name, replace(one, code=f"new_{name}"))

    def update(self, node: cst.AugAssign, name: str) -> None:
        """Read `h *= decay`, which changes a tensor that nothing else shares."""
        signs = {cst.AddAssign: "add", cst.SubtractAssign: "sub", cst.MultiplyAssign: "mul"}
        operator = next((v for k, v in signs.items() if isinstance(node.operator, k)), None)
        operations = self.loop.operations.get(node.value, [])
        if operator is None or not self.loop.is_own(name) or not self.is_never_kept(name):
            raise Refused
        left = self.terms.tile(node.target)
        right = self.terms.tile(node.value)
        dims = broadcast([left.dims, right.dims])
        if right.dtype not in ("float32", "number") or left.dtype != "float32":
            raise Refused
        if not operations and not isinstance(node.value, cst.Name | cst.Attribute | cst.BaseNumber):
            raise Refused
        sign = {"add": "+", "sub": "-", "mul": "*"}[operator]
        self.assign(name, Tile(f"({left.code} {sign} {right.code})", dims, "float32", left.shape))

    def is_never_kept(self, name: str) -> bool:
        """Return whether no other name or list holds a local's tensor."""
        for one in within(self.loop.function.body):
            kept: cst.BaseExpression | None = None
            if isinstance(one, cst.Assign) and not isinstance(one.targets[0].target, cst.Subscript):
                kept = one.value
            elif isinstance(one, cst.Expr) and (found := appended(one)) is not None:
                kept = found[1]
            if isinstance(kept, cst.Name) and kept.value == name:
                return False
        return True

    def carried(self, name: str) -> Tile:
        """Return the state that a name is."""
        scope = self.loop.call.source.scope
        first = scope(self.loop.inside[0]).get(name)
        last = scope(self.loop.inside[-1]).get(name)
        value = None if last is None else self.loop.call.graph.of(last.value)
        if first is None or value is None or name in self.containers or value.dtype != "float32":
            raise Refused
        dims = fresh_dims(value.shape)
        self.states[name] = State(name, dims, value.shape, None)
        if first.kind == "literal":
            self.states[name].number = self.first_number(name)
        else:
            given = self.loop.call.graph.of(first.value)
            if given is None or given.dtype != "float32":
                raise Refused
            if not self.is_zeros(name) or given.shape != value.shape:
                self.add_leaf(self.states[name], given.shape)
        self.terms.local[name] = Tile(name, dims, "float32", value.shape)
        return self.terms.local[name]

    def add_leaf(self, state: State, shape: tuple[int, ...]) -> None:
        state.leaf = Leaf(state.name, state.name, fresh_dims(shape), "float32", 0)
        if len(shape) > len(state.shape):
            raise Refused
        broadcast([state.dims, state.leaf.dims])

    def is_zeros(self, name: str) -> bool:
        made = self.terms.private.get(name)
        operation = None if made is None else self.terms.operation(made.value)
        return operation is not None and operation.name in ZEROS

    def first_number(self, name: str) -> str:
        """Return the number that a name is before the loop, written out."""
        made = self.terms.private.get(name)
        value = None if made is None else made.value
        if isinstance(value, cst.UnaryOperation) and isinstance(value.expression, cst.BaseNumber):
            return self.loop.code(value)
        if not isinstance(value, cst.Integer | cst.Float):
            raise Refused
        return self.loop.code(value)

    def close(self, state: State) -> None:
        """Join the axes of a state with those that the last line of a step gives it."""
        made = self.terms.local[state.name]
        if made.dtype != "float32" or len(made.dims) != len(state.dims):
            raise Refused
        if made.shape != state.shape:
            raise Refused
        broadcast([made.dims, state.dims])

    # --- outputs ---------------------------------------------------------------------------------

    def append(self, node: cst.Expr) -> None:
        found = appended(node)
        if found is None:
            raise Refused
        name, value, is_first = found
        made = self.terms.tile(value)
        block = self.loop.file.parents[self.loop.node]
        if not isinstance(block, cst.IndentedBlock) or made.dtype != "float32":
            raise Refused
        lines = list(block.body)
        at = lines.index(self.loop.node)  # type: ignore[arg-type]
        before = [one for one in lines[:at] if name in names_anywhere(one)]
        after = [one for one in lines[at + 1 :] if name in names_anywhere(one)]
        if len(before) != 1 or not is_empty_list(before[0], {name}) or not after:
            raise Refused
        join, is_turned = join_of(after[0], name)
        if join is None or reads_of(self.loop.function, name) != 2:
            raise Refused
        function = self.loop.code(join.func)
        kind, dim = kind_and_dimension(function, join)
        dim %= len(made.dims) + (kind == "stack")
        if kind == "cat" and made.dims[dim] is not None:
            raise Refused
        output = Output(name, made, kind, dim, None, is_first != is_turned, join, name)
        self.before.append(before[0])
        assign = after[0].body[0] if isinstance(after[0], cst.SimpleStatementLine) else None
        is_whole = isinstance(assign, cst.Assign) and assign.value is join
        if is_whole and after[0] is lines[at + 1] and len(stored_names(assign)) == 1:  # type: ignore[arg-type]
            output.target = stored_names(assign).pop()  # type: ignore[arg-type]
            self.new[after[0]] = ""
        else:
            self.new[join] = name
        self.after.append(f"{output.target} = {self.loop.code(join)}")
        self.store(output)

    def write(self, target: cst.Subscript, made: Tile) -> None:
        """Read `out[:, t] = h`."""
        if not isinstance(target.value, cst.Name):
            raise Refused
        name = target.value.value
        parts = [one.slice for one in target.slice]
        offsets = [(i, self.terms.offset_of(one)) for i, one in enumerate(parts)]
        at = [(i, one[0]) for i, one in offsets if one is not None and not one[1]]
        rest = [one for one in parts if not is_whole(one)]
        held = self.loop.call.source.scope(self.loop.inside[-1]).get(name)
        out = self.loop.call.graph.of(None if held is None else held.value)
        if len(at) != 1 or len(rest) != 1 or out is None or out.dtype != "float32":
            raise Refused
        if not self.is_filled(name) or made.is_number or made.dtype != "float32":
            raise Refused
        if len(made.dims) != len(out.shape) - 1:
            raise Refused
        leaf = Leaf(name, name, fresh_dims(out.shape), "float32", at[0][1])
        dim = at[0][0]
        leaf.dims[dim].join(self.terms.time)
        broadcast([(*leaf.dims[:dim], *leaf.dims[dim + 1 :]), made.dims])
        self.store(Output(name, made, "write", dim, leaf, target=name))

    def is_filled(self, name: str) -> bool:
        """Return whether a local is a tensor that was made to be filled, and has no views."""
        graph = self.loop.call.graph
        held = self.loop.call.source.scope(self.loop.inside[0]).get(name)
        value = None if held is None else held.value
        while (made := graph.made_by(value, "setitem")) is not None:
            value = made.value(0)
        return graph.made_by(value, *FRESH) is not None and reads_of(
            self.loop.function, name
        ) <= 1 + sum(
            name in names_anywhere(one)
            for one in within(self.loop.function.body)
            if isinstance(one, cst.SimpleStatementLine)
        )

    def store(self, output: Output) -> None:
        self.terms.lines.append(("", str(len(self.outputs))))
        self.outputs.append(output)

    # --- around the loop -------------------------------------------------------------------------

    def check_axes(self) -> None:
        """Refuse what needs other elements of the state than those of its program."""
        time, summed = self.terms.time.root(), self.terms.reduction.axis
        tiles = [*self.terms.local.values(), *self.terms.folded.values()]
        for one in tiles:
            found = [axis.root() for axis in one.dims if axis is not None]
            if len(set(found)) != len(found):
                raise Refused
        for dims in (
            *(one.tile.dims for one in self.outputs),
            *(o.dims for o in self.states.values()),
        ):
            if any(axis is not None and axis.root() is time for axis in dims):
                raise Refused
        if summed is time:
            raise Refused
        for state in self.states.values():
            known = {axis.root() for leaf in self.leaves() for axis in leaf.dims}
            if state.leaf is None and any(
                a is not None and a.root() not in known for a in state.dims
            ):
                if state.name in self.terms.private and self.is_zeros(state.name):
                    self.add_leaf(state, state.shape)
                else:
                    raise Refused

    def leaves(self) -> list[Leaf]:
        """Return the tensors that the kernel reads."""
        states = [one.leaf for one in self.states.values() if one.leaf is not None]
        return [*states, *(one for one in self.terms.leaves.values() if not one.is_number)]

    def used(self) -> list[Axis]:
        """Return the axes that tell programs and elements apart, in order."""
        tiles = sorted((o.dims for o in self.states.values()), key=len, reverse=True)
        tiles += [one.tile.dims for one in self.outputs]
        found = dict.fromkeys(a.root() for dims in tiles for a in dims if a is not None)
        summed = self.terms.reduction.axis
        return [one for one in found if one is not summed]

    def move(self) -> None:
        """Find the statements before the loop that only the old loop needs now."""
        moved: set[cst.CSTNode] = {self.loop.node, *self.before}
        folded = {name for name, _ in self.terms.folded}
        folded |= {one.name for one in self.states.values() if one.leaf is None}
        lines = {name: self.loop.file.parents[self.terms.private[name]] for name in folded}
        for name in sorted(lines, key=lambda one: -self.loop.file.ranges[lines[one]].start.line):
            readers = [
                one
                for one in within(self.loop.function.body)
                if isinstance(one, cst.Name) and one.value == name
            ]
            read = [one for one in readers if not is_target(one, self.terms.private[name])]
            if any(not moved & {*self.loop.file.above(one)} for one in read):
                continue
            if not any(name == leaf.code for leaf in self.leaves()):
                moved.add(lines[name])
        self.before = sorted(
            moved - {self.loop.node}, key=lambda one: self.loop.file.ranges[one].start.line
        )


def is_target(name: cst.Name, assign: cst.Assign) -> bool:
    return any(one.target is name for one in assign.targets)


def container_of(node: cst.BaseSmallStatement) -> set[str]:
    """Return the list or tensor that a statement fills."""
    if isinstance(node, cst.Expr) and (found := appended(node)) is not None:
        return {found[0]}
    if isinstance(node, cst.Assign):
        return {
            name
            for one in node.targets
            if isinstance(one.target, cst.Subscript)
            for name in roots(one.target)
        }
    return set()


def appended(node: cst.Expr) -> tuple[str, cst.BaseExpression, bool] | None:
    """Return list and value of `outs.append(value)` and `outs.insert(0, value)`, and whether the
    value comes first."""
    plain = append_of(node)
    if plain is not None:
        return *plain, False
    call = node.value
    if not isinstance(call, cst.Call) or len(call.args) != 2:
        return None
    function, at = call.func, call.args[0].value
    if not isinstance(function, cst.Attribute) or function.attr.value != "insert":
        return None
    if not isinstance(function.value, cst.Name) or not isinstance(at, cst.Integer):
        return None
    return (function.value.value, call.args[1].value, True) if at.value == "0" else None


def join_of(node: cst.CSTNode, name: str) -> tuple[cst.Call | None, bool]:
    """Return the call that joins a list, and whether the list is turned around for that."""
    for one in within(node):
        if not isinstance(one, cst.Call) or not one.args:
            continue
        value = one.args[0].value
        if isinstance(value, cst.Name) and value.value == name:
            return one, False
        if isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name):
            code = cst.Module([]).code_for_node(value).replace(" ", "")
            if code == f"{name}[::-1]":
                return one, True
    return None, False


def steps_of(loop: Loop) -> tuple[Bounds, bool]:
    """Return what a loop counts, and whether it counts down."""
    over, target = loop.over, loop.target
    if not isinstance(over, cst.Call) or not isinstance(target, cst.Name):
        raise Refused
    backwards = loop.code(over.func) == "reversed" and len(over.args) == 1
    if backwards:
        over = over.args[0].value
    if not isinstance(over, cst.Call) or loop.code(over.func) != "range":
        raise Refused
    given = [one.value for one in over.args]
    if len(given) == 3 and not backwards and integer(given[2]) == -1:
        low, high, backwards = integer(given[1]) + 1, given[0], True
        code = plus(loop.code(high), 1)
    elif len(given) in (1, 2):
        low, high = integer(given[0]) if len(given) == 2 else 0, given[-1]
        code = loop.code(high)
    else:
        raise Refused
    for one in within(high):
        if isinstance(one, cst.Call) and not is_size(one):
            raise Refused
    if low < 0 or names_in(high) & stored_names(loop.node):
        raise Refused
    return Bounds(target.value, low, code), backwards


def private_of(loop: Loop) -> dict[str, cst.Assign]:
    """Return the assignments before a loop that nothing reads but the loop and each other."""
    block = loop.file.parents[loop.node]
    if not isinstance(block, cst.IndentedBlock):
        raise Refused
    lines = list(block.body)
    lines = lines[: lines.index(loop.node)]  # type: ignore[arg-type]
    counts: dict[str, int] = {}
    for one in within(loop.function):
        if isinstance(one, cst.Param):
            counts[one.name.value] = counts.get(one.name.value, 0) + 1
        elif isinstance(one, cst.BaseSmallStatement):
            for name in stored_names(one):
                counts[name] = counts.get(name, 0) + 1
    inner = stored_names(loop.node)
    found: dict[str, cst.Assign] = {}
    kept: set[cst.CSTNode] = {loop.node}
    for line in reversed(lines):
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        assign = line.body[0]
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            continue
        target = assign.targets[0].target
        if not isinstance(target, cst.Name):
            continue
        name = target.value
        outside = counts[name] - sum(
            name in stored_names(one)
            for one in within(loop.node)
            if isinstance(one, cst.BaseSmallStatement)
        )
        reads = names_in(assign.value)
        if outside != 1 or reads & inner or any(counts.get(one, 0) > 1 for one in reads):
            continue
        readers = [
            one
            for one in within(loop.function.body)
            if isinstance(one, cst.Name) and one.value == name and one is not target
        ]
        is_state = name in inner
        if is_state or all(kept & {*loop.file.above(one)} for one in readers):
            found[name] = assign
            kept.add(line)
    return found


def scans_in(call: object) -> Iterator[Scan]:
    """Yield the loops that a kernel can do."""
    for loop in loops_in(call):  # type: ignore[arg-type]
        if not isinstance(loop.node, cst.For):
            continue
        frame = loop.inside[-1].recorded.frame
        inside = tuple(one for one in loop.inside if one.recorded.frame == frame)
        loop = replace(loop, inside=inside)
        try:
            bounds, backwards = steps_of(loop)
            changing = stored_names(loop.node) | roots(loop.target)
            terms = Terms(loop, bounds, changing=changing, private=private_of(loop))
            scan = Scan(loop, terms, backwards)
            terms.carried = scan.carried
            scan.read()
        except Refused:
            continue
        yield scan


def shown_scan(scan: Scan) -> str:
    return shown_loop(scan.loop)
