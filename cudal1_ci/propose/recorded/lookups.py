"""Take the nearest code, and look it up, without what the result does not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.algebra import (
    OneHot,
    Term,
    in_one_block,
    index_code,
    joined,
    one_hot,
    only_arguments,
    read_only_by,
    terms,
    times_read,
    without_statement,
)
from cudal1_ci.propose.recorded.formulas import ELEMENTWISE
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.near import read_again, scattered, where
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import Place, bracketed

ONLY_INDICES = ("argmin", "argmax", "argsort")
EXACT_COUNTS = ("float32", "float64")
"""Types that hold any count of rows."""
WITH_INDICES = {"min": 1, "max": 1, "sort": 1, "topk": 2}
"""Position of `dim` by operations that return values and indices."""


def ordered(call: Call, operation: Operation) -> int | None:
    """Return the dimension along which only the order of the first argument matters; None if its
    values are used, or there is no such dimension."""
    graph = call.graph
    value, rank = operation.value(0), graph.num_dims(operation.value(0))
    if operation.name in ONLY_INDICES:
        position = 1
    elif operation.name in WITH_INDICES and len(operation.recorded.outputs) == 2:
        if not read_only_by(call, operation.output, ()) or is_kept(call, operation):
            return None
        position = WITH_INDICES[operation.name]
    else:
        return None
    given = operation.literal(position, "dim")
    if given is None and operation.name in ("argsort", "sort", "topk"):
        given = -1
    is_dim = isinstance(given, int) and not isinstance(given, bool) and value is not None
    return given % rank if is_dim and rank > 0 else None  # type: ignore[operator]


def is_kept(call: Call, operation: Operation) -> bool:
    """Return whether the values could be read although no operation reads them: they have a name
    that is read, or their tuple is not taken apart at once."""
    place = call.source.place(operation)
    file = None if place is None else call.source.file(place.file)
    if place is None or file is None:
        return True
    parent = file.parents[place.node]
    if isinstance(parent, cst.Subscript | cst.Attribute):
        tail = file.code(parent).removeprefix(file.code(place.node)).replace(" ", "")
        return tail not in ("[1]", "[-1]", ".indices")
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return True
    target = parent.targets[0].target
    if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return True
    name = target.elements[0].value
    if not isinstance(name, cst.Name):
        return True
    return place.function is not None and times_read(name.value, place.function.body) > 0


def find_nearest(call: Call) -> Iterator[Change]:
    """Find `argmin(|x|² - 2 x @ e.T + |e|²)` with terms that are the same for all codes."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        dim = ordered(call, operation)
        value = operation.value(0)
        made = graph.maker.get(value) if value is not None else None
        if dim is None or made is None or value is None:
            continue
        whole = made
        base: list[Term] = []
        if made.name == "addmm" and only_arguments(made, "alpha", "beta"):
            if made.literal(9, "beta") not in (None, 1):
                continue
            added = made.value(0)
            inner = graph.made_by(added, "add", "sub")
            if added is None or inner is None:
                continue
            value, made = added, inner
        base = terms(call, value, made)
        left = [one for one in base if not is_constant_along(call, one.value, value, dim)]
        place = source.place(made)
        if place is None or not left or len(left) == len(base):
            continue
        if not in_one_block(call, [whole, made]):
            call.miss(operation, scattered("the sum of distances", [whole, made]))
            continue
        code = None
        if whole is made and read_only_by(call, value, [operation]):
            code = as_addmm(call, left, value, made, dim)
        elif not read_only_by(call, value, [whole]) or not read_only_by(
            call, whole.output, [operation]
        ):
            values = (value, whole.output)
            call.miss(operation, read_again(call, "the distance", values, (whole, operation)))
            continue
        code = code or joined(call, left, made)
        if code is not None:
            needs = frozenset(("torch",)) if code.startswith("torch.") else frozenset[str]()
            yield Change(place.file, {place.node: code}, shown(made, source), needs)


