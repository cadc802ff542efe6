"""Leave out work on copies: of rows for edges and pairs, of embeddings, of products and orders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere
from cudal1_ci.propose.recorded.algebra import in_one_block, inserted, only_arguments, read_only_by
from cudal1_ci.propose.recorded.certainty import is_straight
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import INDEX_DTYPES, Swap, within
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place, bracketed
from cudal1_ci.propose.recorded.stacked import is_alike

FEWER = 2
"""Rows are looked up after a layer if they are at least so many times as many as there are."""


def find_gathered(call: Call) -> Iterator[Change]:
    """Find `self.linear(x[source])` with more sources than rows of x."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "linear":
            continue
        picked = graph.made_by(operation.value(0), "getitem", "index_select")
        place = source.place(operation)
        file = None if place is None else source.file(place.file)
        if picked is None or place is None or file is None or not isinstance(place.node, cst.Call):
            continue
        at = 2 if picked.name == "index_select" else 1
        x, index = graph.of(picked.value(0)), graph.of(picked.value(at, "index"))
        if x is None or index is None or index.dtype not in INDEX_DTYPES or len(x.shape) < 2:
            continue
        if at == 2 and picked.literal(1, "dim") != 0:
            continue
        many = graph.of(picked.output)
        if many is None or math.prod(many.shape[:-1]) < FEWER * math.prod(x.shape[:-1]):
            continue
        rows = source.expression(picked.value(0), operation)
        chosen = source.expression(picked.value(at, "index"), operation)
        argument = place.node.args[0]
        if rows is None or chosen is None or argument.keyword is not None:
            continue
        called = file.module.code_for_node(
            place.node.with_deep_changes(argument, value=cst.parse_expression(rows))
        )
        code = f"{called}[{chosen}]"
        if at == 2:
            code = f"{called}.index_select(0, {chosen})"
        yield Change(place.file, {place.node: code}, shown(operation, source))


# --- pairs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copied:
    """Rows that were copied for pairs: along a dimension of size 1."""

    value: int
    """The rows before they were copied."""
    dim: int | None
    """Where a dimension of size 1 is to be put in; None if the rows have it."""
    narrow: int
    """A value with the same last dimension."""
    along: int
    """The dimension of the pairs along which they were copied."""


