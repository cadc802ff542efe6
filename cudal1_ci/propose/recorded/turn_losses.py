"""Write the losses of all turns of a loop as one call without a reduction."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused
from cudal1_ci.propose.recorded.source import bracketed

OF_CLASSES = frozenset(("cross_entropy", "nll_loss"))
OF_ELEMENTS = frozenset(
    ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
).union(("binary_cross_entropy_with_logits", "soft_margin_loss"))
IGNORED = -100
"""The target that cross_entropy leaves out of its mean."""


def loss(
    lift: Lift, node: cst.Call, name: str, operands: Sequence[cst.BaseExpression]
) -> Lifted | None:
    """Return the loss of each turn's inputs and targets, with its mean or sum; None where the
    operation is no loss."""
    if name not in OF_ELEMENTS | OF_CLASSES:
        return None
    given = {one.keyword.value: lift.code(one.value) for one in node.args if one.keyword}
    reduction = given.pop("reduction", '"mean"').strip("'\"")
    operands = [one for one in operands if one is not None]
    if given or len(operands) != 2 or reduction not in ("mean", "sum"):
        raise Refused
    x, y = (lift.lift_any(one) for one in operands)
    valid = y.valid if x.length == y.length else ""
    if valid and x.valid != valid:
        lift.need_even(x.code, y.code)
    if not valid:
        x, y = (lift.dense(one).first() for one in (x, y))
        if not (x.is_tensor and y.is_tensor):
            raise Refused
    if x.turns != 0 or y.turns != 0 or lift.rank(node) != 0:
        raise Refused
    function = f"{lift.functional}.{name}"
    if name in OF_ELEMENTS:
        if x.rank != y.rank:
            raise Refused
        code = f'{function}({x.code}, {y.code}, reduction="none")'
        if valid and (x.rank != 1 or name == "binary_cross_entropy"):
            raise Refused  # which raises for other numbers
        if valid:
            code = f"torch.where({valid}, {code}, 0).sum(1)"
            code += f" / {bracketed(valid)}.sum(1)" * (reduction == "mean")
            return Lifted(code, 0, 0, is_computed=True)
        code += ".flatten(1)" * (x.rank > 1) + f".{reduction}(1)" * (x.rank > 0)
        return Lifted(code, 0, 0, is_computed=True)
    if x.rank != y.rank + 1 or x.rank > 2 or lift.dtype(operands[1]) != "int64":
        raise Refused
    ignored = f"torch.where({valid}, {y.code}, {IGNORED})" if valid else y.code
    targets = lift.kept(ignored, "targets")
    if x.rank == 1:
        code = f'{function}({x.code}, {targets}, reduction="none")'
    else:
        code = f"{function}({bracketed(x.code)}.flatten(0, 1), {bracketed(targets)}.flatten(), "
        code += f'reduction="none").view_as({targets})'
        code += ".sum(1)"
    if reduction == "mean":  # of no target it is NaN
        counted = f"({targets} != {IGNORED})"
        code += f" / {counted}" + ".sum(1)" * (x.rank == 2)
    return Lifted(code, 0, 0, is_computed=True)
