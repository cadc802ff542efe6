"""Reduce what a mask lets through without picking it out, for which the host waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.recorded.algebra import (
    in_one_block,
    in_place_of,
    only_arguments,
    read_only_by,
)
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Swap
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.reads import assigned_to, read_by, writes
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, bracketed

FLOATS = ("float32", "float64", "bfloat16")
"""Without float16, in which a sum may be too large where a mean is not."""
STEADY = frozenset(("add", "sub", "neg", "rsub"))
"""Operations whose gradients do not depend on their operands, which may be NaN where the mask keeps
them out."""
OTHERS = frozenset(
    (
        *("mul", "abs", "square", "exp", "log", "sqrt", "div", "pow", "rdiv", "log1p", "sigmoid"),
        *("tanh", "relu"),
    )
)
LOSSES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"))
"""Losses of each element, which take `reduction`."""


@dataclass
class Picked:
    """A reduction of elements that a mask lets through."""

    mask: int
    shape: tuple[int, ...]
    picks: list[Operation] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


def picked(call: Call, value: int | None, found: Picked | None) -> Picked | None:
    """Return what elementwise operations make of elements that one mask picks."""
    graph = call.graph
    maker = graph.made_by(value)
    if maker is None:
        return None
    if maker.name == "getitem":
        mask, whole = graph.of(maker.value(1)), graph.of(maker.value(0))
        number = maker.value(1)
        if mask is None or whole is None or number is None or mask.dtype != "bool":
            return None
        if mask.shape != whole.shape or whole.dtype not in FLOATS:
            return None
        found = found or Picked(number, mask.shape)
        if found.mask != number:
            return None
        found.picks.append(maker)
        return found
    allowed = STEADY | OTHERS if call.is_inference else STEADY
    if maker.name not in allowed or maker.recorded.kwargs:
        return None
    tensors = [one.value for one in maker.recorded.args if one.value is not None]
    for one in tensors:
        known = graph.of(one)
        if known is not None and not known.shape:
            continue  # a number for all elements
        found = picked(call, one, found)
        if found is None:
            return None
    if found is not None:
        found.operations.append(maker)
    return found


def find_picked(call: Call) -> Iterator[Change]:
    """Find `x[mask].sum()`, `((x[mask] - y[mask]) ** 2).mean()` and losses of `x[mask]`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place = source.place(operation)
        if operation.name not in ("sum", "mean", *LOSSES) or place is None:
            continue
        if not isinstance(place.node, cst.Call):
            continue
        found = None
        if operation.name in LOSSES:
            if call.is_inference and only_plain_loss(operation):
                found = picked(call, operation.value(0, "input"), None)
                found = found and picked(call, operation.value(1, "target"), found)
        elif len(operation.recorded.args) == 1 and only_arguments(operation):
            found = picked(call, operation.value(0), None)
        if found is None or not in_one_block(call, [operation, *found.operations, *found.picks]):
            continue
        first = min(found.picks, key=lambda one: one.index)
        if writes(call, first, operation.index):
            call.miss(operation, f"a tensor is written to before {where(operation)}")
            continue
        new = reduced(call, operation, found)
        if new is not None:
            yield Change(place.file, new, shown(operation, source), frozenset(("torch",)))


def only_plain_loss(operation: Operation) -> bool:
    """Return whether a loss is the mean of two tensors' elements."""
    kwargs = {one.name: one.argument.text for one in operation.recorded.kwargs}
    extra = {name for name, text in kwargs.items() if text != "None"} - {
        *("input", "target", "reduction", "beta", "size_average", "reduce")
    }
    is_mean = kwargs.get("reduction", "'mean'") == "'mean'"
    return not extra and is_mean and len(operation.recorded.args) <= 2


def reduced(call: Call, operation: Operation, found: Picked) -> dict[cst.CSTNode, str] | None:
    """Return the reduction of all elements, with 0 for those that the mask keeps out."""
    source = call.source
    place = source.place(operation)
    file = None if place is None else source.file(place.file)
    mask = source.expression(found.mask, operation)
    if place is None or file is None or mask is None or not is_all_read(call, operation, found):
        return None
    node = cst.ensure_type(place.node, cst.Call)
    swap = whole_tensors(call, file, found)
    if swap is None:
        return None
    inside = {one: code for one, code in swap.items() if file.is_within(one, node)}
    outside = {one: code for one, code in swap.items() if one not in inside}
    if operation.name in LOSSES:
        if any(one.keyword is not None and one.keyword.value == "reduction" for one in node.args):
            return None
        given = ", ".join(swapped(file, one.with_changes(comma=COMMA), inside) for one in node.args)
        inner = f'{file.code(node.func)}({given}, reduction="none")'
    else:
        function = cst.ensure_type(node.func, cst.Attribute)
        is_torch = isinstance(function.value, cst.Name) and function.value.value == "torch"
        body = node.args[0].value if is_torch else function.value
        inner = swapped(file, body.with_changes(lpar=[], rpar=[]), inside)
        inner = inside.get(body, inner)
    total = f"torch.where({mask}, {inner}, 0).sum()"
    if operation.name != "sum":
        total = in_place_of(call, place, f"{total} / {bracketed(mask)}.sum()")
    return {node: total, **outside}


COMMA = cst.MaybeSentinel.DEFAULT


def swapped(file: File, node: cst.CSTNode, new: dict[cst.CSTNode, str]) -> str:
    """Return the code of a node with other code in it."""
    if node in new:
        return new[node]
    changed = node.visit(Swap(new))
    assert isinstance(changed, cst.CSTNode)
    return file.code(changed)


