"""Rewrite reductions and poolings that reduce nothing, compute unused results, or read their input
too often.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.rewrites.patterns import Bindings
from cudal1_ci.propose.rewrites.rewrite import Replacement, Rewrite, Rule, expressions, rule
from cudal1_ci.propose.rewrites.scales import number
from cudal1_ci.propose.rewrites.terms import Term

SAME_SIZE = {
    "relu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square",
    "silu", "mish", "softplus", "log1p", "contiguous", "clone", "detach",
}  # fmt: skip
"""Operations of one tensor whose result has its shape."""
CHOOSING = {"amax", "amin"}
"""Reductions that keep the type of their input; a sum of integers does not."""
REDUCING = {"sum", "mean", "logsumexp", *CHOOSING}


def keeps_dims(term: Term) -> bool | None:
    """Return whether a reduction keeps its dimensions; None if its text does not say, or has other
    arguments.
    """
    if len(term.args) != 1 or term.get("dim") is None:
        return None
    if {name for name, _ in term.named} - {"dim", "keepdim"}:
        return None
    keeps = term.get("keepdim")
    if keeps is None:
        return False
    return True if keeps.value is True else None


def extremum(term: Term) -> Replacement | None:
    """Replace `x.max(dim=1)[0]`, whose indices are not read."""
    # A call of amax itself is not a subscript.
    if term.op not in CHOOSING or not isinstance(term.node, cst.Subscript | cst.Attribute):
        return None
    keeps, dim = keeps_dims(term), term.get("dim")
    if keeps is None or dim is None:
        return None
    option = ", keepdim=True" if keeps else ""
    return Replacement(f"torch.{term.op}(X, dim=K{option})", {"X": term.args[0], "K": dim})


def of_one(term: Term) -> Replacement | None:
    """Remove a reduction of one number in `logsumexp(x.sum(1, keepdim=True), dim=1)`: the number is
    its own sum.
    """
    keeps, dim = keeps_dims(term) if term.op in REDUCING else None, term.get("dim")
    if keeps is None or dim is None:
        return None
    inner = made = term.args[0]
    while made.op in SAME_SIZE and len(made.args) == 1 and not made.named:
        made = made.args[0]
    if made.op not in REDUCING or keeps_dims(made) is not True or not dims(term) <= dims(made):
        return None
    if made.op in CHOOSING and term.op not in (*CHOOSING, "mean"):
        return None
    return Replacement("X" if keeps else "X.squeeze(K)", {"X": inner, "K": dim})


def dims(term: Term) -> set[Term]:
    """Return the dimensions of a reduction."""
    dim = term.get("dim")
    return set() if dim is None else set(dim.args) if dim.op == "tuple" else {dim}


def pools_in_a_row(term: Term) -> Replacement | None:
    """Merge `F.max_pool2d(F.max_pool2d(x, 2), 3)`: neither overlaps, and neither pads."""
    if "_pool" not in term.op or len(term.args) != 1 or term.args[0].op != term.op:
        return None
    inner = term.args[0]
    if len(inner.args) != 1 or [name for name, _ in (*term.named, *inner.named)] != SIZE * 2:
        return None
    sizes = [number(one.get("kernel_size")) for one in (term, inner)]
    if not all(size and size.is_integer() for size in sizes if size is not None) or None in sizes:
        return None
    whole = int(sizes[0] or 0) * int(sizes[1] or 0)
    return Replacement(f"F.{term.op}(X, {whole})", {"X": inner.args[0]})


SIZE = ["kernel_size"]
NORM = "torch.linalg.vector_norm"


def norm_rules() -> Iterator[Rule]:
    """Yield rules for sums of absolute values, or of squares under a root, over one or several
    dimensions.
    """
    for option in ("", ", keepdim=True"):
        tail = f"dim=K{option})"
        yield rule(f"sum(abs(X), dim=D{option})", f"{NORM}(X, 1, dim=D{option})")
        for square in ("pow(X, 2)", "square(X)"):
            yield rule(f"sqrt(sum({square}, dim=D{option}))", f"{NORM}(X, dim=D{option})")
            yield rule(
                f"mean({square}, {tail}",
                f"({NORM}(X, {tail} / X.shape[K] ** 0.5).square()",
                is_not_last,
            )


def is_not_last(bound: Bindings) -> bool:
    """Return whether a normalization over the dimension is not one operation in torch."""
    return number(bound["K"]) != -1


def distance_rules() -> Iterator[Rule]:
    """Yield rules for the mean square of a difference. (torch's l1_loss makes the same passes as
    the code that it would replace.)
    """
    for square in ("pow(sub(A, B), 2)", "square(sub(A, B))", "mul(sub(A, B), sub(A, B))"):
        yield rule(f"mean({square})", "F.mse_loss(A, B)", is_of_tensors)


def is_of_tensors(bound: Bindings) -> bool:
    """Return whether neither operand is certainly a number."""
    return not {bound["A"].op, bound["B"].op} & {"const", "msqrt", "mlog", "mexp"}


REWRITES = (
    Rewrite(
        name="reduction_of_one",
        family="algebra",
        precondition="a sum, mean, logsumexp or extremum over a dimension that an earlier one has "
        "reduced and kept",
        why="over one number each of them is that number: nothing is launched (a logsumexp makes "
        "several kernels).",
        apply=expressions(of_one),
    ),
    Rewrite(
        name="extremum",
        family="algebra",
        precondition="the values alone of max or min over a dimension; where several are the "
        "largest they share the gradient, which max gives to one of them",
        why="amax and amin look for no index: less arithmetic, and no tensor of 64-bit integers "
        "next to the values.",
        apply=expressions(extremum),
    ),
    Rewrite(
        name="vector_norm",
        family="operation fusion",
        precondition="a sum of absolute values, the root of a sum of squares, or a mean of squares "
        "over a dimension that is not plainly the last one, of floating-point numbers",
        why="a norm reads its input once and writes one number a row, where absolute values or "
        "squares are written and read again.",
        apply=expressions(*norm_rules()),
    ),
    Rewrite(
        name="mse_loss",
        family="operation fusion",
        precondition="the mean over all of the square of a difference of two tensors; torch warns "
        "where their shapes differ",
        why="the loss makes one pass where the difference is written and read again.",
        apply=expressions(*distance_rules()),
    ),
    Rewrite(
        name="pools_in_a_row",
        family="algebra",
        precondition="two max or two average pools with nothing but a kernel size, a number, one "
        "after the other",
        why="windows that do not overlap make one larger window: the input is read once, and "
        "nothing is written in between.",
        apply=expressions(pools_in_a_row),
    ),
)
