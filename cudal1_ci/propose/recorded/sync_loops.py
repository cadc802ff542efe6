"""Read all numbers of a tensor at once, where each turn of a loop waited for one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.graph import Operation, literal
from cudal1_ci.propose.recorded.lifted import Swap, within
from cudal1_ci.propose.recorded.loop_text import drawn_from
from cudal1_ci.propose.recorded.reads import (
    is_unwritten,
    is_write,
    loads_in,
    loads_of,
    nodes_above,
    operations_by_node,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, Place, bracketed, is_statement

LOOPS = cst.For | cst.While | cst.ListComp | cst.GeneratorExp
COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
MOST, MOST_UNREAD = 65_536, 4
"""Numbers that are read at once, and how many of them for each one that a loop uses."""


def find_listed(call: Call) -> Iterator[Change]:
    """Find `lengths[i].item()` in a loop: `lengths.tolist()` before it waits once."""
    by_loop: dict[tuple[str, cst.CSTNode], dict[str, list[tuple[cst.CSTNode, str]]]] = {}
    spans: dict[cst.CSTNode, tuple[int, int]] = {}
    refused: set[tuple[cst.CSTNode, str]] = set()
    for operation in call.graph.operations:
        place = call.source.place(operation)
        file = None if place is None else call.source.file(place.file)
        if place is None or file is None or operation.name != "getitem":
            continue
        read = element_of(call, file, operation)
        number = None if read is None else number_of(call, file, operation, read)
        loop = None if read is None else loop_of(file, read)
        if read is None or number is None or loop is None:
            continue
        if loop not in spans:
            spans[loop] = span_of(call, place.file, loop, file)
        code = file.code(read.root)
        if not is_unwritten(call, read.value, spans[loop]) or not is_worth(call, read, place):
            refused.add((loop, code))
            continue
        uses = by_loop.setdefault((place.file, loop), {}).setdefault(code, [])
        if all(known is not number[0] for known, _ in uses):
            uses.append(number)
    for (name, loop), tensors in by_loop.items():
        file = call.source.file(name)
        assert file is not None
        kept = {code: uses for code, uses in tensors.items() if (loop, code) not in refused}
        if kept:
            yield from listed(file, name, loop, kept)


@dataclass(frozen=True)
class Element:
    """One number of a tensor, read by numbers: `best[b, t]` or `best[b][t]`."""

    node: cst.Subscript
    root: cst.BaseExpression
    value: int
    """The tensor."""
    item: str
    """The subscripts of a list: `{}[b][t]`."""


def element_of(call: Call, file: File, operation: Operation) -> Element | None:
    """Return the number of a tensor that a subscript reads; None if it reads more, or of a tensor
    with too many."""
    graph, place = call.graph, call.source.place(operation)
    node = outer = None if place is None else place.node
    value, items = operation.value(0), ""
    made: Operation | None = operation
    while isinstance(node, cst.Subscript) and made is not None:
        given = made.literal(1)
        numbers = given if isinstance(given, tuple) else (given,)
        if len(numbers) != len(node.slice) or not all(type(one) is int for one in numbers):
            return None
        items = "".join(f"[{file.code(one.slice)}]" for one in node.slice) + items
        value, node = made.value(0), node.value
        made = graph.made_by(value, "getitem") if isinstance(node, cst.Subscript) else None
    known = graph.of(value)
    if not isinstance(outer, cst.Subscript) or not isinstance(node, cst.Name | cst.Attribute):
        return None
    if value is None or known is None or math.prod(known.shape) > MOST:
        return None
    if graph.num_dims(operation.output) != 0 or not known.shape:
        return None
    return Element(outer, node, value, "{}" + items)


def is_worth(call: Call, read: Element, place: Place) -> bool:
    """Return whether the loop reads a good part of a tensor: a list holds all its numbers."""
    known = call.graph.of(read.value)
    if known is None or len(known.shape) == 1:
        return True
    made = operations_by_node(call, place.file).get(read.node, ())
    return len(made) * MOST_UNREAD >= math.prod(known.shape)


def number_of(
    call: Call, file: File, operation: Operation, read: Element
) -> tuple[cst.CSTNode, str] | None:
    """Return the expression that reads a number of the host, and how it is read from a list:
    `{}[i]`, or `int({}[i])`."""
    known, node, item = call.graph.of(read.value), read.node, read.item
    dtype = "" if known is None else known.dtype
    parent = file.parents.get(node)
    above = None if parent is None else file.parents.get(parent)
    is_whole = "int" in dtype
    if isinstance(parent, cst.Slice):
        return (node, item) if is_whole else None
    if isinstance(parent, cst.Attribute) and isinstance(above, cst.Call) and not above.args:
        return (above, item) if parent.attr.value == "item" else None
    if isinstance(parent, cst.Arg) and isinstance(above, cst.Call) and len(above.args) == 1:
        function = file.code(above.func)
        if function == "range" and is_whole:
            return node, item
        if function in ("int", "float"):
            is_same = is_whole if function == "int" else "float" in dtype
            return above, item if is_same else f"{function}({item})"
    if dtype == "bool" and is_tested(file, node):
        return node, item
    if dtype in ("int64", "int32"):
        compared = parent if isinstance(parent, cst.Comparison) else above
        if isinstance(compared, cst.Comparison) and orders(compared) and is_tested(file, compared):
            return (node, item) if is_of_integers(call, operation) else None
        reader = call.graph.sole_reader(operation.output)
        if isinstance(parent, cst.Index) and reader is not None and reader.name == "getitem":
            return (node, item) if reader.value(0) != operation.output else None
    return None


def orders(node: cst.Comparison) -> bool:
    """Return whether a test compares two values, by their order or for equality."""
    others = cst.In | cst.NotIn | cst.Is | cst.IsNot
    return len(node.comparisons) == 1 and not isinstance(node.comparisons[0].operator, others)


def is_tested(file: File, node: cst.BaseExpression) -> bool:
    """Return whether only the truth of an expression is read: it is the test of a branch."""
    parent = file.parents.get(node)
    if isinstance(parent, cst.BooleanOperation):
        return is_tested(file, parent)
    if isinstance(parent, cst.UnaryOperation):
        return isinstance(parent.operator, cst.Not) and is_tested(file, parent)
    return isinstance(parent, cst.If | cst.While | cst.IfExp) and parent.test is node


def is_of_integers(call: Call, operation: Operation) -> bool:
    """Return whether a number is compared, and with whole numbers alone."""
    reader = call.graph.sole_reader(operation.output)
    if reader is None or reader.name not in COMPARISONS or len(reader.recorded.args) != 2:
        return False
    numbers = [literal(one) for one in reader.recorded.args if one.value is None]
    tensors = [call.graph.of(one.value) for one in reader.recorded.args if one.value is not None]
    return all(type(one) is int for one in numbers) and all(
        one is not None and not one.shape and one.dtype in ("int64", "int32") for one in tensors
    )


def loop_of(file: File, read: Element) -> cst.CSTNode | None:
    """Return the outermost loop around that does not bind the tensor."""
    names = names_in(read.root)
    found = None
    for above in nodes_above(file, read.node):
        if not isinstance(above, LOOPS):
            continue
        target = above.target if isinstance(above, cst.For) else None
        stored = stored_names(above) | (roots(target) if target is not None else set())
        if stored & names or is_attribute_stored(file, above, read.root):
            break
        found = above
    return found


def is_attribute_stored(file: File, loop: cst.CSTNode, tensor: cst.BaseExpression) -> bool:
    code = file.code(tensor)
    return any(
        isinstance(one, cst.AssignTarget | cst.AugAssign) and file.code(one.target).startswith(code)
        for one in within(loop)
    )


def span_of(call: Call, name: str, loop: cst.CSTNode, file: File) -> tuple[int, int]:
    """Return the first and the last operation of a loop."""
    inside = [
        one.index
        for node, operations in operations_by_node(call, name).items()
        if node is loop or any(above is loop for above in nodes_above(file, node))
        for one in operations
    ]
    return min(inside), max(inside)


def listed(
    file: File,
    name: str,
    loop: cst.CSTNode,
    tensors: dict[str, list[tuple[cst.CSTNode, str]]],
) -> Iterator[Change]:
    """Yield a loop that reads lists."""
    statement = loop if is_statement(loop) else None
    statement = statement or next(one for one in file.above(loop) if is_statement(one))
    function = next(one for one in file.above(loop) if isinstance(one, cst.FunctionDef))
    taken = names_anywhere(function)
    lines, new = [], {}
    for code, uses in tensors.items():
        whole = code.rpartition(".")[2] + "_list"
        while whole in taken:
            whole += "_"
        taken.add(whole)
        lines.append(f"{whole} = {bracketed(code)}.tolist()")
        new.update({node: item.replace("{}", whole) for node, item in uses})
    swapped = statement.with_changes(leading_lines=[]).visit(Swap(new))
    assert isinstance(swapped, cst.CSTNode)
    text = file.code(swapped)
    found = ", ".join(file.code(node) for uses in tensors.values() for node, _ in uses)
    yield Change(name, {statement: "\n".join([*lines, text])}, found)


def find_drawn(call: Call) -> Iterator[Change]:
    """Find `for n in lengths: x[:n.item()]`: a list is drawn from, and no tensor is made a turn."""
    for operation in call.graph.operations:
        place = call.source.place(operation)
        file = None if place is None else call.source.file(place.file)
        known = call.graph.of(operation.value(0))
        if place is None or file is None or known is None or known.shape:
            continue
        if operation.recorded.name not in ("item", "__int__", "__float__"):
            continue
        named = inner_name(place.node)
        loop = next(
            (one for one in nodes_above(file, place.node) if isinstance(one, cst.For)), None
        )
        if named is None or loop is None:
            continue
        change = drawn(call, file, loop, named, known.dtype, operation)
        if change is not None:
            yield Change(place.file, change, f"{file.code(place.node)} in a loop")


def inner_name(node: cst.CSTNode) -> str | None:
    """Return `n` of `n.item()`, `int(n)` and `float(n)`."""
    if not isinstance(node, cst.Call):
        return None
    function = node.func
    if isinstance(function, cst.Attribute) and function.attr.value == "item":
        return function.value.value if isinstance(function.value, cst.Name) else None
    if isinstance(function, cst.Name) and len(node.args) == 1:
        given = node.args[0].value
        return given.value if isinstance(given, cst.Name) else None
    return None


def drawn(
    call: Call, file: File, loop: cst.For, name: str, dtype: str, operation: Operation
) -> dict[cst.CSTNode, str] | None:
    """Return a loop that draws numbers, if each read of the drawn tensor only wants its number."""
    over = next((o for target, o in drawn_from(loop.target, loop.iter) if target == name), None)
    if over is None or not isinstance(over, cst.Name) or over.value in stored_names(loop.body):
        return None
    held = call.source.scope(operation).get(over.value)
    whole = call.graph.of(None if held is None else held.value)
    if whole is None or len(whole.shape) != 1 or name in stored_names(loop.body):
        return None
    reads = loads_in(file, loop.body, name)
    if is_read_after(file, loop, name):
        return None
    new: dict[cst.CSTNode, str] = {over: f"{over.value}.tolist()"}
    for read in reads:
        parent = file.parents.get(read)
        above = None if parent is None else file.parents.get(parent)
        if isinstance(parent, cst.Slice) and "int" in dtype:
            continue
        if not isinstance(above, cst.Call) or inner_name(above) != name:
            return None
        function_code = file.code(above.func)
        is_same = function_code == f"{name}.item" or function_code == (
            "int" if "int" in dtype else "float"
        )
        if is_same:
            new[above] = name
        elif function_code not in ("int", "float"):
            return None
    return new


def find_filtered(call: Call) -> Iterator[Change]:
    """Find `[i for i in ids if i != blank]` of a tensor: one mask picks what the list holds."""
    for operation in call.graph.operations:
        place, whole = call.source.place(operation), call.graph.of(operation.value(0))
        node = None if place is None else place.node
        file = None if place is None else call.source.file(place.file)
        if operation.name != "unbind" or not isinstance(node, cst.ListComp) or file is None:
            continue
        is_row = whole is not None and len(whole.shape) == 1 and whole.dtype in ("int64", "int32")
        test = filter_of(node)
        if place is None or not is_row or test is None or not isinstance(test.left, cst.Name):
            continue
        made = operations_by_node(call, place.file).get(test, [])
        elements = {*operation.recorded.outputs}
        compared = [one for one in made if one.value(0) in elements]
        numbers = {literal(one.argument(1)) for one in compared}
        is_known = len(numbers) == 1 and all(type(one) is int for one in numbers)
        if not is_known or any(
            is_write(one) and one.value(0) in elements for one in call.graph.operations
        ):
            continue
        rows = file.code(node.for_in.iter)
        mask = file.code(test.with_changes(left=node.for_in.iter))
        yield Change(place.file, {node: f"list({rows}[{mask}])"}, file.code(node))


def filter_of(node: cst.ListComp) -> cst.Comparison | None:
    """Return the test of a list of the elements of a local that one number passes or not."""
    loop = node.for_in
    names = [one.value for one in (node.elt, loop.target, loop.iter) if isinstance(one, cst.Name)]
    if len(names) != 3 or names[0] != names[1] or loop.inner_for_in or len(loop.ifs) != 1:
        return None
    test = loop.ifs[0].test
    if not isinstance(test, cst.Comparison) or not orders(test) or test.lpar:
        return None
    other = test.comparisons[0].comparator
    is_plain = isinstance(other, cst.Name | cst.Attribute | cst.Integer)
    own = isinstance(test.left, cst.Name) and test.left.value == names[0]
    return test if own and is_plain and names[0] not in names_in(other) else None


def is_read_after(file: File, loop: cst.For, name: str) -> bool:
    """Return whether a name that a loop binds may be read when the loop is over."""
    function = next(one for one in file.above(loop) if isinstance(one, cst.FunctionDef))
    place = Place("", cst.Name(name), loop, function)
    found = loads_of(file, place, name)
    inside = set(loads_in(file, loop, name))
    return found is None or not inside.issuperset(found)


RULES = (
    RecordedRule(
        name="numbers_at_once",
        family="host synchronization",
        why="the host waits once for all numbers, where it waited in each iteration",
        precondition="the loop does not change the tensor",
        find=lambda call: [*find_listed(call), *find_drawn(call), *find_filtered(call)],
    ),
)