def is_constant_along(call: Call, value: int, whole: int, dim: int) -> bool:
    """Return whether the code makes a term have one element along a dimension of the sum."""
    graph = call.graph
    known = graph.of(value)
    rank = graph.num_dims(whole)
    if known is None or len(known.shape) != rank or known.shape[dim] != 1:
        return False
    maker = graph.maker.get(value)
    if maker is None:
        return False
    if maker.name in ("sum", "mean", "norm", "vector_norm"):
        position = {"sum": 1, "mean": 1}.get(maker.name, 2)
        given = graph.dims(maker.literal(position, "dim"), maker.value(0))
        keeps = maker.literal(position + 1, "keepdim") is True
        return keeps and given == (dim,)
    if maker.name == "unsqueeze":
        given_dim = maker.literal(1, "dim")
        return isinstance(given_dim, int) and given_dim % rank == dim
    if maker.name in ("__getitem__", "getitem"):
        index = maker.argument(1)
        items = () if index is None else index.items
        return rank == len(items) and items[dim].text == "None"
    if maker.name in ("pow", "square") and maker.value(0) is not None:
        return is_constant_along(call, maker.value(0) or 0, whole, dim)
    return False


def as_addmm(call: Call, left: list[Term], whole: int, at: Operation, dim: int) -> str | None:
    """Return `addmm(sums, x, y, alpha=-2)` for a product and a term of one row."""
    graph, source = call.graph, call.source
    if len(left) != 2 or dim != 1 or graph.num_dims(whole) != 2:
        return None
    for product, row in (left, left[::-1]):
        maker = graph.made_by(product.value, "matmul", "einsum", "t", "transpose")
        known = graph.of(row.value)
        if maker is None or row.is_negative or row.factor or known is None:
            continue
        if maker.name not in ("matmul", "einsum") or len(known.shape) > 2:
            continue
        factors = product_factors(call, maker, at)
        code = source.expression(row.value, at)
        if factors is None or code is None:
            continue
        x, y, inner = factors
        number = product.factor or "1"
        if inner:
            number = inner if number == "1" else f"{number} * {inner}"
        sign = "-" if product.is_negative else ""
        alpha = f", alpha={sign}{number}" if sign or number != "1" else ""
        return f"torch.addmm({code}, {x}, {y}{alpha})"
    return None


def product_factors(call: Call, maker: Operation, at: Operation) -> tuple[str, str, str] | None:
    """Return the codes of both matrices of a product, and of a number in the first one."""
    graph, source = call.graph, call.source
    if maker.name == "einsum":
        letters = str(maker.literal(0)).replace(" ", "")
        sides, _, result = letters.partition("->")
        parts = sides.split(",")
        first, second = maker.value(1), maker.value(2)
        if len(parts) != 2 or not all(len(one) == 2 for one in (*parts, result)):
            return None
        a, b = parts
        if a[0] != result[0] or result[1] not in b or a[1] not in b or a[1] == result[1]:
            return None
        is_turned = b[0] == result[1]
    else:
        first, second = graph.parts(maker)
        is_turned = False
    if graph.num_dims(first) != 2 or graph.num_dims(second) != 2:
        return None
    inner = ""
    scaled = graph.made_by(first, "mul")
    if scaled is not None and (scaled.value(0) is None) != (scaled.value(1) is None):
        part = terms(call, first or 0, at)
        if len(part) == 1 and part[0].factor and not part[0].is_negative:
            first, inner = part[0].value, part[0].factor
    x, y = source.expression(first, at), source.expression(second, at)
    if x is None or y is None:
        return None
    return x, f"{bracketed(y)}.t()" if is_turned else y, inner


