"""Replace hand-written attention by `scaled_dot_product_attention`.

A match spans several statements: scores of queries and keys, scaled before or after the product, a
mask that is filled in or added, a softmax over the keys, dropout, and the product with the values.
There is no match if the weights are used elsewhere: they would still be computed. The module also
handles `nn.MultiheadAttention`, which computes its weights by default even if they are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from cudal1_ci.propose.rewrites.fallbacks import fallbacks
from cudal1_ci.propose.rewrites.layout import with_argument
from cudal1_ci.propose.rewrites.numbers import Numbers, numbers_of
from cudal1_ci.propose.rewrites.ranks import Ranks, rank_of, ranks_of
from cudal1_ci.propose.rewrites.rewrite import (
    Replacement,
    Rewrite,
    Site,
    SourceEdit,
    Swap,
    expressions,
    short,
)
from cudal1_ci.propose.rewrites.scales import number
from cudal1_ci.propose.rewrites.steps import descendants
from cudal1_ci.propose.rewrites.terms import Names, Term, code, is_self

MASKED_BELOW = -1e4
"""Fill values below this stand for minus infinity: their exponential is 0 in every dtype."""


@dataclass(frozen=True)
class Scores:
    """The parts of attention scores. `asked`, `scale` and `mask` are templates (the query `Q` as it
    is, or scaled first); `captured` is what they capture.
    """

    query: Term
    key: Term
    captured: dict[str, Term]
    asked: str = "Q"
    scale: str = "1.0"
    mask: str | None = None
    is_causal: bool = False


@dataclass(frozen=True)
class TargetFacts:
    """Facts about the names and attributes that a target reads."""

    numbers: Numbers
    ranks: Ranks


def fused(site: Site) -> SourceEdit | None:
    """Replace every attention of a target by one call, except fallbacks for a torch without it."""
    known = TargetFacts(numbers_of(site), ranks_of(site))
    left = fallbacks(site.module, "scaled_dot_product_attention")

    def matched(term: Term) -> Replacement | None:
        return attention(term, known) if term.node not in left else None

    return expressions(matched)(site)


def attention(term: Term, known: TargetFacts) -> Replacement | None:
    """Match softmax(q @ k^T * scale + mask) @ v."""
    pair = weighted_values(term)
    if pair is None:
        return None
    weights, value = pair
    dropout = None
    captured: dict[str, Term] = {}
    if weights.op == "dropout_module":
        dropout = f"{weights.value}.p if self.training else 0.0"
        weights = weights.args[0]
    elif weights.op == "dropout":
        share, training = weights.get("p"), weights.get("training")
        if share is None or training is None or not is_training(training):
            return None
        dropout = "P if self.training else 0.0"
        captured["P"] = share
        weights = weights.args[0]
    if weights.op != "softmax" or number(weights.get("dim")) != -1:
        return None
    scores = read_scores(weights.args[0], known)
    if scores is None:
        return None
    parts = [scores.asked, "X", "V"]
    if scores.mask is not None:
        parts.append(f"attn_mask={scores.mask}")
    if scores.is_causal:
        parts.append("is_causal=True")
    if dropout is not None:
        parts.append(f"dropout_p={dropout}")
    parts.append(f"scale={scores.scale}")
    bindings = {"Q": scores.query, "X": scores.key, "V": value, **scores.captured, **captured}
    return Replacement(f"F.scaled_dot_product_attention({', '.join(parts)})", bindings)


def weighted_values(term: Term) -> tuple[Term, Term] | None:
    """Return weights and values of weights @ v."""
    if term.op in ("matmul", "bmm") and len(term.args) == 2:
        return term.args[0], term.args[1]
    subscripts = einsum_subscripts(term)
    if subscripts is None:
        return None
    left, right, out = subscripts
    is_product = left[:-2] == right[:-2] == out[:-2] and left[-1] == right[-2]
    if is_product and out[-2:] == left[-2] + right[-1]:
        return term.args[1], term.args[2]
    return None


def einsum_subscripts(term: Term) -> tuple[str, str, str] | None:
    """Return `("bhij", "bhjd", "bhid")` of an einsum of two tensors with three indices or more."""
    if term.op != "einsum" or len(term.args) != 3 or term.args[0].op != "const":
        return None
    left, comma, rest = str(term.args[0].value).replace(" ", "").partition(",")
    right, arrow, out = rest.partition("->")
    if not (comma and arrow) or min(map(len, (left, right, out))) < 3 or "," in right:
        return None
    return left, right, out


def is_training(term: Term) -> bool:
    """Return whether a term is `self.training`."""
    return term.op == "attr" and term.value == "training" and term.args[0].value == ("self", 0)


def read_scores(term: Term, known: TargetFacts) -> Scores | None:
    """Return scores with at most one mask."""
    if term.op == "masked_fill" and len(term.args) == 1:
        fill, condition = term.get("value"), term.get("mask")
        inner = scaled_product(term.args[0], known)
        if inner is None or condition is None or (number(fill) or 0.0) > MASKED_BELOW:
            return None
        if is_upper_triangle(condition):
            return replace(inner, is_causal=True)
        if condition.op == "eq" and number(condition.args[1]) == 0:
            return masked(inner, condition.args[0], "M != 0")
        return masked(inner, condition, "torch.logical_not(M)")
    if term.op == "add" and len(term.args) == 2:
        for scores, mask in (term.args, term.args[::-1]):
            inner = scaled_product(scores, known)
            if inner is not None:
                # A number lacks the axes that a mask must have.
                has_axes = known.numbers.kind(mask) in (None, "given")
                return masked(inner, mask, "M") if has_axes else None
    return scaled_product(term, known)


def masked(scores: Scores, mask: Term, template: str) -> Scores:
    return replace(scores, mask=template, captured={**scores.captured, "M": mask})


def scaled_product(term: Term, known: TargetFacts) -> Scores | None:
    """Return scores of one product and one factor, after the product or on the query."""
    for product, factor, operator in factors(term):
        pair = unscaled(product, known.ranks)
        if pair is not None:
            return scaled(*pair, factor, operator, known.numbers)
    pair = unscaled(term, known.ranks)
    if pair is None:
        return None
    query, key = pair
    for scaled_query, factor, operator in factors(query):
        if known.numbers.kind(factor) == "number":
            return scaled(scaled_query, key, factor, operator, known.numbers)
    return Scores(query, key, {})


def factors(term: Term) -> Iterator[tuple[Term, Term, str]]:
    """Yield what a term is a multiple of, the factor, and the operator."""
    if term.op in ("mul", "div") and len(term.args) == 2 and not term.named:
        yield (*term.args, "*" if term.op == "mul" else "/")
        if term.op == "mul":
            yield (*term.args[::-1], "*")


def scaled(query: Term, key: Term, factor: Term, operator: str, numbers: Numbers) -> Scores | None:
    """Return scores with the factor as `scale`, which accepts only numbers. A tensor of one value
    for each query scales the query instead. None if the tensor may have one value for each key.
    """
    kind = numbers.kind(factor)
    if kind is None:
        return None
    if kind == "number":
        scale = "D" if operator == "*" else "1.0 / D"
        return Scores(query, key, {"D": factor}, scale=scale)
    return Scores(query, key, {"D": factor}, asked=f"Q {operator} D")


def unscaled(term: Term, ranks: Ranks) -> tuple[Term, Term] | None:
    """Return query and key of q @ k^T; `k.transpose(2, 3)` counts only for a key of four
    dimensions.
    """
    if term.op in ("matmul", "bmm") and len(term.args) == 2:
        query, transposed = term.args
        if transposed.op == "mT":
            return query, transposed.args[0]
        if transposed.op == "transpose":
            dims = {number(transposed.get("dim0")), number(transposed.get("dim1"))}
            (key,) = transposed.args
            if dims == {-1.0, -2.0} or (dims == {2.0, 3.0} and rank_of(key, ranks) == 4):
                return query, key
    subscripts = einsum_subscripts(term)
    if subscripts is not None:
        left, right, out = subscripts
        is_qk = left[:-2] == right[:-2] == out[:-2] and left[-1] == right[-1]
        if is_qk and out[-2:] == left[-2] + right[-2]:
            return term.args[1], term.args[2]
    return None


def is_upper_triangle(term: Term) -> bool:
    """Return whether a mask is all above the diagonal of a square: what causal attention hides."""
    while term.op in ("bool", "to", "type") and term.args:
        term = term.args[0]
    if term.op == "eq" and number(term.args[1]) == 0:
        inner = term.args[0]
        return inner.op == "tril" and len(inner.args) == 1 and is_square(inner.args[0])
    if term.op == "invert":
        inner = term.args[0]
        return inner.op == "tril" and len(inner.args) == 1 and is_square(inner.args[0])
    if term.op != "triu" or not term.args or not is_square(term.args[0]):
        return False
    diagonal = term.get("diagonal") or (term.args[1] if len(term.args) > 1 else None)
    return diagonal is not None and number(diagonal) == 1


def is_square(term: Term) -> bool:
    """Return whether a term is `torch.ones(t, t)` or `torch.ones((t, t))`."""
    if term.op != "ones":
        return False
    sizes = term.args[0].args if term.args and term.args[0].op == "tuple" else term.args
    return len(sizes) == 2 and sizes[0] == sizes[1]


def without_weights(site: Site) -> SourceEdit | None:
    """Add `need_weights=False` to `out, _ = self.attention(q, k, v)`."""
    functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
    found: list[str] = []
    for method in site.methods():
        new: dict[cst.CSTNode, cst.BaseExpression] = {
            call: with_argument(call, "need_weights", cst.Name("False"))
            for call in attention_calls(method, site.names)
        }
        if new:
            changed = method.visit(Swap(new))
            assert isinstance(changed, cst.FunctionDef)
            functions[method] = changed
            found += [f"`{short(code(a))}` -> `{short(code(b))}`" for a, b in new.items()]
    return SourceEdit(functions, tuple(found)) if functions else None


def attention_calls(method: cst.FunctionDef, names: Names) -> Iterator[cst.Call]:
    """Yield calls of an nn.MultiheadAttention without a weights option and whose weights are not
    read.
    """
    nodes = descendants(method)
    stored = [name for one in nodes for name in names_stored_by(one)]
    for node in nodes:
        call = None
        if isinstance(node, cst.Assign) and len(node.targets) == 1:
            pair = names_stored_by(node.targets[0])
            if len(pair) == 2:
                is_read = sum(isinstance(one, cst.Name) and one.value == pair[1] for one in nodes)
                call = node.value if is_read == stored.count(pair[1]) else None
        elif isinstance(node, cst.Subscript) and code(node).endswith("[0]"):
            call = node.value
        if isinstance(call, cst.Call) and is_attention(call, names):
            yield call


def names_stored_by(node: cst.CSTNode) -> list[str]:
    """Return `["a", "b"]` for the target of `a, b = ...`, or of a loop."""
    if not isinstance(node, cst.AssignTarget | cst.For):
        return []
    target = node.target
    several = target.elements if isinstance(target, cst.Tuple) else [cst.Element(target)]
    names = [one.value.value for one in several if isinstance(one.value, cst.Name)]
    return names if len(names) == len(several) else []


def is_attention(call: cst.Call, names: Names) -> bool:
    """Return whether a call is `self.attention(q, k, v, ...)` without a weights option."""
    function = call.func
    if not isinstance(function, cst.Attribute) or not is_self(function.value):
        return False
    made = names.attributes.get(function.attr.value)
    if made is None or names.dotted(made.func) != "torch.nn.MultiheadAttention":
        return False
    keywords = {arg.keyword.value for arg in call.args if arg.keyword}
    is_plain = not any(arg.star for arg in call.args) and len(call.args) - len(keywords) <= 4
    return is_plain and not {"need_weights", "average_attn_weights"} & keywords


REWRITES = (
    Rewrite(
        name="attention_weights",
        family="operation fusion",
        precondition="an nn.MultiheadAttention whose weights are not read where it is called, "
        "nor by a hook",
        why="attention that need not return its weights is computed in tiles, and the queries x "
        "keys matrix is never written to memory, nor its mean over the heads.",
        apply=without_weights,
    ),
    Rewrite(
        name="sdpa",
        family="operation fusion",
        precondition="softmax over the keys of query-key products, scaled by a number or by a "
        "tensor of one value for all keys, at most one mask, times the values; a query whose keys "
        "are all masked may give NaN or 0; hooks on the modules "
        "that made the weights, a softmax or a dropout, are not called any more; not in a "
        "branch for a torch without it",
        why="scaled_dot_product_attention computes attention in tiles and never writes the "
        "queries x keys matrix to memory.",
        apply=fused,
    ),
)
