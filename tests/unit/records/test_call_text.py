"""Arguments as text."""

from __future__ import annotations

import pytest

from cudal1_ci.records import Call, Constant, Instance, Items, Made, Mapping, Symbol, TensorSpec
from cudal1_ci.records.call_text import call_text

TENSOR = TensorSpec(shape=(8, 128), dtype="float32")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TENSOR, "float32[8, 128]"),
        (TensorSpec(shape=(), dtype="bool"), "bool[]"),
        (TensorSpec(shape=(4,), dtype="int64", low=0, high=1_000_000), "int64[4] in 0..1000000"),
        (TensorSpec(shape=(4,), dtype="float32", low=-1.0, high=1.0), "float32[4]"),
        (TensorSpec(shape=(4, 3), dtype="float32", stride=(3, 1)), "float32[4, 3]"),
        (
            TensorSpec(shape=(4, 3), dtype="float32", stride=(1, 4)),
            "float32[4, 3] strided (1, 4)",
        ),
        (TensorSpec(shape=(2,), dtype="float16", device="cuda:0"), "float16[2] on cuda:0"),
        (TensorSpec(shape=(2,), dtype="float32", requires_grad=True), "float32[2] with grad"),
        (Constant(value="causal"), "'causal'"),
        (Constant(value=None), "None"),
        (Symbol(path="torch.nn:GELU"), "torch.nn.GELU"),
        (Items(items=(TENSOR,), container="tuple"), "(float32[8, 128],)"),
        (Items(items=(TENSOR, Constant(value=1))), "[float32[8, 128], 1]"),
        (Items(container="set"), "set()"),
        (Items(items=(Constant(value=1),), container="pkg.mod:Point"), "Point(1)"),
        (Mapping(items=((Constant(value="mask"), TENSOR),)), "{'mask': float32[8, 128]}"),
        (
            Instance(factory="pkg.config:Config", kwargs={"dim": Constant(value=4)}),
            "Config(dim=4)",
        ),
    ],
)
def test_an_argument_is_written_as_a_person_would(spec, text):
    assert call_text(Call(args=(spec,))) == f"({text})"


def test_a_call_has_its_positional_and_keyword_arguments():
    call = Call(args=(TENSOR,), kwargs={"mask": TensorSpec(shape=(8, 8), dtype="bool")})
    assert call_text(call) == "(float32[8, 128], mask=bool[8, 8])"


def test_made_arguments_name_the_function_that_makes_them():
    assert call_text(Made(function="get_inputs")) == "get_inputs()"
    assert call_text(Made(function="make", path="bench.py")) == "bench.py:make()"


def test_long_and_deep_values_are_cut_and_say_so():
    many = Items(items=tuple(Constant(value=i) for i in range(100)))
    assert call_text(Call(args=(many,))) == "([0, 1, 2, 3, 4, 5, 6, 7, ... 92 more])"
    deep = Constant(value=1)
    for _ in range(50):
        deep = Items(items=(deep,))
    assert len(call_text(Call(args=(deep,)))) < 32
    assert len(call_text(Call(args=(Constant(value="x" * 1000),)))) == 62
