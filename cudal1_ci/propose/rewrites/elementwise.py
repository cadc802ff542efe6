"""Rewrite elementwise formulas: torch has many as one operation, and some do nothing."""

from __future__ import annotations

import math

from cudal1_ci.propose.rewrites.patterns import Bindings
from cudal1_ci.propose.rewrites.rewrite import Replacement, Rewrite, Rule, expressions, rule
from cudal1_ci.propose.rewrites.scales import folded, number
from cudal1_ci.propose.rewrites.terms import Term

FUSED = "one kernel reads its input once and writes its output once, where the formula makes a pass"
FUSED += " over memory for each of its operations"


SIZES = ("size", "dim", "numel", "len", "nelement", "ndimension")
NUMBER_CALLS = ("len", "int", "float", "max", "min")
ARITHMETIC = ("add", "sub", "mul", "div", "pow", "floordiv", "mod", "neg")
"""Operators on numbers and on tensors."""


def may_be_tensor(bound: Bindings) -> bool:
    """Return whether a capture is the result of an operation, and not a size or an option."""
    return is_result(bound["X"])


def is_result(term: Term) -> bool:
    """Return whether a term is an operation's result. Arithmetic is one if an operand is: `self.dim
    // heads` is not.
    """
    if term.op in ARITHMETIC:
        return any(map(is_result, term.args))
    if term.op == "call":
        name = str(term.value[0])
        return not name.startswith("math.") and name not in NUMBER_CALLS
    return term.op not in ("const", "name", "attr", "opaque", "msqrt", "mlog", "mexp", *SIZES)


def clamped_twice(bound: Bindings) -> bool:
    """Return whether an upper bound is at or below a lower bound that comes after it."""
    upper, lower = number(bound.get("K")), number(bound.get("KL"))
    return upper is not None and lower is not None and upper <= lower


def identity(term: Term) -> Replacement | None:
    """Remove `x * 1.0`, `x + 0`, `x - 0`, `x / 1`, `x ** 1`."""
    if len(term.args) != 2 or term.named:
        return None
    left, right = term.args
    neutral = {"mul": 1, "div": 1, "pow": 1, "add": 0, "sub": 0}.get(term.op)
    if neutral is None:
        return None
    if number(right) == neutral and number(left) is None:
        kept, constant = left, right
    elif term.op in ("mul", "add") and number(left) == neutral and number(right) is None:
        kept, constant = right, left
    else:
        return None
    makes_floats = term.op == "div" or isinstance(constant.value, float)
    if makes_floats and kept.op in WHOLE_NUMBERS:
        return None
    return Replacement("X", {"X": kept})


WHOLE_NUMBERS = {
    "eq", "ne", "lt", "le", "gt", "ge", "invert", "isnan", "isinf", "isfinite", "logical_not",
    "logical_and", "logical_or", "arange", "argmax", "argmin", "long", "int", "bool", "one_hot",
    "bincount", "tril_indices", "triu_indices", "randint", "randperm",
}  # fmt: skip
"""Operations that may return integers or booleans: `(x > 0) * 1.0` makes floats of them."""


def product(*factors: str) -> str:
    """Return a pattern of nested products, which match in any order."""
    text = factors[0]
    for factor in factors[1:]:
        text = f"mul({text}, {factor})"
    return text


RANGES = {
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "relu": (0.0, math.inf),
    "exp": (0.0, math.inf),
    "abs": (0.0, math.inf),
    "square": (0.0, math.inf),
    "sqrt": (0.0, math.inf),
}
"""The range of an operation's result for any input (except NaN)."""


LOWEST = {"gelu": -0.17, "silu": -0.28, "mish": -0.31, "hardswish": -0.375}
"""Lower bounds of functions that never exceed a positive input, rounded to the safe side."""


def range_of(term: Term) -> tuple[float, float]:
    """Return bounds of a term's values, by interval arithmetic."""
    if bounds := BOUNDS.get(term.op):
        given = [number(term.get(name)) if term.get(name) else free for name, free in bounds]
        low, high = (math.nan if bound is None else bound for bound in given)
        return low, high
    if term.op in LOWEST and len(term.args) == 1:
        low, high = range_of(term.args[0])
        return 0.0 if low >= 0 else LOWEST[term.op] - MARGIN, max(high, 0.0)
    if term.op == "leaky_relu" and len(term.args) == 1:
        return NOT_NEGATIVE if range_of(term.args[0])[0] >= 0 else ANY
    return RANGES.get(term.op, ANY)


ANY, NOT_NEGATIVE = (-math.inf, math.inf), (0.0, math.inf)
MARGIN = 0.01
BOUNDS = {
    "clamp": (("min", -math.inf), ("max", math.inf)),
    "hardtanh": (("min_val", -1.0), ("max_val", 1.0)),
}
"""Names of the bounds that an operation enforces, and their defaults."""


def already_in_range(term: Term) -> Replacement | None:
    """Remove a relu, abs or clamp of values that are already in its range, or a leaky relu of
    values that are not negative.
    """
    if term.op not in ("relu", "abs", "leaky_relu", *BOUNDS) or len(term.args) != 1:
        return None
    low, high = range_of(term.args[0])
    wanted = NOT_NEGATIVE if term.op == "leaky_relu" else range_of(term)
    is_inside = wanted[0] <= low and high <= wanted[1]  # False for an unknown bound
    return Replacement("X", {"X": term.args[0]}) if is_inside else None


