"""Compute what a GPU can do at best, and how near a call comes to it.

The figures are those of vendors' data sheets. The bound is the memory bound: the least that a call
reads and writes, at full bandwidth. Parameters are unknown here, so the bound covers inputs and
outputs alone. A call can be far from it for a good reason: a large matrix product is bound by
arithmetic. What fits into the L2 cache may be faster than the bound.

    facts = facts_of("NVIDIA H200")
    lower_bound_us(48_000_000, facts) == 10.0

Source: NVIDIA's data sheets of the V100, V100S, T4, A10, A10G (for AWS), A100, L4, L40, L40S,
RTX A6000, RTX 6000 Ada, H100, H100 NVL, H200, H20, HGX B200 and GB200 NVL72; for GeForce the white
papers of GA102, Ada and RTX Blackwell. Tensor throughput is dense: half of what a sheet gives with
sparsity. Shared memory is that of one SM by compute capability: CUDA C++ Programming Guide,
technical specifications.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from cudal1_ci.records import (
    ArgumentSpec,
    Call,
    Demand,
    Instance,
    Items,
    Made,
    Mapping,
    Record,
    TensorSpec,
)


class DeviceFacts(Record, frozen=True, kw_only=True):
    """The peak figures of one model of GPU; None for a missing figure."""

    bandwidth_gb_s: float
    fp32_tflop_s: float
    tf32_tflop_s: float | None
    bf16_tflop_s: float | None
    shared_kib_per_sm: int
    num_sms: int


# The name as torch gives it, without vendor and memory size; GB/s; TFLOP/s in fp32, TF32 and BF16
# (tensor cores, dense); KiB of shared memory a SM; SMs.
_TABLE: tuple[tuple[str, float, float, float | None, float | None, int, int], ...] = (
    (r"V100S-PCIE", 1134, 16.4, None, None, 96, 80),
    (r"V100-SXM2", 900, 15.7, None, None, 96, 80),
    (r"V100-PCIE", 900, 14.0, None, None, 96, 80),
    (r"T4", 320, 8.1, None, None, 64, 40),
    (r"A10", 600, 31.2, 62.5, 125, 100, 72),
    (r"A10G", 600, 35.0, 35.0, 70, 100, 80),
    (r"A100-(SXM4|PCIE)-40GB", 1555, 19.5, 156, 312, 164, 108),
    (r"A100-SXM4-80GB", 2039, 19.5, 156, 312, 164, 108),
    (r"A100(-PCIE-80GB| 80GB PCIE)", 1935, 19.5, 156, 312, 164, 108),
    (r"L4", 300, 30.3, 60, 121, 100, 58),
    (r"L40", 864, 90.5, 90.5, 181, 100, 142),
    (r"L40S", 864, 91.6, 183, 362, 100, 142),
    (r"RTX 3090", 936, 35.6, 35.6, 71, 100, 82),
    (r"RTX 4090", 1008, 82.6, 82.6, 165.2, 100, 128),
    (r"RTX 5090", 1792, 104.8, 104.8, 209.5, 100, 170),
    (r"RTX A6000", 768, 38.7, 77.4, 154.8, 100, 84),
    (r"RTX 6000 ADA GENERATION", 960, 91.1, 182.1, 364.2, 100, 142),
    (r"H100 PCIE", 2000, 51, 378, 756, 228, 114),
    (r"H100( 80GB HBM3|-SXM5-80GB)", 3350, 67, 494, 989, 228, 132),
    (r"H100 NVL", 3900, 60, 417, 835, 228, 132),
    (r"H200", 4800, 67, 494, 989, 228, 132),
    (r"H200 NVL", 4800, 60, 417, 835, 228, 132),
    (r"H20", 4000, 44, 74, 148, 228, 78),
    (r"B200", 8000, 75, 1125, 2250, 228, 148),
    (r"GB200", 8000, 80, 1250, 2500, 228, 148),
)
_BRAND = re.compile(r"^(NVIDIA )?((TESLA|GEFORCE) )?")
_MEMORY = re.compile(r"([ -]\d+GB)?$")

DTYPE_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


def facts_of(name: str) -> DeviceFacts | None:
    """Return the figures of a GPU by its name in torch. None for an unknown one: a CPU, a slice of
    a GPU, a variant with other clocks.
    """
    full = _BRAND.sub("", " ".join(name.upper().split()))
    for wanted in (full, _MEMORY.sub("", full)):
        for pattern, bandwidth, fp32, tf32, bf16, shared, sms in _TABLE:
            if re.fullmatch(pattern, wanted):
                return DeviceFacts(
                    bandwidth_gb_s=bandwidth,
                    fp32_tflop_s=fp32,
                    tf32_tflop_s=tf32,
                    bf16_tflop_s=bf16,
                    shared_kib_per_sm=shared,
                    num_sms=sms,
                )
    return None


def lower_bound_us(num_bytes: int, facts: DeviceFacts) -> float:
    """Return microseconds in which that many bytes can be read or written at best."""
    return num_bytes / (facts.bandwidth_gb_s * 1e3)


def roofline_share(time_us: float, num_bytes: int, facts: DeviceFacts) -> float:
    """Return the bound's share of the time: 1 is as fast as the memory allows."""
    return lower_bound_us(num_bytes, facts) / time_us


def least_us(demand: Demand, facts: DeviceFacts) -> float:
    """Return the least microseconds of a call: memory and arithmetic at their peaks, in parallel.
    In float32 products are exact. Convolutions may be in TF32, as torch allows by default. What has
    no rate in the data sheet has no bound.
    """
    if demand.dtype in ("bfloat16", "float16"):
        product = convolution = facts.bf16_tflop_s
    elif demand.dtype == "float32":
        product, convolution = facts.fp32_tflop_s, facts.tf32_tflop_s or facts.fp32_tflop_s
    else:
        product = convolution = None
    tera = 1e6  # operations a microsecond
    arithmetic_us = sum(
        flops / (rate * tera)
        for flops, rate in (
            (demand.product_flops, product),
            (demand.convolution_flops, convolution),
        )
        if rate
    )
    return max(lower_bound_us(demand.num_bytes, facts), arithmetic_us)


def call_bytes(call: Call | Made) -> int | None:
    """Return bytes of all tensors among the arguments; None if they are unknown."""
    if isinstance(call, Made):
        return None
    return _total(_bytes(spec) for spec in (*call.args, *call.kwargs.values()))


def tensor_bytes(spec: TensorSpec) -> int | None:
    """Return the bytes that hold a tensor's elements; those of an expanded axis share the same
    bytes.
    """
    dtype = "uint8" if spec.dtype.startswith("float8") else spec.dtype
    if dtype not in DTYPE_BYTES:
        return None
    strides: Sequence[int] = spec.stride or (1,) * len(spec.shape)
    axes = [n for n, stride in zip(spec.shape, strides, strict=True) if stride or not n]
    return prod(axes) * DTYPE_BYTES[dtype]


def _bytes(spec: ArgumentSpec) -> int | None:
    match spec:
        case TensorSpec():
            return tensor_bytes(spec)
        case Items(items=items):
            return _total(map(_bytes, items))
        case Mapping(items=pairs):
            return _total(_bytes(value) for _, value in pairs)
        case Instance(args=args, kwargs=kwargs):
            return _total(map(_bytes, (*args, *kwargs.values())))
        case _:
            return 0


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)
