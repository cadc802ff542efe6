"""Hold an expression that is written for all turns of a loop, and read parts of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from cudal1_ci.propose.editing.nodes import in_order
from cudal1_ci.propose.recorded.bounds import plus
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.source import IMPURE, bracketed

within = in_order
"""A node and what is in it."""
COPIES = frozenset(("clone", "detach", "contiguous"))
ALIASING = CASTS | {"long", "int"}
"""Conversions, which return a tensor of that type as it is."""
UNARY = ALIASING.union(
    COPIES,
    (
        "sigmoid",
        "tanh",
        "exp",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "relu",
        "gelu",
        "silu",
        "elu",
    ),
    ("selu", "softplus", "leaky_relu", "neg", "abs", "sqrt", "rsqrt", "square", "sin", "cos"),
    ("erf", "sign", "reciprocal", "round", "floor", "ceil", "clamp", "clip", "hardtanh", "relu6"),
    ("mish", "logsigmoid", "logical_not", "isnan", "isfinite", "invert"),
)
BINARY = frozenset(
    (
        *("add", "sub", "mul", "div", "pow", "rsub", "rdiv", "rpow", "maximum", "minimum", "fmax"),
        *("fmin", "where", "lerp", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"),
        *("logical_and", "logical_or", "atan2", "remainder", "mod", "floordiv", "floor_divide"),
        "masked_fill",
    )
)
ROWWISE = frozenset(("linear", "layer_norm", "rms_norm"))
SPECTRA = frozenset(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
LIKE = frozenset(("zeros_like", "ones_like", "full_like"))
IMAGES = {
    **{f"conv{n}d": n + 2 for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": n + 2 for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": n + 2 for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": n + 2 for kind in ("max", "avg") for n in (1, 2, 3)},
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"), 4),
}
"""Operations that treat the samples of a batch alike, with the dimensions of such a batch."""
SCATTERS = frozenset(("scatter", "scatter_add"))
OVER_DIM = frozenset(
    (
        *("sum", "mean", "amax", "amin", "prod", "softmax", "log_softmax", "logsumexp", "argmax"),
        *("argmin", "cumsum", "cumprod", "norm", "var", "std", "all", "any", "argsort", "flip"),
        "normalize",
    )
)
KEEPS_RANK = frozenset(
    ("softmax", "log_softmax", "cumsum", "cumprod", "argsort", "flip", "normalize")
)
MATRICES = frozenset(
    (
        *("linalg_cholesky", "cholesky", "cholesky_solve", "cholesky_inverse", "linalg_inv"),
        *("inverse", "linalg_solve", "linalg_solve_triangular", "linalg_pinv", "pinverse"),
        *("linalg_det", "det", "linalg_eigvalsh", "linalg_matrix_exp", "matrix_exp"),
    )
)
"""Operations on the matrices of a batch, whose tensors are all matrices."""
PAIRS = {"sort": 1, "topk": 2, "kthvalue": 2, "max": 1, "min": 1, "median": 1}
"""Operations that return values and positions, with the place of their dimension."""
WHOLE = {
    **{name: name for name in ("sum", "mean", "std", "var", "prod", "norm", "all", "any")},
    "argmax": "argmax",
    "argmin": "argmin",
    "max": "amax",
    "min": "amin",
}
"""Reductions of all elements, as they are written over one dimension."""
INDEX_DTYPES = ("int64", "int32")


class Refused(Exception):
    """It is not known how to write an expression for all turns."""


@dataclass(frozen=True)
class Lifted:
    """An expression for all turns."""

    code: str
    rank: int
    """Dimensions of one turn's value."""
    turns: int | None
    """Dimension of the turns; None if the value is the same in all of them."""
    is_kept: bool = False
    """Whether the turns take the place of a dimension of size 1."""
    is_new: bool = True
    """Whether it is memory of its own, no view."""
    is_computed: bool = False
    """Whether making it takes more than views and copies."""
    pair: str = ""
    """The operation, if it is the values and the positions that one returned."""
    distinct: str = ""
    """Whether it holds positions of a dimension without a duplicate: "all" of them, or "some"."""
    ragged: tuple[Lifted, Lifted] | None = None
    """Positions and their mask, if it is the positions that a mask lets through."""
    valid: str = ""
    """Code of the mask of the positions that a turn has, if those are the first ones."""
    length: str = ""
    """Code of the numbers of those positions."""
    classes: str = ""
    """Code of the classes of rows, if a turn has those of its class; without other code it is the
    mask of them."""
    located: str = ""
    """Code of the masks, if a turn has the positions in its own, which has that many dimensions."""
    axis: int | None = None
    """The dimension of those positions; -1 for a matrix of all, None for a tuple."""
    is_searched: bool = False
    """Whether a turn has the positions of its class's rows, not the mask of them."""
    picked: str = ""
    """Code of a tensor and of positions in each turn's row of it, if each element depends on the
    one at its position alone: equal positions have equal elements."""
    repeats: str = ""
    """Code of how often each turn's value stands in what it makes."""
    is_host: bool = False
    """Whether a turn has it as a number of the host."""
    has_windows: bool = False
    """Whether turns may share elements, as windows that slide over a tensor do."""
    is_distribution: bool = False
    """Whether it is a distribution, of samples with that many dimensions."""

    @property
    def is_tensor(self) -> bool:
        """Return whether it is one tensor of one size in all turns."""
        is_part = self.ragged is not None or self.valid or self.classes or self.repeats
        is_part = is_part or self.located
        return not (self.pair or is_part or self.is_host or self.is_distribution)

    def first(self) -> Lifted:
        """Return it with the turns as first dimension."""
        if self.turns is None or (self.turns == 0 and not self.is_kept):
            return self
        code = bracketed(self.code)
        if self.is_kept:
            code, turns = f"{code}.unsqueeze({self.turns + 1})", self.turns
        else:
            turns = self.turns
        if turns:
            code = f"{code}.transpose(0, 1)" if turns == 1 else f"{code}.movedim({turns}, 0)"
        return replace(self, code=code, turns=0, is_kept=False)


