"""Call a function of the checkout once for all turns of a loop, with `torch.vmap`."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.recorded.graph import VIEWS, Operation, flat
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    BINARY,
    OVER_DIM,
    ROWWISE,
    UNARY,
    Lifted,
    Refused,
    within,
)
from cudal1_ci.propose.recorded.purity import definition_of, is_pure_frame

MAPPED = UNARY.union(
    BINARY,
    ROWWISE,
    OVER_DIM,
    VIEWS - {"T"},
    ("matmul", "einsum", "t", "conv1d", "conv2d", "diagonal", "trace", "tril", "triu", "size"),
    ("stack", "cat", "normalize", "cosine_similarity", "pairwise_distance", "cdist", "dim"),
    ("squeeze", "avg_pool1d", "avg_pool2d", "max_pool2d", "interpolate", "pad", "dot", "outer"),
    ("max", "min"),
)
"""Operations that `vmap` runs as one for all turns."""


def mapped_frames(lift: Lift, node: cst.Call) -> list[int]:
    """Return the calls of a helper that an expression made, if it only computes what `vmap` runs
    as one for all turns; raise Refused for another one."""
    source, graph = lift.source, lift.source.graph
    frames = [
        number
        for number, one in enumerate(graph.recording.frames)
        if one.call is not None
        and one.caller is not None
        and source.file(graph.recording.frames[one.caller].file) is lift.file
        and lift.file.node_at(one.call) is node
    ]
    if not frames or not all(is_pure_frame(source, one) for one in frames):
        raise Refused
    below = {*frames}
    for number, one in enumerate(graph.recording.frames):
        if one.caller in below:
            below.add(number)
    if not all(is_mapped(o) for o in graph.operations if o.recorded.frame in below):
        raise Refused
    return frames


def is_mapped(operation: Operation) -> bool:
    """Return whether `vmap` runs an operation as one for all turns."""
    if operation.name == "getitem":
        given = operation.argument(1)
        return given is not None and not [*flat([given])]
    return operation.name in MAPPED


def mapped(lift: Lift, node: cst.Call) -> Lifted:
    """Return a call of a helper for all turns; raise Refused if it may do more than return a
    tensor of its arguments."""
    graph = lift.source.graph
    frames = mapped_frames(lift, node)
    returned = {returned_by(lift, one) for one in frames}
    shapes = {len(value.shape) for one in returned if (value := graph.of(one)) is not None}
    dtypes = {value.dtype for one in returned if (value := graph.of(one)) is not None}
    if None in returned or len(shapes) != 1 or len(dtypes) != 1:
        raise Refused
    if lift.varies(node.func) or any(one.keyword is not None or one.star for one in node.args):
        raise Refused
    given: list[Lifted] = []
    for argument in node.args:
        if lift.varies(argument.value):
            given.append(lift.lift(argument.value).first())
            if given[-1].turns is None:
                raise Refused
        else:
            lift.check_pure(argument.value)
            given.append(Lifted(lift.code(argument.value), 0, None))
    code = f"torch.vmap({lift.code(node.func)}"
    if any(one.turns is None for one in given):
        dims = ", ".join(str(one.turns) for one in given)
        code += f", in_dims=({dims}{',' if len(given) == 1 else ''})"
    lift.ranks[node] = shapes.pop(), dtypes.pop()
    arguments = ", ".join(one.code for one in given)
    return Lifted(f"{code})({arguments})", lift.rank(node), 0, is_computed=True)


def returned_by(lift: Lift, number: int) -> int | None:
    """Return the tensor that a frame's function returned, if its last line alone returns, and
    returns what one operation made."""
    graph, frame = lift.source.graph, lift.source.graph.recording.frames[number]
    file = lift.source.file(frame.file)
    function = None if file is None else definition_of(file, frame)
    if file is None or function is None or not isinstance(function.body, cst.IndentedBlock):
        return None
    returns = [one for one in within(function.body) if isinstance(one, cst.Return)]
    last = function.body.body[-1]
    if len(returns) != 1 or not isinstance(last, cst.SimpleStatementLine):
        return None
    value = returns[0].value
    if last.body[-1] is not returns[0] or value is None:
        return None
    if isinstance(value, cst.Name):
        stored = [
            one.value
            for line in function.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for one in line.body
            if isinstance(one, cst.Assign)
            and isinstance(one.targets[0].target, cst.Name)
            and one.targets[0].target.value == value.value
        ]
        if not stored:
            return None
        value = stored[-1]
    made: list[Operation] = [
        one
        for one in graph.operations
        if one.recorded.frame == number
        and (place := lift.source.place(one)) is not None
        and place.node is value
    ]
    return made[-1].output if made else None
