"""Find arithmetic that does nothing, and operations that a cheaper one computes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudal1_ci.propose.recorded.certainty import unstated
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.patterns import (
    Form,
    Leaf,
    Match,
    found_at,
    given,
    is_float,
    rule,
    written,
)
from cudal1_ci.propose.recorded.reads import only_read
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.records.recording import Argument

ANY, NOT_NEGATIVE = (-math.inf, math.inf), (0.0, math.inf)
RANGES = {
    **dict.fromkeys(("sigmoid", "softmax"), (0.0, 1.0)),
    **dict.fromkeys(("relu", "exp", "abs", "square", "sqrt"), NOT_NEGATIVE),
    "tanh": (-1.0, 1.0),
}
"""The range of an operation's result for any input (except NaN)."""
LOWEST = {"gelu": -0.18, "silu": -0.29, "mish": -0.32, "hardswish": -0.385}
"""Lower bounds of functions that never exceed a positive input, rounded to the safe side."""
BOUNDED = ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
ARITHMETIC = frozenset(("add", "sub", "mul", "div"))
NEUTRAL = {"mul": "1", "div": "1", "pow": "1", "add": "0", "sub": "0"}


ROOTS = (
    Form("div(1, sqrt(X))", "torch.rsqrt(X)", is_float),
    Form("reciprocal(sqrt(X))", "torch.rsqrt(X)", is_float),
    Form("pow(X, -0.5)", "torch.rsqrt(X)", is_float),
    Form("pow(X, 0.5)", "torch.sqrt(X)", is_float),
    Form("sqrt(pow(X, 2))", "torch.abs(X)", is_float),
    Form("sqrt(square(X))", "torch.abs(X)", is_float),
)


def is_empty(found: Match) -> bool:
    """Return whether an upper bound is at or below a lower bound that comes after it."""
    upper, lower = found.literal("KA"), found.literal("KB")
    are_numbers = isinstance(upper, int | float) and isinstance(lower, int | float)
    return are_numbers and upper <= lower and found.is_alike("X")  # type: ignore[operator]


CONSTANTS = (
    Form("clamp(clamp(X, max=KA), min=KB)", "torch.full_like(X, KB)", is_empty),
    Form(
        "clamp(clamp(X, max=KA), min=KB, max=KC)",
        "torch.full_like(X, KB)",
        is_empty,
    ),
    Form("relu(neg(relu(X)))", "torch.zeros_like(X)", is_float),
    Form("relu(neg(abs(X)))", "torch.zeros_like(X)", is_float),
)


def bounds_forms() -> Iterator[Form]:
    """Yield the smaller or the larger of a tensor and a number that was made a tensor."""
    for names, bound in ((("min", "minimum"), "max"), (("max", "maximum"), "min")):
        for name in names:
            for both in ("X, tensor(K)", "tensor(K), X"):
                yield Form(f"{name}({both})", f"torch.clamp(X, {bound}=K)", is_bounded)


def is_bounded(found: Match) -> bool:
    number = found.literal("K")
    return isinstance(number, int | float) and found.rank("X") > 0 and found.is_alike("X")


def find_constants(call: Call) -> Iterator[Change]:
    """Find bounds that leave one number. The code must state them."""
    for operation in call.graph.operations:
        if any(True for _ in unstated(call.source, [operation])):
            continue
        for form in CONSTANTS:
            found = next(found_at(call.graph, operation, form), None)
            if found is None or any(True for _ in unstated(call.source, found.operations)):
                continue
            change = written(call, found, form.template)
            if change is not None:
                yield change
                break


def find_neutral(call: Call) -> Iterator[Change]:
    """Find `x * 1.0`, `x + 0` and the like, and two constant factors in a row."""
    for operation in reversed(call.graph.operations):
        neutral = NEUTRAL.get(operation.name)
        if neutral is None:
            continue
        form = Form(f"{operation.name}(X, {neutral})", "X", is_same)
        found = next(found_at(call.graph, operation, form), None)
        if found is not None and only_read(call, operation):
            change = written(call, found, "X")
        else:
            change = folded(call, operation)
        if change is not None:
            yield change


def is_same(found: Match) -> bool:
    """Return whether a result has the dtype and the shape of its operand."""
    graph, (outer,) = found.graph, found.operations
    one, other = graph.of(found.value("X")), graph.of(outer.output)
    return one is not None and other is not None and one.dtype == other.dtype


