"""Infer the shapes of tables from a method's text (hoisting.py): the rank, and the axes that are as
long as the one size that a table depends on. Infer too whether they may hold floats, which a module
converts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.rewrites.terms import Names, code, is_self, names_in

CREATORS = {"arange", "ones", "zeros", "full", "eye", "linspace", "tensor"}
KEEPS_RANK = {
    "sin", "cos", "exp", "log", "float", "half", "long", "bool", "to", "tril", "triu", "sqrt",
    "rsqrt", "neg", "abs", "masked_fill", "pow", "clamp", "logical_not", "cumsum", "type", "int",
    "reciprocal", "square", "flip", "add", "sub", "mul", "div", "where", "eq",
}  # fmt: skip

WHOLE = {"bool", "uint8", "int8", "int16", "int32", "int64", "long", "int", "short"}
OF_FIRST = {"tril", "triu", "flip", "unsqueeze", "t", "cumsum", "abs", "neg", "square"}
OF_ALL = {"add", "sub", "mul", "cat", "concat", "stack", "outer", "where", "masked_fill", "clamp"}
"""Operations whose result is of floats where their first argument is, or any."""
FRACTION = re.compile(r"\bmath\.|(?<!/)/(?!/)|\.\d|\d\.|\d[eE]")
"""What makes a number a float: `0.5`, `1e4`, `a / b`."""


@dataclass(frozen=True)
class Shape:
    """Rank of a table, and the axes that are as long as the size it depends on."""

    rank: int
    axes: frozenset[int] = frozenset()


@dataclass
class Facts:
    """Facts about one method."""

    names: Names
    plain: set[str]
    """Attributes of self that hold numbers of the constructor."""
    sizes: set[str] = field(default_factory=set)
    """Locals that hold a size of an input."""
    devices: set[str] = field(default_factory=set)
    tables: dict[str, cst.BaseExpression] = field(default_factory=dict)
    """Locals that hold a table, with the expression over constructor numbers and sizes."""
    steps: list[tuple[str, cst.BaseExpression]] = field(default_factory=list)
    """The assignments to them, in order and with the original text, without devices."""


def sizes_in(node: cst.BaseExpression) -> set[str]:
    """Return literal sizes of inputs: `x.shape[1]`, `x.size(1)`."""
    return set(re.findall(r"\b(?!self\b)\w+\.(?:shape\[-?\d\]|size\(-?\d\))", code(node)))


def is_size(node: cst.BaseExpression, facts: Facts) -> bool:
    text = code(node)
    return text in facts.sizes or sizes_in(node) == {text}


def shape_of(node: cst.BaseExpression, facts: Facts) -> Shape | None:
    """Return rank and size-long axes of a table (rank 0: a number); None if the node is not a
    table.
    """
    if isinstance(node, cst.Integer | cst.Float) or is_size(node, facts):
        return Shape(0)
    if isinstance(node, cst.Attribute):
        is_plain = is_self(node.value) and node.attr.value in facts.plain
        dotted = facts.names.dotted(node) or ""
        return Shape(0) if is_plain or dotted.startswith(("math.", "torch.")) else None
    if isinstance(node, cst.UnaryOperation):
        return shape_of(node.expression, facts)
    if isinstance(node, cst.BinaryOperation):
        return broadcast([shape_of(node.left, facts), shape_of(node.right, facts)])
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        other = node.comparisons[0].comparator
        return broadcast([shape_of(node.left, facts), shape_of(other, facts)])
    if isinstance(node, cst.Subscript):
        return indexed(node, facts)
    if isinstance(node, cst.Call):
        return shape_of_call(node, facts)
    return None


def broadcast(shapes: list[Shape | None]) -> Shape | None:
    """Return the shapes aligned at the right, as torch broadcasts."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes) or not known:
        return None
    rank = max(shape.rank for shape in known)
    axes = frozenset(axis + rank - shape.rank for shape in known for axis in shape.axes)
    return Shape(rank, axes)


def indexed(node: cst.Subscript, facts: Facts) -> Shape | None:
    """Return the shape after `[None, :]` and `[:, None]`: new dimensions, others kept whole."""
    base = shape_of(node.value, facts)
    if base is None:
        return None
    rank, axes, at = 0, set(), 0
    for element in node.slice:
        part = element.slice
        if isinstance(part, cst.Index) and code(part.value) == "None":
            rank += 1
        elif isinstance(part, cst.Slice) and part.lower is part.upper is part.step is None:
            if at in base.axes:
                axes.add(rank)
            rank, at = rank + 1, at + 1
        else:
            return None
    axes |= {axis - at + rank for axis in base.axes if axis >= at}
    return Shape(rank + base.rank - at, frozenset(axes))


def shape_of_call(node: cst.Call, facts: Facts) -> Shape | None:
    dotted = facts.names.dotted(node.func)
    positional = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
    if any(arg.star for arg in node.args):
        return None
    for arg in node.args:
        if arg.keyword is not None and arg.keyword.value == "dtype":
            if (facts.names.dotted(arg.value) or "").startswith("torch."):
                continue
            return None
        if arg.keyword is not None and shape_of(arg.value, facts) is None:
            return None
    if dotted is not None:
        if dotted in ("math.log", "math.sqrt", "math.exp", "math.pow"):
            shapes = [shape_of(arg, facts) for arg in positional]
            return Shape(0) if all(s == Shape(0) for s in shapes) else None
        if not dotted.startswith("torch."):
            return None
        return operation(dotted.removeprefix("torch."), positional, facts)
    if isinstance(node.func, cst.Attribute):
        return operation(node.func.attr.value, [node.func.value, *positional], facts)
    return None


