"""Write the masks of an attention as one argument."""

from __future__ import annotations

import math

import libcst as cst

from cudal1_ci.propose.recorded.attention_code import followed, inverted, names_of_code
from cudal1_ci.propose.recorded.attention_match import Step
from cudal1_ci.propose.recorded.attention_occurrence import Mask, Occurrence, Refused, needed
from cudal1_ci.propose.recorded.attention_text import bare, is_none_test
from cudal1_ci.propose.recorded.attention_views import mask_suffix
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.near import line_of, where
from cudal1_ci.propose.recorded.source import bracketed

MASKED_BELOW = -1e4
"""Weights of scores like this are zero, whatever is added to them."""
LOWEST_HALF = -65504.0
ADDED = ("add", "sub", "baddbmm")


def mask_code(one: Occurrence, q: str) -> tuple[str | None, dict[cst.CSTNode, str]]:
    """Return the argument for all masks, and statements that make it."""
    masks = one.masks
    is_sum = all(mask.step.kind in ADDED and not mask.branches for mask in masks)
    if is_sum or len(masks) == 1:
        codes = [code for mask in masks if (code := inline_mask(one, mask, q)) is not None]
        if len(codes) == len(masks):
            return " + ".join(codes) or None, {}
    return built_mask(one, q)


def inline_mask(one: Occurrence, mask: Mask, q: str) -> str | None:
    """Return code for one mask that can stand in the call."""
    step = mask.step
    guard = is_none_test(mask.branches[0]) if mask.branches else None
    if len(mask.branches) > 1 or (mask.branches and guard is None) or step.kind == "baddbmm":
        return None
    code = added(one, mask) if step.kind in ADDED else filled(one, mask, q)
    if guard is None or code is None or code == guard:
        return code
    before, after = one.source.scope(step.operation), one.source.scope(one.final)
    root = guard.split(".")[0]
    return f"None if {guard} is None else {code}" if before.get(root) == after.get(root) else None


def added(one: Occurrence, mask: Mask) -> str | None:
    """Return code for a mask that is added, where the result is computed."""
    step = mask.step
    value = step.operation.value(step.position, "other")
    code = one.bound(
        given_code(one, step.operation, step.position, value, one.final), mask.branches
    )
    suffix = None if code is None else mask_suffix(one, mask, value, one.final)
    if code is None or suffix is None:
        return None
    return followed(f"-{bracketed(code)}" if step.kind == "sub" else code, suffix)


def filled(one: Occurrence, mask: Mask, q: str) -> str | None:
    """Return code for a condition where scores are filled, where the result is computed."""
    step = mask.step
    codes = [condition(one, step, one.final), fill_code(one, step, one.final)]
    hidden, fill = (one.bound(code, mask.branches) for code in codes)
    suffix = mask_suffix(one, mask, condition_value(step), one.final)
    if hidden is None or fill is None or suffix is None:
        return None
    if fill_number(one, step) == -math.inf:
        return followed(hidden if step.kind == "keep" else inverted(hidden), suffix)
    hidden = inverted(hidden) if step.kind == "keep" else hidden
    return f"{bracketed(q)}.new_zeros(()).masked_fill({hidden}, {fill}){suffix}"


def condition_position(step: Step) -> int:
    return 1 if step.operation.name.startswith("masked_fill") else 0


def condition_value(step: Step) -> int | None:
    return step.operation.value(condition_position(step), "mask")


def condition(one: Occurrence, step: Step, at: Operation) -> str | None:
    """Return the code of the boolean mask."""
    value = condition_value(step)
    known = one.graph.of(value)
    if known is None or known.dtype != "bool":
        return None
    return given_code(one, step.operation, condition_position(step), value, at)


def given_code(
    one: Occurrence, operation: Operation, position: int, value: int | None, at: Operation
) -> str | None:
    """Return a tensor argument's code at another place: as it is written if it can be, so that no
    cast is lost that did nothing in this call."""
    node = one.argument_node(operation, position, "mask")
    code = None if node is None else one.repeated(node, operation, at)
    return one.source.expression(value, at=at) if code is None else code


def fill_position(step: Step) -> int:
    return 1 if step.kind == "fill" and step.operation.name == "where" else 2


