"""Take tensors that are not plain (sparse, quantized, nested, floats of a byte) apart into plain
ones, and put them together again.

Shared memory, the drawing of inputs and every comparison know only plain tensors. The parts are
views: what is written to them is written to the tensor. Only runners import this.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from .segment import contiguous_stride

COMPRESSED: dict[torch.layout, tuple[str, str]] = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
"""The dtype of a quantized tensor's whole numbers, by its own."""
BYTE_FLOATS = frozenset(
    one for name, one in vars(torch).items() if name.startswith("float8") and one.itemsize == 1
)
"""Floats that torch neither scales nor compares. They are carried and compared as their bits."""
UNSUMMED = "is_unsummed"
"""Marks the dense form of coordinates of which some may be there twice."""
MOST_DENSE = 2**28
"""Most elements of the dense form of a sparse output, in which it is compared."""


@dataclass(frozen=True)
class Layout:
    """All of a tensor that is not plain except for its parts. It travels in a pickle."""

    kind: str
    """`sparse_coo`, `sparse_csr`, ..., `quantized`, `bits` or `complex32`."""
    shape: tuple[int, ...]
    dtype: str = ""
    """Of a quantized tensor or of one of bits, such as `qint8`."""
    is_coalesced: bool = False
    axis: int | None = None
    """The axis of a scale for each channel; None for one scale."""
    scales: tuple[float, ...] = ()
    zero_points: tuple[float, ...] = ()
    """Whole numbers, except where torch keeps floats for channels."""
    sizes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the components of a nested tensor."""


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Return whether a tensor needs no taking apart. Of other classes only nested ones do."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return not tensor.is_nested
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    return tensor.dtype not in BYTE_FLOATS and tensor.dtype is not torch.complex32


def parts_of(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parts of a tensor that is not plain, as views, by their names. What has a name
    other than `values` describes structure.

    Raises:
        TypeError: It is of a kind that cannot be taken apart.
    """
    tensor = tensor.detach()
    if tensor.is_nested:
        values = tensor.contiguous().values()
        offsets = getattr(tensor, "offsets", None)
        return {"offsets": offsets(), "values": values} if offsets else {"values": values}
    if tensor.is_quantized:
        return {"values": whole_numbers(tensor)}
    if tensor.dtype is torch.complex32:
        return {"values": torch.view_as_real(tensor)}
    if tensor.layout is torch.strided:
        return {"values": tensor.view(torch.uint8)}
    if tensor.layout is torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in COMPRESSED:
        first, second = COMPRESSED[tensor.layout]
        numbers = {name: getattr(tensor, name)() for name in (first, second)}
        return {**numbers, "values": tensor.values()}
    raise TypeError(f"a tensor of layout {tensor.layout} cannot be carried; convert it to_dense()")


def is_jagged(tensor: torch.Tensor) -> bool:
    """Return whether it is nested with offsets, in the newer of torch's two forms."""
    return tensor.layout is torch.jagged


def whole_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole numbers of a quantized tensor, as a view."""
    dtype = INTEGERS.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"a tensor of {tensor.dtype} cannot be carried; dequantize() it")
    view = torch.empty(0, dtype=dtype, device=tensor.device)
    where = (tensor.storage_offset(), tensor.size(), tensor.stride())
    return view.set_(tensor.untyped_storage(), *where)


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return what is needed to put the parts together again."""
    if tensor.is_nested:
        if is_jagged(tensor):
            return Layout("jagged", ())
        return Layout("nested", (), sizes=tuple(tuple(one.shape) for one in tensor.unbind()))
    shape = tuple(tensor.shape)
    if tensor.dtype is torch.complex32:
        return Layout("complex32", shape)
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return Layout("bits", shape, str(tensor.dtype).removeprefix("torch."))
    if not tensor.is_quantized:
        is_coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        return Layout(str(tensor.layout).removeprefix("torch."), shape, is_coalesced=is_coalesced)
    dtype = str(tensor.dtype).removeprefix("torch.")
    axis, scales, zero_points = quantization_of(tensor)
    scaling = (tuple(scales.tolist()), tuple(zero_points.tolist()))
    return Layout("quantized", shape, dtype, False, axis, *scaling)


def quantization_of(tensor: torch.Tensor) -> tuple[int | None, torch.Tensor, torch.Tensor]:
    """Return the axis of the channels (None for one scale), the scales and the zero points.

    Raises:
        TypeError: It is quantized in another way.
    """
    scheme = tensor.qscheme()
    if scheme is torch.per_tensor_affine:
        return None, *numbers_of(tensor.q_scale(), tensor.q_zero_point())
    if scheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        scales, zero_points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return tensor.q_per_channel_axis(), scales, zero_points
    raise TypeError(f"a tensor quantized by {scheme} cannot be carried; dequantize() it")