def operation(op: str, args: list[cst.BaseExpression], facts: Facts) -> Shape | None:
    """Return the shape of an operation's result."""
    if op in CREATORS:
        return created(op, args, facts)
    if op in ("cat", "concat", "stack"):
        return joined(op, args, facts)
    shapes = [shape_of(arg, facts) for arg in args]
    if not shapes or (any(shape is None for shape in shapes) and op not in ("to", "type")):
        return None
    first = shapes[0]
    if first is None:
        return None
    if op in ("to", "type"):
        dtypes = [facts.names.dotted(arg) or "" for arg in args[1:]]
        return first if all(d.startswith("torch.") for d in dtypes) else None
    if op == "outer" and len(shapes) == 2 and shapes[1] is not None:
        return Shape(2, frozenset({0} if first.axes else ()) | ({1} if shapes[1].axes else set()))
    if op == "unsqueeze" and len(args) == 2:
        return unsqueezed(first, code(args[1]))
    if op == "t" and first.rank == 2:
        return Shape(2, frozenset(1 - axis for axis in first.axes))
    return broadcast(shapes) if op in KEEPS_RANK else None


def created(op: str, args: list[cst.BaseExpression], facts: Facts) -> Shape | None:
    """Return which axes of a new tensor are as long as a size."""
    if op == "tensor":
        is_number = len(args) == 1 and shape_of(args[0], facts) == Shape(0)
        return Shape(0) if is_number else None
    if not args:
        return None
    if op == "full":
        args = args[:1]
    if len(args) == 1 and isinstance(args[0], cst.Tuple | cst.List):
        args = [element.value for element in args[0].elements]
    if any(shape_of(arg, facts) != Shape(0) for arg in args):
        return None
    if op in ("arange", "linspace"):
        end = args[0] if len(args) == 1 else args[1]
        starts_at_zero = len(args) == 1 or code(args[0]) in ("0", "0.0")
        depends = any(is_size(arg, facts) or sizes_in(arg) for arg in args)
        depends |= any(names_in(arg) & facts.sizes for arg in args)
        if not depends:
            return Shape(1)
        is_prefix = op == "arange" and is_size(end, facts) and starts_at_zero and len(args) <= 2
        return Shape(1, frozenset({0})) if is_prefix else None
    if op == "eye":
        args = args * 2 if len(args) == 1 else args
    return Shape(len(args), frozenset(i for i, arg in enumerate(args) if is_size(arg, facts)))


def joined(op: str, args: list[cst.BaseExpression], facts: Facts) -> Shape | None:
    """Return the shape of cat and stack along the last axis, which must not be size-long."""
    if not args or not isinstance(args[0], cst.Tuple | cst.List):
        return None
    shape = broadcast([shape_of(element.value, facts) for element in args[0].elements])
    if shape is None or (len(args) == 2 and code(args[1]) != "-1"):
        return None
    if op == "stack":
        return Shape(shape.rank + 1, shape.axes)
    return shape if shape.rank - 1 not in shape.axes else None


def unsqueezed(shape: Shape, dim: str) -> Shape | None:
    if not re.fullmatch(r"-?\d", dim):
        return None
    at = int(dim) % (shape.rank + 1)
    return Shape(shape.rank + 1, frozenset(a + (a >= at) for a in shape.axes))


# --- dtypes ------------------------------------------------------------------------------------


def may_be_floats(node: cst.BaseExpression, facts: Facts) -> bool:
    """Return whether a table may hold floats. An attribute of self may be one."""
    if isinstance(node, cst.Integer | cst.Comparison) or is_size(node, facts):
        return False
    if isinstance(node, cst.Name):
        return node.value not in ("True", "False")
    if isinstance(node, cst.UnaryOperation):
        return not isinstance(node.operator, cst.Not) and may_be_floats(node.expression, facts)
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Divide):
            return True
        return may_be_floats(node.left, facts) or may_be_floats(node.right, facts)
    if isinstance(node, cst.Subscript):
        return may_be_floats(node.value, facts)
    if isinstance(node, cst.Tuple | cst.List):
        return any(may_be_floats(element.value, facts) for element in node.elements)
    return not isinstance(node, cst.Call) or may_give_floats(node, facts)


def may_give_floats(node: cst.Call, facts: Facts) -> bool:
    dotted = facts.names.dotted(node.func) or ""
    args = [arg.value for arg in node.args if arg.keyword is None]
    named = {arg.keyword.value: arg.value for arg in node.args if arg.keyword is not None}
    op = dotted.removeprefix("torch.")
    if not dotted and isinstance(node.func, cst.Attribute):
        op, args = node.func.attr.value, [node.func.value, *args]
    dtypes = [named["dtype"]] if "dtype" in named else args[1:] if op in ("to", "type") else []
    if dtypes:
        return any((facts.names.dotted(one) or "").split(".")[-1] not in WHOLE for one in dtypes)
    if op in WHOLE or op in ("eq", "logical_not"):
        return False
    if op == "arange":  # an attribute of self is taken for a whole number
        return any(FRACTION.search(code(arg)) for arg in [*args, *named.values()])
    if op == "full":
        values = [*args[1:], *(named[one] for one in ("fill_value",) if one in named)]
        return any(may_be_floats(one, facts) for one in values)
    if op in OF_FIRST or op in ("to", "type", "tensor"):
        return not args or may_be_floats(args[0], facts)
    return op not in OF_ALL or any(may_be_floats(arg, facts) for arg in args)
