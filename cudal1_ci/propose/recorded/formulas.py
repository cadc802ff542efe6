"""Compute recorded expressions again on other numbers, to learn which function they are.

A formula is the part of a graph between chosen values and one result. Its operations are computed
with numpy in float64, so two spellings of one function give the same numbers, whatever they are.
Casts do not count here; rules look at them by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudal1_ci.propose.recorded.graph import CASTS, Graph, Operation, values_in
from cudal1_ci.records.recording import Argument

MOST_OPERATIONS = 32
Array = np.ndarray[Any, Any]
erf = np.vectorize(math.erf, otypes=[float])


def dims_of(given: Any) -> tuple[int, ...] | None:
    return (given,) if isinstance(given, int) else None if given is None else tuple(given)


def sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], tuple) else given


def variance(
    x: Array,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Array:
    if isinstance(dim, bool):  # x.var(False)
        dim, unbiased = None, dim
    ddof = correction if correction is not None else int(unbiased)
    found: Array = np.var(x, axis=dims_of(dim), ddof=ddof, keepdims=keepdim)
    return found


def length(x: Array, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Array:
    if p not in (2, 2.0, None, "fro"):
        raise ValueError(p)
    found: Array = np.sqrt(np.sum(x * x, axis=dims_of(dim), keepdims=keepdim))
    return found


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def larger(x: Array, other: Any) -> Array:
    if not isinstance(other, np.ndarray):
        raise TypeError("a dimension, not a tensor")
    return np.maximum(x, other)


def smaller(x: Array, other: Any) -> Array:
    return -larger(-x, -other)


def clamp(x: Array, min: Any = None, max: Any = None) -> Array:  # noqa: A002
    low = x if min is None else np.maximum(x, min)
    return low if max is None else np.minimum(low, max)


def expanded(x: Array, *given: Any) -> Array:
    wanted = sizes(given)
    shape = [1] * (len(wanted) - x.ndim) + [*x.shape]
    return np.broadcast_to(x, [own if w == -1 else w for own, w in zip(shape, wanted, strict=True)])


def flattened(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])


def unsqueezed(x: Array, dim: int) -> Array:
    return np.expand_dims(x, dim)


def squeezed(x: Array, dim: Any = None) -> Array:
    return np.squeeze(x, dims_of(dim))


def reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a reduction as torch calls it."""

    def apply(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        return function(x, axis=dims_of(dim), keepdims=keepdim)

    return apply


def same(x: Array, *_: Any) -> Array:
    return x


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda x, other, alpha=1: x + alpha * other,
    "sub": lambda x, other, alpha=1: x - alpha * other,
    "rsub": lambda x, other: other - x,
    "mul": lambda x, other: x * other,
    "div": lambda x, other: x / other,
    "rdiv": lambda x, other: other / x,
    "pow": lambda x, exponent: np.power(x, exponent),
    "neg": lambda x: -x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "abs": np.abs,
    "absolute": np.abs,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "softplus": softplus,
    "relu": lambda x, **_: np.maximum(x, 0),
    "relu6": lambda x, **_: np.clip(x, 0, 6),
    "hardtanh": lambda x, min_val=-1, max_val=1, **_: np.clip(x, min_val, max_val),
    "clamp": clamp,
    "clip": clamp,
    "clamp_min": lambda x, min: np.maximum(x, min),  # noqa: A006
    "clamp_max": lambda x, max: np.minimum(x, max),  # noqa: A006
    "maximum": larger,
    "minimum": smaller,
    "max": larger,
    "min": smaller,
    "where": np.where,
    "gt": lambda x, other: x > other,
    "ge": lambda x, other: x >= other,
    "lt": lambda x, other: x < other,
    "le": lambda x, other: x <= other,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    **dict.fromkeys(CASTS, same),
}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "mean": reduced(np.mean),
    "sum": reduced(np.sum),
    "var": variance,
    "std": lambda *args, **kwargs: np.sqrt(variance(*args, **kwargs)),
    "var_mean": lambda x, dim=None, unbiased=True, keepdim=False, **more: (
        variance(x, dim, unbiased, keepdim, **more),
        np.mean(x, axis=dims_of(dim), keepdims=keepdim),
    ),
    "norm": length,
    "linalg_vector_norm": lambda x, ord=2, dim=None, keepdim=False: length(x, ord, dim, keepdim),  # noqa: A006
    "linalg_norm": lambda x, ord=2, dim=None, keepdim=False: length(x, ord, dim, keepdim),  # noqa: A006
}
RESHAPED: dict[str, Callable[..., Any]] = {
    "view": lambda x, *shape: x.reshape(sizes(shape)),
    "reshape": lambda x, *shape: x.reshape(sizes(shape)),
    "flatten": flattened,
    "unsqueeze": unsqueezed,
    "squeeze": squeezed,
    "expand": expanded,
    "expand_as": lambda x, other: np.broadcast_to(x, other.shape),
    "transpose": np.swapaxes,
    "permute": lambda x, *dims: np.transpose(x, sizes(dims)),
    "contiguous": same,
    "clone": same,
    "getitem": lambda x, index: x[index],
}
KNOWN = {**ELEMENTWISE, **REDUCTIONS, **RESHAPED}


