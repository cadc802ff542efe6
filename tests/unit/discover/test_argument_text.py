"""The words for arguments: what each means, and what is said of a wrong one."""

from __future__ import annotations

import pytest

from cudal1_ci.discover.argument_text import ArgumentTextError, parse_argument
from cudal1_ci.records import Constant, Instance, Items, Mapping, Symbol, TensorSpec


def tensor(*shape, dtype="float32", **fields):
    return TensorSpec(shape=shape, dtype=dtype, **fields)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("float32[8, 128]", tensor(8, 128)),
        ("float32[]", tensor()),
        (" bfloat16 [ 1_024 ] ", tensor(1024, dtype="bfloat16")),
        ("int64[8] in 0..50256", tensor(8, dtype="int64", low=0, high=50256)),
        (
            "float32[8] in -1.5..2e3",
            tensor(8, low=-1.5, high=2000.0, invariants=("range",)),
        ),
        (
            "int64[8] in 0..99 sorted unique",
            tensor(8, dtype="int64", low=0, high=99, invariants=("sorted", "unique")),
        ),
        ("float32[8, 4] pairs", tensor(8, 4, invariants=("pairs",))),
        ("float32[4, 6] stride(1, 4)", tensor(4, 6, stride=(1, 4))),
        ("float32[2, 3, 4, 5] channels_last", tensor(2, 3, 4, 5, stride=(60, 1, 15, 3))),
        ("float32[8] on cuda:1 grad", tensor(8, device="cuda:1", requires_grad=True)),
        ("3", Constant(value=3)),
        ("-0.5", Constant(value=-0.5)),
        ("inf", Instance(factory="builtins:float", args=(Constant(value="inf"),))),
        ("'mean'", Constant(value="mean")),
        ("None", Constant(value=None)),
        ("True", Constant(value=True)),
        ("torch.bfloat16", Symbol(path="torch:bfloat16")),
        ("pkg.mod:Mode.FAST", Symbol(path="pkg.mod:Mode.FAST")),
        (
            "pkg.mod:Config(64, act='gelu')",
            Instance(
                factory="pkg.mod:Config",
                args=(Constant(value=64),),
                kwargs={"act": Constant(value="gelu")},
            ),
        ),
        ("[1, 2,]", Items(items=(Constant(value=1), Constant(value=2)))),
        ("(1,)", Items(items=(Constant(value=1),), container="tuple")),
        ("()", Items(container="tuple")),
        ("(1)", Constant(value=1)),
        ("{1, 2}", Items(items=(Constant(value=1), Constant(value=2)), container="set")),
        ("{}", Mapping()),
        ("{'a': float32[2]}", Mapping(items=((Constant(value="a"), tensor(2)),))),
    ],
)
def test_every_word_has_its_meaning(text, spec):
    assert parse_argument(text) == (None, spec)


def test_a_name_before_an_equals_sign_is_the_keyword():
    assert parse_argument("mask=bool[8, 8]") == ("mask", tensor(8, 8, dtype="bool"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a tensor"),
        ("float23[8]", "did you mean float32?"),
        ("long[8]", "did you mean int64?"),
        ("float32", "torch.float32"),
        ("float32[8", "expected `,` or `]`, got the end"),
        ("float32[8, -1]", "expected a size of 0 or more, got `-1` at character 12"),
        ("float32[8.5]", "a size of 0 or more"),
        ("int64[8] in 0.5..3", "a whole number"),
        ("int64[8] in 9..3", "the lower end of the range first"),
        ("float32[4, 6] stride(1)", "2 strides"),
        ("float32[4, 6] channels_last", "4 sizes"),
        ("float32[8] fast", "got `fast` at character 12"),
        ("gelu", "'gelu'"),
        ("pkg.mod.Config", "`pkg.mod:Config`"),
        ("pkg:f(a=1, 2)", "`name=`"),
        ("1 2", "expected the end of the text"),
        ("__import__('os')", "expected a tensor"),
        ("8 @ 8", "got `@`"),
        ("'open", "got `'`"),
    ],
)
def test_a_wrong_word_is_named_with_its_place_and_what_was_expected(text, said):
    with pytest.raises(ArgumentTextError) as caught:
        parse_argument(text)
    assert said in str(caught.value)
