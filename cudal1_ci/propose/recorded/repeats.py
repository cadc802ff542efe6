"""Compute once what a call computes again on the same values: in other words, in helpers, and in
each turn of a loop.

Values tell where to look: two operations are of one kind if they read the same. The text decides:
both expressions must read the same names, so that they are the same in every call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.algebra import BLOCKS
from cudal1_ci.propose.recorded.graph import CASTS, VIEWS, Operation, values_in
from cudal1_ci.propose.recorded.lifted import Swap, within
from cudal1_ci.propose.recorded.purity import is_pure, is_pure_frame
from cudal1_ci.propose.recorded.reads import (
    READING,
    assigned_to,
    bound_names,
    has_hidden_writes,
    is_write,
    loads_in,
    loads_of,
    nodes_above,
    reader_of,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, Place
from cudal1_ci.propose.recorded.traffic import bytes_of
from cudal1_ci.records.recording import Argument

UNSHARED = VIEWS | CASTS | {"getitem", "empty", "empty_like", "new_empty", "detach", "clone"}
"""Operations that are not worth sharing, or whose results differ."""


WITHIN_LINES = (cst.Lambda, cst.BaseComp, cst.CompFor, cst.IfExp, cst.BooleanOperation)


OPERATOR_NAMES: dict[object, str] = {
    cst.Add: "total",
    cst.Subtract: "difference",
    cst.Multiply: "product",
    cst.MatrixMultiply: "product",
    cst.Divide: "ratio",
}


@dataclass(frozen=True)
class Made:
    """A value that an expression gave: by a torch function, or by a call of a helper."""

    frame: int
    place: Place
    value: int
    first: int
    last: int
    """Operations that made it."""
    num_bytes: int


@dataclass
class Repeats:
    """Find what is made twice."""

    call: Call
    numbers: dict[int, object] = field(default_factory=dict)
    """By value: what it was made of, the same for equal values."""
    made: list[Made] = field(default_factory=list)
    nodes: dict[tuple[int, cst.CSTNode], list[Operation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, source = self.call.graph, self.call.source
        keys: dict[object, int] = {}
        for one in graph.operations:
            place = source.place(one)
            if place is not None and one.recorded.frame is not None:
                self.nodes.setdefault((one.recorded.frame, place.node), []).append(one)
            if not is_pure(one) or one.name in ("empty", "empty_like", "new_empty"):
                continue
            named = tuple((k.name, self.key(k.argument)) for k in one.recorded.kwargs)
            key = (one.name, tuple(map(self.key, one.recorded.args)), named)
            same = keys.setdefault(key, one.index)
            for place_of, value in enumerate(one.recorded.outputs):
                if value not in set(values_in(one.recorded)):
                    self.numbers[value] = (same, place_of)
            frame, outputs = one.recorded.frame, one.recorded.outputs
            if place is None or frame is None or one.name in UNSHARED or len(outputs) != 1:
                continue
            size, at = bytes_of(one, graph), one.index
            self.made.append(Made(frame, place, outputs[0], at, at, size))
        self.made += self.helpers()

    def key(self, argument: Argument) -> object:
        """Return what an argument is, the same for equal values."""
        if argument.value is not None:
            return self.numbers.get(argument.value, argument.value)
        return argument.kind, argument.text, tuple(map(self.key, argument.items))

    def helpers(self) -> Iterator[Made]:
        """Yield what calls of helpers and submodules of the checkout returned."""
        graph, source = self.call.graph, self.call.source
        frames = graph.recording.frames
        below: dict[int, list[Operation]] = {}
        for one in graph.operations:
            number = one.recorded.frame
            while number is not None:
                below.setdefault(number, []).append(one)
                number = frames[number].caller
        for number, operations in below.items():
            frame = frames[number]
            if frame.caller is None or frame.call is None or not is_pure_frame(source, number):
                continue
            file = source.file(frames[frame.caller].file)
            node = None if file is None else file.node_at(frame.call)
            value = operations[-1].output
            if file is None or value is None or not isinstance(node, cst.Call):
                continue
            above = list(file.above(node))
            statement = next((s for s in above if isinstance(s, cst.SimpleStatementLine)), None)
            function = next((s for s in above if isinstance(s, cst.FunctionDef)), None)
            if statement is None or function is None:
                continue
            place = Place(frames[frame.caller].file, node, statement, function)
            size = sum(bytes_of(one, graph) for one in operations)
            first, last = operations[0].index, operations[-1].index
            yield Made(frame.caller, place, value, first, last, size)

    # --- the text ------------------------------------------------------------------------------

    def is_same(self, one: cst.CSTNode, two: cst.CSTNode, pair: tuple[Made, Made]) -> bool:
        """Return whether two expressions are the same for certain, whatever their spelling."""
        file = self.file(pair[0])
        if file is None:
            return False
        first = self.nodes.get((pair[0].frame, one), [])
        second = self.nodes.get((pair[1].frame, two), [])
        if len(first) == len(second) == 1 and first[0].name == second[0].name:
            a, b = self.operands(file, one, first[0]), self.operands(file, two, second[0])
            if a and len(a) == len(b):
                return all(self.is_same(x, y, pair) for x, y in zip(a, b, strict=True))
        if file.code(one) != file.code(two):
            return False
        return not names_in(one) & self.bound_between(pair)

    def operands(
        self, file: File, node: cst.CSTNode, operation: Operation
    ) -> list[cst.BaseExpression]:
        """Return all that an operator, a function of torch or a method of a tensor is given; []
        for another expression."""
        found = [one for one in self.call.source.operands(operation) if one is not None]
        if isinstance(node, cst.BinaryOperation):
            return found
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return []
        if any(one.keyword is not None for one in node.args) or operation.recorded.kwargs:
            return []
        owner = node.func.value
        is_method = bool(found) and owner is found[0]
        is_torch = isinstance(owner, cst.Name) and owner.value in names_of(file.module, "").imports
        return found if is_method or is_torch else []

    def bound_between(self, pair: tuple[Made, Made]) -> set[str]:
        """Return the names that lines between two expressions bind."""
        file = self.file(pair[0])
        function = pair[0].place.function
        if file is None or function is None:
            return set()
        start = file.ranges[pair[0].place.statement].start.line
        end = file.ranges[pair[1].place.statement].start.line
        found: set[str] = set()
        for one in within(function.body):
            if is_called_alone(one) and start <= file.ranges[one].start.line < end:
                found.add("self")
            if not isinstance(one, cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.For):
                continue
            if start <= file.ranges[one].start.line < end:
                found |= bound_names(one.target) | roots(one.target)
                found |= {"self"} if isinstance(one.target, cst.Attribute) else set()
        return found

    def file(self, made: Made) -> File | None:
        return self.call.source.file(made.place.file)

    def block(self, made: Made) -> tuple[cst.CSTNode, ...]:
        """Return the branches and loops that an expression is in."""
        file = self.file(made)
        around = () if file is None else nodes_above(file, made.place.node)
        return tuple(one for one in around if isinstance(one, BLOCKS))

    def is_conditional(self, made: Made) -> bool:
        """Return whether a part of a line may run another number of times than the line."""
        return any(isinstance(one, WITHIN_LINES) for one in self.block(made))

    def line(self, made: Made) -> int:
        file = self.file(made)
        return 0 if file is None else file.ranges[made.place.statement].start.line

    def may_run_without_turns(self, made: Made) -> bool:
        """Return whether an expression raises nothing where its loop has no turn: it takes no
        element of a list, and joins none."""
        for node in within(made.place.node):
            ran = self.nodes.get((made.frame, node), [])
            if isinstance(node, cst.Subscript) and not ran:
                return False
            if any(one.name in ("cat", "stack", "getitem") for one in ran):
                return False
        return True

    def length(self, made: Made) -> int:
        file = self.file(made)
        return 0 if file is None else len(file.code(made.place.node))

    def is_only_read(self, made: Made) -> bool:
        """Return whether operations that make new tensors are all that reads a value."""
        graph, file = self.call.graph, self.file(made)
        if file is None or made.value in graph.recording.outputs:
            return False
        name = assigned_to(file, made.place)
        nodes: list[cst.BaseExpression] = [made.place.node]
        if name is not None:
            loads = loads_of(file, made.place, name)
            if loads is None:
                return False
            nodes = [*loads]
        for node in nodes:
            reader = reader_of(file, node)
            ran = [] if reader is None else self.nodes.get((made.frame, reader), [])
            if not ran or not all(one.name in READING for one in ran):
                return False
            if not any(made.value in set(values_in(one.recorded)) for one in ran):
                return False
        readers = graph.readers.get(made.value, [])
        return all(one.name in READING for one in readers if one.index > made.last)

    def has_writes(self, first: Made, last: Made) -> bool:
        """Return whether something may be written to from one expression to the end of the call."""
        operations = self.call.graph.operations
        return any(map(is_write, operations[first.first :])) or has_hidden_writes(
            self.call, operations[last.last]
        )


def find_again(call: Call) -> Iterator[Change]:
    """Find what a function computes again on the same values."""
    repeats = Repeats(call)
    seen: dict[tuple[int, object, tuple[cst.CSTNode, ...]], Made] = {}
    pairs: list[tuple[Made, Made]] = []
    for one in sorted(repeats.made, key=lambda made: (made.last, -made.first)):
        number = repeats.numbers.get(one.value)
        key = one.frame, number, repeats.block(one)
        if number is None or not one.num_bytes or repeats.is_conditional(one):
            continue
        known = seen.setdefault(key, one)
        if known.place.node is not one.place.node:
            pairs.append((known, one))
    taken: set[cst.CSTNode] = set()
    for first, again in sorted(pairs, key=lambda pair: -repeats.length(pair[1])):
        file = repeats.file(again)
        assert file is not None
        node = again.place.node
        if {node, *file.above(node)} & taken or repeats.line(first) > repeats.line(again):
            continue
        if not repeats.is_same(first.place.node, node, (first, again)):
            continue
        if repeats.has_writes(first, again):
            continue
        if not (repeats.is_only_read(first) or repeats.is_only_read(again)):
            continue
        change = shared(file, first, again, repeats.bound_between((first, again)))
        if change is not None:
            taken |= {node, first.place.node}
            code = " ".join(file.code(node).split())
            yield Change(again.place.file, change, f"{code} again")


def shared(file: File, first: Made, again: Made, bound: set[str]) -> dict[cst.CSTNode, str] | None:
    """Return code that reads a local where an expression was computed again."""
    name = assigned_to(file, first.place)
    statement = first.place.statement
    if name is not None:
        later = file.ranges[again.place.statement].start.line > file.ranges[statement].start.line
        line = cst.ensure_type(statement, cst.SimpleStatementLine)
        is_rebound = name in bound - stored_names(line) or bound_times(file, first, again, name) > 1
        return {again.place.node: name} if later and not is_rebound else None
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    block = file.parents.get(statement)
    if not isinstance(block, cst.IndentedBlock) or first.place.function is None:
        return None
    name = free_name(first.place.function, name_for(first.place.node))
    new: dict[cst.CSTNode, str] = {first.place.node: name}
    inside = again.place.statement is statement
    if inside:
        new[again.place.node] = name
    swapped = statement.with_changes(leading_lines=[]).visit(Swap(new))
    assert isinstance(swapped, cst.CSTNode)
    text = f"{name} = {bare(file, first.place.node)}\n{file.code(swapped)}"
    changed: dict[cst.CSTNode, str] = {statement: text}
    return changed if inside else {**changed, again.place.node: name}


def bound_times(file: File, first: Made, again: Made, name: str) -> int:
    """Return how often lines bind a name, from one expression to the other."""
    function = first.place.function
    start = file.ranges[first.place.statement].start.line
    end = file.ranges[again.place.statement].start.line
    return sum(
        isinstance(one, cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.For)
        and start <= file.ranges[one].start.line < end
        and name in bound_names(one.target) | roots(one.target)
        for one in (within(function.body) if function is not None else ())
    )


def bare(file: File, node: cst.BaseExpression) -> str:
    """Return code without brackets around it."""
    return file.code(node.with_changes(lpar=[], rpar=[]))


def name_for(node: cst.BaseExpression) -> str:
    """Return what a value is called: as the function or the submodule that gives it."""
    if isinstance(node, cst.Call):
        function = node.func
        name = function.attr if isinstance(function, cst.Attribute) else function
        if isinstance(name, cst.Name):
            return name.value.strip("_") + "_out" if name.value != "t" else "turned"
    operator = type(node.operator) if isinstance(node, cst.BinaryOperation) else None
    return OPERATOR_NAMES.get(operator, "shared")


def free_name(function: cst.FunctionDef, name: str) -> str:
    taken = names_anywhere(function)
    while name in taken:
        name += "_"
    return name


def find_invariant(call: Call) -> Iterator[Change]:
    """Find what each turn of a loop computes on the same values."""
    repeats = Repeats(call)
    runs: dict[tuple[int, cst.CSTNode], list[Made]] = {}
    for one in repeats.made:
        runs.setdefault((one.frame, one.place.node), []).append(one)
    by_loop: dict[cst.For, list[Made]] = {}
    for (_, node), turns in runs.items():
        one = turns[0]
        file = repeats.file(one)
        loop = None if file is None else loop_around(file, node)
        if file is None or loop is None or len(turns) < 2 or not one.num_bytes:
            continue
        numbers = {repeats.numbers.get(turn.value) for turn in turns}
        if len(numbers) != 1 or None in numbers:
            continue
        changing = stored_names(loop) | roots(loop.target)
        if names_in(node) & changing or repeats.has_writes(one, turns[-1]):
            continue
        if any(is_self_stored(each) or is_called_alone(each) for each in within(loop)):
            continue
        if not repeats.may_run_without_turns(one):
            continue
        if all(map(repeats.is_only_read, turns)):
            by_loop.setdefault(loop, []).append(one)
    for loop, found in by_loop.items():
        file = repeats.file(found[0])
        assert file is not None
        outer = [
            one
            for one in found
            if not any(
                other.place.node in file.above(one.place.node)
                for other in found
                if other is not one
            )
        ]
        yield moved(file, loop, outer)


def is_called_alone(node: cst.CSTNode) -> bool:
    """Return whether a statement only calls a method of `self`, which may set attributes."""
    call = node.value if isinstance(node, cst.Expr) else None
    return isinstance(call, cst.Call) and "self" in names_in(call.func)


def is_self_stored(node: cst.CSTNode) -> bool:
    """Return whether a statement sets an attribute."""
    return isinstance(node, cst.AssignTarget | cst.AugAssign) and isinstance(
        node.target, cst.Attribute
    )


def loop_around(file: File, node: cst.CSTNode) -> cst.For | None:
    """Return the innermost loop, if each of its turns computes an expression."""
    for one in nodes_above(file, node):
        if isinstance(one, cst.For):
            is_head = any(above is one.iter for above in (node, *file.above(node)))
            return None if is_head or one.orelse else one
        if isinstance(one, BLOCKS):
            return None
    return None


def moved(file: File, loop: cst.For, found: list[Made]) -> Change:
    """Return a loop before which some expressions are computed."""
    lines: list[str] = []
    new: dict[cst.CSTNode, str] = {}
    names: dict[str, str] = {}
    lines_moved: list[cst.CSTNode] = []
    for one in found:
        code = bare(file, one.place.node)
        if code not in names:
            function = one.place.function
            assert function is not None
            if is_bound_once(file, loop, one.place):
                lines.append(file.code(one.place.statement.with_changes(leading_lines=[])).strip())
                lines_moved.append(one.place.statement)
                continue
            name = free_name(function, name_for(one.place.node))
            while name in names.values():
                name += "_"
            names[code] = name
            lines.append(f"{name} = {code}")
        new[one.place.node] = names[code]
    swapped = without(loop.with_changes(leading_lines=[]), lines_moved, new)
    text = "\n".join([*lines, file.code(swapped)])
    shown = "; ".join(bare(file, one.place.node) for one in found)
    return Change(found[0].place.file, {loop: text}, f"{shown} in each iteration")


def is_bound_once(file: File, loop: cst.For, place: Place) -> bool:
    """Return whether a line of a loop may move before it as it is: the loop reads its local only
    after it, and nothing else binds that."""
    name = assigned_to(file, place)
    line = place.statement
    if name is None or place.function is None or file.parents.get(line) is not loop.body:
        return False
    if len(loop.body.body) < 2:
        return False
    start = file.ranges[line].start.line
    bound = [
        one
        for one in within(place.function)
        if (isinstance(one, cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.For))
        and name in bound_names(one.target)
    ]
    given = any(
        isinstance(one, cst.Param) and one.name.value == name for one in within(place.function)
    )
    reads = loads_in(file, loop, name)
    return len(bound) == 1 and not given and all(file.ranges[o].start.line > start for o in reads)


def without(
    loop: cst.For, lines: Sequence[cst.CSTNode], new: dict[cst.CSTNode, str]
) -> cst.CSTNode:
    """Return a loop without some of its lines, and with other code in the rest."""
    kept = [one for one in loop.body.body if all(one is not line for line in lines)]
    changed = loop.with_changes(body=loop.body.with_changes(body=kept)).visit(Swap(new))
    assert isinstance(changed, cst.CSTNode)
    return changed


RULES = (
    RecordedRule(
        name="computed_again",
        family="algebra",
        why="what was computed is read again, where it was computed again",
        precondition="both expressions read the same names, and nothing is written to in between",
        find=find_again,
        is_small=True,
    ),
    RecordedRule(
        name="loop_invariant",
        family="loops",
        why="what is the same in each iteration is computed once, before the loop",
        precondition="the loop binds none of the names, and writes to nothing",
        find=find_invariant,
        is_small=True,
    ),
)
