"""Select the first elements of an order, or one of them, without sorting the others."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.near import where
from cudal1_ci.propose.recorded.repeats import free_name
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place, Source, bracketed
from cudal1_ci.records.recording import Argument

SHARE = 8
"""A selection of at least one of so many elements is left as it is."""
WHOLE = Argument(kind="slice", items=(Argument(kind="literal", text="None"),) * 3)
OPTIONS = frozenset(("dim", "descending", "stable"))


def find_first(call: Call) -> Iterator[Change]:
    """Find `x.sort(dim=1).values[:, :k]`, also of `values, order = x.sort(dim=1)`, and
    `x.argsort(dim=1)[:, :k]`."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name not in ("sort", "argsort"):
            continue
        readers = first_readers(graph, operation)
        place, x = source.place(operation), operation.value(0)
        known, file = graph.of(x), None if place is None else source.file(place.file)
        if not readers or place is None or file is None or known is None or x is None:
            continue
        most = max(stop for _, stop in readers)
        dim, size = dim_of(graph, operation), known.shape[dim_of(graph, operation)]
        options = options_of(source, operation)
        if options is None or "float" not in known.dtype or most * SHARE > size:
            continue
        counts = {count_code(source, one, operation) for one, _ in readers}
        count, rows = counts.pop(), source.argument_code(operation, 0, operation)
        if counts or count is None or rows is None:
            call.miss(operation, f"the number of elements is not known {where(operation)}")
            continue
        is_last = dim == len(known.shape) - 1 and "dim" not in options
        axis = "-1" if is_last else options.get("dim", "-1")
        name = name_for(place, rows)
        given = [f"min({count}, {name}.size({axis}))"]
        given += [] if is_last else [f"dim={axis}"]
        given += [] if options.get("descending") == "True" else ["largest=False"]
        code = f"torch.topk({name}, {', '.join(given)})"
        code += ".indices" if operation.name == "argsort" else ""
        new = with_name(file, place, code, name, rows)
        if new:
            yield Change(place.file, new, shown(operation, source), frozenset(("torch",)))


def name_for(place: Place, code: str) -> str:
    """Return a name or an attribute that code is, or else a free name for what it computes."""
    is_held = isinstance(cst.parse_expression(code), cst.Name | cst.Attribute)
    return code if is_held or place.function is None else free_name(place.function, "values")


def with_name(file: File, place: Place, code: str, name: str, value: str) -> dict[cst.CSTNode, str]:
    """Return the replacement of an expression by code, with a line above it that binds the name
    which the code reads, if it is new; {} if there is no place for that line."""
    if name == value:
        return {place.node: code}
    line = place.statement
    if not isinstance(line, cst.SimpleStatementLine):
        return {}
    line = line.with_changes(leading_lines=[])
    line = cst.ensure_type(line.deep_replace(place.node, cst.parse_expression(code)), type(line))
    return {place.statement: f"{name} = {value}\n{file.code(line)}"}