def fill_number(one: Occurrence, step: Step) -> float | None:
    """Return what the masked scores are."""
    operation, position = step.operation, fill_position(step)
    value = operation.value(position, "value")
    if value is not None:
        maker = one.graph.made_by(value, "full", "tensor")
        if maker is None or one.graph.num_dims(value) != 0:
            return None
        found = maker.literal(1 if maker.name == "full" else 0, "fill_value")
    else:
        found = operation.literal(position, "value")
    return float(found) if isinstance(found, int | float) else None


def fill_code(one: Occurrence, step: Step, at: Operation) -> str | None:
    """Return the code of what the masked scores are."""
    operation, position = step.operation, fill_position(step)
    fact = f"the masked scores {where(operation)} are not low enough to count for nothing"
    number = needed(fill_number(one, step), fact)
    if not number <= MASKED_BELOW:
        raise Refused(fact)
    value = operation.value(position, "value")
    if value is not None:
        return one.source.expression(value, at=at)
    before = (*one.found.extra, *(other.operation for other in one.found.steps))
    is_cast = any(made.name in CASTS and made.index < operation.index for made in before)
    if is_cast and -math.inf < number < LOWEST_HALF:
        fact = "half-precision scores are cast so that they can hold the number of masked ones"
        raise Refused(fact)
    if at is operation:
        node = one.argument_node(operation, position, "value")
        return None if node is None else cst.Module([]).code_for_node(node)
    return one.argument_code(operation, position, "value")


def built_mask(one: Occurrence, q: str) -> tuple[str, dict[cst.CSTNode, str]]:
    """Return a name for all masks, with the statements that make it where the scores were
    masked."""
    name = one.body.free_name("attn_mask")
    new: dict[cst.CSTNode, str] = {}
    zeros = f"{bracketed(q)}.new_zeros(())"
    for number, mask in enumerate(one.masks):
        site, earlier = mask.site, one.masks[:number]
        if site.statement is one.place.statement or site.target is None:
            raise Refused(f"line {line_of(mask.step.operation)} does more than mask the scores")
        is_set = any({*other.branches} <= {*mask.branches} for other in earlier)
        code = mask_there(one, mask)
        if mask.step.kind in ADDED:
            is_negative = mask.step.kind == "sub"
            right = f"-{bracketed(code)}" if is_negative else code
            if earlier:
                both = f"{name} {'-' if is_negative else '+'} {code}"
                right = both if is_set else f"{right} if {name} is None else {both}"
        else:
            base = name if is_set else f"({zeros} if {name} is None else {name})"
            right = f"{base if earlier else zeros}.{code}"
        lines = [new[site.statement]] if site.statement in new else []
        new[site.statement] = "\n".join([*lines, f"{name} = {right}"])
    if one.masks[0].branches:
        fact = "masks are applied in branches, and so is the product"
        statement = one.own_site(one.found.product, fact).statement
        if statement in new or statement is one.place.statement or one.inner(statement):
            raise Refused(fact)
        new[statement] = f"{name} = None"
    return name, new


def mask_there(one: Occurrence, mask: Mask) -> str:
    """Return a mask's code where it is applied."""
    step, operation = mask.step, mask.step.operation
    other_shape = f"the mask {where(operation)} has another shape than the scores"
    if step.kind in ADDED:
        position = 0 if step.kind == "baddbmm" else step.position
        node = one.argument_node(operation, position, "other")
        code = bare(one.body.file.code(needed(node, f"the mask {where(operation)} has no code")))
        beta = one.argument_node(operation, 3, "beta") if step.kind == "baddbmm" else None
        if beta is not None:
            code = f"{bracketed(one.body.file.code(beta))} * {bracketed(code)}"
        value = operation.value(position, "other")
        suffix = needed(mask_suffix(one, mask, value, operation), other_shape)
        code = f"{bracketed(code)}{suffix}"
        names = names_of_code(code)
    else:
        no_code = f"the mask {where(operation)} is not boolean, or has no code there"
        hidden = needed(condition(one, step, operation), no_code)
        fill = needed(fill_code(one, step, operation), no_code)
        suffix = needed(mask_suffix(one, mask, condition_value(step), operation), other_shape)
        hidden = inverted(hidden) if step.kind == "keep" else hidden
        code = f"masked_fill({followed(hidden, suffix)}, {fill})"
        names = names_of_code(f"x.{code}")
    if names & one.chain_names(one.final.recorded.frame):
        raise Refused(f"the mask {where(operation)} is computed from the scores")
    return code