def is_all_read(call: Call, operation: Operation, found: Picked) -> bool:
    """Return whether nothing but the reduction reads what is picked, in the text too."""
    chain = [*found.operations, *found.picks]
    nodes = {place.node for one in (operation, *chain) if (place := call.source.place(one))}
    for one in chain:
        seen = read_by(call, one)
        if seen is None or not read_only_by(call, one.output, [operation, *chain]):
            return False
        for _, readers in seen:
            place = call.source.place(readers[0])
            if place is None or place.node not in nodes:
                return False
    return True


def whole_tensors(call: Call, file: File, found: Picked) -> dict[cst.CSTNode, str] | None:
    """Return the code of whole tensors by the expressions that pick from them."""
    swap: dict[cst.CSTNode, str] = {}
    for one in found.picks:
        at = call.source.place(one)
        if at is None or not isinstance(at.node, cst.Subscript):
            return None
        if assigned_to(file, at) is None:
            swap[at.node] = file.code(at.node.value)
            continue
        for load, readers in read_by(call, one) or ():  # a local of it goes
            code = call.source.expression(one.value(0), readers[0])
            if code is None:
                return None
            swap[load] = code
    return swap


DEFAULTS = {
    *(("size_average", "None"), ("reduce", "None"), ("reduction", "'mean'")),
    ("ignore_index", "-100"),
}


def find_labelled(call: Call) -> Iterator[Change]:
    """Find `cross_entropy(logits[mask], target[mask])`: a target of -100 counts for nothing."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place = source.place(operation)
        kwargs = {(k.name, k.argument.text) for k in operation.recorded.kwargs} - DEFAULTS
        if operation.name != "cross_entropy" or place is None:
            continue
        picks = [
            graph.made_by(operation.value(0, "input"), "getitem"),
            graph.made_by(operation.value(1, "target"), "getitem"),
        ]
        one, two = picks
        named = {name for name, _ in kwargs}
        if one is None or two is None or named - {"input", "target", "label_smoothing", "weight"}:
            continue
        if len(operation.recorded.args) > 2 or one.value(1) != two.value(1):
            continue
        mask, logits, target = (graph.of(v) for v in (one.value(1), one.value(0), two.value(0)))
        if mask is None or logits is None or target is None or mask.dtype != "bool":
            continue
        if not logits.shape[:-1] == target.shape == mask.shape or target.dtype != "int64":
            continue
        found = Picked(one.value(1) or 0, mask.shape, [one, two])
        file = source.file(place.file)
        code = source.expression(found.mask, operation)
        is_written = writes(call, one, operation.index)
        if (
            file is None
            or code is None
            or is_written
            or not in_one_block(call, [operation, one, two])
        ):
            continue
        swap = whole_tensors(call, file, found) if is_all_read(call, operation, found) else None
        if swap is None or not all(file.is_within(node, place.node) for node in swap):
            continue
        rank = len(mask.shape)
        for node, text in swap.items():
            is_target = text == source.expression(two.value(0), operation)
            text = bracketed(text)
            text = f"{text}.masked_fill(~{bracketed(code)}, -100)" if is_target else text
            flat = ".flatten()" if is_target else f".flatten(0, {rank - 1})"
            swap[node] = f"{text}{flat}" if rank > 1 else text
        if len({*swap.values()}) == 2:
            new = swapped(file, place.node, swap)
            yield Change(place.file, {place.node: new}, shown(operation, source))


def find_assigned(call: Call) -> Iterator[Change]:
    """Find `x[mask] = y[mask]`: a choice of each element needs no positions."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place, picked = source.place(operation), graph.made_by(operation.value(2), "getitem")
        file = None if place is None else source.file(place.file)
        if operation.name != "setitem" or picked is None or place is None or file is None:
            continue
        line = place.statement
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            continue
        target, value = small.targets[0].target, small.value
        if not isinstance(target, cst.Subscript) or not isinstance(value, cst.Subscript):
            continue
        at = source.place(picked)
        mask = graph.of(operation.value(1))
        tensors = [graph.of(operation.value(0)), graph.of(picked.value(0))]
        if at is None or at.node is not value or operation.value(1) != picked.value(1):
            continue
        if mask is None or mask.dtype != "bool" or len(target.slice) != 1:
            continue
        if any(one is None or one.shape != mask.shape for one in tensors):
            continue
        if len({one.dtype for one in tensors if one is not None}) != 1:
            continue
        index = file.code(target.slice[0].slice)
        if index != file.code(value.slice[0].slice):
            continue
        x, y = file.code(target.value), file.code(value.value)
        code = f"{x}.copy_(torch.where({index}, {y}, {x}))"
        found = " ".join(file.code(line).split())
        yield Change(place.file, {line: code}, found, frozenset(("torch",)))


RULES = (
    RecordedRule(
        name="masked_assignment",
        family="host synchronization",
        why="where chooses element by element; positions are counted on the host",
        precondition="both sides are picked by one mask of their shape",
        find=find_assigned,
    ),
    RecordedRule(
        name="masked_reduction",
        family="host synchronization",
        why="where keeps the shape, so that the host does not wait for the number of elements",
        precondition="a sum or mean of elements that one mask of the same shape lets through",
        find=find_picked,
    ),
    RecordedRule(
        name="ignored_targets",
        family="host synchronization",
        why="cross_entropy leaves out targets of -100, and no rows are picked out",
        precondition="logits and targets are picked by one mask",
        find=find_labelled,
    ),
)