def find_one_hot_product(call: Call) -> Iterator[Change]:
    """Find `one_hot(index) @ weight`. The matrix stays where something else reads it than means
    and sums of its columns, which are counts of the index."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "matmul":
            continue
        left, right = graph.parts(operation)
        hot = one_hot(call, left)
        place = source.place(operation)
        known, weight = graph.of(left), graph.of(right)
        if hot is None or place is None or known is None or weight is None:
            continue
        if len(weight.shape) != 2 or hot.dim != len(known.shape) - 1:
            continue
        if not in_one_block(call, [operation, *hot.operations]):
            call.miss(operation, scattered("the one-hot matrix", [operation, *hot.operations]))
            continue
        index = index_code(call, hot, operation, with_dim=False)
        table = source.expression(right, operation)
        if index is None or table is None:
            call.miss(operation, f"index or table has no code {where(operation)}")
            continue
        prefix, modules = call.source.functional(place.file)
        new: dict[cst.CSTNode, str] = {place.node: f"{prefix}.embedding({index}, {table})"}
        counts = column_counts(call, hot, right, place)
        made = {one.index: one for count in counts for one in count.operations}
        made |= {one.index: one for one in hot.operations}
        chain = [operation, *(count.operation for count in counts), *made.values()]
        if all(read_only_by(call, one.output, chain) for one in made.values()):
            removed = scattered_lines(call, tuple(made.values()), place.function, 1 + len(counts))
            if removed is not None:
                new |= removed | {count.node: count.code for count in counts}
        yield Change(place.file, new, shown(operation, source), modules)


@dataclass(frozen=True)
class ColumnCount:
    """A sum or a mean of the rows of a one-hot matrix: how often each index is there."""

    operation: Operation
    node: cst.CSTNode
    code: str
    """The same of the index."""
    operations: tuple[Operation, ...]
    """Those that made the matrix, with its casts."""


def column_counts(call: Call, hot: OneHot, table: int | None, product: Place) -> list[ColumnCount]:
    """Return the sums and means over the rows of a one-hot matrix that is multiplied with a
    table."""
    graph, source, found = call.graph, call.source, []
    weight = graph.of(table)
    for operation in graph.operations:
        value = operation.value(0)
        read, place = graph.of(value), source.place(operation)
        if operation.name not in ("mean", "sum") or read is None or weight is None:
            continue
        if place is None or place.file != product.file or graph.num_dims(value) != 2:
            continue
        if read.dtype != weight.dtype or read.dtype not in EXACT_COUNTS:
            continue
        if graph.dims(operation.literal(1, "dim"), value) != (0,):
            continue
        if operation.literal(2, "keepdim") not in (None, False):
            continue
        if not only_arguments(operation, "dim", "axis", "keepdim"):
            continue
        other = one_hot(call, value)
        if other is None or other.dim != 1 or other.operations[-1] != hot.operations[-1]:
            continue
        index = index_code(call, other, operation, with_dim=False)
        codes = source.expression(table, operation)
        if index is None or codes is None:
            continue
        named = [source.expression(value, operation) for value in (other.column, other.index)]
        rows = next((one for one in named if one and one.isidentifier()), index)
        x, number = bracketed(codes), f"{bracketed(rows)}.shape[0]"
        code = f"{x}.new_zeros({x}.shape[0]).index_add_(0, {index}, {x}.new_ones({number}))"
        if operation.name == "mean":
            code = f"({code} / {number})"
        found.append(ColumnCount(operation, place.node, code, other.operations))
    return found


def find_segment_sums(call: Call) -> Iterator[Change]:
    """Find `one_hot(index, n).t() @ x`, which adds rows by their index."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        left, right = graph.parts(operation)
        turned = graph.made_by(left, "t", "T", "mT", "transpose")
        place = source.place(operation)
        if operation.name != "matmul" or turned is None or place is None:
            continue
        if turned.name == "transpose":
            swapped = (turned.literal(1, "dim0"), turned.literal(2, "dim1"))
            if graph.dims(swapped, left) != (0, 1):
                continue
        hot = one_hot(call, turned.value(0))
        if hot is None or hot.operations[-1].name != "one_hot" or hot.dim != 1:
            continue
        if graph.num_dims(left) != 2 or graph.num_dims(right) != 2:
            continue
        chain = [operation, turned, *hot.operations]
        made = [one.output for one in chain[1:]]
        if not in_one_block(call, chain) or not all(read_only_by(call, o, chain) for o in made):
            continue
        index, rows = (
            index_code(call, hot, operation, with_dim=False),
            source.expression(right, operation),
        )
        count = source.argument_code(hot.operations[-1], 1, operation)
        if index is None or rows is None or count is None:
            continue
        x = bracketed(rows)
        code = f"{x}.new_zeros({count}, {x}.size(1)).index_add_(0, {index}, {rows})"
        yield Change(place.file, {place.node: code}, shown(operation, source))