def find_pairs(call: Call) -> Iterator[Change]:
    """Find a linear of `torch.cat([a of each pair, b of each pair], dim=-1)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name not in ("linear", "matmul"):
            continue
        place = source.place(operation)
        joined = graph.made_by(operation.value(0), "view", "reshape", "cat", "concat")
        shape, view = graph.of(operation.value(0)), None
        if joined is not None and joined.name in ("view", "reshape"):
            joined, view = graph.made_by(joined.value(0), "cat", "concat"), joined
        listed = None if joined is None else joined.argument(0)
        if joined is None or listed is None or place is None or shape is None:
            continue
        chain = [joined, *([view] if view is not None else []), operation]
        parts = [one.value for one in listed.items]
        rank = graph.num_dims(joined.output)
        dim = joined.literal(1, "dim")
        is_last = isinstance(dim, int) and dim % rank == rank - 1
        if len(parts) != 2 or not is_last or not is_straight(source, chain, operation):
            continue
        if not all(read_only_by(call, one.output, chain) for one in chain[:-1]):
            continue
        copied = [copied_rows(call, one, view) for one in parts]
        code = pair_code(call, operation, place, copied)
        if code is not None:
            yield Change(place.file, {place.node: code[0]}, shown(operation, source), code[1])


def copied_rows(call: Call, value: int | None, view: Operation | None) -> Copied | None:
    """Return the rows that a part of pairs was copied from."""
    graph = call.graph
    known = graph.of(value)
    if view is not None:
        return flat_copies(call, value, view)
    maker = graph.made_by(value, "expand", "repeat", "expand_as")
    inner = None if maker is None else graph.of(maker.value(0))
    if maker is None or inner is None or known is None or len(inner.shape) != len(known.shape):
        return None
    grown = [n for n, (a, b) in enumerate(zip(inner.shape, known.shape, strict=True)) if a != b]
    if len(grown) != 1 or inner.shape[grown[0]] != 1 or grown[0] == len(known.shape) - 1:
        return None
    base, found = maker.value(0), inserted(graph, maker.value(0))
    if base is None or found is None or found[1] == len(known.shape) - 1:
        return None
    return Copied(base, None, found[0], grown[0])


def flat_copies(call: Call, value: int | None, view: Operation) -> Copied | None:
    """Return the rows of `x.repeat(n, 1)` or of `x.repeat_interleave(n, dim=0)`, viewed as pairs
    of n and n."""
    graph = call.graph
    inner = graph.made_by(value, "view", "reshape")
    times: tuple[int | None, ...]
    if inner is not None:  # x.repeat(1, n).view(n * n, -1)
        maker, dim = graph.made_by(inner.value(0), "repeat"), 1
        times = (1, None)
    else:
        maker = graph.made_by(value, "repeat", "repeat_interleave")
        is_each = maker is not None and maker.name == "repeat_interleave"
        dim, times = (1, ()) if is_each else (0, (None, 1))
    x = None if maker is None else graph.of(maker.value(0))
    pairs = graph.of(view.output)
    if maker is None or x is None or pairs is None or len(x.shape) != 2 or len(pairs.shape) != 3:
        return None
    rows = x.shape[0]
    if pairs.shape[:2] != (rows, rows) or not counts_rows(call, maker, view):
        return None
    given = [maker.literal(n) for n in (1, 2)]
    if times:
        if [rows if one is None else one for one in times] != given:
            return None
    elif given[0] != rows or maker.literal(2, "dim") != 0:
        return None
    base = maker.value(0)
    return None if base is None else Copied(base, dim, base, dim)


def counts_rows(call: Call, maker: Operation, view: Operation) -> bool:
    """Return whether copies and pairs are counted by a name, not by a number."""
    for one in (maker, view):
        place = call.source.place(one)
        if place is None or not isinstance(place.node, cst.Call):
            return False
        first = place.node.args[0].value
        if isinstance(first, cst.Integer) and first.value != "1":
            return False
    return True


def pair_code(
    call: Call, operation: Operation, place: Place, copied: list[Copied | None]
) -> tuple[str, frozenset[str]] | None:
    """Return the sum of the products of both parts, each before it is copied."""
    graph, source = call.graph, call.source
    file = source.file(place.file)
    rows = []
    if len({one.along for one in copied if one is not None}) != len(copied):
        return None
    for one in copied:
        code = None if one is None else source.expression(one.value, operation)
        if code is None or one is None:
            return None
        rows.append((bracketed(code), one.dim))
    narrow = None if copied[0] is None else source.expression(copied[0].narrow, operation)
    if file is None or narrow is None or graph.of(operation.value(1)) is None:
        return None
    first_width = f"{bracketed(narrow)}.size(-1)"
    if operation.name == "matmul":
        weight = source.expression(operation.value(1), operation)
        if weight is None or graph.num_dims(operation.value(1)) != 2:
            return None
        spans = (f"[: {first_width}]", f"[{first_width} :]")
        terms = [
            f"({x} @ {bracketed(weight)}{span})" for (x, _), span in zip(rows, spans, strict=True)
        ]
        modules = frozenset[str]()
    else:
        layer = own_linear(call, operation, place)
        if layer is None:
            return None
        prefix, modules = source.functional(place.file)
        spans = (f"[:, : {first_width}]", f"[:, {first_width} :]")
        terms = [
            f"{prefix}.linear({x}, {layer}.weight{span}{more})"
            for (x, _), span, more in zip(rows, spans, ("", f", {layer}.bias"), strict=True)
        ]
    found = [
        one if dim is None else f"{one}.unsqueeze({dim})"
        for one, (_, dim) in zip(terms, rows, strict=True)
    ]
    code = " + ".join(found)
    parent = file.parents.get(place.node)
    is_free = isinstance(parent, cst.Assign | cst.Return | cst.Arg)
    return (code if is_free else f"({code})"), modules


def own_linear(call: Call, operation: Operation, place: Place) -> str | None:
    """Return the code of a linear that is called by itself: `self.name`."""
    node, file = place.node, call.source.file(place.file)
    weight = call.graph.of(operation.value(1))
    if not isinstance(node, cst.Call) or len(node.args) != 1 or file is None or weight is None:
        return None
    name = file.code(node.func)
    is_its = f".{weight.path}".endswith(f".{name.removeprefix('self.')}.weight")
    return name if name.startswith("self.") and is_its else None


def made_as(file: File, node: cst.CSTNode, name: str) -> cst.Call | None:
    """Return the only call that a class assigns to `self.name`."""
    owner = next((one for one in file.above(node) if isinstance(one, cst.ClassDef)), None)
    made = [
        one.value
        for one in (within(owner) if owner is not None else ())
        if isinstance(one, cst.Assign) and file.code(one.targets[0].target) == name
    ]
    is_own = name.startswith("self.") and len(made) == 1 and isinstance(made[0], cst.Call)
    return cst.ensure_type(made[0], cst.Call) if is_own else None


# --- bags -----------------------------------------------------------------------------------------


def find_bags(call: Call) -> Iterator[Change]:
    """Find `self.embedding(tokens).mean(dim=1)`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        looked_up = graph.made_by(operation.value(0), "embedding")
        if operation.name not in ("mean", "sum") or looked_up is None:
            continue
        place, there = source.place(operation), source.place(looked_up)
        file = None if there is None else source.file(there.file)
        if place is None or there is None or file is None or not isinstance(there.node, cst.Call):
            continue
        tokens = graph.of(looked_up.value(0))
        is_over_tokens = graph.dims(operation.literal(1, "dim"), operation.value(0)) == (1,)
        is_plain = operation.literal(2, "keepdim") in (None, False) and not operation.value(3)
        made = made_as(file, there.node, file.code(there.node.func))
        if tokens is None or len(tokens.shape) != 2 or made is None or not is_alike(file, made):
            continue
        if not (is_over_tokens and is_plain and read_only_by(call, looked_up.output, [operation])):
            continue
        if not only_arguments(operation, "dim", "keepdim"):
            continue
        ids = source.expression(looked_up.value(0), operation)
        if ids is None or not in_one_block(call, [looked_up, operation]):
            continue
        prefix, modules = source.functional(place.file)
        table = f"{file.code(there.node.func)}.weight"
        code = f'{prefix}.embedding_bag({ids}, {table}, mode="{operation.name}")'
        yield Change(place.file, {place.node: code}, shown(operation, source), modules)


