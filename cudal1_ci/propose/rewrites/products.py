"""Rewrite matrix products: fewer operations, or a more suitable routine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from cudal1_ci.propose.rewrites.patterns import Bindings
from cudal1_ci.propose.rewrites.ranks import Ranks, is_last, rank_made, rank_of, ranks_of
from cudal1_ci.propose.rewrites.rewrite import (
    Replacement,
    Rewrite,
    Rule,
    Site,
    SourceEdit,
    expressions,
    rule,
)
from cudal1_ci.propose.rewrites.scales import number, scaled
from cudal1_ci.propose.rewrites.terms import Term, code

PRODUCTS = ("matmul", "mm", "bmm")
DISTANCES = """\


def {name}(a, b):
    if a.dtype == b.dtype and a.dtype in (torch.float32, torch.float64):
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"){squared}
    # torch.cdist takes no half precision and no whole numbers.
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).pow(2).sum(dim=-1){root}
"""
"""A function of two sets of points, as torch has it for some dtypes only."""


def summed_first(site: Site) -> SourceEdit | None:
    """Replace sums over the last dimension of a product, by the known rank."""
    ranks = ranks_of(site)

    def reduced(term: Term) -> Replacement | None:
        return reduced_product(term, ranks)

    return expressions(reduced)(site)


def reduced_product(term: Term, ranks: Ranks) -> Replacement | None:
    """Replace `self.fc(x).sum(-1)`, `(a @ b / 2).sum(-1)`. The weights or b's columns are summed
    first, and the sum is scaled instead of the summands.
    """
    if term.op not in ("sum", "mean") or len(term.args) != 1:
        return None
    if not is_last(term.get("dim"), term.args[0], ranks):
        return None
    keeps = term.get("keepdim")
    if keeps is not None and keeps.value is not True:
        return None
    scale = scaled(term.args[0])
    found = summed(scale.term if scale else term.args[0], term.op)
    if found is None:
        return None
    template, bindings = found
    template += "" if keeps else ".squeeze(-1)"
    if scale is not None and scale.factor != 1.0:
        template, bindings = f"{template} {scale.operator} K", {**bindings, "K": scale.constant}
    return Replacement(template, bindings)


def summed(product: Term, how: str) -> tuple[str, Bindings] | None:
    """Return a product whose columns are summed or averaged before it is computed."""
    if product.op == "linear_module":
        layer = product.value
        bias = f"{layer}.bias.{how}().unsqueeze(0)"
        template = f"F.linear(X, {layer}.weight.{how}(0, keepdim=True), {bias})"
        return template, {"X": product.args[0]}
    if product.op in PRODUCTS and len(product.args) == 2:
        template = f"torch.matmul(X, Y.{how}(-1, keepdim=True))"
        return template, {"X": product.args[0], "Y": product.args[1]}
    return None


def einsum(term: Term) -> Replacement | None:
    """Replace two-operand einsums that are one (batched) matrix product, by their subscripts."""
    if term.op != "einsum" or len(term.args) != 3 or term.args[0].op != "const":
        return None
    equation = str(term.args[0].value).replace(" ", "")
    template = einsum_template(equation)
    if template is None:
        return None
    return Replacement(template, {"X": term.args[1], "Y": term.args[2]})


def einsum_template(equation: str) -> str | None:
    """Return `torch.matmul(X, Y.transpose(-2, -1))` for `bhqd,bhkd->bhqk`; None unless it is one
    product of two operands with the same leading batch dimensions.
    """
    if "->" not in equation or "." in equation:
        return None
    inputs, _, output = equation.partition("->")
    operands = inputs.split(",")
    if len(operands) != 2 or any(len(set(o)) != len(o) for o in (*operands, output)):
        return None
    left, right = operands
    num_batch = len(output) - 2
    if num_batch < 0 or len(left) != num_batch + 2:
        return None
    batch, row, column = output[:num_batch], output[-2], output[-1]
    if left[:num_batch] != batch:
        return None
    # The right operand may lack the batch dimensions: matmul broadcasts it.
    right_core = right[num_batch:] if right[:num_batch] == batch else right
    if len(right_core) != 2 or (right_core == right and num_batch and len(right) != 2):
        return None
    left_core = left[num_batch:]
    if row not in left_core or column not in right_core:
        return None
    (inner,) = set(left_core) - {row}
    if set(right_core) != {inner, column} or inner in output:
        return None
    x = "X" if left_core == row + inner else "X.transpose(-2, -1)"
    y = "Y" if right_core == inner + column else "Y.transpose(-2, -1)"
    return f"torch.matmul({x}, {y})"


def reassociated(term: Term) -> Replacement | None:
    """Replace `(a @ b) @ v` with a vector (one column) v: two thin products instead of a square
    one.
    """
    if term.op not in PRODUCTS or len(term.args) != 2:
        return None
    product, last = term.args
    if product.op not in PRODUCTS or len(product.args) != 2 or is_thin(last) is False:
        return None
    if last.node is not None and code(last.node).startswith("("):
        return None
    bindings = {"X": product.args[0], "Y": product.args[1], "V": last}
    return Replacement("torch.matmul(X, torch.matmul(Y, V))", bindings)


def with_summand(
    *rules: tuple[str, str], is_bias: bool = False
) -> Callable[[Site], SourceEdit | None]:
    """Return rules of products plus a summand `B` that is not a number: torch cannot add a number
    in the same call. With `is_bias` the summand must certainly be a vector.
    `torch.nn.functional.linear` documents no other bias, and raises for one in torch 2.6.
    """

    def apply(site: Site) -> SourceEdit | None:
        numbers = set().union(*map(numbers_of, site.methods()))
        ranks = ranks_of(site) if is_bias else {}

        def is_tensor(bound: Bindings) -> bool:
            summand = bound["B"]
            if is_bias and not is_vector(summand, ranks, site):
                return False
            names = {term.value[0] for term in summand.walk() if term.op == "name"}
            return number(summand) is None and not (names and names <= numbers)

        return expressions(*(rule(wanted, new, is_tensor) for wanted, new in rules))(site)

    return apply


def is_vector(term: Term, ranks: Ranks, site: Site) -> bool:
    """Return whether a term has one known dimension, or is an attribute of self. An attribute is
    excluded if the constructor gives it more dimensions: `nn.Parameter(torch.zeros(6, 3))`.
    """
    if term.op != "attr" or term.args[0].value != ("self", 0):
        return rank_of(term, ranks) == 1
    made = site.names.attributes.get(str(term.value))
    if made is None:
        return True
    inner = [one.value for one in made.args[:1]]
    return all(rank_made(one) in (None, 1) for one in (made, *inner))


def numbers_of(method: cst.FunctionDef) -> set[str]:
    """Return locals that hold a number by default, or in some branch: `extra = 0.0`."""
    found: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_Param(self, node: cst.Param) -> None:  # noqa: N802
            if isinstance(node.default, cst.Integer | cst.Float):
                found.add(node.name.value)

        def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
            if isinstance(node.value, cst.Integer | cst.Float):
                found.update(code(target.target) for target in node.targets)

    method.visit(Collect())
    return found


def is_thin(term: Term) -> bool | None:
    """Return False for operands that are certainly wide; None if the text does not say."""
    if term.op == "unsqueeze" and number(term.get("dim")) in (-1, 1):
        return True
    return None


def distances(before: str, after: str) -> Iterator[Rule]:
    """Yield rules for distances, or squared ones without a root around the sum."""
    name = "pairwise_distances" if before else "squared_pairwise_distances"
    squared, root = ("", ".sqrt()") if before else (".square()", "")
    text = DISTANCES.format(name=f"_{name}", squared=squared, root=root)
    for a, b in ((-2, -3), (1, 0), (2, 1)):
        difference = f"sub(unsqueeze(X, dim={a}), unsqueeze(Y, dim={b}))"
        wanted = f"{before}sum(pow({difference}, 2), dim=-1){after}"
        yield rule(wanted, f"_{name}(X, Y)", definitions=(text,))


REWRITES = (
    Rewrite(
        name="diagonal_product",
        family="algebra",
        precondition="diag(a) of a vector in a product with a matrix; NaN and infinities in a row "
        "do not spread to other rows, as they do where they are multiplied by zero",
        why="a product with a diagonal matrix scales rows (or columns): O(NM) by broadcasting "
        "instead of O(N^2 M), and the N x N matrix is never built.",
        apply=expressions(
            rule("matmul(diag(X), Y)", "X.unsqueeze(-1) * Y"),
            rule("mm(diag(X), Y)", "X.unsqueeze(-1) * Y"),
            rule("matmul(diag_embed(X), Y)", "X.unsqueeze(-1) * Y"),
            rule("bmm(diag_embed(X), Y)", "X.unsqueeze(-1) * Y"),
            rule("matmul(Y, diag(X))", "Y * X"),
            rule("mm(Y, diag(X))", "Y * X"),
            rule("matmul(Y, diag_embed(X))", "Y * X.unsqueeze(-2)"),
            rule("bmm(Y, diag_embed(X))", "Y * X.unsqueeze(-2)"),
        ),
    ),
    Rewrite(
        name="sum_through_product",
        family="algebra",
        precondition="a sum or mean over the last dimension of a matrix product or of an "
        "nn.Linear with a bias, or of those times a number; that `dim=1` is the last one is known "
        "from how it is called",
        why="the sum can be taken of the (smaller) weights first: a matrix-vector product instead "
        "of a matrix product, and the full output is never written.",
        apply=summed_first,
    ),
    Rewrite(
        name="reassociate_product",
        family="algebra",
        precondition="a chain (A @ B) @ C",
        why="A @ (B @ C) needs fewer operations when C is narrower than A is tall.",
        apply=expressions(reassociated),
    ),
    Rewrite(
        name="einsum_to_matmul",
        family="operation fusion",
        precondition="an einsum of two operands that is one (batched) matrix product",
        why="matmul reaches the batched matrix product without permuting and reshaping around it.",
        apply=expressions(einsum),
    ),
    Rewrite(
        name="linear",
        family="operation fusion",
        precondition="x @ w.t() + b with a matrix w and a vector b: an attribute of self, or an "
        "argument that is called so",
        why="one call adds the bias inside of the matrix product instead of in another pass.",
        apply=with_summand(
            ("add(matmul(X, t(W)), B)", "F.linear(X, W, B)"),
            ("add(matmul(X, transpose(W, dim0=0, dim1=1)), B)", "F.linear(X, W, B)"),
            ("add(mm(X, t(W)), B)", "F.linear(X, W, B)"),
            is_bias=True,
        ),
    ),
    Rewrite(
        name="addmm",
        family="operation fusion",
        precondition="torch.mm or torch.bmm with a tensor added",
        why="addmm and baddbmm start from the summand: one pass over the output instead of two.",
        apply=with_summand(
            ("add(mm(X, Y), B)", "torch.addmm(B, X, Y)"),
            ("add(bmm(X, Y), B)", "torch.baddbmm(B, X, Y)"),
        ),
    ),
    Rewrite(
        name="one_hot_product",
        family="algebra",
        precondition="one_hot(i, n) as floats in a product with a table; NaN and infinities in a "
        "row do not spread to other rows, as they do where they are multiplied by zero",
        why="picking rows needs no product: an embedding lookup reads only the rows it returns.",
        apply=expressions(
            rule("matmul(float(one_hot(X, num_classes=N)), W)", "F.embedding(X, W)"),
            rule("matmul(float(one_hot(X)), W)", "F.embedding(X, W)"),
            rule("matmul(to(one_hot(X, num_classes=N), D), W)", "F.embedding(X, W)"),
        ),
    ),
    Rewrite(
        name="pairwise_distance",
        family="operation fusion",
        precondition="squared differences of all pairs of two sets of points, summed over the last "
        "dimension; in float32 or float64 (others are computed as before)",
        why="cdist never writes the N x M x D differences to memory.",
        apply=expressions(*distances("sqrt(", ")"), *distances("", "")),
    ),
)
