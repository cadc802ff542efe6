"""Write expressions of a loop's body as code of a Triton kernel.

A value is a tile: code, with the axis of each of its dimensions. Views change only the dimensions;
the code stays. So does an elementwise operation of tensors whose dimensions were lined up with
`unsqueeze`, `einsum` or a product with one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.graph import CASTS, Operation, literal
from cudal1_ci.propose.recorded.lifted import (
    Refused,
    integer,
    is_ellipsis,
    is_none,
    is_whole,
    one_more,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.recurrence_axes import (
    Axis,
    Dims,
    Leaf,
    Reduction,
    Tile,
    broadcast,
    fresh_dims,
    joined_axes,
)
from cudal1_ci.records.recording import Argument

Given = list[tuple[cst.BaseExpression, Argument]]
"""Arguments by position: the expression of each, and what was recorded."""
Named = dict[str, tuple[cst.BaseExpression, Argument]]
"""Arguments by keyword."""
NAN = "propagate_nan=tl.PropagateNan.ALL"
TEMPLATES = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "rsub": "({1} - {0})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "rdiv": "({1} / {0})",
    "neg": "(-{0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "log1p": "libdevice.log1p({0})",
    "expm1": "libdevice.expm1({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "square": "({0} * {0})",
    "reciprocal": "(1.0 / {0})",
    "abs": "tl.abs({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "sigmoid": "tl.sigmoid({0})",
    "tanh": "libdevice.tanh({0})",
    "silu": "({0} * tl.sigmoid({0}))",
    "relu": f"tl.maximum({{0}}, 0.0, {NAN})",
    "softplus": "tl.where({0} > 20.0, {0}, libdevice.log1p(tl.exp({0})))",
    "maximum": f"tl.maximum({{0}}, {{1}}, {NAN})",
    "minimum": f"tl.minimum({{0}}, {{1}}, {NAN})",
    "where": "tl.where({0}, {1}, {2})",
    "masked_fill": "tl.where({1}, {2}, {0})",
    "lerp": "({0} + {2} * ({1} - {0}))",
    "addcmul": "({0} + {1} * {2})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "logical_and": "({0} & {1})",
    "and": "({0} & {1})",
    "logical_or": "({0} | {1})",
    "or": "({0} | {1})",
    "logical_not": "(~{0})",
    "invert": "(~{0})",
    "zeros_like": "tl.zeros_like({0})",
}
ARITY = {
    name: max(i for i in range(3) if f"{{{i}}}" in text) + 1 for name, text in TEMPLATES.items()
}
SWAPPED = {"rsub", "rdiv"}
BOOLEAN = {"logical_and", "and", "logical_or", "or", "logical_not", "invert"}
SAME = frozenset(("clone", "contiguous", "detach"))
RESULTS = ("float32", "bool")
HALVES = ("float16", "bfloat16")
SCALAR_NODES = (
    cst.Name
    | cst.Attribute
    | cst.BaseNumber
    | cst.BinaryOperation
    | cst.UnaryOperation
    | cst.BaseBinaryOp
    | cst.BaseUnaryOp
    | cst.LeftParen
    | cst.RightParen
    | cst.Dot
    | cst.BaseParenthesizableWhitespace
)


@dataclass
class Terms:
    """Write the expressions of one loop."""

    loop: Loop
    bounds: Bounds
    local: dict[str, Tile] = field(default_factory=dict)
    """What the loop's names hold, up to the expression that is read."""
    changing: set[str] = field(default_factory=set)
    """Names that the loop binds, or whose tensors it changes."""
    private: dict[str, cst.Assign] = field(default_factory=dict)
    """Assignments before the loop to names that only the loop needs."""
    carried: Callable[[str], Tile] | None = None
    """What makes a state of a name that is read before the loop binds it."""
    leaves: dict[object, Leaf] = field(default_factory=dict)
    folded: dict[tuple[str, int], Tile] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Assignments of folded names to the values of a step, in order."""
    reduction: Reduction = field(default_factory=Reduction)
    time: Axis = field(default_factory=lambda: Axis(-1))
    offset: int = 0
    """Added to the index where an expression is read."""
    is_before: bool = False
    """Whether the expression is of a statement before the loop."""

    # --- operations ------------------------------------------------------------------------------

    def operation(self, node: cst.CSTNode) -> Operation | None:
        """Return the last operation of an expression: a state may be a number in the first turn."""
        frame = self.loop.inside[-1].recorded.frame
        found = [one for one in self.loop.operations.get(node, []) if one.recorded.frame == frame]
        return found[-1] if found else None

    def result(self, operation: Operation, code: str, dims: Dims) -> Tile:
        """Return the tile of an operation's only output."""
        value = self.loop.call.graph.of(operation.output)
        if value is None or len(value.shape) != len(dims) or len(operation.recorded.outputs) != 1:
            raise Refused
        if value.dtype not in RESULTS:
            raise Refused
        return Tile(code, dims, value.dtype, value.shape)

    def varies(self, node: cst.CSTNode) -> bool:
        return bool(names_in(node) & self.changing)

    # --- expressions -----------------------------------------------------------------------------

    def tile(self, node: cst.BaseExpression, argument: Argument | None = None) -> Tile:
        """Return the code of an expression.

        Args:
            node: The expression.
            argument: What it is in the recorded operation that reads it.
        """
        if isinstance(node, cst.Name) and node.value in self.changing and not self.is_before:
            found = self.local.get(node.value)
            if found is None:
                assert self.carried is not None
                found = self.carried(node.value)
            return found
        operation = self.operation(node)
        if operation is None:
            return self.given(node, argument)
        if isinstance(node, cst.Subscript):
            return self.subscript(node, operation)
        if isinstance(node, cst.BinaryOperation):
            return self.binary(node, operation)
        positional = self.positional(operation)
        named = self.named(node, operation)
        return self.called(operation, positional, named)

    def given(self, node: cst.BaseExpression, argument: Argument | None) -> Tile:
        """Return a number, a tensor from before the loop, or the value that a step has of it."""
        if self.varies(node):
            raise Refused
        if argument is None and isinstance(node, cst.Name):
            held = [self.loop.call.source.scope(one).get(node.value) for one in self.loop.inside]
            argument = held[-1]
        if argument is None:
            if not isinstance(node, cst.BaseNumber):
                raise Refused
            return Tile(self.loop.code(node), (), "number")
        if argument.value is None:
            return self.number(node, argument)
        if isinstance(node, cst.Name) and node.value in self.private:
            made = self.folded_name(node.value)
            if made is not None:
                return made
        value = self.loop.call.graph.of(argument.value)
        if value is None or not isinstance(node, cst.Name | cst.Attribute):
            raise Refused
        leaf = self.leaf(node, value.shape, value.dtype)
        return Tile(leaf.token, leaf.dims, value.dtype, value.shape)

    def number(self, node: cst.BaseExpression, argument: Argument) -> Tile:
        """Return a number of Python: written out, or given to the kernel."""
        held = literal(argument)
        if isinstance(held, bool) or not isinstance(held, int | float):
            raise Refused
        if isinstance(node, cst.UnaryOperation) and isinstance(node.expression, cst.BaseNumber):
            return Tile(f"({self.loop.code(node)})", (), "number")
        if isinstance(node, cst.BaseNumber):
            return Tile(self.loop.code(node), (), "number")
        if not all(isinstance(one, SCALAR_NODES) for one in within(node)):
            raise Refused
        code = self.loop.code(node)
        leaf = self.leaves.setdefault(
            code, Leaf(code, self.short_name(node), (), "number", 0, is_number=True)
        )
        return Tile(leaf.token, (), "number")

    def leaf(self, node: cst.BaseExpression, shape: Sequence[int], dtype: str) -> Leaf:
        """Return a tensor that the kernel reads."""
        code = self.loop.code(node)
        key = code, self.offset
        if key not in self.leaves:
            name = self.short_name(node)
            self.leaves[key] = Leaf(code, name, fresh_dims(shape), dtype, self.offset)
        return self.leaves[key]

    def short_name(self, node: cst.BaseExpression) -> str:
        """Return a name like an expression's."""
        if isinstance(node, cst.Name):
            return node.value
        if isinstance(node, cst.Attribute):
            return node.attr.value
        return next((one for one in sorted(names_in(node) - {"self", "math"})), "factor")

    def folded_name(self, name: str) -> Tile | None:
        """Return what a name from before the loop is, computed in each step; None where a kernel
        cannot compute it."""
        key = name, self.offset
        if key in self.folded:
            return self.folded[key]
        kept = dict(self.leaves), list(self.lines), list(self.reduction.axes), self.is_before
        self.is_before = True
        try:
            made = self.tile(self.private[name].value)
            if made.is_number or self.operation(self.private[name].value) is None:
                raise Refused
        except Refused:
            self.leaves, self.lines, self.reduction.axes, self.is_before = kept
            return None
        self.is_before = kept[3]
        step = f"folded_{len(self.folded)}_"
        self.folded[key] = replace(made, code=step)
        self.lines.append((step, made.code))
        return self.folded[key]

    # --- arguments -------------------------------------------------------------------------------

    def positional(self, operation: Operation) -> list[tuple[cst.BaseExpression, Argument]]:
        operands = self.loop.call.source.operands(operation)
        if not operands or any(one is None for one in operands):
            raise Refused
        return list(zip(operands, operation.recorded.args, strict=True))  # type: ignore[arg-type]

    def named(
        self, node: cst.BaseExpression, operation: Operation
    ) -> dict[str, tuple[cst.BaseExpression, Argument]]:
        if not isinstance(node, cst.Call):
            return {}
        nodes = {one.keyword.value: one.value for one in node.args if one.keyword is not None}
        given = {one.name: one.argument for one in operation.recorded.kwargs}
        if nodes.keys() != given.keys():
            raise Refused
        return {name: (nodes[name], given[name]) for name in nodes}

    # --- kinds of operations ---------------------------------------------------------------------

    def binary(self, node: cst.BinaryOperation, operation: Operation) -> Tile:
        """Return `a + b` with its operands in their written order."""
        name = operation.name
        args = list(operation.recorded.args)
        if self.loop.call.source.is_swapped(operation, node.left, node.right):
            args = args[::-1]
        written = [(node.left, args[0]), (node.right, args[1])]
        if name == "matmul" or name == "rmatmul":
            return self.product(operation, [self.tile(*one) for one in written])
        if name in SWAPPED:
            name = name[1:]
        if name == "pow":
            return self.power(operation, *written)
        if name not in TEMPLATES or ARITY[name] != 2:
            raise Refused
        return self.elementwise(operation, name, [self.tile(*one) for one in written])

    def elementwise(self, operation: Operation, name: str, tiles: Sequence[Tile]) -> Tile:
        if name in BOOLEAN and any(one.dtype != "bool" for one in tiles):
            raise Refused
        floats = [one for one in tiles if not one.is_number]
        if all(one.dtype in HALVES for one in floats):
            raise Refused
        code = TEMPLATES[name].format(*(one.code for one in tiles))
        return self.result(operation, code, broadcast([one.dims for one in tiles]))

    def called(self, operation: Operation, given: Given, named: Named) -> Tile:
        """Return the code of a call."""
        name = operation.name
        name = {"max": "maximum", "min": "minimum"}.get(name, name) if len(given) == 2 else name
        if name == "pow" and len(given) == 2:
            return self.power(operation, *given)
        if name in ("einsum", "sum", "mean", "matmul", "mv", "clamp", "clip"):
            return {
                "einsum": self.einsum,
                "sum": self.summed,
                "mean": self.summed,
                "matmul": self.matmul,
                "mv": self.matmul,
                "clamp": self.clamp,
                "clip": self.clamp,
            }[name](operation, given, named)
        if name in ("clamp_min", "clamp_max") and len(given) == 2 and not named:
            short = "maximum" if name == "clamp_min" else "minimum"
            return self.elementwise(operation, short, [self.tile(*one) for one in given])
        if name in CASTS:
            return self.cast(operation, given)
        if name in SAME:
            x = self.tile(*given[0])
            return self.result(operation, x.code, x.dims)
        view = self.view(operation, name, given)
        if view is not None:
            return view
        if name in ("add", "sub") and named.keys() == {"alpha"}:
            raise Refused
        if name not in TEMPLATES or len(given) != ARITY[name] or set(named) - {"inplace"}:
            raise Refused
        if name == "where" and self.tile(*given[0]).dtype != "bool":
            raise Refused
        return self.elementwise(operation, name, [self.tile(*one) for one in given])

    def cast(self, operation: Operation, given: Given) -> Tile:
        x = self.tile(*given[0])
        made = self.result(operation, x.code, x.dims)
        if made.dtype != "float32" or len(given) > 2:
            raise Refused
        return made if x.dtype == "float32" else replace(made, code=f"{x.code}.to(tl.float32)")

    def power(
        self,
        operation: Operation,
        base: tuple[cst.BaseExpression, Argument],
        exponent: tuple[cst.BaseExpression, Argument],
    ) -> Tile:
        x, y = self.tile(*base), self.tile(*exponent)
        code = f"libdevice.pow({x.code}, {y.code})"
        if y.code in ("2", "2.0"):
            code = f"({x.code} * {x.code})"
        elif y.code == "0.5":
            code = f"tl.sqrt({x.code})"
        elif x.is_number or y.is_number:
            raise Refused
        return self.result(operation, code, broadcast([x.dims, y.dims]))

    def clamp(self, operation: Operation, given: Given, named: Named) -> Tile:
        x = self.tile(*given[0])
        code, dims = x.code, [x.dims]
        limits = dict(zip(("min", "max"), given[1:], strict=False)) | named
        if not limits or limits.keys() - {"min", "max"}:
            raise Refused
        for which, function in (("min", "maximum"), ("max", "minimum")):
            if which in limits and limits[which][1].text != "None":
                limit = self.tile(*limits[which])
                code = TEMPLATES[function].format(code, limit.code)
                dims.append(limit.dims)
        return self.result(operation, code, broadcast(dims))

    # --- sums ------------------------------------------------------------------------------------

    def total(self, code: str, axes: Sequence[Axis]) -> str:
        """Return the sum over axes."""
        for one in axes:
            self.reduction.add(one)
        return f"sum_over({code})" if axes else code

    def summed(self, operation: Operation, given: Given, named: Named) -> Tile:
        x = self.tile(*given[0])
        if named.keys() - {"dim", "keepdim"} or x.dtype != "float32":
            raise Refused
        dims = self.dims_of(operation, 1, x)
        keeps = operation.literal(2, "keepdim") is True
        if len(dims) != 1:
            raise Refused
        at = dims[0]
        axis = x.dims[at]
        code = self.total(x.code, [axis] if axis is not None else [])
        if operation.name == "mean" and axis is not None:
            code = f"({code} / num_summed)"
        rest = [*x.dims]
        rest[at : at + 1] = [None] if keeps else []
        return self.result(operation, code, tuple(rest))

    def dims_of(self, operation: Operation, position: int, x: Tile) -> tuple[int, ...]:
        given = operation.literal(position, "dim")
        if isinstance(given, int):
            given = (given,)
        if not isinstance(given, tuple) or not all(type(one) is int for one in given):
            raise Refused
        return tuple(one % len(x.dims) for one in given)

    def einsum(self, operation: Operation, given: Given, named: Named) -> Tile:
        equation = literal(given[0][1])
        if not isinstance(equation, str) or named or "->" not in equation or "." in equation:
            raise Refused
        left, result = equation.replace(" ", "").split("->")
        tiles = [self.tile(*one) for one in given[1:]]
        labels = left.split(",")
        axes: dict[str, list[Axis | None]] = {}
        for letters, one in zip(labels, tiles, strict=True):
            if len(letters) != len(one.dims) or len(set(letters)) != len(letters):
                raise Refused
            for letter, axis in zip(letters, one.dims, strict=True):
                axes.setdefault(letter, []).append(axis)
        joined = {letter: joined_axes(found) for letter, found in axes.items()}
        code = " * ".join(one.code for one in tiles)
        over = [axis for letter, axis in joined.items() if letter not in result]
        code = self.total(f"({code})", [one for one in over if one is not None])
        return self.result(operation, code, tuple(joined[letter] for letter in result))

    def matmul(self, operation: Operation, given: Given, named: Named) -> Tile:
        if named or len(given) != 2:
            raise Refused
        return self.product(operation, [self.tile(*one) for one in given])

    def product(self, operation: Operation, tiles: Sequence[Tile]) -> Tile:
        """Return `a @ b`. A program sums over what both share; the rest are elements of their
        own."""
        a, b = tiles
        if min(len(a.dims), len(b.dims)) < 1 or a.dtype != "float32" or b.dtype != "float32":
            raise Refused
        rows = a.dims[-2:-1] if len(a.dims) > 1 else ()
        cols = b.dims[-1:] if len(b.dims) > 1 else ()
        inner = b.dims[-2] if len(b.dims) > 1 else b.dims[0]
        shared = joined_axes([a.dims[-1], inner])
        batch = broadcast([a.dims[:-2], b.dims[:-2]])
        code = self.total(f"({a.code} * {b.code})", [shared] if shared is not None else [])
        return self.result(operation, code, (*batch, *rows, *cols))

    # --- views -----------------------------------------------------------------------------------

    def view(
        self,
        operation: Operation,
        name: str,
        given: Given,
    ) -> Tile | None:
        """Return a view; None for another operation."""
        if name == "select":
            return self.selected(operation, given)
        if name not in (
            "unsqueeze",
            "squeeze",
            "transpose",
            "permute",
            "expand_as",
            "view",
            "mT",
            "reshape",
            "movedim",
            "swapaxes",
        ):
            return None
        x = self.tile(*given[0])
        rank, dims = len(x.dims), [*x.dims]
        numbers = [literal(one) for one in operation.recorded.args[1:]]
        numbers += [literal(one.argument) for one in operation.recorded.kwargs]
        if len(numbers) == 1 and isinstance(numbers[0], tuple):
            numbers = list(numbers[0])
        if name == "expand_as":
            other = self.tile(*given[1])
            return self.result(operation, x.code, broadcast([x.dims, other.dims]))
        if name in ("view", "reshape"):
            return self.result(operation, x.code, reshaped(given[1:], x.dims))
        ints = [one for one in numbers if type(one) is int]
        if len(ints) != len(numbers):
            raise Refused
        if name == "unsqueeze":
            dims.insert(ints[0] % (rank + 1), None)
        elif name == "squeeze":
            if len(ints) != 1:
                raise Refused
            if dims.pop(ints[0] % rank) is not None:
                raise Refused
        elif name in ("transpose", "swapaxes") and len(ints) == 2:
            i, j = (one % rank for one in ints)
            dims[i], dims[j] = dims[j], dims[i]
        elif name == "mT":
            dims[-2], dims[-1] = dims[-1], dims[-2]
        elif name == "permute" and len(ints) == rank:
            dims = [x.dims[one % rank] for one in ints]
        elif name == "movedim" and len(ints) == 2:
            dims.insert(ints[1] % rank, dims.pop(ints[0] % rank))
        else:
            raise Refused
        return self.result(operation, x.code, tuple(dims))

    def selected(self, operation: Operation, given: Given) -> Tile:
        """Return `x.select(1, t)`."""
        if len(given) != 3:
            raise Refused
        dim, offset = integer(given[1][0]), self.bounds.offset(given[2][0])
        if offset is None:
            raise Refused
        return self.step(operation, given[0], offset, dim, keeps=False)

    def step(
        self,
        operation: Operation,
        base: tuple[cst.BaseExpression, Argument],
        offset: int,
        dim: int,
        keeps: bool,
    ) -> Tile:
        """Return one step's part of a tensor from before the loop."""
        x = self.whole(base, offset)
        dim %= len(x.dims)
        self.in_time(x.dims[dim])
        dims = (*x.dims[:dim], *([None] if keeps else []), *x.dims[dim + 1 :])
        return self.result(operation, x.code, dims)

    def in_time(self, axis: Axis | None) -> None:
        if axis is None:
            raise Refused
        axis.join(self.time)

    def whole(self, base: tuple[cst.BaseExpression, Argument], offset: int) -> Tile:
        """Return a tensor from before the loop, to be read at an offset of the index."""
        if self.is_before or self.varies(base[0]):
            raise Refused
        self.offset = offset
        try:
            return self.tile(*base)
        finally:
            self.offset = 0

    def subscript(self, node: cst.Subscript, operation: Operation) -> Tile:
        parts = [one.slice for one in node.slice]
        base = node.value, operation.recorded.args[0]
        offsets = [found for one in parts if (found := self.offset_of(one)) is not None]
        if len(offsets) > 1:
            raise Refused
        x = self.whole(base, offsets[0][0]) if offsets else self.tile(*base)
        rest = len(x.dims) - sum(not is_none(one) and not is_ellipsis(one) for one in parts)
        if rest < 0:
            raise Refused
        if not any(map(is_ellipsis, parts)):
            parts.append(cst.Index(cst.Ellipsis()))
        dims: list[Axis | None] = []
        waiting = list(x.dims)
        for one in parts:
            if is_ellipsis(one):
                dims += waiting[:rest]
                waiting = waiting[rest:]
            elif is_none(one):
                dims.append(None)
            elif is_whole(one):
                dims.append(waiting.pop(0))
            else:
                found = self.offset_of(one)
                if found is None:
                    raise Refused
                self.in_time(waiting.pop(0))
                dims += [None] if found[1] else []
        return self.result(operation, x.code, tuple(dims))

    def offset_of(self, part: cst.BaseSlice) -> tuple[int, bool] | None:
        """Return what `t + 1` and `t : t + 1` add to the index, and whether the dimension stays."""
        if isinstance(part, cst.Index) and not is_none(part) and not is_ellipsis(part):
            offset = self.bounds.offset(part.value)
            return None if offset is None else (offset, False)
        if isinstance(part, cst.Slice) and part.lower is not None and part.upper is not None:
            lower, upper = self.loop.code(part.lower), self.loop.code(part.upper)
            offset = self.bounds.offset(part.lower)
            if part.step is None and offset is not None and one_more(upper, lower):
                return offset, True
        return None


def reshaped(given: Sequence[tuple[cst.BaseExpression, Argument]], dims: Dims) -> Dims:
    """Return dimensions after a view that only adds or removes those of size 1."""
    waiting = [one for one in dims if one is not None]
    found: list[Axis | None] = []
    for node, argument in given:
        if isinstance(node, cst.Integer) and node.evaluated_value == 1:
            found.append(None)
        elif waiting and literal(argument) in (-1, waiting[0].size):
            found.append(waiting.pop(0))
        else:
            raise Refused
    if waiting:
        raise Refused
    return tuple(found)
