"""Leave out copies that nothing needs: what reads them reads the original as well."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.recorded.algebra import in_place_of
from cudal1_ci.propose.recorded.graph import Operation, literal
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.reads import PRODUCTS, READING, only_read, writes
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place

LEAST_BYTES = 1 << 12
"""A smaller copy takes no time to speak of."""
BROADCASTING = (READING | {"matmul"}) - {"embedding", "layer_norm", "linear", "einsum"}
BOOLEANS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "isnan"))
"""Operations that give truth values whatever they are given."""
EXACT = frozenset(("float", "double", "half", "bfloat16", "int", "long"))


def find_copies(call: Call) -> Iterator[Change]:
    """Find `x.clone()`, `w.transpose(0, 1).contiguous()` before a product, and
    `m.expand(n, -1).clone()`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place = source.place(operation)
        if operation.name not in ("clone", "contiguous") or place is None:
            continue
        known, node = graph.of(operation.output), place.node
        inner = graph.of(operation.value(0))
        if known is None or inner is None or operation.output == operation.value(0):
            continue
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or node.args:
            continue
        is_expanded = 0 in inner.stride and known.shape == inner.shape
        by = READING
        if operation.name == "contiguous" or is_expanded:
            by = BROADCASTING if is_expanded else PRODUCTS
        if not is_large(call, operation) or not is_left_alone(call, operation):
            continue
        if not only_read(call, operation, by) or not has_no_views(call, operation):
            continue
        file = source.file(place.file)
        if file is not None:
            code = file.code(node.func.value)
            yield Change(place.file, {node: code}, shown(operation, source))


def is_large(call: Call, operation: Operation) -> bool:
    known = call.graph.of(operation.output)
    size = 4
    for one in known.shape if known is not None else (0,):
        size *= one
    return size >= LEAST_BYTES


def has_no_views(call: Call, operation: Operation) -> bool:
    """Return whether no view of a copy is taken: of another layout it may be refused."""
    readers = call.graph.readers.get(operation.output or 0, [])
    return all(one.name not in ("view", "reshape", "flatten", "unflatten") for one in readers)


def is_left_alone(call: Call, operation: Operation) -> bool:
    """Return whether nothing is written to from a copy to the last operation that reads it, or a
    view of it."""
    graph = call.graph
    last = operation.index
    waiting = [operation.output]
    while waiting:
        value = waiting.pop()
        for one in graph.readers.get(value, []) if value is not None else ():
            last = max(last, one.index)
            if one.name not in READING:
                waiting += [made for made in one.recorded.outputs if made != value]
    return not writes(call, operation, last)


