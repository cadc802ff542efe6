"""Make a script smaller that did not end in its time or memory: fewer layers, smaller batches.

Depths are arguments that say how often a block is repeated. Batches are the first dimension of the
random tensors of two dimensions or more that a script makes, and the numbers that it calls so. Both
leave each layer as it is: its calls are the same but for the batch. A script in which other numbers
depend on these fails, and stays too large.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

DEPTHS = frozenset(
    {"depth", "num_layers", "n_layers", "n_layer", "layers", "num_hidden_layers", "num_blocks"}
    | {"n_blocks", "encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"}
    | {"enc_depth", "dec_depth", "num_layers_enc", "num_layers_dec", "nlayers"}
)
BATCHES = frozenset({"batch", "batch_size", "bs", "b", "B", "BATCH", "BATCH_SIZE"})
STEPS = frozenset({"num_train_steps", "train_num_steps", "epochs", "num_epochs", "max_iters"})
DEPTH, BATCH, NUM_STEPS = 2, 1, 2
RANDOM = frozenset({"randn", "rand", "zeros", "ones", "empty"})


class Smaller(ast.NodeTransformer):
    """Rewrite a script with small batches and depths, and note each change."""

    def __init__(self, note: Callable[[str], None]):
        self.note = note

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg is not None:
            node.value = self.small(node.arg, node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = self.small(node.targets[0].id, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in RANDOM and len(node.args) > 1:
            node.args[0] = self.least(node.args[0], BATCH, "batch")
        elif name in RANDOM | {"randint"}:
            for sizes in node.args:
                if isinstance(sizes, ast.Tuple | ast.List) and len(sizes.elts) > 1:
                    sizes.elts[0] = self.least(sizes.elts[0], BATCH, "batch")
        return node

    def small(self, name: str, value: ast.expr) -> ast.expr:
        """Return a small value for what has such a name."""
        for names, most in ((DEPTHS, DEPTH), (BATCHES, BATCH), (STEPS, NUM_STEPS)):
            if name in names:
                return self.least(value, most, name)
        return value

    def least(self, value: ast.expr, most: int, name: str) -> ast.expr:
        """Return a number that is at most so large."""
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value > most:
            self.note(f"{name} {value.value} -> {most}")
            return ast.copy_location(ast.Constant(most), value)
        return value
