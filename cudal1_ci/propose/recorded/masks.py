"""Make masks of lengths by a comparison of tensors, where a list of lists was filled in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.algebra import times_read
from cudal1_ci.propose.recorded.certainty import only_value
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import INDEX_DTYPES
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File, Place, Source, bracketed

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def find_masks(call: Call) -> Iterator[Change]:
    """Find `torch.tensor([[0] * n + [1] * (most - n) for n in lengths])` and its other forms."""
    source = call.source
    for operation in call.graph.operations:
        place = source.place(operation)
        file = None if place is None else source.file(place.file)
        if operation.name != "tensor" or place is None or file is None:
            continue
        if not isinstance(place.node, cst.Call) or not file.code(place.node).startswith("torch."):
            continue
        new = mask_of(source, file, operation, place)
        if new is not None:
            yield Change(
                file=place.file,
                new=new,
                found=shown(operation, source),
                modules=frozenset(("torch",)),
            )


def mask_of(
    source: Source, file: File, operation: Operation, place: Place
) -> dict[cst.CSTNode, str] | None:
    """Return the comparison that gives the same tensor."""
    node = place.node
    tree = ast.parse(file.code(node).strip(), mode="eval").body
    if not isinstance(tree, ast.Call) or len(tree.args) != 1:
        return None
    named = {one.arg: ast.unparse(one.value) for one in tree.keywords}
    if not {*named} <= {"dtype", "device"}:
        return None
    rows: ast.expr | None = tree.args[0]
    if isinstance(rows, ast.Name):
        body = None if place.function is None else place.function.body
        is_once = body is not None and times_read(rows.id, body) == 1  # nothing writes into it
        rows = only_value(file, place, rows.id) if is_once else None
    if not isinstance(rows, ast.ListComp) or len(rows.generators) != 1:
        return None
    outer = rows.generators[0]
    if outer.ifs or outer.is_async or not isinstance(outer.target, ast.Name):
        return None
    length = outer.target.id
    found = filled_row(rows.elt, length) or compared_row(rows.elt, length)
    if found is None:
        return None
    width, sign, kind = found
    count = counted(outer.iter)
    numbers = numbers_of(source, operation, outer.iter)
    if count and filled_row(rows.elt, length) and width != count:
        return None
    if not count and not numbers:
        return None
    if any(isinstance(n, ast.Name) and n.id == length for n in ast.walk(ast.parse(width))):
        return None
    if any(isinstance(n, ast.Call) for n in ast.walk(ast.parse(width))):
        known = ast.parse(width, mode="eval").body
        called = ast.unparse(known.func) if isinstance(known, ast.Call) else ""
        if called not in ("max", "len") and not re.fullmatch(r"\w+\.size", called):
            return None
    device = f", device={named['device']}" if "device" in named else ""
    column = f"torch.arange({count}{device})" if count else f"torch.tensor({numbers}{device})"
    code = f"torch.arange({width}{device}) {sign} {column}[:, None]"
    above: cst.CSTNode = file.parents[node]
    call = file.parents[above] if isinstance(above, cst.Attribute) else None
    is_cast = isinstance(call, cst.Call) and call.func is above and not call.args
    cast = above.attr.value if isinstance(above, cst.Attribute) and is_cast else ""
    if cast == "bool" and call is not None and "dtype" not in named:
        return {call: code}
    if named.get("dtype") == "torch.bool" or (kind == "bool" and "dtype" not in named):
        return {node: bracketed(code) if isinstance(above, cst.Attribute) else code}
    if "dtype" in named:
        return {node: f"({code}).to({named['dtype']})"}
    return {node: f"({code}).long()"} if kind == "int" else None


def counted(node: ast.expr) -> str:
    """Return the code of n in `range(n)`, if n is a name or a number; "" for another iterable."""
    is_range = isinstance(node, ast.Call) and ast.unparse(node.func) == "range"
    if not is_range or len(node.args) != 1 or node.keywords:  # type: ignore[attr-defined]
        return ""
    n = node.args[0]  # type: ignore[attr-defined]
    return ast.unparse(n) if isinstance(n, ast.Name | ast.Constant) else ""


def numbers_of(source: Source, operation: Operation, node: ast.expr) -> str:
    """Return code of a list of whole numbers, which a tensor may hold; "" for anything else."""
    code = ast.unparse(node)
    if isinstance(node, ast.Name) and is_list(source, operation, code):
        return code
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    listed = node.func.value if is_call and node.func.attr == "tolist" else node  # type: ignore[attr-defined]
    held = source.scope(operation).get(listed.id) if isinstance(listed, ast.Name) else None
    tensor = None if held is None or held.kind != "value" else source.graph.of(held.value)
    is_row = tensor is not None and len(tensor.shape) == 1 and tensor.dtype in INDEX_DTYPES
    return f"{ast.unparse(listed)}.tolist()" if is_row else ""


def is_list(source: Source, operation: Operation, name: str) -> bool:
    """Return whether a local variable was a list of whole numbers: its rows are as long as one
    another, so none of them is longer than the width."""
    held = source.scope(operation).get(name)
    output = source.graph.of(operation.output)
    if held is None or output is None or len(output.shape) != 2:
        return False
    if held.kind in ("list", "tuple"):
        return all(one.kind == "literal" and (one.text or "").isdigit() for one in held.items)
    return held.kind == "other" and held.text in ("list", "tuple")


def filled_row(tree: ast.expr, length: str) -> tuple[str, str, str] | None:
    """Return width, sign and kind of `[0] * n + [1] * (most - n)`."""
    if not isinstance(tree, ast.BinOp) or not isinstance(tree.op, ast.Add):
        return None
    first, second = repeated(tree.left), repeated(tree.right)
    if first is None or second is None or {first[0], second[0]} != {0, 1}:
        return None
    kinds = {type(first[0]), type(second[0])}
    rest = second[1]
    is_first = isinstance(first[1], ast.Name) and first[1].id == length
    is_rest = isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Sub)
    if not is_first or not is_rest or not isinstance(rest, ast.BinOp) or len(kinds) != 1:
        return None
    if not isinstance(rest.right, ast.Name) or rest.right.id != length:
        return None
    kind = kinds.pop().__name__
    return ast.unparse(rest.left), "<" if first[0] else ">=", kind


def repeated(tree: ast.expr) -> tuple[object, ast.expr] | None:
    """Return the number and the count of `[0] * n`."""
    if not isinstance(tree, ast.BinOp) or not isinstance(tree.op, ast.Mult):
        return None
    for items, count in ((tree.left, tree.right), (tree.right, tree.left)):
        if isinstance(items, ast.List) and len(items.elts) == 1:
            one = items.elts[0]
            if isinstance(one, ast.Constant) and isinstance(one.value, int):
                return one.value, count
    return None


def compared_row(tree: ast.expr, length: str) -> tuple[str, str, str] | None:
    """Return width, sign and kind of `[i < n for i in range(most)]`, also of
    `[1 if i < n else 0 ...]` and `[int(i < n) ...]`."""
    if not isinstance(tree, ast.ListComp) or len(tree.generators) != 1:
        return None
    inner = tree.generators[0]
    ranged = inner.iter
    if inner.ifs or not isinstance(inner.target, ast.Name) or not isinstance(ranged, ast.Call):
        return None
    if ast.unparse(ranged.func) != "range" or len(ranged.args) != 1 or ranged.keywords:
        return None
    step, element, is_opposite, kind = inner.target.id, tree.elt, False, "bool"
    if isinstance(element, ast.IfExp):
        branches = (element.body, element.orelse)
        values = [one.value if isinstance(one, ast.Constant) else None for one in branches]
        if not all(isinstance(one, int) for one in values) or {*values} != {0, 1}:
            return None
        if type(values[0]) is not type(values[1]):
            return None
        is_opposite, kind = not values[0], type(values[0]).__name__
        element = element.test
    elif isinstance(element, ast.Call) and ast.unparse(element.func) == "int":
        if len(element.args) != 1:
            return None
        element, kind = element.args[0], "int"
    if not isinstance(element, ast.Compare) or len(element.ops) != 1:
        return None
    sign = SIGNS.get(type(element.ops[0]))
    sides = [
        one.id if isinstance(one, ast.Name) else "" for one in (element.left, *element.comparators)
    ]
    if sign is None or sides not in ([step, length], [length, step]):
        return None
    sign = sign if sides[0] == step else MIRRORED[sign]
    return ast.unparse(ranged.args[0]), OPPOSITE[sign] if is_opposite else sign, kind


RULES = (
    RecordedRule(
        name="length_mask",
        family="vectorization",
        why="one comparison of two tensors makes the mask that Python filled number by number",
        precondition="each row compares positions with one length, and lengths are a list "
        "or a row of whole numbers",
        find=find_masks,
    ),
)
