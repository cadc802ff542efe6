"""Match normalizations in the operations of a recorded call, by the numbers that they give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cudal1_ci.propose.recorded.formulas import (
    REDUCTIONS,
    RESHAPED,
    Array,
    Cone,
    Formula,
    inputs_of,
)
from cudal1_ci.propose.recorded.graph import Graph, Operation

PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41)
MOST_ELEMENTS = 2**21
"""Of a tensor that a formula is computed for in its own size."""
MOST_TRIES = 3
"""Calls of one expression that are looked at."""
OUTER = ("add", "mul", "div", "sub", "view", "reshape")
LAST, CHANNEL = "last", "channel"


@dataclass(frozen=True)
class Epsilon:
    """The number that keeps a denominator from zero."""

    value: float = 0.0
    operation: Operation | None = None
    argument: int | str = 0


@dataclass(frozen=True)
class Norm:
    """A normalization that a formula is."""

    kind: str
    formula: Formula
    x: int
    epsilon: Epsilon
    weight: int | None = None
    bias: int | None = None
    statistics: tuple[int, int] | None = None
    """Mean and variance that are kept."""
    num_dims: int = 1
    reduction: Operation | None = None

    @property
    def state(self) -> list[int]:
        """Return the tensors besides x that it reads."""
        given = (*(self.statistics or ()), self.weight, self.bias)
        return [one for one in given if one is not None]


def norms_of(graph: Graph, operation: Operation) -> Iterator[Norm]:
    """Yield the normalizations that an operation ends."""
    output = operation.output
    wanted = graph.of(output)
    if output is None or wanted is None or len(wanted.shape) < 2 or "float" not in wanted.dtype:
        return
    cone = Cone(graph, output)
    names = {one.name for one in cone.operations}
    has_root = names & {"sqrt", "rsqrt", "pow", "std", "norm", "linalg_norm", "linalg_vector_norm"}
    if len(cone.operations) < 3 or not has_root:
        return
    values = dict.fromkeys(v for one in cone.operations for v in inputs_of(one))
    formulas = []
    for x in values:
        known = graph.of(x)
        if known is not None and known.shape == wanted.shape and "float" in known.dtype:
            formula = cut(graph, cone, x)
            if formula is not None:
                formulas.append((x, formula))
    formulas.sort(key=lambda one: -len(one[1].operations))
    computed: dict[object, Array | None] = {}
    for x, formula in formulas:
        others = [one for one in formula.leaves if one != x]
        for epsilon in epsilons(formula):
            reductions = [one for one in formula.operations if one.name in REDUCTIONS]
            for norm in hypotheses(graph, formula, x, others, epsilon, reductions):
                if is_computed(graph, norm, computed):
                    yield norm


def cut(graph: Graph, cone: Cone, x: int) -> Formula | None:
    """Return the formula from a tensor and small ones on; their views are part of it."""
    formula = cone.until([x])
    if x not in formula.leaves or not len(formula.operations) > 2:
        return None
    whole = graph.of(x)
    others = [graph.of(one) for one in formula.leaves if one != x]
    if whole is None or len(others) > 4:
        return None
    total = math.prod(whole.shape)
    is_small = all(one is not None and math.prod(one.shape) * 2 <= total for one in others)
    return formula if is_small else None


def epsilons(formula: Formula) -> Iterator[Epsilon]:
    """Yield the small numbers that are added or keep from zero, then none."""
    for one in formula.operations:
        if one.name not in ("add", "clamp", "clamp_min", "clip", "maximum"):
            continue
        given: list[tuple[int | str, object]] = [
            (n, one.literal(n)) for n in range(1, len(one.recorded.args))
        ]
        given += [(k.name, one.literal(99, k.name)) for k in one.recorded.kwargs]
        for name, value in given:
            if isinstance(value, float) and 0 < value < 0.1:
                yield Epsilon(value, one, name)
    yield Epsilon()


def hypotheses(
    graph: Graph,
    formula: Formula,
    x: int,
    others: Sequence[int],
    epsilon: Epsilon,
    reductions: Sequence[Operation],
) -> Iterator[Norm]:
    """Yield the normalizations that a formula may be, from its reductions."""
    if not reductions:
        for given in itertools.permutations(others):
            if 2 <= len(given) <= 4:
                state = (*given[2:], None, None)
                kept = given[0], given[1]
                yield Norm("batch", formula, x, epsilon, state[0], state[1], kept)
                if len(given) == 3:
                    yield Norm("batch", formula, x, epsilon, None, given[2], kept)
        return
    if len(others) > 2:
        return
    first = reductions[0]
    value, whole = first.value(0), graph.of(x)
    known = graph.of(value)
    dims = graph.dims(first.literal(1, "dim"), value)
    if known is None or whole is None or not dims:
        return
    rank = len(known.shape)
    pairs: list[tuple[int | None, int | None]] = [(None, None)]
    if len(others) == 1:
        pairs = [(others[0], None), (None, others[0])]
    elif len(others) == 2:
        pairs = [(others[0], others[1]), (others[1], others[0])]
    for weight, bias in pairs:
        kinds: list[tuple[str, int]] = []
        if known.shape != whole.shape:
            kinds = [("group", 1)] if dims == tuple(range(2, rank)) else []
            if kinds and has_channels(graph, formula, whole.shape):
                kinds.append(("instance", 1))
        elif dims == tuple(range(rank - len(dims), rank)):
            kinds = [("layer", len(dims)), ("rms", len(dims))]
            if dims == tuple(range(2, rank)):
                kinds.append(("instance", 1))
        elif dims == (1,):
            kinds = [("channel_layer", 1), ("channel_rms", 1)]
        if len(dims) == 1 and weight is None and bias is None and known.shape == whole.shape:
            kinds.append(("unit", 1))
        for kind, num_dims in kinds:
            if bias is None or "rms" not in kind:
                yield Norm(
                    kind,
                    formula,
                    x,
                    epsilon,
                    weight,
                    bias,
                    num_dims=num_dims,
                    reduction=first,
                )


def has_channels(graph: Graph, formula: Formula, shape: Sequence[int]) -> bool:
    """Return whether a statistic is viewed as one number a sample and channel."""
    wanted = (*shape[:2], *[1] * (len(shape) - 2))
    outputs = [graph.of(o.output) for o in formula.operations if o.name in RESHAPED]
    return shape[1] > 1 and any(one is not None and one.shape == wanted for one in outputs)


def is_computed(graph: Graph, norm: Norm, computed: dict[object, Array | None]) -> bool:
    """Return whether the formula gives the numbers of the normalization; keep what was computed."""
    known = {one: graph.of(one) for one in norm.formula.leaves}
    if any(one is None for one in known.values()):
        return False
    shapes = {one: value.shape for one, value in known.items() if value is not None}
    large = dict.fromkeys(s for shape in shapes.values() for s in shape if s > 8)
    small = {}
    if len(large) <= len(PRIMES):
        small = dict(zip(large, PRIMES, strict=False))
    for renamed in (small, {}):
        if not renamed and math.prod(shapes[norm.x]) > MOST_ELEMENTS:
            return False
        is_possible = True
        rng = np.random.default_rng(0)
        for scale in (1.0, math.sqrt(norm.epsilon.value or 1e-6)):
            given: dict[int, Array] = {}
            for one, shape in shapes.items():
                numbers = rng.standard_normal([renamed.get(s, s) for s in shape])
                given[one] = (numbers + 0.3) * scale if one == norm.x else np.abs(numbers) + 0.2
                if norm.statistics and one == norm.statistics[1]:
                    given[one] = given[one] * scale**2
            key = norm.x, scale, bool(renamed), (norm.statistics or (0, 0))[1]
            if key not in computed:
                computed[key] = norm.formula.computed(given, renamed)
            found = computed[key]
            if found is None:
                is_possible = False
                break
            wanted = normalized(graph, norm, given, renamed)
            if wanted is None and renamed:  # groups that the smaller sizes do not divide into
                is_possible = False
                break
            if wanted is None or wanted.shape != found.shape:
                return False
            if not np.allclose(found, wanted, rtol=1e-7, atol=1e-9):
                return False
        if is_possible:
            return True
    return False


def normalized(
    graph: Graph, norm: Norm, given: dict[int, Array], renamed: dict[int, int]
) -> Array | None:
    """Return what torch's function gives for these numbers; None if it refuses them."""
    x, epsilon = given[norm.x], norm.epsilon.value
    weight = None if norm.weight is None else given[norm.weight]
    bias = None if norm.bias is None else given[norm.bias]
    shape = [1] * x.ndim
    if norm.kind == "unit":
        dim = dims_of(graph, norm)[0]
        length = np.sqrt(np.sum(x * x, axis=dim, keepdims=True))
        divided: Array = x / np.maximum(length, epsilon)
        return divided
    if norm.kind in ("layer", "rms"):
        axes = tuple(range(x.ndim - norm.num_dims, x.ndim))
        shape = [*x.shape[x.ndim - norm.num_dims :]]
    elif norm.kind.startswith("channel"):
        axes = (1,)
        shape[1] = x.shape[1]
    else:
        axes = tuple(range(2, x.ndim))
        shape[1] = x.shape[1]
    if any(one is not None and one.size != math.prod(shape) for one in (weight, bias)):
        return None
    rows = x
    if norm.kind == "batch":
        if norm.statistics is None or any(given[s].size != shape[1] for s in norm.statistics):
            return None
        mean, var = (given[one].reshape(shape) for one in norm.statistics)
    else:
        if norm.kind == "group":
            view = graph.of(None if norm.reduction is None else norm.reduction.value(0))
            num_groups = renamed.get(view.shape[1], view.shape[1]) if view is not None else 1
            if x.ndim < 3 or x.shape[1] % num_groups:
                return None
            rows, axes = x.reshape(x.shape[0], num_groups, -1), (2,)
        is_rms = norm.kind.endswith("rms")
        mean = np.zeros(1) if is_rms else rows.mean(axis=axes, keepdims=True)
        var = np.mean((rows - mean) ** 2, axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        made: Array = ((rows - mean) / np.sqrt(var + epsilon)).reshape(x.shape)
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


def dims_of(graph: Graph, norm: Norm) -> tuple[int, ...]:
    one = norm.reduction
    return () if one is None else graph.dims(one.literal(1, "dim"), one.value(0))
