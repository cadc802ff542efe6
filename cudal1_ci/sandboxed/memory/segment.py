"""Place tensors in memory that two processes share.

A segment is anonymous memory behind a descriptor. A slot says where in it a tensor is. This module
does not know what the tensors mean.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from ..wire.tensors import Slot

NOT_PLAIN = re.compile(r"q|bits|float4|u?int[1-7]$")
"""Names of dtypes in which a tensor that the verifier makes would end its process, or cannot be
compared: quantized ones, and those of less than a byte."""
AnySlot = TypeVar("AnySlot", bound=Slot)
ALIGNMENT_BYTES = 64
"""A cache line, and what vectorized kernels assume of fresh allocations."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name. Raises ValueError for what is not one of plain numbers."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or NOT_PLAIN.match(name):
        raise ValueError(f"expected the name of a dtype of plain numbers, got {name!r}")
    return dtype


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(stride[::-1])


def slot_of(tensor: torch.Tensor) -> Slot:
    """Return the slot, without its place, of a tensor. Contiguous is the layout of a tensor that
    overlaps itself (an expanded one), or whose strides are negative or have gaps beyond its
    size. Raises ValueError for a dtype that is not of plain numbers."""
    dtype_of(dtype_name(tensor.dtype))
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    repeats = any(size > 1 and step == 0 for size, step in zip(shape, stride, strict=True))
    if repeats or span(shape, stride) > tensor.numel():
        stride = contiguous_stride(shape)
    return Slot(dtype=dtype_name(tensor.dtype), shape=shape, stride=stride)


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the elements from the first to the last one of a strided tensor, inclusive."""
    if math.prod(shape) == 0:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def size_bytes(slot: Slot) -> int:
    """Return the bytes that a slot takes."""
    return span(slot.shape, slot.stride) * dtype_of(slot.dtype).itemsize


def place(slots: Iterable[AnySlot], start_bytes: int = 0) -> tuple[list[AnySlot], int]:
    """Place the slots one behind another, aligned. Return them and the end in bytes."""
    placed, offset = [], start_bytes
    for slot in slots:
        placed.append(replace(slot, offset=offset))
        offset += -(-size_bytes(slot) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return placed, offset


def check_slot(slot: Slot, num_bytes: int) -> None:
    """Raise ValueError when a slot is not inside a segment of `num_bytes`."""
    if slot.offset < 0 or slot.offset + size_bytes(slot) > num_bytes:
        raise ValueError(f"slot {slot} lies outside of a segment of {num_bytes} bytes")


def view_of(flat: torch.Tensor, slot: Slot) -> torch.Tensor:
    """Return a slot's tensor in bytes that were copied out of a segment."""
    return stacked(flat, slot, 1, 0)[0]


def stacked(flat: torch.Tensor, slot: Slot, count: int, step_bytes: int) -> torch.Tensor:
    """Return equal slots that are `step_bytes` apart, from the given one on: shape [count, ...]."""
    dtype, shape = dtype_of(slot.dtype), [count, *slot.shape]
    num_elements = span(slot.shape, slot.stride)
    if num_elements == 0:
        return torch.empty(shape, dtype=dtype, device=flat.device)
    start = slot.offset
    end = start + (count - 1) * step_bytes + num_elements * dtype.itemsize
    stride = [step_bytes // dtype.itemsize, *slot.stride]
    window = flat[start:end].view(dtype)
    return window.as_strided(shape, stride, window.storage_offset())


class Segment:
    """Shared memory of a fixed size."""

    def __init__(self, fd: int, num_bytes: int):
        self.fd = fd
        self.num_bytes = num_bytes
        self.memory = mmap.mmap(fd, num_bytes)

    @classmethod
    def create(cls, num_bytes: int) -> Segment:
        """Return new zeroed memory, at least one page."""
        fd = os.memfd_create("segment", os.MFD_CLOEXEC)
        num_bytes = max(num_bytes, mmap.PAGESIZE)
        os.ftruncate(fd, num_bytes)
        return cls(fd, num_bytes)

    def tensor(self, slot: Slot) -> torch.Tensor:
        """Return a view of the slot's memory.

        Raises:
            ValueError: The slot is not inside the segment.
        """
        dtype, shape, stride = dtype_of(slot.dtype), slot.shape, slot.stride
        count = span(shape, stride)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        offset = slot.offset
        check_slot(slot, self.num_bytes)
        flat = torch.frombuffer(self.memory, dtype=dtype, count=count, offset=offset)
        return flat.as_strided(shape, stride)

    def address(self) -> tuple[str | None, list[int]]:
        """Return what another process opens it with: a handle, or a descriptor."""
        return None, [self.fd]

    def flat(self) -> torch.Tensor:
        """Return all of it as bytes."""
        return torch.frombuffer(self.memory, dtype=torch.uint8)

    def close(self) -> None:
        """Close the descriptor. The memory is freed with the last tensor that views it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