def find_wide_counts(call: Call) -> Iterator[Change]:
    """Find `x.new_zeros(n, x.size(1)).scatter_add_(0, index.expand_as(x), ones_like(x))`, which
    counts the same in each column."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "scatter_add_" or operation.literal(1, "dim") != 0:
            continue
        zeros = graph.made_by(operation.value(0), "new_zeros")
        index = graph.made_by(operation.value(2), "expand_as")
        ones = graph.made_by(operation.value(3), "ones_like")
        place, reader = source.place(operation), graph.sole_reader(operation.output)
        if zeros is None or index is None or ones is None or place is None or reader is None:
            continue
        x = index.value(1)
        column = graph.made_by(index.value(0), "view", "reshape", "unsqueeze")
        is_column = column is not None and (
            source.argument_code(column, len(column.recorded.args) - 1, column) == "1"
            if column.name != "unsqueeze"
            else graph.num_dims(column.value(0)) == 1 and column.literal(1, "dim") in (1, -1)
        )
        if not is_column or {zeros.value(0), ones.value(0)} != {x} or graph.num_dims(x) != 2:
            continue
        named, rows = source.expression(x, operation), source.expression(index.output, operation)
        codes = [source.argument_code(zeros, n, operation) for n in (0, 1, 2)]
        widths = [f"{named}.{width}" for width in ("size(1)", "shape[1]", "size(-1)", "shape[-1]")]
        if None in (rows, named, *codes) or codes[2] not in widths or len(zeros.recorded.args) != 3:
            continue
        is_plain = not ones.recorded.kwargs and not zeros.recorded.kwargs
        node = place.node.func if isinstance(place.node, cst.Call) else None
        made = source.place(zeros)
        is_new = isinstance(node, cst.Attribute) and made is not None and node.value is made.node
        is_copied = reader.name in {*ELEMENTWISE} - CASTS and only_arguments(reader, "min", "max")
        chain = [operation, zeros, index, ones, *([column] if column is not None else [])]
        if not is_read_once(place):
            continue
        if not is_plain or not is_new or not is_copied or not in_one_block(call, chain):
            continue
        code = (
            f"{named}.new_zeros({codes[1]})"
            f".index_add_(0, {bracketed(rows or '')}[:, 0], {named}.new_ones({named}.size(0)))"
            f"[:, None].expand(-1, {codes[2]})"
        )
        yield Change(place.file, {place.node: code}, shown(operation, source))


def is_read_once(place: Place) -> bool:
    """Return whether an expression is bound to a name that its function reads once."""
    statement, function = place.statement, place.function
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(line, cst.Assign) or line.value is not place.node or function is None:
        return False
    target = line.targets[0].target
    is_name = isinstance(target, cst.Name) and len(line.targets) == 1
    return is_name and times_read(cst.ensure_type(target, cst.Name).value, function.body) == 1


def scattered_lines(
    call: Call,
    operations: tuple[Operation, ...],
    function: cst.FunctionDef | None,
    num_reads: int,
) -> dict[cst.CSTNode, str] | None:
    """Return the removal of the lines that fill a one-hot matrix; None if its name is read more
    often than `num_reads` times by other lines."""
    removed: dict[cst.CSTNode, str] = {}
    names: set[str] = set()
    for one in operations:
        if one.name not in ("scatter_", "fill_", "zero_"):
            continue
        lines = without_statement(call, one)
        place = call.source.place(one)
        if place is None:
            return None
        if not lines and not isinstance(place.statement, cst.SimpleStatementLine):
            return None
        removed |= lines
        for line in lines:
            small = cst.ensure_type(line, cst.SimpleStatementLine).body[0]
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                names.add(small.targets[0].target.value)
            elif isinstance(small, cst.Expr):
                node: cst.CSTNode = small.value
                while isinstance(node, cst.Call | cst.Attribute):
                    node = node.func if isinstance(node, cst.Call) else node.value
                if isinstance(node, cst.Name):
                    names.add(node.value)
    # Removed lines that change it read it, too.
    changes = dict.fromkeys(names, 0)
    for line in removed:
        small = cst.ensure_type(line, cst.SimpleStatementLine).body[0]
        for name in names:
            changes[name] += times_read(name, small)
    if function is not None and any(
        times_read(one, function.body) > changes[one] + num_reads for one in names
    ):
        return None
    return removed


RULES = (
    RecordedRule(
        name="nearest_code",
        family="algebra",
        why="the order of distances does not depend on a term that all of them share",
        precondition="only indices are used",
        find=find_nearest,
    ),
    RecordedRule(
        name="one_hot_lookup",
        family="algebra",
        why="a product with a one-hot matrix copies rows, and its columns' means are counts",
        precondition="the matrix is one-hot by what makes it",
        find=find_one_hot_product,
    ),
    RecordedRule(
        name="segment_sums",
        family="algebra",
        why="a product with a turned one-hot matrix adds rows, and multiplies the rest with zero",
        precondition="nothing else reads the one-hot matrix",
        find=find_segment_sums,
    ),
    RecordedRule(
        name="counts_once",
        family="algebra",
        why="rows are counted by their index once, not in each column",
        precondition="the index is the same in each column",
        find=find_wide_counts,
    ),
)
