"""Read all numbers of a tensor at once, where each turn of a loop waited for one of them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Swap, within
from cudal1_ci.propose.recorded.loop import drawn_from
from cudal1_ci.propose.recorded.reads import (
    is_write,
    loads_in,
    loads_of,
    nodes_above,
    operations_by_node,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import File, Place, bracketed, is_statement

LOOPS = cst.For | cst.While | cst.ListComp | cst.GeneratorExp
MOST = 65_536
"""Numbers that are read at once; of more a loop may use few."""


def find_listed(call: Call) -> Iterator[Change]:
    """Find `lengths[i].item()` in a loop: `lengths.tolist()` before it waits once."""
    by_loop: dict[tuple[str, cst.CSTNode], dict[str, list[tuple[cst.CSTNode, str]]]] = {}
    spans: dict[cst.CSTNode, tuple[int, int]] = {}
    for operation in call.graph.operations:
        place = call.source.place(operation)
        file = None if place is None else call.source.file(place.file)
        if place is None or file is None or operation.name != "getitem":
            continue
        node = place.node
        number = number_of(call, file, operation)
        if not isinstance(node, cst.Subscript) or number is None:
            continue
        loop = loop_of(file, node)
        if loop is None:
            continue
        if loop not in spans:
            spans[loop] = span_of(call, place.file, loop, file)
        if not is_kept(call, operation.value(0), spans[loop]):
            continue
        tensors = by_loop.setdefault((place.file, loop), {})
        uses = tensors.setdefault(file.code(node.value), [])
        if all(known is not number[0] for known, _ in uses):
            uses.append(number)
    for (name, loop), tensors in by_loop.items():
        file = call.source.file(name)
        assert file is not None
        yield from listed(file, name, loop, tensors)


def number_of(call: Call, file: File, operation: Operation) -> tuple[cst.CSTNode, str] | None:
    """Return the expression that reads one number of a tensor of one dimension, and how it is read
    from a list: `{}[i]`, or `int({}[i])`."""
    place, known = call.source.place(operation), call.graph.of(operation.value(0))
    index = operation.argument(1)
    node = None if place is None else place.node
    if not isinstance(node, cst.Subscript) or known is None or len(known.shape) != 1:
        return None
    if not isinstance(operation.literal(1), int) or index is None or known.shape[0] > MOST:
        return None
    if len(node.slice) != 1 or not isinstance(node.value, cst.Name | cst.Attribute):
        return None
    item = "{}" + file.code(node).removeprefix(file.code(node.value))
    parent = file.parents.get(node)
    above = None if parent is None else file.parents.get(parent)
    if isinstance(parent, cst.Slice):
        return (node, item) if "int" in known.dtype else None
    if isinstance(parent, cst.Attribute) and isinstance(above, cst.Call) and not above.args:
        return (above, item) if parent.attr.value == "item" else None
    if isinstance(parent, cst.Arg) and isinstance(above, cst.Call) and len(above.args) == 1:
        function = file.code(above.func)
        is_whole = "int" in known.dtype
        if function == "range" and is_whole:
            return node, item
        if function in ("int", "float"):
            is_same = is_whole if function == "int" else "float" in known.dtype
            return above, item if is_same else f"{function}({item})"
    return None


def loop_of(file: File, node: cst.Subscript) -> cst.CSTNode | None:
    """Return the outermost loop around that does not bind the tensor."""
    names = names_in(node.value)
    found = None
    for above in nodes_above(file, node):
        if not isinstance(above, LOOPS):
            continue
        target = above.target if isinstance(above, cst.For) else None
        stored = stored_names(above) | (roots(target) if target is not None else set())
        if stored & names or is_attribute_stored(file, above, node.value):
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


def is_kept(call: Call, value: int | None, span: tuple[int, int]) -> bool:
    """Return whether nothing writes to a tensor while a loop runs."""
    return not any(
        is_write(one) and one.value(0) is not None and is_of_memory(call, one, value)
        for one in call.graph.operations[span[0] : span[1] + 1]
    )


def is_of_memory(call: Call, write: Operation, value: int | None) -> bool:
    """Return whether a write may reach a tensor: it has its dtype."""
    written, known = call.graph.of(write.value(0)), call.graph.of(value)
    return written is None or known is None or written.dtype == known.dtype


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
    taken = {one.value for one in within(function) if isinstance(one, cst.Name)}
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
        find=lambda call: [*find_listed(call), *find_drawn(call)],
    ),
)