def find_nth(call: Call) -> Iterator[Change]:
    """Find `x.sort(dim=1).values[:, n]`, where nothing else is read."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "sort" or any(map(graph.readers.get, operation.recorded.outputs[1:])):
            continue
        reader, options = graph.sole_reader(operation.output), options_of(source, operation)
        dim, place = dim_of(graph, operation), None if reader is None else source.place(reader)
        index = None if reader is None else index_code(source, graph, reader, dim)
        rows = None if reader is None else source.argument_code(operation, 0, reader)
        file = None if place is None else source.file(place.file)
        if reader is None or options is None or place is None or index is None or rows is None:
            continue
        if file is None:
            continue
        name = name_for(place, rows)
        axis = options.get("dim", "-1")
        size = f"{name}.size({axis})"
        is_from_end = index.startswith("-") != (options.get("descending") == "True")
        number = index.removeprefix("-")
        if index.startswith("-"):
            number = f"{size} - {number} + 1" if is_from_end else number
        else:
            number = f"{size} - {number}" if is_from_end else f"{number} + 1"
        name = name if size in number else rows
        code = f"torch.kthvalue({name}, {number}, dim={axis}).values"
        new = with_name(file, place, code, name, rows)
        if new:
            yield Change(place.file, new, shown(operation, source), frozenset(("torch",)))


def index_code(source: Source, graph: Graph, reader: Operation, dim: int) -> str | None:
    """Return the code of the only index of a subscript, if it is of one dimension and all before
    it are whole."""
    given, place = reader.argument(1), source.place(reader)
    if reader.name not in ("getitem", "__getitem__") or given is None or place is None:
        return None
    items = list(given.items) if given.kind == "tuple" else [given]
    if [one.kind for one in items] == ["literal", "literal"] and items[0].text == "Ellipsis":
        items[:1] = [WHOLE] * (graph.num_dims(reader.value(0)) - 1)
    *others, last = items
    if len(others) != dim or any(one != WHOLE for one in others) or last.kind != "literal":
        return None
    if not isinstance(place.node, cst.Subscript) or not (last.text or "").lstrip("-").isdigit():
        return None
    part = place.node.slice[-1].slice
    node = part.value if isinstance(part, cst.Index) else None
    file = source.file(place.file)
    if node is None or file is None:
        return None
    code = file.code(node)
    is_negative = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    if is_negative != (last.text or "").startswith("-"):
        return None
    return f"-{bracketed(file.code(node.expression))}" if is_negative else bracketed(code)  # type: ignore[attr-defined]


def dim_of(graph: Graph, operation: Operation) -> int:
    """Return the dimension that an operation sorts, counted from the first."""
    given = operation.literal(1, "dim")
    rank = graph.num_dims(operation.value(0))
    return (given if isinstance(given, int) and not isinstance(given, bool) else -1) % max(rank, 1)


def options_of(source: Source, operation: Operation) -> dict[str, str] | None:
    """Return the code of a sort's arguments by name; None if one is not written as a literal."""
    place = source.place(operation)
    if place is None or not isinstance(place.node, cst.Call):
        return None
    found: dict[str, str] = {}
    is_method = isinstance(place.node.func, cst.Attribute) and (
        source.operands(operation)[:1] == [place.node.func.value]
    )
    names = ["dim", "descending"] if is_method else ["input", "dim", "descending"]
    for number, one in enumerate(place.node.args):
        name = names[number] if one.keyword is None else one.keyword.value
        if one.star or name not in (*OPTIONS, "input"):
            return None
        if name != "input":
            found[name] = portable(one.value)
    is_dim = found.get("dim", "-1").lstrip("-").isdigit()
    is_flag = found.get("descending", "False") in ("True", "False")
    is_stable = found.get("stable", "False") != "False"
    return found if is_dim and is_flag and not is_stable else None


def first_readers(graph: Graph, operation: Operation) -> list[tuple[Operation, int]]:
    """Return the slices that read sorted values or their positions, with where they end; [] if
    anything else reads them."""
    found = []
    for value in operation.recorded.outputs:
        if value in graph.recording.outputs:
            return []
        for one in graph.readers.get(value, []):
            part = sliced(graph, one, dim_of(graph, operation))
            stop = None if part is None else part.items[1].text
            if one.value(0) != value or stop is None or not stop.isdigit() or stop == "0":
                return []
            found.append((one, int(stop)))
    return found


def sliced(graph: Graph, operation: Operation, dim: int) -> Argument | None:
    """Return the slice that a subscript takes of a dimension, if all others are whole."""
    given = operation.argument(1)
    if operation.name not in ("getitem", "__getitem__") or given is None:
        return None
    items = list(given.items) if given.kind == "tuple" else [given]
    for number, one in enumerate(items):
        if one.text == "Ellipsis":
            missing = graph.num_dims(operation.value(0)) - len(items) + 1
            items[number : number + 1] = [WHOLE] * missing
            break
    if dim >= len(items) or any(one.kind != "slice" for one in items):
        return None
    bounds = [[bound.text for bound in one.items] for one in items]
    if any(one != ["None"] * 3 for number, one in enumerate(bounds) if number != dim):
        return None
    start, _, step = bounds[dim]
    is_plain = step == "None" and (start == "None" or (start or "").isdigit())
    return items[dim] if is_plain else None


def count_code(source: Source, reader: Operation, at: Operation) -> str | None:
    """Return the code of where a slice ends, if it means the same at an earlier operation."""
    place, frame = source.place(reader), reader.recorded.frame
    file = None if place is None else source.file(place.file)
    if place is None or file is None or frame != at.recorded.frame:
        return None
    if not isinstance(place.node, cst.Subscript):
        return None
    ends = [
        one.slice.upper
        for one in place.node.slice
        if isinstance(one.slice, cst.Slice) and one.slice.upper is not None
    ]
    if len(ends) != 1:
        return None
    before, after = source.scope(at), source.scope(reader)
    if any(before.get(name) != after.get(name) for name in names_in(ends[0])):
        return None
    return file.code(ends[0])


RULES = (
    RecordedRule(
        name="first_of_sort",
        family="algebra",
        why="the first few of an order are found without sorting the rest",
        precondition="only the first floating-point numbers or their positions are read, and the "
        "sort is not stable: it leaves open how equal elements stand, and topk has another order",
        find=find_first,
    ),
    RecordedRule(
        name="nth_of_sort",
        family="algebra",
        why="one element of an order is found without sorting the others",
        precondition="only one value of each row is read, and no positions",
        find=find_nth,
    ),
)
