"""Write one attention that was matched, where the text guarantees that it is one in every call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst

from cudal1_ci.propose.recorded.attention_branches import SCATTERED, check_stay, guarded, read, uses
from cudal1_ci.propose.recorded.attention_causal import is_causal
from cudal1_ci.propose.recorded.attention_code import followed, names_of_code
from cudal1_ci.propose.recorded.attention_dropout import dropout
from cudal1_ci.propose.recorded.attention_masks import mask_code
from cudal1_ci.propose.recorded.attention_match import Attention
from cudal1_ci.propose.recorded.attention_occurrence import Occurrence, Refused, located
from cudal1_ci.propose.recorded.attention_operands import Operand, queries_and_keys, values
from cudal1_ci.propose.recorded.attention_scale import scale, with_gains
from cudal1_ci.propose.recorded.attention_views import folded, is_merged, unflattened
from cudal1_ci.propose.recorded.rule import Call, Change, shown


@dataclass(frozen=True)
class Written:
    """An attention with the change that calls PyTorch's own."""

    node: cst.CSTNode
    """The expression of its result."""
    change: Change
    is_guarded: bool
    """Whether the old lines stay, for calls that take another branch."""


def written(call: Call, found: Attention, *, causal: bool) -> Written:
    """Return the change for an attention: with its masks as an argument, or, where `causal`, with
    none where they are known to be a triangle."""
    one = located(call, found)
    masks, statements = read(one)
    one = replace(one, masks=masks, statements=statements, folded=folded(one, masks))
    q, k = queries_and_keys(one)
    v, after = values(one)
    check_stay(one, names_of_code(q.code, k.code))
    dropped = {site.statement: site for site in (*q.dropped, *k.dropped)}
    others = uses(one, q.code, k.code, dropped)
    if causal and not is_causal(one):
        raise Refused
    masks_code, build = ("True", {}) if causal else mask_code(one, q.code)
    mask = None if masks_code is None else ("is_causal" if causal else "attn_mask", masks_code)
    code = call_code(one, q, k, v, mask) + after
    own = [*one.statements, *others.checks]
    if others.guards:
        if build:
            raise Refused(SCATTERED)
        new = guarded(one, code, [*own, *dropped], others.guards)
    else:
        gone = one.body.without(node for node in own if node not in build)
        again = {node: f"{site.target} = {site.target}" for node, site in dropped.items()}
        new = {**others.sizes, **dict.fromkeys(gone, ""), **again, **build, one.place.node: code}
    change = Change(
        file=one.place.file,
        new=new,
        found=shown(one.final, one.source),
        modules=one.source.functional(one.place.file)[1],
    )
    return Written(one.place.node, change, bool(others.guards))


def call_code(one: Occurrence, q: Operand, k: Operand, v: str, mask: tuple[str, str] | None) -> str:
    """Return the call, in the shape of the old result."""
    before = after = ""
    if one.folded is not None:
        before = f".unflatten(0, {unflattened(one, one.final)})"
        after = "" if one.graph.num_dims(one.final.output) == 4 else ".flatten(0, 1)"
    elif one.rank == 3:
        before, after = "[None]", "[0]"
    named: dict[str, str | None] = {
        **dict([mask] if mask is not None else []),
        "dropout_p": dropout(one),
        "scale": scale(one, q.code, k.code, [*q.factors, *k.factors]),
    }
    given = [
        *(followed(code, before) for code in (with_gains(one, q.code), k.code, v)),
        *(f"{name}={code}" for name, code in named.items() if code is not None),
    ]
    prefix, _ = one.source.functional(one.place.file)
    is_copied = ".contiguous()" if is_merged(one) else ""
    return f"{prefix}.scaled_dot_product_attention({', '.join(given)}){after}{is_copied}"
