"""Know masks that are causal by construction, in every call.

A triangle of ones or of low numbers is followed from the mask through the text: locals that are
assigned once, and buffers that `__init__` registers and nothing else writes. Such a buffer is taken
for the one that `__init__` builds; it stays, so that checkpoints load.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from cudal1_ci.propose.editing.walk import assigned_name
from cudal1_ci.propose.recorded.attention_masks import (
    MASKED_BELOW,
    condition_position,
    fill_position,
)
from cudal1_ci.propose.recorded.attention_occurrence import Occurrence
from cudal1_ci.propose.recorded.attention_text import Body
from cudal1_ci.propose.recorded.graph import CASTS, VIEWS
from cudal1_ci.propose.recorded.source import File
from cudal1_ci.records.recording import Argument

LENGTH_KEPT = frozenset(
    [
        "addmm",
        "linear",
        "matmul",
        "clone",
        "split",
        "chunk",
        "unbind",
        "getitem",
        "mul",
        "div",
        "add",
        "dropout",
        "layer_norm",
        "rms_norm",
        "normalize",
    ]
) | {*CASTS, *VIEWS}
"""Operations after which queries and keys of one tensor are equally long."""


@dataclass(frozen=True)
class Triangle:
    """A matrix, perhaps with leading dimensions of 1, with one number in a part and zeros next to
    it."""

    value: float
    rank: int
    is_bool: bool = False
    part: str = "all"
    """`all`, `lower` (with the diagonal) or `upper` (without it)."""

    def inverted(self) -> Triangle | None:
        other = {"lower": "upper", "upper": "lower"}.get(self.part)
        return None if other is None else Triangle(1.0, self.rank, True, other)


def is_causal(one: Occurrence) -> bool:
    """Return whether the only mask hides from each query the keys after it, in every call."""
    if len(one.masks) != 1 or one.masks[0].branches or one.masks[0].space != one.rank:
        return False
    step = one.masks[0].step
    operation = step.operation
    text = Reader(one.body)
    if step.kind in ("fill", "keep"):
        fill = one.argument_node(operation, fill_position(step), "value")
        number = None if fill is None else text.number(fill)
        node = one.argument_node(operation, condition_position(step), "mask")
        found = None if node is None else text.triangle(node)
        is_hidden = found is not None and found.is_bool and number is not None
        wanted = "upper" if step.kind == "fill" else "lower"
    else:
        node = one.argument_node(operation, step.position, "other")
        found = None if node is None or step.kind != "add" else text.triangle(node)
        number = None if found is None else found.value
        is_hidden, wanted = found is not None and not found.is_bool, "upper"
    is_low = number is not None and number <= MASKED_BELOW
    is_part = found is not None and found.part == wanted
    return is_hidden and is_low and is_part and is_equally_long(one)


def is_equally_long(one: Occurrence) -> bool:
    """Return whether queries and keys are made of one tensor, with nothing added to the keys."""
    product = one.found.product
    start = {"einsum": 1, "baddbmm": 1}.get(product.name, 0)
    tensors = [argument.value for argument in product.recorded.args[start : start + 2]]
    reached = []
    for value in tensors:
        seen: set[int] = set()
        pending = [value]
        while pending:
            current = pending.pop()
            known = one.graph.of(current)
            if current is None or known is None or known.path or current in seen:
                continue
            seen.add(current)
            maker = one.graph.maker.get(current)
            name = "" if maker is None else maker.name.removesuffix("_")
            if maker is None or name not in LENGTH_KEPT:
                continue
            given = maker.recorded.args
            if name == "getitem" and any(bound.text != "None" for bound in bounds_of(given[1:])):
                continue
            left = {"matmul": given[:1], "linear": given[:1], "addmm": given[1:2]}
            pending += [argument.value for argument in left.get(name, given)]
        reached.append(seen)
    shape = one.graph.of(product.output)
    is_square = shape is not None and shape.shape[-1] == shape.shape[-2]
    return len(reached) == 2 and is_square and bool(reached[0] & reached[1])


def bounds_of(arguments: Sequence[Argument]) -> list[Argument]:
    """Return the bounds of all slices of an index."""
    found: list[Argument] = []
    for argument in arguments:
        found += argument.items if argument.kind == "slice" else bounds_of(argument.items)
    return found


class Reader:
    """Read triangles in a function's text."""

    def __init__(self, body: Body):
        self.body, self.file = body, body.file

    def triangle(self, node: cst.BaseExpression, depth: int = 0) -> Triangle | None:
        """Return the triangle that an expression is in every call."""
        if depth > 24:
            return None
        if isinstance(node, cst.Name):
            held = assigned_once(self.body, node.value)
            return None if held is None else self.triangle(held, depth + 1)
        if isinstance(node, cst.Attribute):
            return self.of_buffer(node, depth)
        if isinstance(node, cst.Subscript):
            found = self.triangle(node.value, depth + 1)
            return None if found is None else self.sliced(node, found)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
            found = self.triangle(node.expression, depth + 1)
            return found.inverted() if found is not None and found.is_bool else None
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self.compared(node, depth)
        if isinstance(node, cst.BinaryOperation):
            return self.computed(node, depth)
        return self.called(node, depth) if isinstance(node, cst.Call) else None

    def of_buffer(self, node: cst.Attribute, depth: int) -> Triangle | None:
        """Return the triangle that `__init__` registers as a buffer, if nothing else writes it."""
        if not isinstance(node.value, cst.Name) or node.value.value != "self":
            return None
        init, held = registered(self.file, self.body.function, node.attr.value)
        return None if init is None or held is None else Reader(init).triangle(held, depth + 1)

    def sliced(self, node: cst.Subscript, found: Triangle) -> Triangle | None:
        """Return what is left of a triangle from its top left corner."""
        parts = [element.slice for element in node.slice]
        codes = ["".join(self.file.code(part).split()) for part in parts]
        if all(code == "None" for code in codes):
            return replace(found, rank=found.rank + len(codes))
        kept = [code for code in codes if code not in ("None", "...")]
        is_whole = "..." in codes or len(kept) == found.rank
        is_corner = codes[-1] == codes[-2] and codes[-1].startswith(":") if codes[1:] else False
        if not is_whole or not is_corner or codes[-1].count(":") != 1:
            return None
        if codes[-1].startswith(":-") or any(code != ":" for code in kept[:-2]):
            return None
        return replace(found, rank=found.rank + codes.count("None"))

    def compared(self, node: cst.Comparison, depth: int) -> Triangle | None:
        """Return where a triangle is, or is not, its number."""
        found = self.triangle(node.left, depth + 1)
        operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
        code = self.file.code(right)
        if found is None:
            return None
        there = replace(found, value=1.0, is_bool=True)
        if code in ("0", "0.0", "False"):
            if isinstance(operator, cst.NotEqual) or (
                isinstance(operator, cst.GreaterThan) and found.value > 0
            ):
                return there
            return found.inverted() if isinstance(operator, cst.Equal) else None
        if code in ("1", "1.0", "True") and found.value == 1:
            if isinstance(operator, cst.Equal):
                return there
            is_other = isinstance(operator, cst.NotEqual | cst.LessThan)
            return found.inverted() if is_other else None
        return None

    def computed(self, node: cst.BinaryOperation, depth: int) -> Triangle | None:
        """Return `1 - x`, or a triangle times a number."""
        if isinstance(node.operator, cst.Subtract) and self.number(node.left) == 1:
            found = self.triangle(node.right, depth + 1)
            if found is None or found.is_bool or found.value != 1:
                return None
            other = found.inverted()
            return None if other is None else replace(other, is_bool=False)
        if not isinstance(node.operator, cst.Multiply):
            return None
        for matrix, factor in ((node.left, node.right), (node.right, node.left)):
            number, found = self.number(factor), self.triangle(matrix, depth + 1)
            if number is not None and found is not None:
                is_kept = found.part == "all" or math.isfinite(number)  # 0 * inf is no number
                whole = replace(found, value=found.value * number, is_bool=False)
                return whole if is_kept and number else None
        return None

    def called(self, node: cst.Call, depth: int) -> Triangle | None:
        """Return what a function of torch or a method of a tensor makes."""
        if not isinstance(node.func, cst.Attribute):
            return None
        name = node.func.attr.value
        plain = [argument.value for argument in node.args if argument.keyword is None]
        named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
        if any(argument.star for argument in node.args):
            return None
        is_torch = isinstance(node.func.value, cst.Name) and node.func.value.value == "torch"
        if is_torch and name in ("ones", "full"):
            return self.filled(name, plain, named)
        if is_torch:
            if not plain:
                return None
            receiver, plain = plain[0], plain[1:]
        else:
            receiver = node.func.value
        found = self.triangle(receiver, depth + 1)
        if found is None:
            return None
        codes = ["".join(self.file.code(one).split()) for one in plain]
        if name in ("tril", "triu"):
            diagonal = named.get("diagonal")
            code = self.file.code(diagonal) if diagonal is not None else (*codes, "0")[0]
            wanted = {"tril": "0", "triu": "1"}[name]
            part = {"tril": "lower", "triu": "upper"}[name]
            return replace(found, part=part) if found.part == "all" and code == wanted else None
        if name in ("view", "reshape") and not is_torch and len(codes) > 1:
            is_kept = codes[-1] == codes[-2] != "-1" and {*codes[:-2]} <= {"1"}
            return replace(found, rank=len(codes)) if is_kept else None
        if name == "unsqueeze" and codes in (["0"], ["1"]):
            is_leading = int(codes[0]) <= found.rank - 2
            return replace(found, rank=found.rank + 1) if is_leading else None
        if name == "logical_not":
            return found.inverted()
        if name == "bool" or "torch.bool" in codes:
            return replace(found, value=1.0, is_bool=True)
        if name in ("float", "contiguous", "clone", "cuda"):
            return replace(found, is_bool=found.is_bool and name != "float")
        is_move = name == "to" and not named and all(one.endswith(".device") for one in codes)
        return found if is_move else None

    def filled(
        self, name: str, plain: list[cst.BaseExpression], named: dict[str, cst.BaseExpression]
    ) -> Triangle | None:
        """Return a square of `torch.ones` or `torch.full`."""
        value: float | None = 1.0
        if name == "full":
            fill = plain.pop() if len(plain) == 2 else named.get("fill_value")
            value = None if fill is None else self.number(fill)
        sizes = plain
        if len(plain) == 1 and isinstance(plain[0], cst.Tuple | cst.List):
            sizes = [element.value for element in plain[0].elements]
        codes = [self.file.code(one) for one in sizes]
        is_square = len(codes) > 1 and codes[-1] == codes[-2] and {*codes[:-2]} <= {"1"}
        if value is None or not is_square:
            return None
        dtype = named.get("dtype")
        is_bool = dtype is not None and self.file.code(dtype) in ("bool", "torch.bool")
        return Triangle(value, len(codes), is_bool)

    def number(self, node: cst.BaseExpression) -> float | None:
        """Return the number that an expression is in every call."""
        code = "".join(self.file.code(node).split()).replace("'", '"').strip("()")
        for low in ('float("-inf"', '-float("inf"', "-math.inf", "-torch.inf", "-np.inf"):
            if code == low:
                return -math.inf
        if code.startswith("torch.finfo(") and code.endswith(").min"):
            return -65504.0
        try:
            found = ast.literal_eval(code)
        except (ValueError, SyntaxError):
            return None
        return float(found) if isinstance(found, int | float) else None