# --- diagonals ------------------------------------------------------------------------------------


def find_diagonals(call: Call) -> Iterator[Change]:
    """Find `torch.diag(x @ y.T)`: of a product only the diagonal is read."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        product = graph.made_by(operation.value(0), "matmul")
        if operation.name not in ("diag", "diagonal") or len(operation.recorded.args) > 1:
            continue
        place = source.place(operation)
        if product is None or place is None or operation.recorded.kwargs:
            continue
        x, turned = product.value(0), graph.made_by(product.value(1), "t", "T", "mT", "transpose")
        y = None if turned is None else turned.value(0)
        left, right = graph.of(x), graph.of(y)
        if left is None or right is None or left.shape != right.shape or len(left.shape) != 2:
            continue
        if not read_only_by(call, product.output, [operation]):
            continue
        first, second = (source.expression(one, operation) for one in (x, y))
        file = source.file(place.file)
        if first is None or second is None or file is None:
            continue
        if not in_one_block(call, [product, operation]):
            continue
        other, old = bracketed(second), file.code(place.node)
        name = first if first.isidentifier() else free_name(file, "rows")
        old = old if name == first else old.replace(first, name)
        code = f"({name} * {other}).sum(dim=1) if {name}.shape == {other}.shape else {old}"
        new = with_name(file, place, name, first, f"({code})")
        if new:
            yield Change(place.file, new, shown(operation, source))


def free_name(file: File, wanted: str) -> str:
    """Return a name that the file does not have."""
    names = names_anywhere(file.module)
    while wanted in names:
        wanted += "_"
    return wanted


def with_name(file: File, place: Place, name: str, value: str, code: str) -> dict[cst.CSTNode, str]:
    """Return an expression's new code, which reads a name: of a local, or of a value that is
    bound in a line before; {} where there is no such line."""
    if name == value:
        return {place.node: code}
    if not isinstance(place.statement, cst.SimpleStatementLine):
        return {}
    bare = place.statement.with_changes(leading_lines=[])
    new = cst.ensure_type(bare.visit(Swap({place.node: code})), cst.SimpleStatementLine)
    return {place.statement: f"{name} = {value}\n{file.module.code_for_node(new)}"}


# --- permutations ---------------------------------------------------------------------------------


def find_inverses(call: Call) -> Iterator[Change]:
    """Find `order.argsort(dim=1)` of an order that an argsort made."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        order = graph.made_by(operation.value(0), "argsort", "sort")
        place = source.place(operation)
        file = None if place is None else source.file(place.file)
        if operation.name != "argsort" or order is None or place is None or file is None:
            continue
        rank, is_sort = graph.num_dims(order.value(0)), order.name == "sort"
        dims = {
            given % rank if isinstance(given := one.literal(1, "dim"), int) else rank - 1
            for one in (operation, order)
        }
        is_positions = operation.value(0) == order.recorded.outputs[int(is_sort)]
        is_plain = operation.literal(2, "descending") in (None, False)
        code = source.expression(operation.value(0), operation)
        if dims != {rank - 1} or not is_positions or not is_plain or code is None:
            continue
        name = code if code.isidentifier() else free_name(file, "order")
        places = f"torch.arange({name}.size(-1), device={name}.device)"
        places = places if rank == 1 else f"{places}.expand_as({name})"
        new = with_name(
            file, place, name, code, f"torch.empty_like({name}).scatter_(-1, {name}, {places})"
        )
        if new:
            yield Change(place.file, new, shown(operation, source), frozenset(("torch",)))


RULES = (
    RecordedRule(
        name="linear_before_gather",
        family="algebra",
        why="a linear reads each row once, before rows are looked up for many more edges",
        precondition="more rows are looked up than there are",
        find=find_gathered,
    ),
    RecordedRule(
        name="pairs_by_sum",
        family="algebra",
        why="a linear of two joined parts is a sum of two, each before it is copied for all pairs",
        precondition="each part is copied along one dimension, and nothing else reads the pairs",
        find=find_pairs,
    ),
    RecordedRule(
        name="embedding_bag",
        family="library call",
        why="embedding_bag sums rows of the table without writing all of them to memory",
        precondition="nothing else reads the embeddings; without a token the mean is 0, not NaN",
        find=find_bags,
    ),
    RecordedRule(
        name="diagonal_of_product",
        family="algebra",
        why="the diagonal of a product needs one dot product a row, not one for each pair",
        precondition="nothing else reads the product",
        find=find_diagonals,
    ),
    RecordedRule(
        name="inverse_permutation",
        family="algebra",
        why="the inverse of an order is written in one pass, where it was sorted again",
        precondition="what is sorted are the positions of a whole sort along the last dimension",
        find=find_inverses,
    ),
)
