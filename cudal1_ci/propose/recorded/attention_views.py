"""Read the views of scores and weights, and bring tensors into the shapes that they give."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.recorded.attention_code import names_of_code
from cudal1_ci.propose.recorded.attention_match import VIEWS
from cudal1_ci.propose.recorded.attention_occurrence import Mask, Occurrence, Refused, needed
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import where

RESHAPED = "the scores are viewed in another shape when they are multiplied with the values"


def views_of_scores(one: Occurrence) -> list[Operation]:
    """Return the views before the softmax."""
    return [step.operation for step in one.found.steps if step.kind == "view"]


def folded(one: Occurrence, masks: Sequence[Mask]) -> Operation | None:
    """Return the view of 3-D scores that gives them their heads; refuse views that change more
    than the leading dimensions."""
    shape = needed(one.graph.of(one.found.product.output)).shape
    views = views_of_scores(one) + [made for made in one.found.after if made.name in VIEWS]
    shapes = [needed(one.graph.of(made.output)).shape for made in views]
    spaces = [one.rank, *map(len, shapes)]
    for made, after in zip(views, shapes, strict=True):
        if after[-2:] != shape[-2:]:
            raise Refused(f"the view {where(made)} changes rows or columns of the scores")
    if not all(3 <= space <= 5 for space in spaces) or (one.rank == 3 and 5 in spaces):
        raise Refused("the scores have less than three or more than five dimensions")
    if one.rank == 3 and 4 in spaces:
        if one.found.is_transposed or one.final.name == "einsum":
            raise Refused("the result is transposed, and so are the heads of the mask")
        if spaces[-1] == 4:
            raise Refused(RESHAPED)
        return views[spaces.index(4) - 1]
    if len(views) % 2 or spaces[-1] != one.rank:
        raise Refused(RESHAPED)
    if views and not masks:
        raise Refused("the scores are viewed in another shape, though no mask needs it")
    return None


def view_sizes(one: Occurrence, operation: Operation, at: Operation) -> list[str] | None:
    """Return the sizes of a view as code, if they are the same at another place."""
    place = one.source.place(operation)
    if place is None or not isinstance(place.node, cst.Call):
        return None
    arguments = place.node.args
    if isinstance(place.node.func, cst.Attribute) and any(a.keyword for a in arguments):
        return None
    nodes = [argument.value for argument in arguments]
    if len(nodes) == 1 and isinstance(nodes[0], cst.Tuple | cst.List):
        nodes = [element.value for element in nodes[0].elements]
    codes = [code for node in nodes if (code := one.repeated(node, operation, at)) is not None]
    inside = one.base if at is one.final else one.body.branches(place.node)
    is_bound = all(one.body.is_bound(name, inside) for name in names_of_code(*codes))
    return codes if is_bound and len(codes) == len(nodes) else None


def unflattened(one: Occurrence, at: Operation) -> str:
    """Return the two sizes that the first dimension is made of."""
    fact = "the number of heads has no code where the result is made"
    sizes = needed(view_sizes(one, needed(one.folded), at), fact)
    if len(sizes) != 4:
        raise Refused(fact)
    return f"({sizes[0]}, {sizes[1]})"


def mask_suffix(one: Occurrence, mask: Mask, value: int | None, at: Operation) -> str | None:
    """Return what gives a mask the shape of the scores that SDPA makes."""
    known = one.graph.of(value)
    product = one.graph.of(one.found.product.output)
    if known is None or product is None:
        return None
    rank = len(known.shape)
    if one.folded is not None:
        if mask.space == 4 or rank < 3:
            return ""
        is_whole = known.shape[0] == product.shape[0] > 1
        return f".unflatten(0, {unflattened(one, at)})" if is_whole else None
    if one.rank == 3:
        return "[None]" if rank == 3 else ""
    if mask.space == one.rank:
        is_known = rank == 3 and known.origin in ("operation", "parameter", "buffer")
        return "[None]" if is_known and one.rank == 4 else ""
    views, index = views_of_scores(one), mask.step.operation.index
    before = [made for made in views if made.index < index]
    after = [made for made in views if made.index > index]
    if not before or not after:
        return None
    wide, narrow = view_sizes(one, before[-1], at), view_sizes(one, after[0], at)
    if wide is None or narrow is None or "-1" in wide:
        return None
    return f".expand({', '.join(wide)}).reshape({', '.join(narrow)})"


def is_merged(one: Occurrence) -> bool:
    """Return whether the result is viewed with dimensions merged: SDPA's may not be in order."""
    for reader in one.graph.readers.get(one.final.output or 0, []):
        if reader.name == "view":
            before, after = one.graph.of(reader.value(0)), one.graph.of(reader.output)
            if before is None or after is None or len(after.shape) <= len(before.shape):
                return True
    return False
