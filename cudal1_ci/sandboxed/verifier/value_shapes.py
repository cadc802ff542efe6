"""Verify outputs whose shape depends on values of the inputs, such as `x[x > 0]`.

In a trial a call says what it returns before there is memory for it. A timed call needs its places
before. So the trials bound the elements of such an output. Its place in a timed batch is as many in
a row, after a place for its shape (runner/value_shapes.py). Shapes are compared first, then the
elements that are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..memory.segment import contiguous_stride
from ..runner.value_shapes import MOST_DIMENSIONS, NUM_NUMBERS
from ..wire.tensors import OutputSlot
from .cases import Case, Rejected
from .inputs import shapes_of

MARGIN, MORE = 2, 16
"""A place holds this multiple of the most elements of a trial, and a few more: inputs of timed
calls are others. The trials have larger and smaller numbers than a workload states, of which a
threshold lets more or fewer through."""


def learn_bounds(case: Case) -> None:
    """Learn which outputs have other shapes for inputs of the same shapes, and their bounds.

    Raises:
        Rejected: The number of outputs, or of dimensions beyond what fits, depends on values.
    """
    assert case.expected is not None
    first = shapes_of(case.trials[0][1])
    alike = [
        [tensor.shape for tensor in outputs[: call.num_leaves]]
        for (_, one), outputs, call in zip(
            case.trials, case.expected.outputs, case.expected.calls, strict=True
        )
        if shapes_of(one) == first
    ]
    counts = sorted({len(shapes) for shapes in alike})
    if len(counts) > 1:
        raise Rejected(
            "invalid_reference",
            "reference.dynamic_shape",
            f"it returns {counts[0]} tensors for some values of the inputs and {counts[-1]} for "
            "others of the same shapes: that cannot be timed; return them in one tensor, with "
            "their lengths in another",
        )
    for leaf, shapes in enumerate(zip(*alike, strict=True)):
        if len(set(shapes)) > 1:
            if max(map(len, shapes)) > MOST_DIMENSIONS:
                raise Rejected(
                    "invalid_reference",
                    "reference.dynamic_shape",
                    f"output {leaf} has more than {MOST_DIMENSIONS} dimensions, and its shape "
                    "depends on values of the inputs; flatten it",
                )
            case.bounds[leaf] = MARGIN * max(map(math.prod, shapes)) + MORE
    if any(case.source.moves):  # lengths change places, and so one output may be as long as another
        case.bounds = dict.fromkeys(case.bounds, max(case.bounds.values(), default=0))


def bounded(slots: Sequence[OutputSlot], bounds: dict[int, int]) -> list[OutputSlot]:
    """Return the places of a timed call's outputs."""
    found = []
    for leaf, slot in enumerate(slots):
        if leaf not in bounds:
            found.append(slot)
            continue
        found.append(row("int64", NUM_NUMBERS, "cpu"))
        found.append(row(slot.dtype, bounds[leaf], slot.device))
    return found


def row(dtype: str, length: int, device: str) -> OutputSlot:
    """Return a place of elements in a row."""
    stride = contiguous_stride((length,))
    return OutputSlot(dtype=dtype, shape=(length,), stride=stride, device=device, own_stride=stride)


def places_of(num_leaves: int, bounds: dict[int, int]) -> list[tuple[int, bool]]:
    """Return, for every place, the number of its output and whether it holds a shape."""
    return [
        (leaf, is_shape)
        for leaf in range(num_leaves)
        for is_shape in ((True, False) if leaf in bounds else (False,))
    ]


def without_rest(values: torch.Tensor, shapes: torch.Tensor) -> torch.Tensor:
    """Return the elements of all calls, with zeros where a call returned fewer: the memory there
    holds what was in it before."""
    sizes = shapes[:, 1:].clamp_min(0)
    used = torch.arange(shapes.shape[1] - 1, device=shapes.device) < shapes[:, :1]
    counts = torch.where(used, sizes, 1).prod(1)
    is_rest = torch.arange(values.shape[1], device=values.device) >= counts[:, None]
    return values.masked_fill(is_rest, 0)


def tidied(values: Sequence[torch.Tensor], bounds: dict[int, int]) -> list[torch.Tensor]:
    """Return what the places of one call hold, without the rest of rows that are not full."""
    found = list(values)
    for number, (leaf, is_shape) in enumerate(places_of(len(values) - len(bounds), bounds)):
        if leaf in bounds and not is_shape:
            found[number] = without_rest(values[number][None], values[number - 1][None])[0]
    return found


def in_shape(values: Sequence[torch.Tensor], bounds: dict[int, int]) -> list[torch.Tensor]:
    """Return the outputs of one call in their own shapes, of what its places hold. One whose
    shape needs more than there is stays a row."""
    found = []
    for number, (leaf, is_shape) in enumerate(places_of(len(values) - len(bounds), bounds)):
        if is_shape:
            continue
        value = values[number]
        if leaf in bounds:
            count, *sizes = values[number - 1].tolist()
            shape = sizes[: max(0, count)]
            if min(shape, default=0) >= 0 and math.prod(shape) <= len(value):
                value = value[: math.prod(shape)].reshape(shape)
        found.append(value)
    return found


def most_elements(shapes: torch.Tensor) -> int:
    """Return the largest number of elements of any call."""
    sizes: list[list[int]] = shapes.tolist()
    return max(math.prod(one[1 : 1 + one[0]]) for one in sizes)