@functools.lru_cache(maxsize=256)
def numbers_of(scale: float, zero_point: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as tensors, the same every time: to make them takes longer than a small call."""
    return torch.tensor([scale], dtype=torch.float64), torch.tensor([zero_point])


def put_together(layout: Layout, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a tensor over the memory of its parts."""
    make: Any
    with without_warnings():
        if layout.kind == "quantized":
            return quantized(layout, parts[0])
        if layout.kind == "complex32":
            return torch.view_as_complex(parts[0])
        if layout.kind == "bits":
            return parts[0].view(getattr(torch, layout.dtype))
        if layout.kind == "nested":
            return nested(layout, parts[0])
        if layout.kind == "jagged":
            return torch.nested.nested_tensor_from_jagged(parts[1], parts[0])
        *indices, values = parts
        if layout.kind == "sparse_coo":
            make, form = torch.sparse_coo_tensor, {"is_coalesced": layout.is_coalesced}
        else:
            make, form = torch.sparse_compressed_tensor, {"layout": getattr(torch, layout.kind)}
        made: torch.Tensor = make(*indices, values, layout.shape, **form)
        return made


def quantized(layout: Layout, numbers: torch.Tensor) -> torch.Tensor:
    """Return a quantized tensor over the memory of its whole numbers."""
    make: Any
    scaling: dict[str, Any]
    shape = list(numbers.shape)
    options = {"dtype": getattr(torch, layout.dtype), "device": numbers.device}
    if layout.axis is None:
        make = torch._empty_affine_quantized
        scaling = {"scale": layout.scales[0], "zero_point": layout.zero_points[0]}
    else:
        make = torch._empty_per_channel_affine_quantized
        scales = torch.tensor(layout.scales, dtype=torch.float64, device=numbers.device)
        zero_points = torch.tensor(layout.zero_points, device=numbers.device)
        scaling = {"scales": scales, "zero_points": zero_points, "axis": layout.axis}
    made: torch.Tensor = make(shape, **scaling, **options)
    where = (numbers.storage_offset(), numbers.size(), numbers.stride())
    made.set_(numbers.untyped_storage(), *where)
    return made


def nested(layout: Layout, values: torch.Tensor) -> torch.Tensor:
    """Return a nested tensor over the memory of its elements, one component after another."""
    sizes = torch.tensor(layout.sizes)
    strides = torch.tensor([contiguous_stride(one) for one in layout.sizes])
    lengths = torch.tensor([math.prod(one) for one in layout.sizes])
    made: torch.Tensor = torch._nested_view_from_buffer(
        values, sizes, strides, lengths.cumsum(0) - lengths
    )
    return made


def comparable(tensor: torch.Tensor) -> tuple[str, list[torch.Tensor]]:
    """Return an output that is not plain as plain tensors, and its kind in words. A sparse one is
    compared in its dense form, as the order of its entries and explicit zeros are free; a
    quantized one by its whole numbers, scales and zero points; a nested one by its components;
    floats of a byte by their bits.

    Raises:
        TypeError, ValueError: It is of another kind, or too large in its dense form.
    """
    if tensor.is_nested:
        return "nested", list(tensor.unbind())
    if tensor.is_quantized:
        axis, scales, zero_points = quantization_of(tensor)
        along = "" if axis is None else f" along {axis}"
        kind = f"{str(tensor.dtype).removeprefix('torch.')}{along}"
        return kind, [whole_numbers(tensor), scales, zero_points]
    if tensor.dtype is torch.complex32:  # which torch hardly computes with
        return "complex32", [torch.view_as_real(tensor.resolve_conj())]
    if tensor.layout is torch.strided:
        return str(tensor.dtype).removeprefix("torch."), [tensor.view(torch.uint8)]
    kind = str(tensor.layout).removeprefix("torch.")
    if tensor.numel() > MOST_DENSE:
        raise ValueError(
            f"an output is a {kind} tensor of shape {list(tensor.shape)}, whose dense form has "
            f"{tensor.numel():,} elements: it is compared in that form, of at most "
            f"{MOST_DENSE:,}; declare a workload with smaller inputs"
        )
    dense = tensor.to_dense()
    if tensor.layout is torch.sparse_coo and not tensor.is_coalesced():
        setattr(dense, UNSUMMED, True)
    return kind, [dense]


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence torch's notes that sparse and quantized tensors are beta or deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
