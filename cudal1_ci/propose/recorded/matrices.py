"""Find products of matrices that fewer operations, or a more suitable routine, compute."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.attention_code import letters
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.patterns import Form, Leaf, Match, rule, written
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.records.recording import Argument

MUCH = 2
"""How many times fewer multiplications another order of a chain must have."""
COPIES, FEW = 8, 4
"""A product copies a matrix so many times or more, for so few rows or columns each."""
TURNS = ("t", "T", "mT", "numpy_T", "transpose")


def diagonal_forms() -> Iterator[Form]:
    """Yield products with the matrix of a diagonal."""
    for made in ("diag", "diag_embed"):
        column = ".unsqueeze(-2)" if made == "diag_embed" else ""
        yield Form(f"matmul({made}(X), Y)", "X.unsqueeze(-1) * Y", are_matrices)
        yield Form(f"matmul(Y, {made}(X))", f"Y * X{column}", are_matrices)


def are_matrices(found: Match) -> bool:
    """Return whether there is a matrix for each diagonal."""
    return found.is_alike("X", "Y") and found.rank("Y") == max(found.rank("X") + 1, 2)


def summed_forms() -> Iterator[Form]:
    """Yield sums over the last dimension of a product, perhaps times a number."""
    for how in ("sum", "mean"):
        layer = f"F.linear(X, W.{how}(0, keepdim=True), B.{how}().unsqueeze(0))"
        products = {
            "linear(X, W, B)": layer,
            "matmul(X, Y)": f"torch.matmul(X, Y.{how}(-1, keepdim=True))",
        }
        for product, new in products.items():
            for rest, end in (("", ".squeeze(-1)"), (", keepdim=True", "")):
                yield Form(f"{how}({product}, dim=K{rest})", new + end, is_over_columns)
                for name, sign in (("mul", "*"), ("div", "/")):
                    pattern = f"{how}({name}({product}, KF), dim=K{rest})"
                    yield Form(pattern, f"{new}{end} {sign} KF", is_over_columns)


def is_over_columns(found: Match) -> bool:
    """Return whether a sum is over the columns of the second factor."""
    graph, other = found.graph, "Y" if "Y" in found.leaves else "W"
    value = found.operations[1].output
    is_last = graph.dims(found.literal("K"), value) == (graph.num_dims(value) - 1,)
    return (
        is_last and found.rank(other) >= 2 and found.rank("X") >= 2 and found.is_alike("X", other)
    )


def is_cheaper(found: Match) -> bool:
    """Return whether the last two factors of a chain should be multiplied first."""
    shapes = [known.shape for n in "XYV" if (known := found.graph.of(found.value(n)))]
    if any(len(one) < 2 for one in shapes) or not found.is_alike("X", "Y", "V"):
        return False
    if len({tuple(one[:-2]) for one in shapes}) != 1:
        return False
    (rows, inner), (_, columns), (_, last) = (one[-2:] for one in shapes)
    return rows * columns * (inner + last) >= MUCH * inner * last * (columns + rows)


def linear_forms() -> Iterator[Form]:
    """Yield x @ w.t() + b."""
    turns: tuple[str, ...] = (
        "t(W)",
        "T(W)",
        "mT(W)",
        "numpy_T(W)",
        "transpose(W, 0, 1)",
        "transpose(W, 1, 0)",
    )
    turns += ("transpose(W, -2, -1)", "transpose(W, -1, -2)")
    for turned in turns:
        yield Form(f"add(matmul(X, {turned}), B)", "F.linear(X, W, B)", has_bias)


def has_bias(found: Match) -> bool:
    """Return whether the summand is a vector with a number for each column."""
    bias, weight = (found.graph.of(found.value(n)) for n in "BW")
    if bias is None or weight is None or len(weight.shape) != 2:
        return False
    return bias.shape == weight.shape[:1] and found.is_alike("X", "W", "B")


def with_summand(name: str) -> Form:
    """Return the form of `torch.mm` or `torch.bmm` with a tensor added."""

    def is_called_so(found: Match) -> bool:
        product, summand = found.operations[1], found.graph.of(found.value("B"))
        known = found.graph.of(product.output)
        if product.recorded.name != name or summand is None or known is None:
            return False
        is_whole = len(summand.shape) <= len(known.shape) and found.is_alike("X", "Y", "B")
        return is_whole and math.prod(summand.shape) > 1

    new = {"mm": "torch.addmm(B, X, Y)", "bmm": "torch.baddbmm(B, X, Y)"}[name]
    return Form("add(matmul(X, Y), B)", new, is_called_so)


def inverse_forms() -> Iterator[Form]:
    """Yield products with an inverse."""
    for made in ("inverse(X)", "inv(X)"):
        yield Form(f"matmul({made}, Y)", "torch.linalg.solve(X, Y)", has_systems)
        yield Form(f"matmul(Y, {made})", "torch.linalg.solve(X, Y, left=False)", has_systems)


def has_systems(found: Match) -> bool:
    """Return whether there are as many matrices as right-hand sides, which are matrices too."""
    shapes = [known.shape for n in "XY" if (known := found.graph.of(found.value(n)))]
    return len(shapes[1]) > 1 and shapes[0][:-2] == shapes[1][:-2] and found.is_alike("X", "Y")


def copies_much(found: Match) -> bool:
    """Return whether a product copies one side for many pairs, each with few rows or columns."""
    shapes = [known.shape for n in "XY" if (known := found.graph.of(found.value(n)))]
    ranks = [len(one) for one in shapes]
    if min(ranks) < 2 or max(ranks) < 3 or not found.is_alike("X", "Y"):
        return False
    sizes = [(1,) * (max(ranks) - len(one)) + one for one in shapes]
    batch = math.prod(max(pair) for pair in zip(*(one[:-2] for one in sizes), strict=True))
    (left, right), few = sizes, (sizes[1][-1], sizes[0][-2])
    return any(
        one[:-2].count(1) < len(one) - 2
        and batch >= COPIES * math.prod(one[:-2])
        and rows <= FEW
        and math.prod(one[-2:]) >= math.prod(other[-2:])
        for one, other, rows in ((left, right, few[0]), (right, left, few[1]))
    )


def find_triangles(call: Call) -> Iterator[Change]:
    """Find `x @ torch.triu(torch.ones(n, n))`, which adds up all before each position."""
    graph = call.graph
    for operation in graph.operations:
        if operation.name != "matmul":
            continue
        for matrix in (0, 1):
            is_upper = of_ones(call, operation.value(matrix))
            if is_upper is None:
                continue
            dim = -2 if matrix == 0 else -1
            new = f"X.cumsum({dim})"
            if is_upper != (matrix == 1):
                new = f"X.flip({dim}).cumsum({dim}).flip({dim})"
            found = Match(graph, (operation,), {"X": leaf(operation, 1 - matrix)})
            change = None if found.rank("X") < -dim else written(call, found, new)
            if change is not None:
                yield change
                break


def of_ones(call: Call, value: int | None) -> bool | None:
    """Return whether a square triangle of ones is the upper one; None for other values."""
    graph, turns = call.graph, 0
    while (turned := graph.made_by(value, *TURNS)) is not None:
        value, turns = turned.value(0), turns + 1
    part = graph.made_by(value, "triu", "tril")
    ones = None if part is None else graph.made_by(part.value(0), "ones")
    place = None if ones is None else call.source.place(ones)
    if part is None or place is None or not isinstance(place.node, cst.Call):
        return None
    if len(part.recorded.args) + len(part.recorded.kwargs) != 1 or graph.num_dims(value) != 2:
        return None
    sizes = [one.value for one in place.node.args if one.keyword is None]
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [one.value for one in sizes[0].elements]
    if len(sizes) != 2 or not sizes[0].deep_equals(sizes[1]):
        return None
    return (part.name == "triu") == (turns % 2 == 0)


def find_einsums(call: Call) -> Iterator[Change]:
    """Find einsums of two operands that are one product of matrices."""
    for operation in call.graph.operations:
        spelled = letters(operation) if operation.name == "einsum" else None
        template = None if spelled is None else einsum_template(*spelled)
        if template is None:
            continue
        leaves = {n: leaf(operation, at) for n, at in (("X", 1), ("Y", 2), ("KE", 0))}
        found = Match(call.graph, (operation,), leaves)
        change = written(call, found, template) if found.is_alike("X", "Y") else None
        if change is not None:
            yield change


def leaf(operation: Operation, position: int) -> Leaf:
    argument = operation.argument(position)
    return Leaf(argument or Argument(kind="other"), operation, position)


def einsum_template(left: list[str], right: list[str], out: list[str]) -> str | None:
    """Return `torch.matmul(X, Y.transpose(-2, -1))` for `bhqd,bhkd->bhqk`; None unless both
    operands have the batch dimensions of the result first."""
    *batch, row, column = out if len(out) > 1 else [*out, "", ""]
    num = len(batch)
    if len(left) != num + 2 or left[:num] != batch or len(right) not in (2, num + 2):
        return None
    a, b = left[num:], right[-2:]
    inner = {*a} - {row}
    if right[:-2] not in ([], batch) or len({*a}) != 2 or inner & {*out} or row not in a:
        return None
    if {*b} != inner | {column} or len({*b}) != 2:
        return None
    x, y = ("" if is_so else ".transpose(-2, -1)" for is_so in (a[0] == row, b[1] == column))
    return f"torch.matmul(X{x}, Y{y})"


RULES = (
    rule(
        "diagonal_product",
        "algebra",
        "a product with a diagonal matrix scales rows or columns by broadcasting, and the matrix "
        "is never built",
        "NaN and infinities in a row do not spread to other rows, as they do where they are "
        "multiplied by zero",
        diagonal_forms(),
    ),
    rule(
        "sum_through_product",
        "algebra",
        "the sum can be taken of the smaller weights first: a product with a vector, and the full "
        "output is never written",
        "a sum or mean over the last dimension of a product or of a linear layer with a bias, "
        "perhaps times a number",
        summed_forms(),
    ),
    rule(
        "reassociate_product",
        "algebra",
        "A @ (B @ C) needs fewer operations when C is narrower than A is tall",
        "a chain (A @ B) @ C of matrices; the other order has half of the multiplications in "
        "the call",
        [Form("matmul(matmul(X, Y), V)", "torch.matmul(X, torch.matmul(Y, V))", is_cheaper)],
    ),
    rule(
        "solve",
        "algebra",
        "a solver needs a third of the operations of an inverse and a product, and rounds less",
        "an inverse that is only multiplied, with one right-hand side for each matrix",
        inverse_forms(),
    ),
    rule(
        "product_without_copies",
        "algebra",
        "einsum multiplies a matrix with all rows that share it, where matmul copies it for each",
        f"a product copies one side {COPIES} times or more, for at most {FEW} rows or columns each",
        [Form("matmul(X, Y)", 'torch.einsum("...ij,...jk->...ik", X, Y)', copies_much)],
    ),
    RecordedRule(
        name="running_sum",
        family="algebra",
        why="a cumulative sum adds each number once, where the product multiplies it with a row of "
        "ones and zeros",
        precondition="a product with a square triangle of ones that the code builds; NaN and "
        "infinities do not spread to where they are multiplied by zero",
        find=find_triangles,
    ),
    RecordedRule(
        name="einsum_to_matmul",
        family="operation fusion",
        why="matmul reaches the batched product without permuting and reshaping around it",
        precondition="an einsum of two operands that is one product of matrices",
        find=find_einsums,
    ),
    rule(
        "linear",
        "operation fusion",
        "one call adds the bias inside of the product instead of in another pass",
        "x @ w.t() + b with a matrix w and a vector b",
        linear_forms(),
    ),
    rule(
        "addmm",
        "operation fusion",
        "addmm and baddbmm start from the summand: one pass over the output instead of two",
        "torch.mm or torch.bmm with a tensor added",
        [with_summand("mm"), with_summand("bmm")],
    ),
)
