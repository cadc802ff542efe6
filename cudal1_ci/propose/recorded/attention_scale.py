"""Write what the products of queries and keys are scaled by."""

from __future__ import annotations

from collections.abc import Iterable

from cudal1_ci.propose.recorded.attention_code import is_default, names_of_code
from cudal1_ci.propose.recorded.attention_match import beta
from cudal1_ci.propose.recorded.attention_occurrence import Occurrence, Refused, needed
from cudal1_ci.propose.recorded.attention_text import bare
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.source import bracketed

Factor = tuple[str, str]
"""`mul` or `div`, with code."""


def factor_of(one: Occurrence, operation: Operation, position: int) -> str | None:
    """Return the code of a number that an operation scales by."""
    name, value = "other", operation.value(position, "other")
    frame = operation.recorded.frame
    if value is not None:
        maker = one.graph.made_by(value, "full", "tensor")
        if maker is None:
            return None
        operation, position, name = maker, 1 if maker.name == "full" else 0, "fill_value"
    code = one.bound(one.argument_code(operation, position, name))
    is_free = code is not None and not names_of_code(code) & one.chain_names(frame)
    return bare(code) if code is not None and is_free else None


def unknown(one: Occurrence, operation: Operation) -> str:
    """Return that a factor has no code, for people."""
    return f"the factor {where(operation)} is not known {where(one.final)}"


def scale(one: Occurrence, q: str, k: str, still: Iterable[Factor]) -> str | None:
    """Return the scale, with what queries and keys still have to be scaled by; None if it is the
    one that SDPA has by default."""
    factors = [*still]
    product = one.found.product
    if product.name == "baddbmm" and one.argument_node(product, 4, "alpha") is not None:
        alpha = one.bound(one.argument_code(product, 4, "alpha"))
        factors.append(("mul", bare(needed(alpha, unknown(one, product)))))
    is_masked = product.name == "baddbmm" and beta(product) != 0
    for step in one.found.steps:
        is_masked |= step.kind in ("add", "sub")
        if step.kind == "gain" and is_masked:
            raise Refused("the mask is scaled too: it is added before the scores are")
        if step.kind in ("mul", "div"):
            if is_masked:
                raise Refused("the mask is scaled too: it is added before the scores are")
            factor = factor_of(one, step.operation, step.position)
            factors.append((step.kind, needed(factor, unknown(one, step.operation))))
    if not factors:
        return "1.0"
    if len(factors) == 1 and is_default(factors[0], q, k):
        return None
    code = ""
    for kind, factor in factors:
        if not code:
            code = factor if kind == "mul" else f"1.0 / {bracketed(factor)}"
            continue
        first = code if code.startswith("1.0 / ") else bracketed(code)
        code = f"{first} {'*' if kind == 'mul' else '/'} {bracketed(factor)}"
    return code


def with_gains(one: Occurrence, q: str) -> str:
    """Return queries that are scaled by what each head's scores are scaled by."""
    for step in one.found.steps:
        if step.kind == "gain":
            gain = one.code(step.operation.value(step.position, "other"))
            sign = "/" if step.operation.name.startswith("div") else "*"
            q = f"{bracketed(q)} {sign} {bracketed(needed(gain, unknown(one, step.operation)))}"
    return q