def find_repeats(call: Call) -> Iterator[Change]:
    """Find `bias.unsqueeze(0).repeat(n, 1)` that is only added: `expand` gives a view."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place = source.place(operation)
        if operation.name != "repeat" or place is None or not is_large(call, operation):
            continue
        node, file = place.node, source.file(place.file)
        inner, known = graph.of(operation.value(0)), graph.of(operation.output)
        if file is None or inner is None or known is None or not isinstance(node, cst.Call):
            continue
        sizes = expanded(call, file, place, operation)
        if sizes is None or not is_left_alone(call, operation):
            continue
        if not only_read(call, operation, BROADCASTING) or not has_no_views(call, operation):
            call.miss(operation, f"what is repeated {where(operation)} is more than read")
            continue
        owner = cst.ensure_type(node.func, cst.Attribute).value
        code = f"{file.code(owner)}.expand({', '.join(sizes)})"
        yield Change(place.file, {node: code}, shown(operation, source))


def expanded(call: Call, file: File, place: Place, operation: Operation) -> list[str] | None:
    """Return the sizes of `expand` that repeats as `repeat` does, if only dimensions of size 1 are
    repeated."""
    graph = call.graph
    node = cst.ensure_type(place.node, cst.Call)
    inner = graph.of(operation.value(0))
    given = [one.value for one in node.args if one.keyword is None and not one.star]
    if len(given) == 1 and isinstance(given[0], cst.Tuple | cst.List):
        given = [one.value for one in given[0].elements]
    counts = [literal(one) for one in operation.recorded.args[1:]]
    if len(counts) == 1 and isinstance(counts[0], tuple):
        counts = [*counts[0]]
    if inner is None or len(given) != len(counts) or not all(isinstance(n, int) for n in counts):
        return None
    if not isinstance(node.func, cst.Attribute) or any(one.keyword for one in node.args):
        return None
    added = len(counts) - len(inner.shape)
    sizes: list[str] = []
    for dim, (count, code) in enumerate(zip(counts, given, strict=True)):
        is_kept = isinstance(code, cst.Integer) and count == 1
        if dim < added:
            sizes.append(file.code(code))
        elif is_kept:
            sizes.append("-1")
        elif is_one(call, place, operation.value(0), dim - added):
            sizes.append(file.code(code))
        else:
            return None
    return sizes if any(one != "-1" for one in sizes) else None


def is_one(call: Call, place: Place, value: int | None, dim: int) -> bool:
    """Return whether the code makes a dimension have size 1."""
    graph = call.graph
    maker, known = graph.made_by(value), graph.of(value)
    if known is None or known.shape[dim] != 1:
        return False
    if maker is None:
        return known.origin == "parameter" and is_made_with_one(call, place, known.path, dim)
    if maker.name == "unsqueeze":
        at = maker.literal(1, "dim")
        if not isinstance(at, int):
            return False
        at %= len(known.shape)
        return at == dim or is_one(call, place, maker.value(0), dim - (dim > at))
    if maker.name == "getitem":
        index = maker.argument(1)
        items = () if index is None else index.items if index.kind == "tuple" else (index,)
        is_plain = all(
            one.kind == "slice" or (one.kind == "literal" and one.text == "None") for one in items
        )
        return is_plain and dim < len(items) and items[dim].text == "None"
    return maker.name in ("mean", "sum", "amax", "amin") and (
        maker.literal(2, "keepdim") is True
        and graph.dims(maker.literal(1, "dim"), maker.value(0)) == (dim,)
    )


def is_made_with_one(call: Call, place: Place, path: str, dim: int) -> bool:
    """Return whether the class only makes a parameter as `nn.Parameter(torch.zeros(1, n))`, with a
    1 at a dimension."""
    file = call.source.file(place.file)
    owner = next(
        (one for one in (file.above(place.node) if file else ()) if isinstance(one, cst.ClassDef)),
        None,
    )
    if file is None or owner is None:
        return False
    name = f"self.{path.rpartition('.')[2]}"
    made = [
        one.value
        for one in within(owner)
        if isinstance(one, cst.Assign) and file.code(one.targets[0].target) == name
    ]
    if len(made) != 1 or not isinstance(made[0], cst.Call) or not made[0].args:
        return False
    inner = made[0].args[0].value
    if not file.code(made[0].func).endswith("Parameter") or not isinstance(inner, cst.Call):
        return False
    given = [one.value for one in inner.args if one.keyword is None and not one.star]
    is_known = file.code(inner.func) in ("torch.zeros", "torch.ones", "torch.randn", "torch.rand")
    return is_known and dim < len(given) and file.code(given[dim]) == "1"


def find_casts(call: Call) -> Iterator[Change]:
    """Find `(x > 0).float()[...].bool()`: truth values are exact in each dtype."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        place = source.place(operation)
        is_back = operation.name == "bool" or (
            operation.name == "to" and operation.literal(1, "dtype") == "torch.bool"
        )
        up = graph.made_by(operation.value(0), *EXACT)
        truth = None if up is None else graph.made_by(up.value(0), *BOOLEANS)
        if not is_back or up is None or truth is None or place is None:
            continue
        if len(operation.recorded.args) > 2 or up.recorded.frame != operation.recorded.frame:
            continue
        code = source.expression(up.value(0), operation)
        if code is None or not only_read(call, operation, READING | {"getitem"}):
            continue
        if not is_left_alone(call, up):
            continue
        node = cst.parse_expression(code).with_changes(lpar=[], rpar=[])
        code = in_place_of(call, place, portable(node))
        yield Change(place.file, {place.node: code}, shown(operation, source))


RULES = (
    RecordedRule(
        name="needless_copy_of_tensor",
        family="memory layout",
        why="what only reads a tensor reads the original as fast",
        precondition="nothing writes to the copy or the original while it is read",
        find=find_copies,
        is_small=True,
    ),
    RecordedRule(
        name="repeat_as_view",
        family="memory layout",
        why="expand is a view with stride 0: nothing is written, and readers load one copy",
        precondition="only dimensions of size 1 are repeated, and what is repeated is only read",
        find=find_repeats,
        is_small=True,
    ),
    RecordedRule(
        name="cast_and_back",
        family="memory layout",
        why="truth values are the same after a cast and back",
        precondition="a comparison made them, and they are only read",
        find=find_casts,
        is_small=True,
    ),
)
