"""Find how many dimensions a tensor has, where that is known: whether `dim=1` is the last one.

    ranks = ranks_of(site)                 # {"x": 2}, of the target's own parameters
    rank_of(term, ranks)                   # 2 for self.fc(x)

Ranks of parameters come from traced workloads, or from the `get_inputs` of a KernelBench-form
program that makes its tensors there. They also come from a method that unpacks a parameter's shape
(`B, H, T, D = k.shape`). Ranks of other tensors come from what made them: `x.view(B, T, H, D)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import Site
from cudal1_ci.propose.rewrites.terms import Term
from cudal1_ci.propose.rewrites.walk import stored_names
from cudal1_ci.propose.target_file import find
from cudal1_ci.records import Call, Made, TensorSpec

Ranks = Mapping[str, int]
"""Ranks by the parameter's name."""

OF_A_SHAPE = {"rand", "randn", "zeros", "ones", "empty"}
"""Functions of torch whose arguments by position are a shape."""
SAME_RANK = {
    "relu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square",
    "silu", "mish", "softplus", "log1p", "contiguous", "clone", "detach", "softmax", "log_softmax",
    "clamp", "leaky_relu", "hardtanh", "linear_module", "dropout_module", "transpose", "mT",
    "float", "half", "type_as", "permute",
}  # fmt: skip
"""Operations of one tensor."""
SIZED = {"view", "reshape", "expand"}
"""Methods whose arguments by position are a shape."""
WITH_A_NUMBER = {"add", "sub", "mul", "div", "pow"}


def ranks_of(site: Site) -> dict[str, int]:
    """Return parameters with the same rank in all methods that have them. Workloads give the ranks
    of the called method, the text those of others.
    """
    found: dict[str, set[int | None]] = defaultdict(set)
    for method in site.methods():
        is_called = isinstance(site.definition, cst.FunctionDef) or method.name.value == "forward"
        traced = called_with(site, method) if is_called else {}
        written = taken_apart(method)
        for name in parameters(method):
            known = {traced[name]} if name in traced else set()
            known |= {written[name]} if name in written else set()
            found[name] |= known or {None}
    return {
        name: rank for name, ranks in found.items() if len(ranks) == 1 for rank in ranks if rank
    }


def parameters(method: cst.FunctionDef) -> list[str]:
    return [one.name.value for one in method.params.params if one.name.value != "self"]


def called_with(site: Site, method: cst.FunctionDef) -> dict[str, int]:
    """Return parameters with the same rank in all workloads."""
    names = parameters(method)
    found: dict[str, set[int | None]] = {name: set() for name in names}
    for workload in site.workloads:
        known = of_call(workload.call, names, site.module)
        for name in names:
            found[name].add(known.get(name))
    return {
        name: rank for name, ranks in found.items() if len(ranks) == 1 for rank in ranks if rank
    }


def taken_apart(method: cst.FunctionDef) -> dict[str, int]:
    """Return the number of sizes in `B, T, C = x.shape`, outside branches, for parameters that
    always hold one tensor.
    """
    found: dict[str, int] = {}
    stored = stored_names(method.body)
    for line in method.body.body:
        for node in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Tuple):
                sizes, tensor = node.targets[0].target.elements, shape_read(node.value)
                if tensor is not None and tensor not in stored and not has_star(sizes):
                    found[tensor] = len(sizes)
    return found


def has_star(elements: Sequence[cst.BaseElement]) -> bool:
    return any(isinstance(one, cst.StarredElement) for one in elements)


def shape_read(node: cst.BaseExpression) -> str | None:
    """Return `x` of `x.shape` and `x.size()`."""
    attribute = node.func if isinstance(node, cst.Call) and not node.args else node
    if not isinstance(attribute, cst.Attribute) or not isinstance(attribute.value, cst.Name):
        return None
    wanted = "shape" if attribute is node else "size"
    return attribute.value.value if attribute.attr.value == wanted else None


