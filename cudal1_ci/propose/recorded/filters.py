"""Recognize convolutions with a kernel of equal weights, or one that is an outer product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.algebra import BLOCKS, in_one_block, inserted, only_arguments
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place, bracketed

SAME_WEIGHTS = (
    *("view", "reshape", "expand", "repeat", "unsqueeze", "contiguous", "to", "float"),
    *("__getitem__", "getitem", "type_as"),
)
"""Operations that keep all elements equal."""

REPEATS = ("expand", "repeat")
INSERTS = ("unsqueeze", "__getitem__", "getitem", "contiguous")
"""Operations between an outer product and the kernel that it is."""

MIN_SIZE = 49
"""Elements of a kernel from which on two passes are faster."""


@dataclass(frozen=True)
class Mean:
    """A convolution of each channel with one over the number of elements of its kernel."""

    convolution: Operation
    weights: int
    operations: tuple[Operation, ...]
    """Those that made the kernel."""


def means(call: Call) -> Iterator[Mean]:
    """Yield convolutions that average each channel over a window."""
    graph = call.graph
    for operation in graph.operations:
        weights = operation.value(1, "weight")
        known = graph.of(weights)
        groups = operation.literal(6, "groups")
        if operation.name != "conv2d" or weights is None or known is None:
            continue
        if len(known.shape) != 4 or known.shape[1] != 1 or groups != known.shape[0]:
            continue
        is_plain = (
            operation.value(2, "bias") is None
            and operation.literal(3, "stride") in (None, 1, (1, 1))
            and operation.literal(4, "padding") in (None, 0, (0, 0))
            and operation.literal(5, "dilation") in (None, 1, (1, 1))
        )
        size = known.shape[-2] * known.shape[-1]
        chain = list(kernel_of(call, weights, size))
        if not chain or graph.num_dims(operation.value(0)) != 4:
            continue
        if is_plain and size >= MIN_SIZE:
            yield Mean(operation, weights, tuple(chain))
        elif not is_plain:
            call.miss(operation, "the mean has a bias, a stride, padding or dilation")
        else:
            fact = f"a kernel of {size} elements is as fast in one pass, from {MIN_SIZE} on two are"
            call.miss(operation, fact)


def kernel_of(call: Call, weights: int, size: int) -> list[Operation]:
    """Return the operations that made a kernel of `ones(...) / (height * width)`; [] if it is
    another one."""
    graph, source = call.graph, call.source
    chain: list[Operation] = []
    divided: cst.BaseExpression | None = None
    value: int | None = weights
    while (maker := graph.made_by(value, *SAME_WEIGHTS, "div", "ones")) is not None:
        chain.append(maker)
        if maker.name == "ones":
            place = source.place(maker)
            if place is None or divided is None:
                return []
            # The divisor is written with the names that the size of the kernel is.
            read = names_in(divided)
            return chain if read and read <= names_in(place.node) else []
        if maker.name == "div":
            if divided is not None or maker.literal(1, "other") != size:
                return []
            nodes = source.operands(maker)
            divided = nodes[1] if len(nodes) == 2 else None
            if divided is None:
                return []
        value = maker.value(0)
    return []


def find_means(call: Call) -> Iterator[Change]:
    """Find `conv2d(x, ones / size, groups=channels)`, whether or not it is in a helper."""
    source = call.source
    for one in means(call):
        at = one.convolution
        place = source.place(at)
        file = None if place is None else source.file(place.file)
        x, weights = source.expression(at.value(0), at), source.expression(one.weights, at)
        if place is None or file is None or x is None or weights is None or branches(file, place):
            call.miss(at, "the convolution is in a branch or a loop, or its operands have no code")
            continue
        prefix, modules = call.source.functional(place.file)
        k, groups = bracketed(weights), groups_code(file, place)
        if groups is None:
            call.miss(at, "the call does not name `groups`")
            continue
        conv = f"{prefix}.conv2d"
        rows = f"{conv}({x}, {k}.sum(2, keepdim=True), groups={groups})"
        columns = f"{k}.sum(3, keepdim=True), groups={groups})"
        found = shown(at, source)
        if all(each.recorded.frame == at.recorded.frame for each in one.operations):
            places = [source.place(each) for each in one.operations]
            if all(p is not None and not branches(file, p) for p in places):
                code = f"{conv}({rows}, {columns}"
                yield Change(place.file, {place.node: code}, found, modules)
            continue
        changed = in_helper(call, one, place, file, rows, f"{conv}(rows, {columns}")
        if changed is not None:
            node, name, definition = changed
            yield Change(place.file, {node: name}, found, modules, definition)


def groups_code(file: File, place: Place) -> str | None:
    """Return the code of the number of groups of a convolution."""
    if not isinstance(place.node, cst.Call):
        return None
    for one in place.node.args:
        if one.keyword is not None and one.keyword.value == "groups":
            return file.code(one.value)
    return None


def branches(file: File, place: Place) -> bool:
    """Return whether an expression is in a branch or a loop of its function."""
    for node in file.above(place.node):
        if isinstance(node, cst.FunctionDef):
            return False
        if isinstance(node, BLOCKS):
            return True
    return True


def in_helper(
    call: Call, one: Mean, place: Place, file: File, rows: str, code: str
) -> tuple[cst.CSTNode, str, str] | None:
    """Return the name at the call of the helper that convolves, its new name, and the helper with
    the new code; None unless the caller makes the kernel just for it."""
    graph, source = call.graph, call.source
    helper = source.frame(one.convolution)
    function = place.function
    if helper is None or helper.caller is None or helper.call is None or function is None:
        return None
    caller = graph.recording.frames[helper.caller]
    node = file.node_at(helper.call)
    is_named = isinstance(node, cst.Call) and isinstance(node.func, cst.Name)
    if caller.file != place.file or not is_named or function not in file.module.body:
        return None
    assert isinstance(node, cst.Call)
    assert isinstance(node.func, cst.Name)
    if node.func.value != function.name.value or function.decorators:
        return None
    inside = [
        each for each in one.operations if each.recorded.frame == one.convolution.recorded.frame
    ]
    outside = [each for each in one.operations if each not in inside]
    if not all(made_for(call, file, each, helper.caller, node) for each in outside):
        return None
    if outside and not is_argument(graph, outside, one.convolution):
        return None
    name = f"box_{function.name.value}"
    if name in file.text:
        return None
    line = next((one for one in function.body.body if one is place.statement), None)
    if line is None or "rows" in names_in(function.body):
        return None
    new = line.deep_replace(place.node, cst.parse_expression(code))
    lines = [*cst.parse_module(f"rows = {rows}").body, cst.ensure_type(new, type(line))]
    body = [new for old in function.body.body for new in (lines if old is line else [old])]
    copied = function.with_changes(
        name=cst.Name(name), leading_lines=[], body=function.body.with_changes(body=body)
    )
    return node.func, name, cst.Module([copied]).code.strip() + "\n"


def made_for(call: Call, file: File, maker: Operation, caller: int, node: cst.Call) -> bool:
    """Return whether an operation runs for an argument of a call: within it, or in a function
    that is called there, without branches."""
    place, frame = call.source.place(maker), call.source.frame(maker)
    if place is None or frame is None:
        return False
    there = call.source.file(place.file)
    if there is None:
        return False
    expression: cst.CSTNode = place.node
    if maker.recorded.frame != caller:
        if frame.caller != caller or frame.call is None or branches(there, place):
            return False
        called = file.node_at(frame.call)
        if called is None:
            return False
        expression = called
    for above in file.above(expression):
        if above is node:
            return True
        if isinstance(above, BLOCKS):
            return False
    return False


def is_argument(graph: Graph, outside: list[Operation], convolution: Operation) -> bool:
    """Return whether the kernel, as it is made outside, is what the helper gets."""
    scopes = [
        graph.recording.scopes[one.recorded.scope]
        for one in graph.operations
        if one.recorded.frame == convolution.recorded.frame and one.recorded.scope is not None
    ]
    first = scopes[0].locals if scopes else ()
    return any(one.argument.value == outside[0].output for one in first)


def outer_vectors(call: Call, weights: int, groups: str) -> tuple[int, int, list[Operation]] | None:
    """Return the vectors of which a kernel is the outer product, repeated for each group, and the
    operations between them and the kernel."""
    graph, source = call.graph, call.source
    chain: list[Operation] = []
    is_repeated = False
    value: int | None = weights
    while (maker := graph.made_by(value, *REPEATS, *INSERTS)) is not None:
        chain.append(maker)
        if maker.name in REPEATS:
            codes = [source.argument_code(maker, n, maker) for n in range(1, 5)]
            is_tiled = maker.name == "repeat" and codes[2:] != ["1", "1"]
            if is_repeated or is_tiled or codes[:2] != [groups, "1"]:
                return None
            is_repeated = True
        elif maker.name != "contiguous" and added_dim(graph, maker) != 0:
            return None
        value = maker.value(0)
    product = graph.made_by(value, "matmul", "mul", "outer", "ger")
    if product is None or not is_repeated or graph.num_dims(value) != 2:
        return None
    chain.append(product)
    operands = product.value(0), product.value(1)
    if product.name in ("outer", "ger"):
        column, row = operands
    else:
        sides = [inserted(graph, one) for one in operands]
        for operand in operands:
            maker = graph.made_by(operand)
            chain.extend([maker] if maker is not None else [])
        if product.name == "mul" and sides[0] is not None and sides[0][1] == 0:
            sides = sides[::-1]
        if sides[0] is None or sides[1] is None or [sides[0][1], sides[1][1]] != [1, 0]:
            return None
        column, row = sides[0][0], sides[1][0]
    if column is None or row is None or {graph.num_dims(column), graph.num_dims(row)} != {1}:
        return None
    return column, row, chain


def added_dim(graph: Graph, maker: Operation) -> int | None:
    """Return where an index such as `[None]` adds a dimension, if it does nothing else."""
    found = inserted(graph, maker.output)
    return None if found is None else found[1]


def find_outer(call: Call) -> Iterator[Change]:
    """Find `conv2d(x, (a[:, None] @ b[None, :]).expand(groups, 1, ...), groups=groups)`."""
    graph, source = call.graph, call.source
    for at in graph.operations:
        weights, place = at.value(1), source.place(at)
        known, file = graph.of(weights), None if place is None else source.file(place.file)
        if at.name != "conv2d" or weights is None or known is None or len(known.shape) != 4:
            continue
        groups = None if file is None or place is None else groups_code(file, place)
        vectors = None if groups is None else outer_vectors(call, weights, groups)
        if vectors is None or file is None or place is None or groups is None:
            continue
        column, row, chain = vectors
        size = known.shape[-2] * known.shape[-1]
        padding = padding_code(file, place, at)
        if padding is None or not only_arguments(at, "groups", "padding"):
            call.miss(at, "the outer product has a bias, a stride, dilation or other padding")
            continue
        if size < MIN_SIZE:
            fact = f"a kernel of {size} elements is as fast in one pass, from {MIN_SIZE} on two are"
            call.miss(at, fact)
            continue
        x, *names = (source.expression(one, at) for one in (at.value(0), column, row))
        are_names = all(one is not None and one.isidentifier() for one in names)
        if x is None or not are_names or not in_one_block(call, [at, *chain]):
            call.miss(at, "the convolution is in a branch or a loop, or its operands have no code")
            continue
        prefix, modules = source.functional(place.file)
        across, down = (
            (f", padding=(0, {padding})", f", padding=({padding}, 0)") if padding else ("", "")
        )
        rows = (
            f"{prefix}.conv2d({x}, {names[1]}.expand({groups}, 1, 1, -1){across}, groups={groups})"
        )
        code = (
            f"{prefix}.conv2d({rows}, {names[0]}[:, None].expand({groups}, 1, -1, -1)"
            f"{down}, groups={groups})"
        )
        yield Change(place.file, {place.node: code}, shown(at, source), modules)


def padding_code(file: File, place: Place, convolution: Operation) -> str | None:
    """Return the code of a padding that is one number in every call; "" without padding; None if
    it is another one, or stands among arguments without names."""
    if not isinstance(place.node, cst.Call) or len(convolution.recorded.args) != 2:
        return None
    for one in place.node.args:
        if one.keyword is not None and one.keyword.value == "padding":
            is_number = isinstance(one.value, cst.Integer | cst.BinaryOperation)
            is_int = isinstance(convolution.literal(4, "padding"), int)
            return file.code(one.value) if is_number and is_int else None
    return ""


RULES = (
    RecordedRule(
        name="separable_filter",
        family="algebra",
        why="an outer product as the kernel is one vector over rows, then one over columns",
        precondition="the kernel is the outer product of two vectors of the call",
        find=find_outer,
    ),
    RecordedRule(
        name="box_filter",
        family="algebra",
        why="a kernel of equal weights is a mean over rows, then over columns",
        precondition="the kernel is made of ones in the call",
        find=find_means,
    ),
)