GELU_INNER = "tanh(mul(0.7978845608028654, add(X, mul(0.044715, pow(X, 3)))))"
GELU_RULES: tuple[Rule, ...] = (
    rule(product("0.5", "X", f"add(1, {GELU_INNER})"), "F.gelu(X, approximate='tanh')"),
    rule(product("0.5", "X", "add(1, erf(div(X, 1.4142135623730951)))"), "F.gelu(X)"),
    rule(product("0.5", "X", "add(1, erf(mul(X, 0.7071067811865476)))"), "F.gelu(X)"),
)

REWRITES = (
    Rewrite(
        name="gelu",
        family="operation fusion",
        precondition="the exact (erf) or the tanh formula of GELU with its constants to 6 digits",
        why=f"GELU written out runs as eight elementwise operations; {FUSED}.",
        apply=expressions(*GELU_RULES),
    ),
    Rewrite(
        name="silu",
        family="operation fusion",
        precondition="x * sigmoid(x) of the same x",
        why=f"SiLU is one operation; {FUSED}.",
        apply=expressions(
            rule("mul(X, sigmoid(X))", "F.silu(X)"),
            rule("div(X, add(1, exp(neg(X))))", "F.silu(X)"),
        ),
    ),
    Rewrite(
        name="sigmoid",
        family="operation fusion",
        precondition="1 / (1 + exp(-x)) of the same x",
        why=f"the logistic function is one operation; {FUSED}.",
        apply=expressions(rule("div(1, add(1, exp(neg(X))))", "torch.sigmoid(X)")),
    ),
    Rewrite(
        name="mish",
        family="operation fusion",
        precondition="x * tanh(softplus(x)) of the same x",
        why=f"Mish is one operation; {FUSED}.",
        apply=expressions(
            rule("mul(X, tanh(softplus(X)))", "F.mish(X)"),
            rule("mul(X, tanh(log(add(1, exp(X)))))", "F.mish(X)"),
            rule("mul(X, tanh(log1p(exp(X))))", "F.mish(X)"),
        ),
    ),
    Rewrite(
        name="softplus",
        family="operation fusion",
        precondition="log(1 + exp(x)); softplus also stays finite where exp(x) overflows",
        why=f"softplus is one operation; {FUSED}.",
        apply=expressions(
            rule("log(add(1, exp(X)))", "F.softplus(X)"),
            rule("log1p(exp(X))", "F.softplus(X)"),
        ),
    ),
    Rewrite(
        name="hardswish",
        family="operation fusion",
        precondition="x * clamp(x + 3, 0, 6) / 6 or x * clamp((x + 3) / 6, 0, 1) of the same x",
        why=f"hard swish is one operation; {FUSED}.",
        apply=expressions(
            rule(
                product("X", "clamp(add(X, 3), max=6, min=0)", "0.16666666666666666"),
                "F.hardswish(X)",
            ),
            rule("mul(X, div(clamp(add(X, 3), max=6, min=0), 6))", "F.hardswish(X)"),
            rule("mul(X, div(relu6(add(X, 3)), 6))", "F.hardswish(X)"),
            rule("mul(X, clamp(div(add(X, 3), 6), max=1, min=0))", "F.hardswish(X)"),
        ),
    ),
    Rewrite(
        name="rsqrt",
        family="algebra",
        precondition="1 / sqrt(x), x ** -0.5, x ** 0.5 or sqrt(x ** 2) of a tensor",
        why="a square root and a division (or a general power) become one cheap operation.",
        apply=expressions(
            rule("div(1, sqrt(X))", "torch.rsqrt(X)"),
            rule("pow(X, -0.5)", "torch.rsqrt(X)", may_be_tensor),
            rule("pow(X, 0.5)", "torch.sqrt(X)", may_be_tensor),
            rule("sqrt(pow(X, 2))", "torch.abs(X)"),
            rule("sqrt(square(X))", "torch.abs(X)"),
        ),
    ),
    Rewrite(
        name="identity_arithmetic",
        family="algebra",
        precondition="a factor or summand that changes nothing, or two constant factors in a row",
        why="an elementwise pass over memory that does nothing, or that a constant can absorb.",
        apply=expressions(identity, folded),
    ),
    Rewrite(
        name="idempotent",
        family="algebra",
        precondition="an operation whose result is already in the range that the next one enforces "
        "(NaN stays NaN)",
        why="the second operation is a pass over memory that cannot change a value.",
        apply=expressions(already_in_range),
    ),
    Rewrite(
        name="constant_result",
        family="algebra",
        precondition="an upper bound at or below the lower bound that follows it (for NaN inputs, "
        "which the formula would pass on, the constant is returned)",
        why="interval reasoning: whatever the input, the result is one constant.",
        apply=expressions(
            rule("clamp(clamp(X, max=K), min=KL)", "torch.full_like(X, KL)", clamped_twice),
            rule("clamp(clamp(X, max=K), max=KU, min=KL)", "torch.full_like(X, KL)", clamped_twice),
            rule("clamp(min(X, K), max=KU, min=KL)", "torch.full_like(X, KL)", clamped_twice),
            rule("relu(neg(relu(X)))", "torch.zeros_like(X)"),
            rule("relu(neg(abs(X)))", "torch.zeros_like(X)"),
        ),
    ),
)
