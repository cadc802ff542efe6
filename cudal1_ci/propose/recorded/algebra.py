"""Read sums, inserted dimensions and one-hot matrices of recorded operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import Place, Source, bracketed

BLOCKS = (
    *(cst.If, cst.IfExp, cst.For, cst.While, cst.Try, cst.With, cst.Lambda),
    *(cst.CompFor, cst.BaseComp, cst.Match, cst.BooleanOperation),
)
ZEROS = ("zeros", "zeros_like", "new_zeros", "zero_")


@dataclass(frozen=True)
class Term:
    """A part of a sum."""

    is_negative: bool
    value: int
    factor: str = ""
    """Code of a positive number that the value is multiplied with; "" for none."""


def terms(call: Call, value: int, at: Operation, is_negative: bool = False) -> list[Term]:
    """Return the terms that a value is the sum of; itself if it is made otherwise, or if others
    read it too."""
    graph = call.graph
    maker = graph.maker.get(value)
    one = [Term(is_negative, value)]
    if maker is None or maker.recorded.kwargs or maker.recorded.frame != at.recorded.frame:
        return one
    if maker is not at and graph.sole_reader(value) is None:
        return one
    left, right = graph.parts(maker)
    if maker.name in ("add", "sub") and left is not None and right is not None:
        flips = is_negative != (maker.name == "sub")
        return [*terms(call, left, at, is_negative), *terms(call, right, at, flips)]
    if maker.name == "neg" and left is not None:
        return terms(call, left, at, not is_negative)
    if maker.name == "mul" and (left is None) != (right is None):
        code = number_code(call.source, maker, 0 if left is None else 1)
        scaled = left if right is None else right
        if code is not None and scaled is not None:
            return [Term(is_negative != code.startswith("-"), scaled, code.lstrip("-"))]
    return one


def number_code(source: Source, operation: Operation, position: int) -> str | None:
    """Return the code of an argument that is written as a number."""
    found = source.operands(operation)
    node = found[position] if position < len(found) else None
    sign = ""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        node, sign = node.expression, "-"
    is_number = isinstance(node, cst.Integer | cst.Float) and not node.lpar
    return f"{sign}{node.value}" if is_number and isinstance(node, cst.BaseNumber) else None  # type: ignore[attr-defined]


def inserted(graph: Graph, value: int | None) -> tuple[int, int] | None:
    """Return the value without a dimension of size 1 that `unsqueeze` or `[:, None]` put in, and
    where that is; expansions are looked through."""
    maker = graph.made_by(value, "unsqueeze", "__getitem__", "getitem", "expand", "expand_as")
    if maker is None:
        return None
    inner = maker.value(0)
    if inner is None:
        return None
    if maker.name in ("expand", "expand_as"):
        return inserted(graph, inner) if graph.num_dims(inner) == graph.num_dims(value) else None
    if maker.name == "unsqueeze":
        dim = maker.literal(1, "dim")
        return (inner, dim % graph.num_dims(value)) if isinstance(dim, int) else None
    given = maker.argument(1)
    if given is None:
        return None
    items = given.items if given.kind in ("tuple", "list") else (given,)
    axis, found = 0, []
    for one in items:
        if one.kind == "slice" and all(bound.text == "None" for bound in one.items):
            axis += 1
        elif one.kind == "literal" and one.text == "None":
            found.append(axis)
            axis += 1
        elif one.kind == "literal" and one.text == "Ellipsis":
            axis += graph.num_dims(inner) - (len(items) - 1 - sum(i.text == "None" for i in items))
        else:
            return None
    return (inner, found[0]) if len(found) == 1 else None


@dataclass(frozen=True)
class OneHot:
    """A matrix that is 1 at one index along a dimension, and 0 elsewhere."""

    index: int | None
    """Without that dimension, if there is such a value."""
    dim: int
    operations: tuple[Operation, ...]
    """Those that made it."""
    column: int | None = None
    """The index with that dimension, of size 1, if there is such a value."""


def one_hot(call: Call, value: int | None) -> OneHot | None:
    """Return how a value is a one-hot matrix: by `one_hot`, or by `scatter_` into zeros."""
    graph = call.graph
    passed = []
    rank = graph.num_dims(value)
    moved: tuple[int, ...] = tuple(range(rank))
    while (maker := graph.made_by(value, *PASSED)) is not None:
        if maker.name == "permute":
            order = maker.literal(1) if len(maker.recorded.args) == 2 else None
            given = order if isinstance(order, tuple) else numbers(maker)
            order_of = [one for one in given if isinstance(one, int)]
            if len(order_of) != rank:
                return None
            moved = tuple(order_of[one] % rank for one in moved)
        if graph.of(maker.value(0)) is None:
            return None
        passed.append(maker)
        value = maker.value(0)
    maker = graph.made_by(value, "one_hot")
    if maker is not None:
        index = maker.value(0)
        has_classes = maker.argument(1, "num_classes") is not None
        if index is None or not has_classes:
            return None
        if moved[0 : rank - 1] == tuple(range(rank - 1)):
            return OneHot(index, rank - 1, (*passed, maker))
        is_first = rank > 2 and moved == (0, rank - 1, *range(1, rank - 1))
        return OneHot(index, 1, (*passed, maker)) if is_first else None
    maker = graph.made_by(value, "scatter_", "scatter")
    if maker is None or moved != tuple(range(rank)):
        return None
    fill = maker.literal(3, "value") if maker.value(3, "src") is None else ones_value(call, maker)
    zeros = graph.made_by(maker.value(0), *ZEROS, "fill_")
    if zeros is None or fill != 1 or isinstance(fill, bool) or states_rows(call, zeros):
        return None
    if zeros.name == "fill_" and zeros.literal(1) != 0:
        return None
    return scattered(graph, maker, (*passed, maker, zeros))


def scattered(graph: Graph, maker: Operation, operations: tuple[Operation, ...]) -> OneHot | None:
    """Return where a `scatter_` writes, if it writes one element along a dimension."""
    dim, column = maker.literal(1, "dim"), maker.value(2, "index")
    while (view := graph.made_by(column, "data", "detach")) is not None:
        column = view.value(0)
    known, wide = graph.of(column), graph.of(maker.output)
    if known is None or wide is None or not isinstance(dim, int):
        return None
    rank, shape = len(wide.shape), [*wide.shape]
    shape[dim % rank] = 1
    if tuple(shape) != known.shape or not has_one_column(graph, column, dim % rank):
        return None
    inner = inserted(graph, column)
    index = inner[0] if inner is not None and graph.num_dims(inner[0]) == rank - 1 else None
    return OneHot(index, dim % rank, operations, column)


def has_one_column(graph: Graph, value: int | None, dim: int) -> bool:
    """Return whether the code makes a dimension of an index have one element."""
    inner = inserted(graph, value)
    if inner is not None:
        return inner[1] == dim
    maker = graph.made_by(value, "view", "reshape", "argmax", "argmin")
    if maker is None:
        return False
    if maker.name in ("argmax", "argmin"):
        is_kept = maker.literal(2, "keepdim") is True
        return is_kept and graph.dims(maker.literal(1, "dim"), maker.value(0)) == (dim,)
    given = maker.literal(1) if len(maker.recorded.args) == 2 else None
    sizes = given if isinstance(given, tuple) else numbers(maker)
    return len(sizes) == graph.num_dims(value) > dim and sizes[dim] == 1


def index_code(call: Call, hot: OneHot, at: Operation, with_dim: bool) -> str | None:
    """Return the code of the index of a one-hot matrix, with or without its dimension."""
    wanted, other = (hot.column, hot.index) if with_dim else (hot.index, hot.column)
    codes = [(value, call.source.expression(value, at)) for value in (wanted, other)]
    # What has a name is not computed again.
    for value, code in sorted(codes, key=lambda one: not (one[1] or "").isidentifier()):
        if code is None:
            continue
        if value == wanted:
            return code
        dim = hot.dim if with_dim or value == hot.column else -1
        return f"{bracketed(code)}.{'unsqueeze' if with_dim else 'squeeze'}({dim})"
    return None


PASSED = ("float", "half", "bfloat16", "double", "to", "type", "type_as", "detach", "permute")


def numbers(operation: Operation) -> tuple[object, ...]:
    """Return the literal arguments after the first one."""
    return tuple(literal(one) for one in operation.recorded.args[1:])


def ones_value(call: Call, scatter: Operation) -> float | None:
    """Return 1 if a tensor of ones is scattered."""
    found = call.graph.made_by(scatter.value(3, "src"), "ones", "ones_like", "new_ones")
    return None if found is None else 1.0


def states_rows(call: Call, zeros: Operation) -> bool:
    """Return whether the number of rows of a matrix of zeros is written as a number."""
    if zeros.name not in ("zeros", "new_zeros"):
        return False
    place = call.source.place(zeros)
    if place is None or not isinstance(place.node, cst.Call) or not place.node.args:
        return True
    first = place.node.args[0].value
    if isinstance(first, cst.Tuple | cst.List) and first.elements:
        first = first.elements[0].value
    return isinstance(first, cst.Integer)


def read_only_by(call: Call, value: int | None, readers: Sequence[Operation]) -> bool:
    """Return whether only these operations read a value, as the recording tells it."""
    graph = call.graph
    allowed = {one.index for one in readers}
    return (
        value is not None
        and value not in graph.recording.outputs
        and all(one.index in allowed for one in graph.readers.get(value, ()))
    )


def in_one_block(call: Call, operations: Sequence[Operation]) -> bool:
    """Return whether operations of one function run together: in the same branches and loops."""
    found = set()
    for one in operations:
        place = call.source.place(one)
        file = None if place is None else call.source.file(place.file)
        if place is None or file is None:
            return False
        above: list[cst.CSTNode] = []
        for node in file.above(place.node):
            if isinstance(node, cst.FunctionDef):
                above.append(node)
                break
            if isinstance(node, BLOCKS):
                above.append(node)
        found.add((one.recorded.frame, tuple(id(node) for node in above)))
    return len(found) == 1


def without_statement(call: Call, operation: Operation) -> dict[cst.CSTNode, str]:
    """Return the removal of the line that changes a tensor which is no longer read: `x.fill_(0)`
    or `x = zeros.fill_(0)`; {} if it is part of another line."""
    place = call.source.place(operation)
    line = None if place is None else place.statement
    if place is None or not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return {}
    small = line.body[0]
    is_alone = isinstance(small, cst.Expr) and small.value is place.node
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        named = isinstance(small.targets[0].target, cst.Name)
        is_alone = named and isinstance(small.value, cst.Call)
    return {line: ""} if is_alone else {}


def times_read(name: str, node: cst.CSTNode) -> int:
    """Return how often statements read a name."""
    count = 0

    class Collect(cst.CSTVisitor):
        def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

        def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:  # noqa: N802
            return isinstance(node.target, cst.Attribute | cst.Subscript)

        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            nonlocal count
            count += node.value == name

    node.visit(Collect())
    return count


def joined(call: Call, parts: Sequence[Term], at: Operation) -> str | None:
    """Return the code of a sum, with a positive term first if there is one."""
    text = ""
    for one in sorted(parts, key=lambda term: term.is_negative):
        code = call.source.expression(one.value, at)
        if code is None:
            return None
        is_product = not one.factor and is_unbracketed_product(code)
        code = code if is_product else bracketed(code)
        code = f"{one.factor} * {code}" if one.factor else code
        sign = "-" if one.is_negative else "+"
        text += f" {sign} {code}" if text else ("-" if one.is_negative else "") + code
    return text


def is_unbracketed_product(code: str) -> bool:
    """Return whether code is a product, which binds closer than a sum."""
    node = cst.parse_expression(code)
    products = cst.Multiply | cst.MatrixMultiply | cst.Divide
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, products)


def only_arguments(operation: Operation, *names: str) -> bool:
    """Return whether an operation has no other named arguments than these, but for None."""
    return all(
        one.name in names or one.argument.text == "None" for one in operation.recorded.kwargs
    )


def sums_over(graph: Graph, operation: Operation | None) -> tuple[int, ...] | None:
    """Return the dimensions that a sum is over, without keeping them; () for all; None if it is
    another operation."""
    if operation is None or operation.name != "sum":
        return None
    if not only_arguments(operation, "dim", "axis", "keepdim"):
        return None
    if operation.literal(2, "keepdim") not in (None, False):
        return None
    given = operation.literal(1, "dim")
    given = operation.literal(1, "axis") if given is None else given
    if given is None:
        return ()
    return graph.dims(given, operation.value(0)) or None


def in_place_of(call: Call, place: Place, code: str) -> str:
    """Return an operator's code in brackets, where the expression that it replaces needs them."""
    file = call.source.file(place.file)
    parent = None if file is None else file.parents.get(place.node)
    is_free = isinstance(parent, cst.Assign | cst.Return | cst.Arg | cst.AnnAssign)
    return code if is_free else f"({code})"