def of_call(call: Call | Made, names: Sequence[str], module: cst.Module) -> dict[str, int]:
    """Return ranks by the names of the arguments."""
    if isinstance(call, Made):
        return dict(of_made(call, names, module)) if call.path is None else {}
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    return {name: len(one.shape) for name, one in given.items() if isinstance(one, TensorSpec)}


def of_made(made: Made, names: Sequence[str], module: cst.Module) -> Iterator[tuple[str, int]]:
    """Yield ranks of what a function of the program returns: a list of calls, or of locals that
    hold calls.
    """
    function = find(module, made.function)
    if not isinstance(function, cst.FunctionDef):
        return
    held: dict[str, cst.BaseExpression] = {}
    for line in function.body.body:
        if not isinstance(line, cst.SimpleStatementLine):
            return
        for statement in line.body:
            if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
                target = statement.targets[0].target
                if isinstance(target, cst.Name):
                    held[target.value] = statement.value
            elif isinstance(statement, cst.Return):
                answer = statement.value
                if not isinstance(answer, cst.List | cst.Tuple):
                    return
                for name, element in zip(names, answer.elements, strict=False):
                    one = element.value
                    rank = rank_made(held.get(one.value, one) if isinstance(one, cst.Name) else one)
                    if rank is not None:
                        yield name, rank


def rank_made(node: cst.BaseExpression) -> int | None:
    """Return the rank of `torch.rand(16, dim)` or `torch.rand((16, dim))`; None for
    `torch.rand(shape)`.
    """
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return None
    function = node.func
    is_torchs = isinstance(function.value, cst.Name) and function.value.value == "torch"
    if not is_torchs or function.attr.value not in OF_A_SHAPE:
        return None
    shape = [one for one in node.args if one.keyword is None]
    if any(one.star for one in node.args) or not shape:
        return None
    if len(shape) > 1:
        return len(shape)
    only = shape[0].value
    if isinstance(only, cst.Integer):
        return 1
    return len(only.elements) if isinstance(only, cst.Tuple | cst.List) else None


def rank_of(term: Term, ranks: Ranks) -> int | None:
    """Return the rank of what a term computes from parameters."""
    if term.op == "name":
        name, version = term.value
        return ranks.get(name) if version == 0 else None
    if term.op == "mm":
        return 2
    if term.op in SAME_RANK and term.args:
        return rank_of(term.args[0], ranks)
    if term.op in SIZED:
        return num_sizes(term.args[1:])
    if term.op == "unsqueeze" and term.args:
        inner = rank_of(term.args[0], ranks)
        return None if inner is None else inner + 1
    if term.op in WITH_A_NUMBER and len(term.args) == 2:
        tensors = [one for one in term.args if one.op != "const"]
        return rank_of(tensors[0], ranks) if len(tensors) == 1 else None
    if term.op == "matmul" and len(term.args) == 2:
        left, right = (rank_of(one, ranks) for one in term.args)
        if term.args[1].op == "t":  # of a matrix alone
            right = 2
        return left if left is not None and left >= 2 and right == 2 else None
    return None


def num_sizes(sizes: Sequence[Term]) -> int | None:
    """Return the number of sizes in `x.view(B, T, C)` or `x.view((B, T, C))`; None for
    `x.view(shape)`.
    """
    if len(sizes) == 1:
        (only,) = sizes
        if isinstance(only.node, cst.Tuple | cst.List):
            return None if has_star(only.node.elements) else len(only.args)
        return 1 if only.op == "const" else None
    return len(sizes) or None


def is_last(dim: Term | None, term: Term, ranks: Ranks) -> bool:
    """Return whether a dimension is certainly the last one of a term."""
    if dim is None or dim.op != "const" or type(dim.value) is not int:
        return False
    rank = rank_of(term, ranks)
    return dim.value == -1 or (rank is not None and dim.value == rank - 1)