def folded(call: Call, operation: Operation) -> Change | None:
    """Return the change of `x * 2.0 * 0.5` or `x / 2.0 / 4.0` to one factor, which is exact where
    the factors are powers of 2."""
    for outer, inner, sign in (("mul", "mul", "*"), ("div", "div", "/"), ("div", "mul", "*")):
        form = Form(f"{outer}({inner}(X, KA), KB)", "", is_float)
        found = next(found_at(call.graph, operation, form), None)
        if found is None or any(True for _ in unstated(call.source, found.operations)):
            continue
        one, other = found.literal("KA"), found.literal("KB")
        if not isinstance(one, int | float) or not isinstance(other, int | float) or not other:
            continue
        factor = one * other if outer == inner else one / other
        if math.isfinite(factor) and len(repr(factor)) <= len(f"{one}{other}"):
            return written(call, found, f"X {sign} {factor!r}")
    return None


def range_of(call: Call, value: int | None) -> tuple[float, float]:
    """Return bounds of a tensor's numbers, by interval arithmetic."""
    maker = call.graph.made_by(value)
    if maker is None or any(True for _ in unstated(call.source, [maker])):
        return ANY
    if maker.name in BOUNDED:
        bounds = given(maker)
        return bound_of(bounds, "min", -math.inf), bound_of(bounds, "max", math.inf)
    if maker.name in LOWEST:
        low, high = range_of(call, maker.value(0))
        return 0.0 if low >= 0 else LOWEST[maker.name], max(high, 0.0)
    if maker.name == "leaky_relu":
        return NOT_NEGATIVE if range_of(call, maker.value(0))[0] >= 0 else ANY
    return RANGES.get(maker.name, ANY)


def bound_of(bounds: dict[str, tuple[Argument, int | str]], name: str, otherwise: float) -> float:
    """Return a bound; NaN, which is within no range, for a tensor."""
    if name not in bounds:
        return otherwise
    try:
        return float(bounds[name][0].text or "nan")
    except ValueError:
        return math.nan


def find_bounded(call: Call) -> Iterator[Change]:
    """Find a relu, abs or clamp of values that are already in its range."""
    graph = call.graph
    for operation in graph.operations:
        value = operation.value(0)
        if operation.name not in ("relu", "abs", "leaky_relu", *BOUNDED) or value is None:
            continue
        if graph.sole_reader(value) is not operation or value == operation.output:
            continue
        low, high = range_of(call, value)
        wanted = range_of(call, operation.output)
        if operation.name == "leaky_relu":
            wanted = NOT_NEGATIVE
        if wanted != ANY and wanted[0] <= low and high <= wanted[1]:
            leaf = Leaf(Argument(kind="value", value=value), operation, 0)
            change = written(call, Match(graph, (operation,), {"X": leaf}), "X")
            if change is not None:
                yield change


def find_scalars(call: Call) -> Iterator[Change]:
    """Find `x / torch.sqrt(torch.tensor(8.0))`."""
    form = Form("sqrt(tensor(K))", "math.sqrt(K)")
    for operation in call.graph.operations:
        found = next(found_at(call.graph, operation, form), None)
        known = call.graph.of(operation.output)
        if (
            found is None
            or known is None
            or known.shape
            or not only_read(call, operation, ARITHMETIC)
        ):
            continue
        readers = call.graph.readers.get(operation.output or 0, [])
        if all(None not in call.graph.parts(one) for one in readers):
            change = written(call, found, form.template)
            if change is not None:
                yield change


RULES = (
    rule(
        "rsqrt",
        "algebra",
        "a square root and a division, or a general power, become one cheap operation",
        "1 / sqrt(x), x ** -0.5, x ** 0.5 or sqrt(x ** 2) of floating-point numbers",
        ROOTS,
    ),
    RecordedRule(
        name="identity_arithmetic",
        family="algebra",
        why="an elementwise pass over memory does nothing, or a constant can absorb it",
        precondition="a factor or summand that changes nothing, or two constant factors in a row",
        find=find_neutral,
        is_small=True,
    ),
    RecordedRule(
        name="idempotent",
        family="algebra",
        why="the second operation is a pass over memory that cannot change a value",
        precondition="the result is already in the range that the next operation enforces; NaN "
        "stays NaN",
        find=find_bounded,
    ),
    RecordedRule(
        name="constant_result",
        family="algebra",
        why="whatever the input, the result is one constant",
        precondition="an upper bound at or below the lower bound that follows it; for NaN, which "
        "the formula would pass on, the constant is returned",
        find=find_constants,
    ),
    RecordedRule(
        name="scalar_tensor",
        family="host synchronization",
        why="Python takes the root at once; a tensor of one element costs an allocation and a "
        "launch for each operation",
        precondition="the root of a tensor that holds one number, in arithmetic with tensors",
        find=find_scalars,
        is_small=True,
    ),
    rule(
        "scalar_bound",
        "host synchronization",
        "clamp takes the number as it is: no tensor is made in every call",
        "the smaller or the larger of a tensor and torch.tensor of a number; where both are equal "
        "the gradient is whole, which min and max share out",
        bounds_forms(),
    ),
)
