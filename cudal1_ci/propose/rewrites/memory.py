"""Remove copies, conversions and waits, without a change of what is computed."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.rewrites.elementwise import ARITHMETIC
from cudal1_ci.propose.rewrites.layout import with_argument
from cudal1_ci.propose.rewrites.rewrite import (
    Replacement,
    Rewrite,
    Swap,
    expressions,
    rule,
)
from cudal1_ci.propose.rewrites.scales import number
from cudal1_ci.propose.rewrites.terms import Term, is_self

READERS = {
    "add", "sub", "mul", "div", "pow", "matmul", "mm", "bmm", "exp", "log", "sqrt", "relu", "tanh",
    "sigmoid", "softmax", "sum", "mean", "abs", "square", "einsum", "linear", "gelu", "silu", "eq",
    "lt", "gt", "le", "ge", "linear_module", "clamp", "maximum", "minimum", "neg", "cos", "sin",
}  # fmt: skip
"""Operations that only read their operands and write a new tensor."""

COMPARISONS = {"eq", "lt", "gt", "le", "ge"}
"""Readers that may compare plain numbers."""

CREATORS = {"zeros", "ones", "full", "arange", "eye", "empty", "linspace", "tensor"}


def needless_copy(term: Term) -> Replacement | None:
    """Remove the copy in `x.clone() * 2`, whose operand is only read."""
    if term.op not in READERS or not isinstance(term.node, cst.CSTNode):
        return None
    for operand in term.args:
        copied = operand.op in ("clone", "detach_copy") and len(operand.args) == 1
        if copied and operand.node is not None and operand.args[0].node is not None:
            without = with_operand(term, operand, operand.args[0])
            return without and replace(without, uncopied=operand.args[0].node)
    return None


def needless_item(term: Term) -> Replacement | None:
    """Remove the item in `x / x.max().item()`: tensor arithmetic accepts a tensor as well as the
    number. Arithmetic of two numbers is left alone: a tensor differs when it is logged, counted or
    returned.
    """
    if term.op not in ("add", "sub", "mul", "div") or len(term.args) != 2:
        return None
    left, right = term.args
    for operand, other in ((right, left), (left, right)):
        if operand.op == "item" and len(operand.args) == 1 and is_tensor_beside(other, operand):
            return with_operand(term, operand, detached(operand.args[0]))
    return None


def is_tensor_beside(term: Term, item: Term) -> bool:
    """Return whether a term is certainly a tensor. It is the result of an operation on tensors,
    arithmetic of such a result, or what the number's own operation is called on (`x` of
    `x.abs().max().item()`).
    """
    if term.op in ARITHMETIC:
        return any(is_tensor_beside(one, item) for one in term.args)
    if term.op in READERS and term.op not in COMPARISONS:
        return True
    source = item.args[0]
    while source.op not in ARITHMETIC and source.args:
        source = source.args[0]
        if source == term:
            return True
    return False


def detached(term: Term) -> Term:
    """Return a term without its gradient; a number has none."""
    node = term.node
    if node is None:
        return term
    if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    method = cst.Attribute(value=node, attr=cst.Name("detach"))
    return Term("detach", (term,), node=cst.Call(func=method), env=term.env)


def with_operand(term: Term, old: Term, new: Term) -> Replacement | None:
    """Return the same operation with another operand in one place."""
    if term.node is None or old.node is None or new.node is None:
        return None
    operand = new.node
    if not isinstance(operand, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        operand = operand.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    node = term.node.visit(Swap({old.node: operand}))
    assert isinstance(node, cst.BaseExpression)
    if node.deep_equals(term.node):
        return None
    # What the new operand reads must be the same at both places.
    return Replacement("Y", {"Y": Term("written", node=node, env=term.env), "X": new})


def cancelled_permutes(term: Term) -> Replacement | None:
    """Cancel `x.permute(0, 2, 1).permute(0, 2, 1)`, with a copy in between or not."""
    outer = permutation(term)
    inner_term = term.args[0] if term.args else None
    if outer is None or inner_term is None:
        return None
    while inner_term.op == "contiguous":
        inner_term = inner_term.args[0]
    inner = permutation(inner_term)
    if inner is None or len(inner) != len(outer):
        return None
    if [inner[i] for i in outer] != list(range(len(outer))):
        return None
    return Replacement("X", {"X": inner_term.args[0]})


def permutation(term: Term) -> list[int] | None:
    """Return the constant dimensions of a permute."""
    if term.op != "permute" or len(term.args) < 2:
        return None
    dims = term.args[1].args if term.args[1].op == "tuple" else term.args[1:]
    numbers = [number(dim) for dim in dims]
    if any(n is None for n in numbers):
        return None
    whole = [int(n) for n in numbers if n is not None]
    size = len(whole)
    return [n % size for n in whole] if sorted(n % size for n in whole) == [*range(size)] else None


def repeated(term: Term) -> Replacement | None:
    """Replace `x.unsqueeze(1).repeat(1, n, 1)`, which repeats one new dimension."""
    if term.op != "repeat" or len(term.args) < 2 or term.named:
        return None
    made = term.args[0]
    dim = number(made.get("dim")) if made.op == "unsqueeze" else None
    times = term.args[1].args if term.args[1].op == "tuple" else term.args[1:]
    if dim is None or dim < 0 or dim >= len(times):
        return None
    if any(number(n) != 1 for i, n in enumerate(times) if i != dim):
        return None
    if number(times[int(dim)]) == 1:
        return None
    sizes = ", ".join("N" if i == dim else "-1" for i in range(len(times)))
    return Replacement(f"X.expand({sizes})", {"X": made, "N": times[int(dim)]})


def made_elsewhere(term: Term) -> Replacement | None:
    """Replace `torch.zeros(n).to(x.device)`: the tensor can be created on that device."""
    if term.op not in ("to", "cuda") or len(term.args) != 2 or term.named:
        return None
    made, device = term.args
    if made.op not in CREATORS or device.op != "attr" or device.value != "device":
        return None
    call = made.node
    if not isinstance(call, cst.Call) or made.get("device") is not None:
        return None
    node = with_argument(call, "device", device.node or cst.Name("None"))
    return Replacement("Y", {"Y": Term("written", node=node, env=term.env), "X": device})


def bounded_by_tensor(term: Term) -> Replacement | None:
    """Replace `torch.min(x, torch.tensor(0.5))`, whose bound is a number."""
    op = {"minimum": "max", "maximum": "min"}.get(term.op)
    if op is None or len(term.args) != 2 or term.named:
        return None
    for values, bound in (term.args, term.args[::-1]):
        if bound.op != "tensor" or len(bound.args) != 1 or bound.named or values.op == "tensor":
            continue
        value = bound.args[0]
        if number(value) is not None or (value.op == "attr" and is_self_attribute(value)):
            return Replacement(f"torch.clamp(X, {op}=K)", {"X": values, "K": value})
    return None


def is_self_attribute(term: Term) -> bool:
    return isinstance(term.node, cst.Attribute) and is_self(term.node.value)


SAVES = "a pass over memory (and the allocation of a tensor) less"

COPIES = (
    Rewrite(
        name="needless_copy",
        family="memory layout",
        precondition="a clone that is only read by an operation which writes a new tensor, with no "
        "call of something unknown in between, which may write into what was copied",
        why=f"the copy is never written to: {SAVES}.",
        apply=expressions(needless_copy),
    ),
    Rewrite(
        name="double_transpose",
        family="memory layout",
        precondition="two transposes or permutes that cancel, with a contiguous in between or not",
        why="together they do nothing; the copy in between goes too.",
        apply=expressions(
            rule("t(t(X))", "X"),
            rule("t(contiguous(t(X)))", "X"),
            rule("transpose(transpose(X, dim0=K, dim1=KB), dim0=K, dim1=KB)", "X"),
            rule("transpose(transpose(X, dim0=K, dim1=KB), dim0=KB, dim1=K)", "X"),
            rule("transpose(contiguous(transpose(X, dim0=K, dim1=KB)), dim0=K, dim1=KB)", "X"),
            rule("contiguous(contiguous(X))", "X.contiguous()"),
            cancelled_permutes,
        ),
    ),
    Rewrite(
        name="repeat_to_expand",
        family="memory layout",
        precondition="repeat along one dimension that unsqueeze has just made",
        why="expand is a view with stride 0: nothing is written, and readers load one copy.",
        apply=expressions(repeated),
    ),
    Rewrite(
        name="item",
        family="host synchronization",
        precondition="arithmetic of what is plainly a tensor with .item() of another one",
        why="the host no longer waits for the device in the middle of the computation.",
        apply=expressions(needless_item),
    ),
    Rewrite(
        name="create_on_device",
        family="host synchronization",
        precondition="a tensor made on the CPU and moved to the device of another one",
        why="made where it is needed: no copy over the bus.",
        apply=expressions(made_elsewhere),
    ),
    Rewrite(
        name="scalar_tensor",
        family="host synchronization",
        precondition="the root of a tensor that holds one Python number",
        why="Python takes the root at once; a tensor of one element costs an allocation and a "
        "launch for each operation (and a copy to the device).",
        apply=expressions(
            rule("sqrt(tensor(X))", "math.sqrt(X)"),
            rule("sqrt(tensor(X, dtype=D))", "math.sqrt(X)"),
        ),
    ),
    Rewrite(
        name="scalar_bound",
        family="host synchronization",
        precondition="torch.min or torch.max of a tensor and torch.tensor of a number; where both "
        "are equal the gradient is whole, which min and max share out, and in double precision the "
        "number is not rounded to single",
        why="clamp takes the number as it is: no tensor is made in every call.",
        apply=expressions(bounded_by_tensor),
    ),
)
