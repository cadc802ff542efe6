"""Describe where in shared memory a tensor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .codec import AtMost, Within

MAX_DIMENSIONS = 64
MAX_ELEMENTS = 2**56
MAX_SLOTS = 4096
MAX_TEXT_CHARS = 2**20
MAX_NAME_CHARS = 512

Text = Annotated[str, AtMost(MAX_TEXT_CHARS)]
Name = Annotated[str, AtMost(MAX_NAME_CHARS)]
Count = Annotated[int, Within(0, 2**63 - 1)]
Sizes = Annotated[tuple[Count, ...], AtMost(MAX_DIMENSIONS)]


def need(holds: bool, what: str) -> None:
    """Raise ValueError unless a condition holds."""
    if not holds:
        raise ValueError(what)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A tensor's dtype, as torch names it, with shape, strides in elements, and its place."""

    dtype: Name
    shape: Sizes
    stride: Sizes
    offset: Count = 0
    """In bytes."""

    def __post_init__(self) -> None:
        check_extent(self.shape, self.stride)


@dataclass(frozen=True, kw_only=True)
class StateSlot(Slot):
    """A tensor of a state_dict."""

    key: Text
    is_parameter: bool


@dataclass(frozen=True, kw_only=True)
class OutputSlot(Slot):
    """A tensor that a call returned, or left."""

    device: Name
    """Type of the tensor's device."""
    own_stride: Sizes
    """The output's own strides, where its place has others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_extent(self.shape, self.own_stride)


def check_extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """Raise ValueError for strides that do not fit a shape, and for sizes that no memory has."""
    # A model in training has hundreds of thousands of these: no text is made unless it is needed.
    if len(shape) != len(stride):
        raise ValueError(f"as many strides as dimensions, {len(shape)}")
    count, extent = 1, 1
    for size, step in zip(shape, stride, strict=True):
        count *= size
        if size:
            extent += (size - 1) * step
    if count > MAX_ELEMENTS or extent > MAX_ELEMENTS:
        raise ValueError(f"at most {MAX_ELEMENTS} elements")


def bare(slot: Slot) -> Slot:
    """Return only dtype, shape, strides and place."""
    return Slot(dtype=slot.dtype, shape=slot.shape, stride=slot.stride, offset=slot.offset)
