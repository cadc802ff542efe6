"""Leave numbers on the device, where the host waited for them only to hand them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation, values_in
from cudal1_ci.propose.recorded.near import line_of
from cudal1_ci.propose.recorded.reads import (
    assigned_to,
    free_names,
    is_write,
    loads_of,
    operations_by_node,
    reader_of,
    writes,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place, bracketed
from cudal1_ci.propose.recorded.tables import ALIASES

READ_OUT = frozenset(("item", "__float__", "__int__"))
"""Functions that give a number of a tensor."""
ARITHMETIC = frozenset(
    (
        *("add", "sub", "mul", "div", "rsub", "rdiv", "eq", "ne", "lt", "le", "gt", "ge"),
        *("masked_fill", "where"),
    )
)
"""Operations that take a tensor of one element as they take a number."""
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
FLOATS = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Number:
    """A number that the host reads out of a tensor."""

    operation: Operation
    value: int
    """The tensor."""
    place: Place
    tensor: cst.BaseExpression
    """Code of the tensor, within the place."""


def numbers_in(call: Call) -> Iterator[Number]:
    """Yield the numbers that are read out: `x.item()`, `float(x)`, `int(x)`."""
    for operation in call.graph.operations:
        place, value = call.source.place(operation), operation.value(0)
        if operation.recorded.name not in READ_OUT or place is None or value is None:
            continue
        node = place.node
        if not isinstance(node, cst.Call):
            continue
        if operation.name == "item" and isinstance(node.func, cst.Attribute) and not node.args:
            yield Number(operation, value, place, node.func.value)
        elif is_number(node) and len(node.args) == 1:
            yield Number(operation, value, place, node.args[0].value)


def find_numbers(call: Call) -> Iterator[Change]:
    """Find `x / x.max().item()`, also through a local, and `x / max(n.item(), 1)`."""
    for number in numbers_in(call):
        file = call.source.file(number.place.file)
        if file is None or any(
            isinstance(above, cst.Call) and above is not number.place.node and is_number(above)
            for above in file.above(number.tensor)
        ):
            continue  # `float(x.item())` is found at its inner part
        new = left_on_device(call, file, number)
        if new is not None:
            found = shown(number.operation, call.source)
            yield Change(number.place.file, new, found)


def is_number(node: cst.Call) -> bool:
    """Return whether a call makes a number of a number."""
    return isinstance(node.func, cst.Name) and node.func.value in ("float", "int")


def left_on_device(call: Call, file: File, number: Number) -> dict[cst.CSTNode, str] | None:
    """Return the code that reads a tensor where it read a number; None if a reader needs one."""
    known = call.graph.of(number.value)
    if known is None or known.shape or known.dtype not in (*INTEGERS, *FLOATS):
        return None
    is_float = known.dtype in FLOATS
    if number.operation.recorded.name == "__int__" and is_float:
        return None  # it rounds
    code = bracketed(file.code(number.tensor))
    if is_float and not code.endswith(".detach()"):
        code = f"{code}.detach()"
    outer = number_around(number.place.node, file, is_float)
    name = assigned_to(file, Place(number.place.file, outer, number.place.statement, None))
    if name is None:
        return replaced(call, file, number, [outer], code)
    function = number.place.function
    loads = loads_of(file, number.place, name)
    if not loads or name in free_names(function):
        return None
    makers = call.graph.made_by(number.value)
    if makers is None or makers.name in ALIASES:
        return None  # what is a view may be written to until the local is read
    tops = [number_around(load, file, is_float) for load in loads]
    new = replaced(call, file, number, tops, name)
    if new is None:
        return None
    kept = {node: text for node, text in new.items() if text != file.code(node)}
    return {outer: within_bounds(outer, number.place.node, code, file), **kept}


def number_around(node: cst.BaseExpression, file: File, is_float: bool) -> cst.BaseExpression:
    """Return the number that `float(n)`, `max(n, 1)` and `min(n, 1)` make of a number."""
    while True:
        arg = file.parents.get(node)
        above = None if arg is None else file.parents.get(arg)
        if not isinstance(arg, cst.Arg) or not isinstance(above, cst.Call):
            return node
        if not isinstance(above.func, cst.Name) or any(
            one.keyword or one.star for one in above.args
        ):
            return node
        given = [one.value for one in above.args]
        if above.func.value == "float" and len(given) == 1:
            node = above
        elif above.func.value in ("max", "min") and len(given) == 2:
            other = given[1] if given[0] is node else given[0]
            is_good = isinstance(other, cst.Integer) or (is_float and isinstance(other, cst.Float))
            if not is_good or (is_float and given[0] is not node):  # max(1, nan) is 1
                return node
            node = above
        else:
            return node


def within_bounds(
    outer: cst.BaseExpression, inner: cst.BaseExpression, code: str, file: File
) -> str:
    """Return the code of a tensor with the bounds that are around its number."""
    node = inner
    while node is not outer:
        arg = file.parents[node]
        above = cst.ensure_type(file.parents[arg], cst.Call)
        function = cst.ensure_type(above.func, cst.Name).value
        if function in ("max", "min"):
            other = next(one.value for one in above.args if one.value is not node)
            code = f"{code}.clamp({'min' if function == 'max' else 'max'}={file.code(other)})"
        node = above
    return code


def replaced(
    call: Call, file: File, number: Number, tops: list[cst.BaseExpression], code: str
) -> dict[cst.CSTNode, str] | None:
    """Return new code of numbers that only arithmetic of tensors reads."""
    ran = operations_by_node(call, number.place.file)
    new: dict[cst.CSTNode, str] = {}
    for top in tops:
        reader = reader_of(file, top)
        operations = ran.get(reader, []) if reader is not None else []
        if reader is None or not operations:
            missed(call, number, reader is not None and is_size_of(file, reader))
            return None
        if not all(takes_tensor(call, number, one, reader, top) for one in operations):
            missed(call, number, is_size=False)
            return None
        inner = number.place.node if len(tops) == 1 and code != name_of(top) else None
        start = inner if inner is not None and is_below(file, inner, top) else start_of(top)
        new[top] = within_bounds(top, start, code, file)
    return new


def is_below(file: File, node: cst.CSTNode, top: cst.CSTNode) -> bool:
    return node is top or any(one is top for one in file.above(node))


def name_of(node: cst.CSTNode) -> str:
    return node.value if isinstance(node, cst.Name) else ""


def start_of(top: cst.BaseExpression) -> cst.BaseExpression:
    """Return the local in the midst of bounds."""
    node = top
    while isinstance(node, cst.Call):
        node = next(one.value for one in node.args if isinstance(one.value, cst.Name | cst.Call))
    return node


def is_size_of(file: File, reader: cst.CSTNode) -> bool:
    """Return whether a number is the size of something that is made of it."""
    return isinstance(reader, cst.Call) and "range" in file.code(reader.func)


def takes_tensor(
    call: Call,
    number: Number,
    reader: Operation,
    node: cst.BaseExpression,
    operand: cst.BaseExpression,
) -> bool:
    """Return whether an operation gives the same if it is given a tensor for a number."""
    graph = call.graph
    is_bound = reader.name in ("clamp", "clip") and is_only_bound(node, operand)
    if not (reader.name in ARITHMETIC or is_bound) or writes(
        call, number.operation, reader.index + 1
    ):
        return False
    if isinstance(node, cst.Call) and reader.name in ("add", "sub"):
        return False  # torch.add(x, y, alpha=n)
    tensors = [*values_in(reader.recorded)]
    others = [graph.of(one) for one in tensors]
    taken = graph.of(number.value)
    numbers = [one for one in others if one is not None and one.dtype != "bool"]
    if (
        taken is None
        or not numbers
        or any(one is None or one.device != taken.device for one in others)
    ):
        return False
    is_whole = taken.dtype in INTEGERS
    code = call.source.file(number.place.file)
    is_made_float = is_whole and code is not None and "float(" in code.code(operand)
    if any(one.dtype == taken.dtype for one in numbers) and not is_made_float:
        return number.operation.recorded.name != "__float__" or not is_whole
    return reader.name not in ("masked_fill", "where") and all(
        (one.shape or is_whole) and one.dtype in FLOATS for one in numbers
    )


def is_only_bound(node: cst.BaseExpression, operand: cst.BaseExpression) -> bool:
    """Return whether clamp has no other bound, which would have to be a tensor too."""
    if not isinstance(node, cst.Call):
        return False
    named = [one for one in node.args if one.keyword is not None]
    return len(named) == 1 and named[0].value is operand and len(node.args) <= 2


def missed(call: Call, number: Number, is_size: bool) -> None:
    """Say why the host has to wait."""
    line = line_of(number.operation)
    what = "a size is read from the device" if is_size else "the host reads a number"
    call.miss(
        number.operation, f"{what} at line {line}, which more than arithmetic of tensors needs"
    )


def find_guards(call: Call) -> Iterator[Change]:
    """Find `if mask.any(): x = x.masked_fill(mask, 0)`: without a masked element it does
    nothing."""
    for operation in call.graph.operations:
        place = call.source.place(operation)
        file = None if place is None or operation.name != "any" else call.source.file(place.file)
        if place is None or file is None:
            continue
        line = file.parents.get(place.node)
        change = guarded(file, line, place.node) if isinstance(line, cst.If) else None
        if change is not None and isinstance(line, cst.If) and fits(call, operation, line):
            yield Change(place.file, change, f"if {file.code(place.node)}")


def guarded(file: File, line: cst.If, test: cst.BaseExpression) -> dict[cst.CSTNode, str] | None:
    """Return the line that an `if` guards, if it changes what a mask tells, and nothing else."""
    mask = any_of(test)
    body = line.body.body
    if mask is None or line.orelse is not None or line.test is not test or len(body) != 1:
        return None
    simple = body[0]
    small = simple.body[0] if isinstance(simple, cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target, value = small.targets[0].target, small.value
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return None
    given = [file.code(one.value) for one in value.args]
    wanted, kept = file.code(mask), file.code(target)
    name = value.func.attr.value
    owner = file.code(value.func.value)
    is_fill = name == "masked_fill" and owner == kept and given[:1] == [wanted]
    is_where = name == "where" and owner == "torch" and given[:1] == [wanted]
    if not isinstance(target, cst.Name) or any(one.keyword or one.star for one in value.args):
        return None
    if not (is_fill and len(given) == 2) and not (is_where and given[2:] == [kept]):
        return None
    other = value.args[1].value
    is_infinite = isinstance(other, cst.Call) and file.code(other.func) == "float"
    is_plain = isinstance(other, cst.Integer | cst.Float | cst.UnaryOperation | cst.Name)
    if not (is_plain or is_infinite or is_where):
        return None
    if is_where and not is_zeros(other, kept, file):
        return None  # another dtype or shape would show without a masked element too
    return {line: file.code(simple.with_changes(leading_lines=[])).strip()}


def fits(call: Call, operation: Operation, line: cst.If) -> bool:
    """Return whether a mask is of no more dimensions than what it guards, and whether nothing is
    written to later: without a masked element the name keeps its tensor."""
    graph = call.graph
    body = cst.ensure_type(line.body.body[0], cst.SimpleStatementLine).body[0]
    target = cst.ensure_type(cst.ensure_type(body, cst.Assign).targets[0].target, cst.Name)
    held = call.source.scope(operation).get(target.value)
    mask, kept = graph.of(operation.value(0)), graph.of(None if held is None else held.value)
    return (
        mask is not None
        and kept is not None
        and mask.dtype == "bool"
        and len(mask.shape) <= len(kept.shape)
        and not any(one.index > operation.index and is_write(one) for one in graph.operations)
    )


def any_of(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the mask of `mask.any()` and `torch.any(mask)`."""
    if not isinstance(test, cst.Call) or not isinstance(test.func, cst.Attribute):
        return None
    if test.func.attr.value != "any":
        return None
    is_torch = isinstance(test.func.value, cst.Name) and test.func.value.value == "torch"
    if is_torch:
        return test.args[0].value if len(test.args) == 1 else None
    return None if test.args else test.func.value


def is_zeros(node: cst.BaseExpression, like: str, file: File) -> bool:
    """Return whether an expression is like a local in shape and dtype for certain."""
    return file.code(node) in (f"torch.zeros_like({like})", f"torch.ones_like({like})")


RULES = (
    RecordedRule(
        name="number_on_device",
        family="host synchronization",
        why="the host does not wait for the device, and queues the next operations at once",
        precondition="only arithmetic with tensors reads the number",
        find=find_numbers,
    ),
    RecordedRule(
        name="unguarded_mask",
        family="host synchronization",
        why="without a masked element it does nothing, and the host need not ask first",
        precondition="the line changes only elements that the mask of its `if` selects",
        find=find_guards,
    ),
)
