"""Give the gain of a normalization to its function, which multiplies in the same pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.scalars import bound_to_self, within
from cudal1_ci.propose.recorded.source import File, Place

NORMS = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm"}
"""Modules by their functions."""


def find_gains(call: Call) -> Iterator[Change]:
    """Find `self.norm(x) * gain`, where the norm is one without weights."""
    graph, source = call.graph, call.source
    for outer in graph.operations:
        place = source.place(outer)
        file = None if place is None else source.file(place.file)
        nodes = source.operands(outer)
        if outer.name != "mul" or place is None or file is None or len(nodes) != 2:
            continue
        for position in (0, 1):
            inner = graph.made_by(outer.value(position), *NORMS)
            there = None if inner is None else source.place(inner)
            gain = nodes[1 - position]
            if inner is None or there is None or gain is None or there.node is not nodes[position]:
                continue
            if graph.sole_reader(inner.output) is not outer or has_weights(inner):
                continue
            shape, known = inner.literal(1), graph.of(outer.value(1 - position))
            if known is None or known.shape != shape or not isinstance(there.node, cst.Call):
                continue
            name = source.functional(place.file)
            new = with_gain(file, place, there, inner, gain, name[0])
            if new is not None:
                yield Change(place.file, new, shown(outer, source), name[1])


def has_weights(norm: Operation) -> bool:
    """Return whether a norm multiplies or adds already."""
    return any(norm.value(n, name) is not None for n, name in ((2, "weight"), (3, "bias")))


def with_gain(
    file: File,
    place: Place,
    there: Place,
    norm: Operation,
    gain: cst.BaseExpression,
    functional: str,
) -> dict[cst.CSTNode, str] | None:
    """Return the fast call where the gain has the shape and the dtype that it takes, and the old
    line elsewhere."""
    module = NORMS[norm.name]
    node = cst.ensure_type(there.node, cst.Call)
    own = file.code(node.func).strip()
    base = tensor_of(gain)
    line = place.statement
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if base is None or len(node.args) != 1 or not is_own_norm(file, place, own, module):
        return None
    x = node.args[0].value
    if not isinstance(x, cst.Name) or not isinstance(small, cst.Return | cst.Assign):
        return None
    if small.value is not place.node or len(getattr(line, "body", ())) != 1:
        return None
    g, given = file.code(base).strip(), file.code(x)
    factor = file.module.code_for_node(gain.with_changes(lpar=[], rpar=[])).strip()
    middle = "None, " if norm.name == "layer_norm" else ""
    fast = f"{functional}.{norm.name}({given}, {own}.normalized_shape, {factor}, "
    fast += f"{middle}{own}.eps)"
    old = file.module.code_for_node(line.with_changes(leading_lines=[])).strip()
    test = f"if {g}.shape == {own}.normalized_shape and {g}.dtype == {given}.dtype:"
    if isinstance(small, cst.Return):
        return {line: f"{test}\n    return {fast}\n{old}"}
    if len(small.targets) != 1 or not isinstance(small.targets[0].target, cst.Name):
        return None
    target = small.targets[0].target.value
    return {line: f"{test}\n    {target} = {fast}\nelse:\n    {old}"}


def tensor_of(gain: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor of a gain: it, or the one that a number is added to."""
    if isinstance(gain, cst.Name):
        return gain
    if isinstance(gain, cst.Attribute):
        return gain if names_in(gain) == {"self"} else None
    if isinstance(gain, cst.BinaryOperation) and isinstance(gain.operator, cst.Add):
        for one, other in ((gain.left, gain.right), (gain.right, gain.left)):
            if isinstance(other, cst.Integer | cst.Float):
                return tensor_of(one)
    return None


def is_own_norm(file: File, place: Place, code: str, module: str) -> bool:
    """Return whether `self.NAME` is only ever bound to torch's norm without weights."""
    name = code.removeprefix("self.")
    if not code.startswith("self.") or not name.isidentifier():
        return False
    found = bound_to_self(within(file, place), name)
    return bool(found) and all(is_weightless(one, module) for _, one in found)


def is_weightless(tree: ast.expr | None, module: str) -> bool:
    if not isinstance(tree, ast.Call):
        return False
    named = {one.arg: one.value for one in tree.keywords}
    affine = named.get("elementwise_affine")
    is_torch = ast.unparse(tree.func) in (f"nn.{module}", f"torch.nn.{module}")
    is_plain = isinstance(affine, ast.Constant) and affine.value is False
    return is_torch and is_plain


RULES = (
    RecordedRule(
        name="norm_gain",
        family="operation fusion",
        why="layer_norm and rms_norm multiply with a weight in the pass that normalizes",
        precondition="the gain has the normalized shape and the dtype of x, or the old line runs",
        find=find_gains,
    ),
)