@dataclass(frozen=True)
class Formula:
    """The operations between some values and a result, in order."""

    graph: Graph
    result: int
    operations: tuple[Operation, ...]
    leaves: tuple[int, ...]
    """Values that the operations read and do not make."""

    def computed(
        self, given: dict[int, Array], small: dict[int, int] | None = None
    ) -> Array | None:
        """Return the result for numbers of the leaves; None if it cannot be computed. Sizes in
        shapes are replaced by those in `small`."""
        held: dict[int, Any] = dict(given)
        try:
            with np.errstate(all="ignore"):
                for one in self.operations:
                    renamed = small if one.name in RESHAPED else None
                    args = [python(a, held, renamed) for a in one.recorded.args]
                    kwargs = {
                        k.name: python(k.argument, held, renamed)
                        for k in one.recorded.kwargs
                        if k.name != "dtype"
                    }
                    made = KNOWN[one.name](*args, **kwargs)
                    made = made if isinstance(made, tuple) else (made,)
                    held.update(zip(one.recorded.outputs, made, strict=True))
        except (TypeError, ValueError, KeyError, IndexError):
            return None
        return np.asarray(held[self.result])


def python(argument: Argument, held: dict[int, Any], small: dict[int, int] | None) -> Any:
    """Return what an argument is, with numbers for tensors."""
    if argument.value is not None:
        return held[argument.value]
    if argument.kind in ("tuple", "list"):
        return tuple(python(one, held, small) for one in argument.items)
    if argument.kind == "slice":
        return slice(*(python(one, held, None) for one in argument.items))
    text = argument.text or ""
    if argument.kind != "literal":
        raise TypeError(text)
    known = {"None": None, "True": True, "False": False, "Ellipsis": ..., "inf": math.inf}
    if text in known:
        return known[text]
    try:
        number = int(text)
    except ValueError:
        return text.strip("'") if text.startswith(("'", "torch.")) else float(text)
    return (small or {}).get(number, number)


def is_plain(operation: Operation) -> bool:
    """Return whether an operation can be computed here and its result is a value of its own."""
    recorded = operation.recorded
    return operation.name in KNOWN and bool(recorded.outputs) and not operation.name.endswith("_")


@dataclass
class Cone:
    """What a value is made of, back to values that are not computed by known operations."""

    graph: Graph
    result: int
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        seen: set[int] = set()
        waiting = [self.result]
        while waiting and len(self.operations) < MOST_OPERATIONS:
            value = waiting.pop(0)
            maker = self.graph.maker.get(value)
            if maker is None or maker.index in seen or not is_plain(maker):
                continue
            if value in inputs_of(maker):  # a cast that changes nothing
                continue
            seen.add(maker.index)
            self.operations.append(maker)
            waiting.extend(inputs_of(maker))
        self.operations.sort(key=lambda one: one.index)

    def until(self, leaves: Sequence[int]) -> Formula:
        """Return the formula from these values on."""
        by_output = {o: one for one in self.operations for o in one.recorded.outputs}
        needed: dict[int, Operation] = {}
        read: dict[int, None] = {}
        waiting = [self.result]
        while waiting:
            value = waiting.pop()
            maker = by_output.get(value)
            if value in leaves or maker is None:
                read[value] = None
            elif maker.index not in needed:
                needed[maker.index] = maker
                waiting.extend(inputs_of(maker))
        ordered = tuple(needed[index] for index in sorted(needed))
        return Formula(self.graph, self.result, ordered, tuple(read))


def inputs_of(operation: Operation) -> list[int]:
    """Return the tensors that an operation reads."""
    return [*dict.fromkeys(values_in(operation.recorded))]
