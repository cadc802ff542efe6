"""Recognize activations by what they compute, whatever formula they are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from cudal1_ci.propose.recorded.certainty import (
    has_inner_casts,
    is_straight,
    leaf_code,
    unstated,
    written_arguments,
)
from cudal1_ci.propose.recorded.formulas import (
    ELEMENTWISE,
    Array,
    Cone,
    Formula,
    erf,
    inputs_of,
    sigmoid,
    softplus,
)
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import not_guaranteed
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import Source, bracketed

POINTS = np.array(
    [
        *np.linspace(-30, 30, 181),
        *(sign * 10.0**power for sign in (-1, 1) for power in (-8, -4, -2, -1, 0, 2)),
        0.0,
        np.nan,
    ]
)
"""Numbers that a formula is computed for."""
SELU = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu({x})": lambda x: np.maximum(x, 0),
    "relu6({x})": lambda x: np.clip(x, 0, 6),
    "silu({x})": lambda x: x * sigmoid(x),
    "gelu({x})": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    'gelu({x}, approximate="tanh")': lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "mish({x})": lambda x: x * np.tanh(softplus(x)),
    "hardswish({x})": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid({x})": lambda x: np.clip(x + 3, 0, 6) / 6,
    "softplus({x})": softplus,
    "softsign({x})": lambda x: x / (1 + np.abs(x)),
    "logsigmoid({x})": lambda x: -softplus(-x),
    "sigmoid({x})": sigmoid,
    "tanh({x})": np.tanh,
    "elu({x})": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu({x})": lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(np.minimum(x, 0))),
}
WITH_NUMBER: dict[str, Callable[[Array, float], Array]] = {
    "leaky_relu({x}, {n})": lambda x, n: np.where(x > 0, x, n * x),
    "elu({x}, {n})": lambda x, n: np.where(x > 0, x, n * np.expm1(np.minimum(x, 0))),
}
"""Activations with a number that their formula states."""
OUTER = frozenset(
    [
        *("mul", "div", "rdiv", "add", "sub", "rsub", "neg", "pow", "reciprocal", "log", "log1p"),
        *("where", "max", "maximum", "min", "minimum", "clamp", "clamp_min", "logsigmoid"),
    ]
)
"""Operations that a formula may end with."""


def find_activations(call: Call) -> Iterator[Change]:
    """Find formulas of one tensor that are an activation."""
    graph = call.graph
    taken: set[int] = set()
    for operation in reversed(graph.operations):
        if operation.name not in OUTER or operation.index in taken or operation.output is None:
            continue
        change = activation_of(call, operation)
        if change is not None:
            found, formula = change
            taken |= {one.index for one in formula.operations}
            yield found


def activation_of(call: Call, operation: Operation) -> tuple[Change, Formula] | None:
    """Return the change of a formula that ends with an operation, of as many operations as
    possible."""
    graph = call.graph
    output = operation.output
    shape = graph.of(output)
    if output is None or shape is None:
        return None
    cone = Cone(graph, output)
    values = dict.fromkeys(v for one in cone.operations for v in inputs_of(one))
    formulas = []
    for x in values:
        known = graph.of(x)
        if known is None or known.shape != shape.shape or "float" not in known.dtype:
            continue
        formula = cone.until([x])
        is_elementwise = all(one.name in ELEMENTWISE for one in formula.operations)
        if is_elementwise and formula.leaves == (x,) and len(formula.operations) > 1:
            formulas.append((x, formula))
    formulas.sort(key=lambda one: -len(one[1].operations))
    for x, formula in formulas:
        given = formula.computed({x: POINTS})
        if given is None or given.shape != POINTS.shape:
            continue
        change = written(call.source, operation, formula, x, given)
        if change is not None:
            return change, formula
        name = exact(given)
        if name is not None:
            call.miss(
                operation, not_guaranteed(call.source, formula, operation, name.partition("(")[0])
            )
    return None


def written(
    source: Source, operation: Operation, formula: Formula, x: int, given: Array
) -> Change | None:
    """Return the change to the activation whose numbers these are."""
    place = source.place(operation)
    if place is None or has_inner_casts(source, formula):
        return None
    missing = [*unstated(source, formula.operations)]
    code = exact(given)
    if code is not None and missing:
        return None
    number = ""
    if code is None:
        code, number = with_number(source, formula, operation, given, len(missing))
    if code is None or not is_straight(source, formula.operations, operation):
        return None
    argument = leaf_code(source, formula, x, operation)
    if argument is None:
        return None
    name, modules = source.functional(place.file)
    prefix = name
    if code.startswith(("sigmoid", "tanh")):
        prefix, modules = "torch", frozenset(("torch",))
    return Change(
        file=place.file,
        new={place.node: f"{prefix}.{code.format(x=argument, n=number)}"},
        found=shown(operation, source),
        modules=modules,
    )


def exact(given: Array) -> str | None:
    """Return the activation without a number of its own whose numbers these are."""
    return next((name for name, f in ACTIVATIONS.items() if is_same(f(POINTS), given)), None)


def with_number(
    source: Source, formula: Formula, at: Operation, given: Array, num_missing: int
) -> tuple[str | None, str]:
    """Return an activation with a number that one argument of the formula states."""
    for operation in formula.operations:
        for position, node, argument in written_arguments(source, operation):
            number = operation.literal(position) if isinstance(position, int) else None
            if not isinstance(number, int | float) or node is None or number == 1:
                continue
            if argument.kind != "literal":
                continue
            for code, function in WITH_NUMBER.items():
                if not is_same(function(POINTS, number), given) or not isinstance(position, int):
                    continue
                stated = [*unstated(source, [operation])]
                if num_missing > 1 or (num_missing == 1 and len(stated) != 1):
                    continue
                if operation.recorded.frame != at.recorded.frame:
                    continue
                text = source.argument_code(operation, position, at)
                chooses = any(one.name.startswith(("max", "min")) for one in formula.operations)
                if text is not None and (num_missing == 0 or not chooses):
                    return code, text
    return None, ""


def is_same(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=1e-7, atol=1e-8, equal_nan=True))


def find_gated(call: Call) -> Iterator[Change]:
    """Find `(up * x) * sigmoid(x)`, whose factors stand in another order than those of silu."""
    graph, source = call.graph, call.source
    for operation in graph.operations:
        if operation.name != "mul":
            continue
        for first, second in ((0, 1), (1, 0)):
            gate = graph.made_by(operation.value(second), "sigmoid")
            product = graph.made_by(operation.value(first), "mul")
            x = None if gate is None else gate.value(0)
            if gate is None or product is None or x is None or x not in inputs_of(product):
                continue
            up = next((v for v in inputs_of(product) if v != x), None)
            one, other = graph.of(up), graph.of(x)
            place = source.place(operation)
            is_alike = one is not None and other is not None and one.shape == other.shape
            formula = Formula(graph, operation.output or 0, (product, gate, operation), ())
            if up is None or place is None or not is_alike or has_inner_casts(source, formula):
                continue
            codes = [leaf_code(source, formula, v, operation) for v in (x, up)]
            if None in codes or not is_straight(source, formula.operations, operation):
                continue
            name, modules = source.functional(place.file)
            parts = [f"{name}.silu({codes[0]})", bracketed(codes[1] or "")]
            yield Change(
                file=place.file,
                new={place.node: " * ".join(parts if x == product.value(0) else parts[::-1])},
                found=shown(operation, source),
                modules=modules,
            )
            break


RULES = (
    RecordedRule(
        name="activation",
        family="operation fusion",
        why="the activation is one pass over the data where its formula is several",
        precondition="the formula gives the numbers of the activation, for NaN too, and all "
        "numbers in it are stated by the code",
        find=find_activations,
    ),
    RecordedRule(
        name="gated_silu",
        family="operation fusion",
        why="silu is one pass over the data where x * sigmoid(x) is two",
        precondition="both factors are the same tensor",
        find=find_gated,
    ),
)
