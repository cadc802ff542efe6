"""Figures of GPUs, and the bound of memory."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.llm.measured import number, percent, size
from cudal1_ci.propose.roofline import (
    _TABLE,
    call_bytes,
    facts_of,
    least_us,
    lower_bound_us,
    roofline_share,
    tensor_bytes,
)
from cudal1_ci.records import (
    Call,
    Constant,
    Demand,
    Instance,
    Items,
    Made,
    Mapping,
    Symbol,
    TensorSpec,
)

NAMES = {
    "Tesla V100-SXM2-16GB": (900, 80),
    "Tesla V100-SXM2-32GB": (900, 80),
    "Tesla V100-PCIE-32GB": (900, 80),
    "Tesla V100S-PCIE-32GB": (1134, 80),
    "Tesla T4": (320, 40),
    "NVIDIA A10": (600, 72),
    "NVIDIA A10G": (600, 80),
    "NVIDIA A100-PCIE-40GB": (1555, 108),
    "NVIDIA A100-SXM4-40GB": (1555, 108),
    "A100-SXM4-40GB": (1555, 108),
    "NVIDIA A100 80GB PCIe": (1935, 108),
    "NVIDIA A100-SXM4-80GB": (2039, 108),
    "NVIDIA L4": (300, 58),
    "NVIDIA L40": (864, 142),
    "NVIDIA L40S": (864, 142),
    "NVIDIA GeForce RTX 3090": (936, 82),
    "NVIDIA GeForce RTX 4090": (1008, 128),
    "NVIDIA GeForce RTX 5090": (1792, 170),
    "NVIDIA RTX A6000": (768, 84),
    "NVIDIA RTX 6000 Ada Generation": (960, 142),
    "NVIDIA H100 PCIe": (2000, 114),
    "NVIDIA H100 80GB HBM3": (3350, 132),
    "NVIDIA H100 NVL": (3900, 132),
    "NVIDIA H200": (4800, 132),
    "NVIDIA H200 NVL": (4800, 132),
    "NVIDIA H20": (4000, 78),
    "NVIDIA B200": (8000, 148),
    "NVIDIA GB200": (8000, 148),
}


@pytest.mark.parametrize(("name", "figures"), NAMES.items(), ids=NAMES.keys())
def test_a_gpu_is_known_by_the_name_that_torch_gives_it(name, figures):
    facts = facts_of(name)
    assert facts is not None
    assert (facts.bandwidth_gb_s, facts.num_sms) == figures


def test_every_row_of_the_table_is_reached_by_a_name():
    assert len({facts_of(name) for name in NAMES}) == len(_TABLE)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "AMD EPYC 7B13",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A1000",
        "Quadro T4000",
    ],
)
def test_what_only_looks_like_a_known_gpu_is_not_one(name):
    assert facts_of(name) is None


def test_tensor_cores_of_an_age_are_those_that_it_had():
    for name in ("Tesla T4", "Tesla V100-SXM2-16GB"):
        facts = facts_of(name)
        assert facts is not None
        assert facts.tf32_tflop_s is None
        assert facts.bf16_tflop_s is None


def test_figures_are_consistent():
    """Dense BF16 is twice TF32 where there are tensor cores for it, and neither is below fp32."""
    for name in NAMES:
        facts = facts_of(name)
        assert facts is not None
        if facts.bf16_tflop_s and facts.tf32_tflop_s:
            assert 1.9 < facts.bf16_tflop_s / facts.tf32_tflop_s < 2.1, name
            assert facts.tf32_tflop_s >= facts.fp32_tflop_s, name


def spec(*shape, dtype="float32", stride=None):
    return TensorSpec(shape=shape, dtype=dtype, stride=stride)


@pytest.mark.parametrize(
    ("tensor", "num_bytes"),
    [
        (spec(8, 128), 4096),
        (spec(8, 128, dtype="bfloat16"), 2048),
        (spec(8, 128, dtype="float8_e4m3fn"), 1024),
        (spec(dtype="int64"), 8),
        (spec(0, 4), 0),
        (spec(8, 128, stride=(0, 1)), 512),
        (spec(0, 4, stride=(0, 1)), 0),
        (spec(8, 128, stride=(1, 8)), 4096),
        (spec(8, dtype="quint4x2"), None),
    ],
)
def test_bytes_of_a_tensor(tensor, num_bytes):
    assert tensor_bytes(tensor) == num_bytes


def test_bytes_of_a_call_are_those_of_all_tensors_in_it():
    call = Call(
        args=(spec(2), Items(items=(spec(3), Constant(value=1)))),
        kwargs={
            "a": Mapping(items=((Constant(value="k"), spec(5)),)),
            "b": Instance(factory="pkg:C", args=(spec(7),), kwargs={"c": spec(11)}),
            "d": Symbol(path="torch:float16"),
        },
    )
    assert call_bytes(call) == 4 * (2 + 3 + 5 + 7 + 11)
    assert call_bytes(Call(args=(spec(2), spec(2, dtype="odd")))) is None
    assert call_bytes(Made(function="get_inputs")) is None


def test_the_bound_of_memory():
    facts = facts_of("NVIDIA H200")
    assert facts is not None
    assert lower_bound_us(48_000_000, facts) == pytest.approx(10.0)
    assert roofline_share(40.0, 48_000_000, facts) == pytest.approx(0.25)


def test_numbers_are_short():
    assert [number(n) for n in (0.00683, 9.999, 99.94, 1234567.0)] == [
        "0.00683",
        "10",
        "99.9",
        "1234567",
    ]
    assert [percent(s) for s in (0.0, 0.004, 0.05, 1.2)] == ["0%", "under 1%", "5%", "120%"]
    assert [size(n) for n in (12, 1500, 33_600_000, 4_000_000_000)] == [
        "12 bytes",
        "1.5 KB",
        "33.6 MB",
        "4 GB",
    ]


@pytest.mark.parametrize(
    ("demand", "expected_us"),
    [
        (Demand(num_bytes=48_000_000, dtype="float32"), 10.0),
        (Demand(num_bytes=0, product_flops=67 * 10**9, dtype="float32"), 1000.0),
        (Demand(num_bytes=0, convolution_flops=494 * 10**9, dtype="float32"), 1000.0),
        (Demand(num_bytes=0, product_flops=989 * 10**9, dtype="bfloat16"), 1000.0),
        (Demand(num_bytes=48_000_000, product_flops=67 * 10**9, dtype="float64"), 10.0),
    ],
)
def test_the_least_time_is_that_of_the_slower_of_memory_and_arithmetic(demand, expected_us):
    facts = facts_of("NVIDIA H200")
    assert facts is not None
    assert least_us(demand, facts) == pytest.approx(expected_us)
