"""Call a layer once for the batches of all turns of a loop, joined to one batch."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    IMAGES,
    ROWWISE,
    UNARY,
    Lifted,
    Refused,
    integer,
)
from cudal1_ci.propose.recorded.source import bracketed

ANY_RANK = (UNARY | ROWWISE | {"group_norm", "dim", "size"}) - ALIASING


def folded(lift: Lift, node: cst.Call, argument: cst.BaseExpression) -> Lifted:
    """Return a call of a layer on each turn's batch for all turns; raise Refused if samples of
    one batch may not be joined with others."""
    last = lift.operations.get(node, [])
    graph = lift.source.graph
    operations = [part for one in last for part in graph.in_one_call(one)]
    if lift.varies(node.func) or not all(is_by_sample(lift, one) for one in operations):
        raise Refused
    x, rank = lift.lift(argument), lift.rank(node)
    if x.turns is None or x.rank < 2 or rank < 2 or lift.bounds is None:
        raise Refused
    code = f"{bracketed(x.code)}.flatten(0, 1)"
    if x.is_kept and x.turns == 1:
        code = f"{code}.unsqueeze(1)"
    elif x.is_kept or x.turns > 1:
        x = x.first()
        code = f"{bracketed(x.code)}.flatten(0, 1)"
    lift.need_turn()  # without one, -1 has no meaning
    sizes = f"(-1, {lift.bounds.count})" if x.turns else f"({lift.bounds.count}, -1)"
    called = lift.swapped(node, {argument: code})
    return Lifted(f"{called}.unflatten(0, {sizes})", rank, x.turns, is_computed=True)


def is_by_sample(lift: Lift, operation: Operation) -> bool:
    """Return whether an operation computes each sample of the first dimension by itself."""
    name, rank = operation.name, lift.source.graph.num_dims(operation.value(0))
    if name == "flatten":
        return operation.literal(1, "start_dim") in range(1, rank)
    if name == "layer_norm":
        sizes = operation.literal(1, "normalized_shape")
        return isinstance(sizes, tuple) and len(sizes) < rank
    return IMAGES.get(name) == rank or (name in ANY_RANK and rank > 1)


def joined_parts(lift: Lift, node: cst.Call, name: str) -> Lifted:
    """Return `torch.cat([a, b], dim)` or a stack of a turn's tensors for all turns."""
    listed, *given = [one.value for one in node.args]
    if not isinstance(listed, cst.List | cst.Tuple) or len(given) > 1 or not listed.elements:
        raise Refused
    parts = [lift.lift(one.value).first() for one in listed.elements]
    if any(one.turns is None for one in parts):
        raise Refused
    dim = integer(given[0]) if given else 0
    code = ", ".join(one.code for one in parts)
    shifted = dim if dim < 0 else dim + 1
    joined = f"torch.{name}([{code}], dim={shifted})"
    return Lifted(joined, lift.rank(node), 0, is_computed=True)
