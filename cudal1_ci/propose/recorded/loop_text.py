"""Read the text of loops: what they take in turn, and the sizes and shapes that lines give."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.recorded.lifted import KEEPS_RANK, UNARY, size_of, within

KEEPS_SHAPE = UNARY.union(KEEPS_RANK, ("sort",)) - {"clamp", "clip"}
FLAT = frozenset(("flatten", "ravel"))
JUMPS = frozenset(
    (cst.Break, cst.Continue, cst.Return, cst.Yield, cst.Await, cst.Global, cst.Nonlocal)
)


def drawn_from(
    target: cst.BaseExpression, over: cst.BaseExpression
) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """Yield names with what they take the rows of; None for the number of a turn."""
    if isinstance(target, cst.Name):
        yield target.value, over
        return
    if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
        return
    names = [one.value for one in target.elements]
    plain = [one.value for one in over.args if not one.star and one.keyword is None]
    if len(plain) != len(over.args) or not isinstance(over.func, cst.Name):
        return
    if over.func.value == "enumerate" and len(plain) == 1 and len(names) == 2:
        if isinstance(names[0], cst.Name):
            yield names[0].value, None
            yield from drawn_from(names[1], plain[0])
    elif over.func.value == "zip" and len(plain) == len(names) and all(map(is_name, names)):
        for name, one in zip(names, plain, strict=True):
            yield cst.ensure_type(name, cst.Name).value, one


def slices_of(node: cst.BaseExpression) -> tuple[cst.BaseExpression, int]:
    """Return the tensor and the dimension whose slices an expression gives in turn:
    `x.unbind(1)`, `x.transpose(0, 1)`. Another expression gives its rows."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return node, 0
    given = [one.value for one in node.args]
    if is_name(node.func.value) and node.func.value.value != "torch":  # type: ignore[attr-defined]
        given = [node.func.value, *given]
    if not given or not is_name(given[0]):
        return node, 0
    dims = [portable(one) for one in given[1:]]
    name = node.func.attr.value
    if name == "unbind" and dims in ([], ["0"], ["1"]):
        return given[0], int(dims == ["1"])
    is_turned = name in ("transpose", "swapaxes") and sorted(dims) == ["0", "1"]
    is_permuted = name == "permute" and dims == ["1", "0", *map(str, range(2, len(dims)))]
    return (given[0], 1) if is_turned or is_permuted else (node, 0)


def rebinds(node: cst.CSTNode, name: str) -> bool:
    """Return whether lines bind a name."""
    binding = cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr
    return any(
        isinstance(o, cst.Name) and o.value == name
        for one in within(node)
        if isinstance(one, binding)
        for o in (within(one.target) if isinstance(one.target, cst.Tuple) else [one.target])
    )


def leaves(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the parts of a sum, a difference, a product or a quotient of whole numbers."""
    arithmetic = cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, arithmetic):
        yield from leaves(node.left)
        yield from leaves(node.right)
    else:
        yield node


def listed_tensor(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor that `x.tolist()` lists."""
    is_call = isinstance(node, cst.Call) and not node.args
    if not is_call or not isinstance(node.func, cst.Attribute):  # type: ignore[attr-defined]
        return None
    return node.func.value if node.func.attr.value == "tolist" else None  # type: ignore[attr-defined]


def kept_rows(assign: cst.Assign) -> str | None:
    """Return the local whose shape all assigned names have for certain."""
    value = assign.value
    is_sort = (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value == "sort"
    )
    are_names = all(isinstance(one.target, cst.Name) for one in assign.targets)
    return shape_of(value) if are_names or is_sort else None


def shape_of(node: cst.BaseExpression) -> str | None:
    """Return the local whose shape an expression has for certain."""
    if isinstance(node, cst.Name):
        return node.value
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    x = node.func.value
    if isinstance(x, cst.Name) and x.value in ("torch", "F"):
        x = node.args[0].value if node.args and node.args[0].keyword is None else x
    return shape_of(x) if node.func.attr.value in KEEPS_SHAPE else None


def for_in(node: cst.BaseComp) -> cst.CompFor:
    return cst.ensure_type(node.for_in, cst.CompFor)


def within_calls(node: cst.CSTNode) -> bool:
    """Return whether a part of an expression is a call."""
    return any(isinstance(one, cst.Call) for one in within(node))


def is_name(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name)


def is_size(node: cst.Call) -> bool:
    """Return whether a call is `x.size(0)` or `len(x)`."""
    return size_read(node) is not None or (
        isinstance(node.func, cst.Name) and node.func.value == "len"
    )


def size_read(node: cst.CSTNode) -> tuple[str, int] | None:
    """Return tensor and dimension of a size whose dimension is counted from the first."""
    found = size_of(node)
    return found if found is not None and found[1] >= 0 else None


def sizes_made(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the sizes of a tensor that `torch.zeros(a, b)` makes."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return []
    root, name = node.func.value, node.func.attr.value
    if not isinstance(root, cst.Name) or root.value != "torch":
        return []
    given = [one.value for one in node.args if one.keyword is None and not one.star]
    if name == "full":
        given = given[:1]
    elif name not in ("zeros", "ones", "empty"):
        return []
    if len(given) == 1 and isinstance(given[0], cst.Tuple | cst.List):
        given = [one.value for one in given[0].elements]
    elif name == "full":
        return []
    return [] if any(isinstance(one, cst.StarredElement) for one in given) else given


def shape_read(assign: cst.Assign, name: str) -> Iterator[tuple[str, int]]:
    """Yield tensors and dimensions whose size an assignment gives to a name."""
    if len(assign.targets) != 1:
        return
    target, value = assign.targets[0].target, assign.value
    if isinstance(target, cst.Name):
        found = size_read(value)
        if found is not None and target.value == name:
            yield found
    elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        for each, size in zip(target.elements, value.elements, strict=False):
            found = size_read(size.value)
            if found is not None and is_name(each.value) and each.value.value == name:  # type: ignore[attr-defined]
                yield found
    elif isinstance(target, cst.Tuple):
        shape = value
        if isinstance(shape, cst.Call) and not shape.args:
            shape = shape.func
        is_shape = isinstance(shape, cst.Attribute) and shape.attr.value in ("shape", "size")
        if isinstance(shape, cst.Attribute) and is_shape and isinstance(shape.value, cst.Name):
            for dim, one in enumerate(target.elements):
                if isinstance(one, cst.StarredElement):
                    return
                if isinstance(one.value, cst.Name) and one.value.value == name:
                    yield shape.value.value, dim
