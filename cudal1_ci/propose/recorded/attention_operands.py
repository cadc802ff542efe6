"""Write queries, keys and values, before they were scaled or transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.attention_code import computes, followed, letters, ordered
from cudal1_ci.propose.recorded.attention_match import (
    SIZES,
    einsum_values,
    is_number,
    untransposed,
)
from cudal1_ci.propose.recorded.attention_occurrence import Occurrence, Refused, needed
from cudal1_ci.propose.recorded.attention_scale import Factor, factor_of
from cudal1_ci.propose.recorded.attention_text import Site
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import where


@dataclass(frozen=True)
class Operand:
    """Code of queries or keys."""

    code: str
    factors: tuple[Factor, ...] = ()
    """What it still has to be scaled by."""
    dropped: tuple[Site, ...] = ()
    """Statements that scaled it."""


@dataclass(frozen=True)
class Origin:
    """A value that an operand is made of, with what is left to do."""

    value: int
    is_transposed: bool
    factors: tuple[Factor, ...] = ()
    made: tuple[Operation, ...] = ()
    """The operations that scaled it."""
    reader: Operation | None = None
    """What reads it."""
    position: int = 0
    """Whether it is the first (0) or the second (1) operand."""


def queries_and_keys(one: Occurrence) -> tuple[Operand, Operand]:
    """Return queries and keys, both with the last dimension that they are multiplied over."""
    product = one.found.product
    if product.name == "einsum":
        fact = f"the einsum {where(product)} is no product of queries and keys"
        left, right, out = needed(letters(product), fact)
        batch, i, j = out[:-2], out[-2], out[-1]
        shared = [letter for letter in left if letter in right and letter not in out]
        if len(shared) != 1 or i not in left or j not in right:
            raise Refused(fact)
        d = shared[0]
        if {*left} != {*batch, i, d} or {*right} != {*batch, j, d}:
            raise Refused(fact)
        first, second = einsum_values(product)
        rows = Origin(first, is_transposed=False, reader=product)
        columns = Origin(second, is_transposed=False, reader=product, position=1)
        q = operand(one, rows, ordered(left, [*batch, i, d]))
        return q, operand(one, columns, ordered(right, [*batch, j, d]))
    start = 1 if product.name == "baddbmm" else 0
    fact = f"the product {where(product)} has an operand that is not known"
    queries = needed(product.value(start, "batch1" if start else "input"), fact)
    keys = product.value(start + 1, "batch2" if start else "mat2")
    keys = needed(product.value(start + 1, "other") if keys is None else keys, fact)
    if needed(one.graph.of(queries)).shape[:-2] != needed(one.graph.of(keys)).shape[:-2]:
        raise Refused("queries and keys have other leading dimensions, such as numbers of heads")
    q = operand(one, Origin(queries, is_transposed=False, reader=product), "")
    return q, operand(one, Origin(keys, is_transposed=True, reader=product, position=1), "")


def operand(one: Occurrence, whole: Origin, suffix: str) -> Operand:
    """Return the best code for queries or keys."""
    plain: list[Operand] = []
    turned: list[Operand] = []
    for origin in origins(one, whole):
        code, dropped = rebound(one, origin.made) or (
            one.code(origin.value, origin.reader, origin.position),
            (),
        )
        if code is None or (origin.factors and computes(code)):
            continue
        more = ".transpose(-2, -1)" if origin.is_transposed else ""
        code = followed(code, f"{more}{suffix}")
        if not suffix:
            code = packed(one, code, origin.value, origin.is_transposed)
        found = turned if origin.is_transposed else plain
        found.append(Operand(code, origin.factors, dropped))
    if not plain and not turned:
        fact = f"queries or keys have no code {where(one.final)}, where the result is made"
        raise Refused(fact)
    return (plain or turned)[-1]


def origins(one: Occurrence, given: Origin) -> Iterator[Origin]:
    """Yield values that an operand is made of, from the last to the first."""
    yield given
    maker = one.graph.maker.get(given.value)
    if maker is None or len(given.factors) > 2:
        return
    before = untransposed(one.call, maker) if given.is_transposed else None
    if before is not None:
        yield from origins(one, Origin(before, False, given.factors, given.made, maker))
        return
    name = maker.name.removesuffix("_")
    for position in {"mul": (1, 0), "div": (1,)}.get(name, ()):
        scaled = maker.value(1 - position)
        if scaled is None or not is_number(one.call, maker, position):
            continue
        factor = factor_of(one, maker, position)
        if factor is not None:
            factors = ((name, factor), *given.factors)
            made = (maker, *given.made)
            yield from origins(one, Origin(scaled, given.is_transposed, factors, made, maker))
            return


def rebound(one: Occurrence, made: tuple[Operation, ...]) -> tuple[str, tuple[Site, ...]] | None:
    """Return the name that was bound again when it was scaled (`q = q * scale`), with the
    statement to leave out."""
    if len(made) != 1:
        return None
    body = one.body
    readers = [r for r in one.graph.readers.get(made[0].output or 0, []) if r.name not in SIZES]
    try:
        site = one.own_site(made[0])
        reader = one.sites(readers[0])[-1][1].node if len(readers) == 1 else None
    except Refused:
        return None
    name = site.target
    if name is None or reader is None or one.inner(site.node) or body.whole(site) is None:
        return None
    operands = [one.argument_node(made[0], n, "other") for n in (0, 1)]
    if not any(isinstance(node, cst.Name) and node.value == name for node in operands):
        return None
    for mention in body.mentions(name):
        statement = body.statement(mention)
        is_known = (
            body.start(statement) <= body.start(site.statement)
            or statement in one.statements
            or body.is_inside(mention, one.place.node)
            or body.is_inside(mention, reader)
            or body.size_code(mention, name, name) is not None
        )
        if not is_known:
            return None
    return name, (site,)


def values(one: Occurrence) -> tuple[str, str]:
    """Return the code of the values, and what brings the result to its old form."""
    final, is_turned = one.final, one.found.is_transposed
    suffix = after = ".transpose(-2, -1)" if is_turned else ""
    if final.name == "einsum":
        fact = f"the einsum {where(final)} is no product of weights and values"
        left, right, out = needed(letters(final), fact)
        batch, i, j = left[:-2], left[-2], left[-1]
        free = [letter for letter in right if letter not in left]
        if len(left) != one.graph.num_dims(one.found.softmax.output) or len(free) != 1:
            raise Refused(fact)
        if {*right} != {*batch, j, *free} or {*out} != {*batch, i, *free}:
            raise Refused(fact)
        suffix = ordered(right, [*batch, j, *free])
        after = ordered([*batch, i, *free], out)
        value: int | None = einsum_values(final)[1]
    elif is_turned:
        value = final.value(0)
    else:
        value = final.value(1, "mat2")
        value = final.value(1, "other") if value is None else value
    code = needed(one.code(value, final, 1), f"the values have no code {where(final)}")
    weights = needed(one.graph.of(one.found.product.output))
    if not suffix and needed(one.graph.of(value)).shape[:-2] != weights.shape[:-2]:
        raise Refused("weights and values have other leading dimensions, such as numbers of heads")
    if is_turned:
        turn = one.graph.maker.get(value or 0)
        before = untransposed(one.call, turn)
        plain = None if before is None else one.code(before, turn)
        if plain is not None:
            return packed(one, plain, before, is_transposed=False), after
    whole = followed(code, suffix)
    is_plain = is_turned or not suffix
    return packed(one, whole, value, is_turned) if is_plain else whole, after


def packed(one: Occurrence, code: str, value: int | None, is_transposed: bool) -> str:
    """Return code of a tensor whose last dimension has no gaps: fused kernels need it."""
    known = one.graph.of(value)
    if known is None or len(known.stride) < 2:
        return code
    is_packed = known.stride[-2 if is_transposed else -1] == 1
    return code if is_packed else followed(code, ".contiguous()")