class Swap(cst.CSTTransformer):
    """Put code in the place of expressions."""

    def __init__(self, new: dict[cst.CSTNode, str]):
        self.new = new

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self.new

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        code = self.new.get(original_node)
        if code is None:
            if isinstance(original_node, cst.Arg) and original_node.value in self.new:
                bare = cst.parse_expression(self.new[original_node.value])
                return updated_node.with_changes(value=bare)
            return updated_node
        node = cst.parse_expression(code)
        operators = cst.BinaryOperation | cst.Comparison | cst.UnaryOperation
        is_open = isinstance(node, operators)
        is_bare = is_open and not node.lpar and not code.isdigit()
        return cst.parse_expression(f"({code})") if is_bare else node


def aligned(parts: Sequence[Lifted]) -> list[Lifted]:
    """Return operands whose dimensions stand above each other."""
    rank = max(one.rank for one in parts)
    turning = [one for one in parts if one.turns is not None]
    alike = {(one.rank, one.turns, one.is_kept) for one in turning}
    if len(alike) == 1 and turning[0].rank == rank:
        turns = turning[0].turns or 0
        room = 0 if turning[0].is_kept else rank - turns
        if all(one.turns is not None or one.rank <= room for one in parts):
            return list(parts)
    new = []
    for one in parts:
        if one.turns is not None:
            one = one.first()
            if one.rank < rank:
                nones = ", ".join([":", *["None"] * (rank - one.rank)])
                one = replace(one, code=f"{bracketed(one.code)}[{nones}]", rank=rank)
        new.append(one)
    return new


def is_impure(operation: Operation) -> bool:
    """Return whether an operation may not be moved: random, or in place."""
    name = operation.name
    return name in IMPURE or name.endswith("_") or name in ("setitem", "bool", "int", "float_")


def integer(node: cst.BaseExpression) -> int:
    """Return a number that is written out."""
    sign = 1
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        sign, node = -1, node.expression
    if not isinstance(node, cst.Integer):
        raise Refused
    return sign * node.evaluated_value


def is_whole(part: cst.BaseSlice) -> bool:
    """Return whether a part of a subscript is `:`."""
    return isinstance(part, cst.Slice) and part.lower is part.upper is part.step is None


def is_none(part: cst.BaseSlice) -> bool:
    return (
        isinstance(part, cst.Index)
        and isinstance(part.value, cst.Name)
        and part.value.value == "None"
    )


def is_ellipsis(part: cst.BaseSlice) -> bool:
    return isinstance(part, cst.Index) and isinstance(part.value, cst.Ellipsis)


def is_number(part: cst.BaseSlice) -> bool:
    return isinstance(part, cst.Index) and not is_none(part) and not is_ellipsis(part)


def is_basic(part: cst.BaseSlice) -> bool:
    """Return whether a part of a subscript makes a view for certain."""
    if isinstance(part, cst.Slice) or is_none(part) or is_ellipsis(part):
        return True
    try:
        integer(cst.ensure_type(part, cst.Index).value)
    except Refused:
        return False
    return True


def turns_of(parts: list[cst.BaseSlice], at: int, rank: int, is_kept: bool) -> int:
    """Return which dimension of the result the turns are."""
    before = parts[:at]
    if any(is_ellipsis(one) for one in before):
        after = sum(not is_number(one) for one in parts[at + 1 :])
        return rank - after - is_kept
    return sum(not is_number(one) for one in before)


def one_more(upper: str, lower: str) -> bool:
    """Return whether one bound is another one plus 1."""
    return upper.replace(" ", "") == plus(lower, 1).replace(" ", "")


def shifted(node: cst.BaseExpression) -> str:
    """Return dimensions as they are counted with the turns before them."""
    if isinstance(node, cst.Tuple | cst.List):
        listed = [shifted(one.value) for one in node.elements]
        return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    dim = integer(node)
    return str(dim + 1 if dim >= 0 else dim)


def is_pair_operation(operation: Operation) -> bool:
    """Return whether an operation returned values and their positions."""
    return operation.name in PAIRS and len(operation.recorded.outputs) == 2


def pair_parts(pair: Lifted) -> tuple[Lifted, Lifted]:
    """Return the values and the positions that an operation returned."""
    distinct = {"sort": "all", "topk": "some"}.get(pair.pair, "") if pair.rank == 1 else ""
    code, one = bracketed(pair.code), replace(pair, pair="")
    return (
        replace(one, code=f"{code}.values"),
        replace(one, code=f"{code}.indices", distinct=distinct),
    )


def size_of(node: cst.CSTNode) -> tuple[str, int] | None:
    """Return tensor and dimension of `x.size(0)`, `x.shape[-1]` and `len(x)`."""
    tensor: cst.BaseExpression | None = None
    dim: cst.BaseExpression = cst.Integer("0")
    if isinstance(node, cst.Call) and len(node.args) == 1:
        function, given = node.func, node.args[0].value
        if isinstance(function, cst.Attribute) and function.attr.value == "size":
            tensor, dim = function.value, given
        elif isinstance(function, cst.Name) and function.value == "len":
            tensor = given
    elif isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
        part = node.slice[0].slice
        if node.value.attr.value == "shape" and isinstance(part, cst.Index):
            tensor, dim = node.value.value, part.value
    if not isinstance(tensor, cst.Name):
        return None
    try:
        return tensor.value, integer(dim)
    except Refused:
        return None
