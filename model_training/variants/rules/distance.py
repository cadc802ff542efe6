"""Rewrite the distances of `families/rows.py`."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule

SQUARES = "squares = x.square().sum(dim=1, keepdim=True) + C.square().sum(dim=1)\n"
RULES = (
    Rule(
        technique="algebra",
        why="The differences of all rows and centers are written out.",
        before="x = ((x.unsqueeze(1) - C.unsqueeze(0)) ** 2).sum(dim=2)",
        forms=(
            Form(
                text=SQUARES + "x = torch.addmm(squares, x, C.t(), alpha=-2).clamp_(min=0)",
                design="Expand the square: norms and one product.",
            ),
            Form(
                text="x = torch.cdist(x, C, compute_mode='donot_use_mm_for_euclid_dist').square_()",
                design="Distances in one kernel, which writes no differences.",
                technique="operation fusion",
            ),
        ),
    ),
    Rule(
        technique="operation fusion",
        why="The differences of all rows and centers are written out.",
        before="x = torch.abs(x[:, None, :] - C[None]).mean(dim=-1)",
        forms=(
            Form(
                text="x = torch.cdist(x, C, p=1.0) / x.shape[1]",
                design="Distances of sums in one kernel.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="All pairs are multiplied by broadcasting before they are summed.",
        before="x = F.cosine_similarity(x.unsqueeze(1), C.unsqueeze(0), dim=2, eps=1e-6)",
        forms=(
            Form(
                text="x = F.normalize(x, dim=1, eps=1e-6) @ F.normalize(C, dim=1, eps=1e-6).t()",
                design="Normalize both, then one product.",
            ),
            Form(
                text="rows = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_(min=1e-6)\n"
                "columns = torch.linalg.vector_norm(C, dim=1).clamp_(min=1e-6)\n"
                "x = (x @ C.t()) / (rows * columns)",
                design="One product, divided by both norms.",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The differences of all rows and centers are written out.",
        before="squared = (x.unsqueeze(1) - C.unsqueeze(0)).pow(2).mean(dim=-1)\n"
        "x = torch.exp(-squared)",
        forms=(
            Form(
                text=SQUARES + "squared = torch.addmm(squares, x, C.t(), alpha=-2)\n"
                "x = torch.exp(squared / -C.shape[1])",
                design="Expand the square: norms and one product.",
            ),
            Form(
                text="distances = torch.cdist(x, C, "
                "compute_mode='donot_use_mm_for_euclid_dist')\n"
                "x = distances.square_().div_(-C.shape[1]).exp_()",
                design="Distances in one kernel, and the rest in place.",
                technique="operation fusion",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="The differences of all rows and centers are written out.",
        before="distances = torch.norm(x[:, None] - C[None], dim=-1)\n"
        "x = distances.min(dim=1).values",
        forms=(
            Form(
                text="nearest = torch.addmm(C.square().sum(dim=1), x, C.t(), alpha=-2)"
                ".amin(dim=1)\n"
                "x = (nearest + x.square().sum(dim=1)).clamp_(min=0).sqrt_()",
                design="The least of the expanded squares; one root for each row.",
            ),
            Form(
                text="x = torch.cdist(x, C, compute_mode='donot_use_mm_for_euclid_dist')"
                ".amin(dim=1)",
                design="Distances in one kernel, then their minimum without an index.",
                technique="operation fusion",
            ),
        ),
    ),
    Rule(
        technique="algebra",
        why="All rows are divided by their norms in a pass of their own.",
        before="x = x / (x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-6)\n"
        "other = C / (C.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-6)\n"
        "x = torch.einsum('nd,md->nm', x, other)",
        forms=(
            Form(
                text="rows = torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-6\n"
                "columns = torch.linalg.vector_norm(C, dim=1) + 1e-6\n"
                "x = (x @ C.t()) / (rows * columns)",
                design="Divide the product, which is smaller, by both norms.",
            ),
            Form(
                text="rows = torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-6\n"
                "other = C / (torch.linalg.vector_norm(C, dim=1, keepdim=True) + 1e-6)\n"
                "x = torch.mm(x, other.t()) / rows",
                design="Scale the centers before the product and the rows after it.",
            ),
        ),
    ),
)
