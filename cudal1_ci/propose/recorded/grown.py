"""Write what a loop appends to a tensor into memory with room for it.

    keys = torch.cat([keys, key], dim=1)

copies all earlier keys in each turn. A buffer is made once for all turns, and each of them writes
its part; `keys` is a view of what is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.reads import (
    READING,
    VIEWING,
    has_hidden_writes,
    is_fact,
    is_write,
    loads_in,
    loads_of,
    reader_of,
)
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import Place

LEAST_ELEMENTS = 1 << 13
"""Of the last tensor; a smaller one is copied as fast as it is written to."""
MIN_TURNS = 4
DEFINITION = '''
def append_to_buffer(buffer, length, new, dim, num_turns):
    """Write a tensor behind the first `length` entries of a buffer, made larger if it is full."""
    end = length + new.size(dim)
    if torch.is_grad_enabled():  # what was read must not be written to
        return torch.cat([buffer.narrow(dim, 0, length), new], dim), end
    if end > buffer.size(dim) or new.dtype != buffer.dtype:
        shape = list(buffer.shape)
        shape[dim] = length + num_turns * new.size(dim)
        old = buffer.narrow(dim, 0, length)
        buffer = new.new_empty(shape, dtype=torch.promote_types(old.dtype, new.dtype))
        buffer.narrow(dim, 0, length).copy_(old)
    buffer.narrow(dim, length, new.size(dim)).copy_(new)
    return buffer, end
'''


@dataclass(frozen=True)
class Grown:
    """A line of a loop that appends to a tensor."""

    line: cst.SimpleStatementLine
    name: str
    new: cst.BaseExpression
    dim: str
    operations: tuple[Operation, ...]


def find_grown(call: Call) -> Iterator[Change]:
    """Find `keys = torch.cat([keys, key], dim=1)` in a loop over a range."""
    if not call.is_inference:
        return  # writes into what an earlier turn read have no gradient
    for loop in loops_in(call):
        node = loop.node
        if not isinstance(node, cst.For) or node.orelse or not isinstance(loop.target, cst.Name):
            continue
        num_turns = None if names_in(loop.over) & stored_names(node.body) else turns_of(loop)
        found = [one for one in appended(loop) if is_fit(call, loop, one)]
        if num_turns is not None and found and "append_to_buffer" not in loop.file.text:
            yield written(loop, node, found, num_turns)


def turns_of(loop: Loop) -> str | None:
    """Return code of the number of turns."""
    over = loop.over
    if not isinstance(over, cst.Call) or loop.code(over.func) != "range":
        return None
    if not 1 <= len(over.args) <= 2 or any(one.keyword or one.star for one in over.args):
        return None
    if any(isinstance(one, cst.Call) for one in within(over.args[-1].value)):
        return f"len({loop.code(over)})"
    code = loop.code(over.args[-1].value)
    return code if len(over.args) == 1 else f"len({loop.code(over)})"


def appended(loop: Loop) -> Iterator[Grown]:
    """Yield the lines that append to a local."""
    assert isinstance(loop.node, cst.For)
    for line in loop.node.body.body:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            continue
        assert isinstance(line, cst.SimpleStatementLine)
        target, call = small.targets[0].target, small.value
        operations = tuple(loop.operations.get(call, []))
        if not isinstance(target, cst.Name) or not isinstance(call, cst.Call) or not operations:
            continue
        if {one.name for one in operations} != {"cat"} or not 1 <= len(call.args) <= 2:
            continue
        parts = call.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple) or len(parts.elements) != 2:
            continue
        first, new = (one.value for one in parts.elements)
        is_own = isinstance(first, cst.Name) and first.value == target.value
        dim = loop.code(call.args[1].value) if len(call.args) == 2 else "0"
        if is_own and target.value not in names_in(new):
            yield Grown(line, target.value, new, dim, operations)


def is_fit(call: Call, loop: Loop, one: Grown) -> bool:
    """Return whether a tensor grows by this line alone, is only read, and is large in the end."""
    graph = call.graph
    assert isinstance(loop.node, cst.For)
    bound = [s for s in loop.node.body.body if one.name in stored_names(s)]
    if len(bound) != 1 or len(one.operations) < MIN_TURNS or not one.dim.lstrip("-").isdigit():
        return False
    shapes = [graph.of(v) for o in one.operations for v in (o.output, *items(o))]
    if any(known is None for known in shapes):
        return False
    ranks = {(len(known.shape), known.dtype, known.device) for known in shapes if known is not None}
    last = graph.of(one.operations[-1].output)
    if len(ranks) != 1 or last is None or math.prod(last.shape) < LEAST_ELEMENTS:
        return False
    values = {v for o in one.operations for v in (o.output, items(o)[0]) if v is not None}
    for operation in [reader for v in values for reader in graph.readers.get(v, [])]:
        if not is_reader(call, operation):
            call.miss(
                one.operations[0], f"`{operation.name}` {where(operation)} needs it in one piece"
            )
            return False
    first, end = one.operations[0].index, loop.inside[-1].index
    if any(map(is_write, graph.operations[first:end])):
        return False
    for load in loads_in(loop.file, loop.node, one.name):
        reader = reader_of(loop.file, load)
        may_run = isinstance(reader, cst.Call) or reader in loop.operations
        if not (may_run or is_fact(loop.file, load)):
            return False
    return not has_hidden_writes(call, one.operations[0])


def is_reader(call: Call, operation: Operation) -> bool:
    """Return whether an operation takes a tensor in parts of larger memory."""
    if operation.name in VIEWING and operation.name != "squeeze":
        readers = [r for v in operation.recorded.outputs for r in call.graph.readers.get(v, [])]
        return all(one is operation or is_reader(call, one) for one in readers)
    return operation.name in READING or operation.name in (
        "scaled_dot_product_attention",
        "contiguous",
        "clone",
        "size",
    )


def items(operation: Operation) -> list[int | None]:
    """Return the tensors that are joined."""
    given = operation.argument(0, "tensors")
    return [one.value for one in given.items] if given is not None else [None]


class Lines(cst.CSTTransformer):
    """Put lines in the place of a line."""

    def __init__(self, new: dict[cst.CSTNode, list[str]]):
        self.new = new

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        lines = self.new.get(original_node)
        if lines is None:
            return updated_node
        made = [cst.parse_statement(one) for one in lines]
        leading = cst.ensure_type(updated_node, cst.SimpleStatementLine).leading_lines
        made[0] = made[0].with_changes(leading_lines=leading)
        return cst.FlattenSentinel(made)


def written(loop: Loop, node: cst.For, found: list[Grown], num_turns: str) -> Change:
    """Return a loop that writes into buffers."""
    before, after = [], []
    new: dict[cst.CSTNode, list[str]] = {}
    taken = names_anywhere(loop.function)
    for one in found:
        buffer, length = free(f"{one.name}_buffer", taken), free(f"num_{one.name}", taken)
        name, dim = one.name, one.dim
        before.append(f"{buffer}, {length} = {name}, {name}.size({dim})")
        given = f"{buffer}, {length}, {loop.code(one.new)}, {dim}, {num_turns}"
        new[one.line] = [
            f"{buffer}, {length} = append_to_buffer({given})",
            f"{name} = {buffer}.narrow({dim}, 0, {length})",
        ]
        place = Place(loop.name, cst.Name(name), node, loop.function)
        inside = {*loads_in(loop.file, node, name)}
        later = loads_of(loop.file, place, name)
        if later is None or not inside.issuperset(later):
            after.append(f"{name} = {name}.contiguous()")
    changed = node.with_changes(leading_lines=[]).visit(Lines(new))
    assert isinstance(changed, cst.CSTNode)
    text = "\n".join([*before, loop.code(changed).rstrip("\n"), *after])
    shown = ", ".join(" ".join(loop.code(one.line).split()) for one in found)
    return Change(loop.name, {node: text}, shown, frozenset(("torch",)), DEFINITION)


def free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


RULES = (
    RecordedRule(
        name="grown_by_cat",
        family="loops",
        why="each iteration writes its own part, where it copied all earlier ones",
        precondition="inference; the tensor is only read, and of a layout that its readers allow",
        find=find_grown,
    ),
)
