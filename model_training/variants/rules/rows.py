"""Rewrite the structured matrices and reductions of `families/rows.py`."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule

DIAGONAL = (
    Rule(
        technique="algebra",
        why="A product with a diagonal matrix on each side builds two square matrices to scale "
        "rows and columns.",
        before="x = torch.diag(L) @ x @ torch.diag(R)",
        forms=(
            Form(
                text="x = L[:, None] * x * R",
                design="Scale the rows and the columns by broadcasting.",
            ),
            Form(
                text="x = x * torch.outer(L, R)",
                design="Multiply by the outer product of both scales.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The product with a diagonal matrix is a full product, though all it does is scale "
        "rows.",
        before="x = torch.diag(S) @ x",
        forms=(
            Form(text="x = S[:, None] * x", design="Scale each row by broadcasting."),
            Form(text="x = x * S.unsqueeze(1)", design="Broadcast the scale over the columns."),
        ),
    ),
    Rule(
        technique="algebra",
        why="The product with a diagonal matrix is a full product, though all it does is scale "
        "columns.",
        before="x = x @ torch.diag(W)",
        forms=(
            Form(text="x = x * W", design="Scale each column by broadcasting."),
            Form(text="x = torch.mul(x, W.unsqueeze(0))", design="Broadcast the scale over rows."),
        ),
    ),
    Rule(
        technique="algebra",
        why="The identity plus a matrix of low rank is built whole and multiplied as if it were "
        "dense.",
        before="matrix = torch.eye(x.shape[1], device=x.device, dtype=x.dtype) + D @ U\n"
        "x = x @ matrix",
        forms=(
            Form(
                text="x = torch.addmm(x, x @ D, U)",
                design="Two thin products, the second of which adds `x` itself.",
            ),
            Form(text="x = x + (x @ D) @ U", design="Two thin products, added to `x`."),
        ),
    ),
    Rule(
        technique="algebra",
        why="The outer product has rank one, and is multiplied as a full matrix.",
        before="x = x @ torch.outer(L, R)",
        forms=(
            Form(
                text="x = torch.outer(x @ L, R)",
                design="A product with one vector, then an outer product with the other.",
            ),
            Form(
                text="x = (x @ L)[:, None] * R",
                design="A product with one vector, spread over the columns by the other.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="A permutation is written as a product with a matrix of zeros and ones.",
        before="matrix = torch.eye(x.shape[1], device=x.device, dtype=x.dtype)[O]\n"
        "x = (x @ matrix.t()) * G",
        forms=(
            Form(text="x = x[:, O] * G", design="Pick the columns by their index."),
            Form(
                text="x = torch.index_select(x, 1, O) * G",
                design="Select the columns, then scale them.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The block diagonal matrix is mostly zeros, which are built and multiplied.",
        before="x = x @ torch.block_diag(*W)",
        forms=(
            Form(
                text="parts = x.unflatten(1, (W.shape[0], -1)).transpose(0, 1)\n"
                "x = torch.bmm(parts, W).transpose(0, 1).flatten(1)",
                design="One batched product, of each block with its own columns.",
            ),
            Form(
                text="x = torch.einsum('rbi,bij->rbj', x.unflatten(1, (W.shape[0], -1)), W)"
                ".flatten(1)",
                design="A sum over the columns of each block alone.",
            ),
        ),
    ),
)


def linear_then(how: str) -> tuple[Rule, ...]:
    """Rewrite a linear layer, reduced at once."""
    why = f"The {how} over the outputs of a linear layer needs none of the outputs."
    return (
        Rule(
            technique="algebra",
            why=why,
            before=f"x = L(x).{how}(dim=1, keepdim=True)",
            forms=(
                Form(
                    text=f"x = F.linear(x, L.weight.{how}(dim=0, keepdim=True), "
                    f"L.bias.{how}().reshape(1))",
                    design=f"Take the {how} of the weights first: one output instead of all.",
                ),
                Form(
                    text=f"x = (x @ L.weight.{how}(dim=0) + L.bias.{how}()).unsqueeze(1)",
                    design=f"A product with one vector, the {how} of the weights.",
                ),
            ),
        ),
        Rule(
            technique="algebra",
            why=why,
            before=f"x = L(x).{how}(dim=1, keepdim=False)",
            forms=(
                Form(
                    text=f"x = x @ L.weight.{how}(dim=0) + L.bias.{how}()",
                    design=f"A product with one vector, the {how} of the weights.",
                ),
                Form(
                    text=f"x = torch.addmv(L.bias.{how}(), x, L.weight.{how}(dim=0))",
                    design=f"Take the {how} of weights and bias, then a product with a vector.",
                ),
            ),
        ),
    )


REDUCTION = (
    *linear_then("sum"),
    *linear_then("mean"),
    Rule(
        technique="algebra",
        why="The sum over rows is taken of the product, where the operand is smaller.",
        before="x = (x @ W).sum(dim=0)",
        forms=(
            Form(text="x = x.sum(dim=0) @ W", design="Sum the rows, then one vector product."),
            Form(text="x = torch.mv(W.t(), x.sum(dim=0))", design="Sum first, then `mv`."),
        ),
    ),
    Rule(
        technique="algebra",
        why="Of the whole product of all rows with all rows only the diagonal is kept.",
        before="x = torch.diagonal(x @ Y.t())",
        forms=(
            Form(text="x = (x * Y).sum(dim=1)", design="The dot product of each row alone."),
            Form(text="x = torch.linalg.vecdot(x, Y)", design="Dot products of rows."),
            Form(text="x = torch.einsum('rw,rw->r', x, Y)", design="Dot products of rows."),
        ),
    ),
    Rule(
        technique="algebra",
        why="The trace needs the diagonal of the product alone, and all of it is computed.",
        before="x = torch.trace(x @ Y).reshape(1)",
        forms=(
            Form(
                text="x = (x * Y.t()).sum().reshape(1)",
                design="The sum of the products of matching elements.",
            ),
            Form(
                text="x = torch.dot(x.flatten(), Y.t().flatten()).reshape(1)",
                design="One dot product of the flattened matrices.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The mean is subtracted anew for each moment, and powers are taken by `pow`.",
        before="mean = x.mean(dim=1, keepdim=True)\n"
        "variance = (x - mean).pow(2).mean(dim=1, keepdim=True)\n"
        "third = (x - mean).pow(3).mean(dim=1, keepdim=True)",
        forms=(
            Form(
                text="mean = x.mean(dim=1, keepdim=True)\n"
                "centered = x - mean\n"
                "squared = centered * centered\n"
                "variance = squared.mean(dim=1, keepdim=True)\n"
                "third = squared.mul_(centered).mean(dim=1, keepdim=True)",
                design="Center once, and reuse the squares for the third moment.",
            ),
            Form(
                text="variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)\n"
                "centered = x - mean\n"
                "third = (centered * centered * centered).mean(dim=1, keepdim=True)",
                design="Mean and variance in one pass; the third moment by products.",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="A power of two by `pow`, and a new tensor for every step.",
        before="x = torch.sqrt(torch.sum(torch.pow(x - Y, 2), dim=1) + 1e-6)",
        forms=(
            Form(
                text="x = (x - Y).square_().sum(dim=1).add_(1e-6).sqrt_()",
                design="Square the difference in place, and finish in place.",
                technique="memory reuse",
            ),
            Form(
                text="difference = x - Y\n"
                "x = torch.sqrt(torch.linalg.vecdot(difference, difference) + 1e-6)",
                design="The dot product of the difference with itself.",
            ),
        ),
    ),
)

RULES = (*DIAGONAL, *REDUCTION)