def assigned_once(body: Body, name: str) -> cst.BaseExpression | None:
    """Return what a local is in every call, if it is assigned once and never written to."""
    stores = [one for one in body.mentions(name) if body.is_stored(one)]
    if len(stores) != 1 or body.branches(stores[0]):
        return None
    statement = body.statement(stores[0])
    if assigned_name(statement) != name or any(
        is_changed(body.file, one) for one in body.mentions(name) if one is not stores[0]
    ):
        return None
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return line.value if isinstance(line, cst.Assign) else None


def is_changed(file: File, node: cst.CSTNode) -> bool:
    """Return whether an expression's tensor is written to, or handed out to be written to."""
    parent = file.parents[node]
    while isinstance(parent, cst.Subscript) and parent.value is node:
        node, parent = parent, file.parents[parent]
    if isinstance(parent, cst.Attribute) and parent.value is node:
        return parent.attr.value.endswith("_") or parent.attr.value == "data"
    return isinstance(parent, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del)


def registered(
    file: File, function: cst.FunctionDef, name: str
) -> tuple[Body | None, cst.BaseExpression | None]:
    """Return the only tensor that a class registers as a buffer of a name, with its function."""
    owner = next((one for one in file.above(function) if isinstance(one, cst.ClassDef)), None)
    strings = []
    for node in file.ranges:
        if isinstance(node, cst.Attribute) and node.attr.value == name and is_changed(file, node):
            return None, None
        if isinstance(node, cst.SimpleString) and node.evaluated_value == name:
            strings.append(node)
        if isinstance(node, cst.Name) and node.value in ("setattr", "__dict__"):
            return None, None
    argument = file.parents[strings[0]] if len(strings) == 1 else None
    call = None if argument is None else file.parents[argument]
    if not isinstance(call, cst.Call) or len(call.args) < 2 or call.args[0] is not argument:
        return None, None
    above = list(file.above(call))
    init = next((one for one in above if isinstance(one, cst.FunctionDef)), None)
    is_buffer = file.code(call.func) == "self.register_buffer" and owner in above
    if not is_buffer or init is None or init.name.value != "__init__":
        return None, None
    return Body(file, init), call.args[1].value
