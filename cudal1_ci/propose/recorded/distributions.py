"""Make the distributions of all turns of a loop as one."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.source import bracketed

PREFIX = "torch.distributions."
OF_ELEMENTS = frozenset(
    ("Normal", "Laplace", "LogNormal", "Bernoulli", "Exponential", "Gamma", "Beta", "Poisson")
)
"""Distributions whose parameters are of one shape: that of a sample."""
OF_ROWS = frozenset(("Categorical",))
"""Distributions whose parameters have one more dimension, the last one."""
METHODS = ("log_prob", "entropy")


def distribution(lift: Lift, node: cst.Call) -> Lifted | None:
    """Return a distribution of each turn's parameters, or its `log_prob` and `entropy`; None for
    another call."""
    module, _, kind = (names_of(lift.file.module, "").dotted(node.func) or "").rpartition(".")
    if kind in OF_ELEMENTS | OF_ROWS and f"{module}.".startswith(PREFIX):
        return made(lift, node, kind)
    if not isinstance(node.func, cst.Attribute) or node.func.attr.value not in METHODS:
        return None
    owner = node.func.value
    law = lift.known.get(owner.value) if isinstance(owner, cst.Name) else None
    if isinstance(owner, cst.Call):
        law = distribution(lift, owner)
    return asked(lift, node, law) if law is not None and law.is_distribution else None


def made(lift: Lift, node: cst.Call, kind: str) -> Lifted:
    """Return the distribution of all turns' parameters."""
    new, ranks, fixed = {}, set(), [0]
    for argument in node.args:
        value = argument.value
        if argument.star:
            raise Refused
        if lift.varies(value):
            x = lift.lift(value).first()
            if x.turns != 0:
                raise Refused
            new[value] = x.code
            ranks.add(x.rank)
        else:
            lift.check_pure(value)
            fixed.append(rank_of(lift, node, value))
    if len(ranks) != 1 or max(fixed) > max(ranks):
        raise Refused
    rank = ranks.pop() - (kind in OF_ROWS)
    if rank < 0:
        raise Refused
    code = lift.kept(lift.swapped(node, new), "distribution")
    return Lifted(code, rank, 0, is_computed=True, is_distribution=True)


def rank_of(lift: Lift, call: cst.Call, node: cst.BaseExpression) -> int:
    """Return the dimensions of an argument of a call that is the same in all turns."""
    if node in lift.ranks:
        return lift.rank(node)
    if isinstance(node, cst.BaseNumber) or lift.code(node) in ("None", "True", "False"):
        return 0
    near = [made for one in within(call) for made in lift.operations.get(one, ())]
    held = lift.source.scope(near[0]).get(lift.code(node)) if near else None
    if held is None or held.kind not in ("literal", "value"):
        raise Refused
    return max(lift.source.graph.num_dims(held.value), 0)


def asked(lift: Lift, node: cst.Call, law: Lifted) -> Lifted:
    """Return what a method of a distribution returns for all turns."""
    given = [one.value for one in node.args]
    is_entropy = lift.code(node.func).endswith(".entropy")
    if len(given) != (not is_entropy) or any(one.keyword or one.star for one in node.args):
        raise Refused
    code = ""
    if given:
        x = lift.lift(given[0])
        turns = x.rank - law.rank  # before the dimensions that parameters have
        if x.turns is None or turns < 0:
            raise Refused
        x = x.first() if x.is_kept or x.turns != turns else x
        code = x.code if x.turns == turns else f"{bracketed(x.code)}.movedim(0, {turns})"
        law = replace(law, rank=x.rank, turns=turns)
    if lift.rank(node) != law.rank:
        raise Refused
    method = "entropy" if is_entropy else "log_prob"
    return Lifted(f"{law.code}.{method}({code})", law.rank, law.turns, is_computed=True)
