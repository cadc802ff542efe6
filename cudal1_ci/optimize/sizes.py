"""Call a target at half and at double batch, for what is faster only at the size that was seen.

    workloads, why = other_sizes(problem.workloads)

The batch is the first dimension of most of the tensors. Values that describe it otherwise (offsets,
lengths) and calls whose arguments a function of the user's makes cannot be scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cudal1_ci.records import (
    ArgumentSpec,
    Call,
    Instance,
    Items,
    Made,
    Mapping,
    TensorSpec,
    Workload,
)

FACTORS = {"half batch": 0.5, "double batch": 2.0}
BOUND_TO_SIZE = frozenset(("offsets", "permutation", "pairs"))
"""Invariants of values that count or index a batch."""


def other_sizes(workloads: Sequence[Workload]) -> tuple[tuple[Workload, ...], str | None]:
    """Return each workload at half and double batch, and why there are none of some."""
    found: list[Workload] = []
    whys: dict[str, list[str]] = {}
    for workload in workloads:
        batch, why = batch_of(workload)
        if batch is None:
            whys.setdefault(why, []).append(workload.name)
            continue
        for words, factor in FACTORS.items():
            size = int(batch * factor)
            if not size:
                why = f"a batch of {batch} cannot be halved"
                whys.setdefault(why, []).append(workload.name)
                continue
            name = f"{workload.name}, {words}"
            call = msgspec.structs.replace(workload, name=name, call=scaled(workload, batch, size))
            found.append(msgspec.structs.replace(call, share=None, steps=None))
    said = [f"{', '.join(names)}: {why}" for why, names in whys.items()]
    return tuple(found), "; ".join(said) or None


def batch_of(workload: Workload) -> tuple[int | None, str]:
    """Return the size of a call's batch, or why it is not known."""
    if isinstance(workload.call, Made):
        return None, "its arguments are made by a function"
    tensors = tensors_in(workload.call)
    if any(BOUND_TO_SIZE.intersection(one.invariants) for one in tensors):
        return None, "values among its arguments depend on the batch"
    firsts = Counter(one.shape[0] for one in tensors if one.shape)
    if not firsts:
        return None, "no argument has a batch"
    (size, number), *others = firsts.most_common()
    if others and others[0][1] == number and tensors[0].shape:
        size = tensors[0].shape[0]
    return (size, "") if size else (None, "its batch is empty")


def tensors_in(call: Call) -> list[TensorSpec]:
    """Return the tensors of a call, in order."""
    found: list[TensorSpec] = []

    def see(tensor: TensorSpec) -> TensorSpec:
        found.append(tensor)
        return tensor

    mapped(call, see)
    return found


def scaled(workload: Workload, batch: int, size: int) -> Call:
    """Return a workload's call with tensors of another batch."""
    assert isinstance(workload.call, Call)

    def resized(tensor: TensorSpec) -> TensorSpec:
        if not tensor.shape or tensor.shape[0] != batch:
            return tensor
        # Strides of the first dimension do not depend on its size; where others are longer than
        # it, they do.
        stride = tensor.stride
        is_outer = stride is None or all(stride[0] >= one for one in stride)
        return msgspec.structs.replace(
            tensor, shape=(size, *tensor.shape[1:]), stride=stride if is_outer else None
        )

    return mapped(workload.call, resized)


def mapped(call: Call, change: Callable[[TensorSpec], TensorSpec]) -> Call:
    """Return a call with each tensor changed."""

    def of(value: ArgumentSpec) -> Any:
        match value:
            case TensorSpec():
                return change(value)
            case Items(items=items):
                return msgspec.structs.replace(value, items=tuple(map(of, items)))
            case Mapping(items=items):
                pairs = tuple((of(key), of(one)) for key, one in items)
                return msgspec.structs.replace(value, items=pairs)
            case Instance(args=args, kwargs=kwargs):
                return msgspec.structs.replace(
                    value,
                    args=tuple(map(of, args)),
                    kwargs={name: of(one) for name, one in kwargs.items()},
                )
        return value

    return Call(
        args=tuple(map(of, call.args)),
        kwargs={name: of(one) for name, one in call.kwargs.items()},
    )
