"""Read a table at each class, where a loop over the classes writes the elements of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.dispatch_searches import is_index
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.loop_text import is_name
from cudal1_ci.propose.recorded.repeats import free_name
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import bracketed

MANY = 4
"""Least number of classes."""
INTEGERS = ("torch.int64", "torch.int32", "int64", "int32")


@dataclass(frozen=True)
class Written:
    """What one turn writes."""

    out: str
    mask: cst.BaseExpression
    value: cst.BaseExpression
    is_in_place: bool


def find_mapped(call: Call) -> Iterator[Change]:
    """Find `for k in range(n): out[labels == k] = table[k]`, also with `torch.where`."""
    for loop in loops_in(call):
        if not isinstance(loop.node, cst.For) or not isinstance(loop.target, cst.Name):
            continue
        bounds = loop.bounds(loop.target.value)
        written = None if bounds is None or bounds.low else written_in(loop)
        code = None if written is None or bounds is None else mapped(loop, written, bounds)
        if code is not None:
            found = " ".join(loop.code(loop.node).strip().split("\n")[0].split())
            yield Change(loop.name, {loop.node: code}, found, frozenset(("torch",)))


def written_in(loop: Loop) -> Written | None:
    """Return what each turn of a loop writes, if that is all it does."""
    if not loop.body:
        return None
    *before, last = loop.body
    if not isinstance(last, cst.Assign) or len(last.targets) != 1 or len(before) > 1:
        return None
    target, value = last.targets[0].target, last.value
    is_in_place = isinstance(target, cst.Subscript)
    if isinstance(target, cst.Subscript):
        part = target.slice[0].slice
        if len(target.slice) != 1 or not isinstance(part, cst.Index) or not is_name(target.value):
            return None
        mask, out = part.value, loop.code(target.value)
    else:
        given = [one.value for one in value.args] if isinstance(value, cst.Call) else []
        names = {one.name for one in loop.operations.get(value, [])}
        out = loop.code(target)
        if names != {"where"} or len(given) != 3 or loop.code(given[2]) != out:
            return None
        mask, value = given[0], given[1]
    if before:
        [first] = before
        name = loop.code(mask)
        if not isinstance(first, cst.Assign) or stored_names(first) != {name}:
            return None
        reads = [o for o in within(loop.function) if isinstance(o, cst.Name) and o.value == name]
        if len(reads) != 2:
            return None
        mask = first.value
    return Written(out, mask, value, is_in_place)


def mapped(loop: Loop, written: Written, bounds: Bounds) -> str | None:
    """Return the lines that take the place of a loop over classes."""
    graph, index = loop.call.graph, loop.code(loop.target)
    labels, table = compared(loop, written.mask, index), row_of(written.value, index)
    if labels is None or table is None or loop.is_read_after({index}):
        return None
    if (names_in(labels) | names_in(table)) & {written.out, index}:
        return None
    equal = loop.operations.get(written.mask, [])
    picked = loop.operations.get(written.value, [])
    values = {graph.of(one) for one in (only_value(equal), only_value(picked))}
    held = loop.call.source.scope(loop.inside[0]).get(written.out)
    known, rows = graph.of(only_value(equal)), graph.of(only_value(picked))
    out = None if held is None else graph.of(held.value)
    if None in values or known is None or rows is None or out is None or len(equal) < MANY:
        return None
    rank = len(out.shape) - len(known.shape)
    if known.dtype not in INTEGERS or {one.name for one in picked} != {"getitem"}:
        return None
    if {one.name for one in equal} != {"eq"} or len(rows.shape) != 1 + rank:
        return None
    if written.is_in_place:
        if not (loop.is_own(written.out) and loop.is_unshared(written.out)):
            return None
    elif rank or rows.dtype != out.dtype:
        return None
    at = bracketed(loop.code(labels))
    name = free_name(loop.function, "is_known")
    cast = "" if rows.dtype == out.dtype else f".to({written.out}.dtype)"
    wide = f"[{', '.join(['...', *['None'] * rank])}]" if rank else ""
    return (
        f"{name} = ({at} >= 0) & ({at} < {bounds.high})\n"
        f"{written.out} = torch.where({name}{wide}, "
        f"{loop.code(table)}[{at}.clamp(0, {bounds.last})]{cast}, {written.out})\n"
    )


def only_value(operations: list[Operation]) -> int | None:
    """Return the tensor that operations read first, if it is always the same."""
    found = {one.value(0) for one in operations}
    return found.pop() if len(found) == 1 else None


def compared(loop: Loop, node: cst.BaseExpression, index: str) -> cst.BaseExpression | None:
    """Return what is compared with the index."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    sides = [node.left, node.comparisons[0].comparator]
    codes = [loop.code(one) for one in sides]
    return sides[1 - codes.index(index)] if codes.count(index) == 1 else None


def row_of(node: cst.BaseExpression, index: str) -> cst.BaseExpression | None:
    """Return what an index picks a row of."""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return None
    is_row = is_index(node.slice[0].slice, index)
    return node.value if is_row and isinstance(node.value, cst.Name | cst.Attribute) else None


RULES = (
    RecordedRule(
        name="mapped_classes",
        family="vectorization",
        why="each element reads its class's row of a table, where each iteration compared and "
        "wrote all elements",
        precondition="the loop counts integer classes from 0, and does nothing else; nothing else "
        "shares the memory that it writes",
        find=find_mapped,
    ),
)
