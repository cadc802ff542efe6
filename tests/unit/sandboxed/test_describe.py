"""What is recorded of an object that a module was made with, so that it can be made again."""

from __future__ import annotations

import argparse
import types

import pytest
import torch

from cudal1_ci.sandboxed.tracer.describe import UnrecordableError, describe


class Bag:
    def __init__(self, **settings):
        self.__dict__.update(settings)


class Sized:
    def __init__(self, width, depth=2):
        self.width = width
        self.depth = depth


class Derived:
    def __init__(self, width):
        self.width = width
        self.half = width // 2


class Counted:
    def __init__(self, width):
        self.width = width + 1


class Weighted:
    def __init__(self, table):
        self.table = table.mul_(2)


class OwnNew:
    def __new__(cls, width):
        return super().__new__(cls)

    def __init__(self, width):
        self.width = width


def constant(value):
    return {"type": "constant", "value": value}


@pytest.mark.parametrize(
    ("made", "factory"),
    [
        (Bag(width=8, name="gpt"), f"{__name__}:Bag"),
        (argparse.Namespace(width=8, name="gpt"), "argparse:Namespace"),
        (types.SimpleNamespace(width=8, name="gpt"), "types:SimpleNamespace"),
    ],
)
def test_an_object_that_is_made_of_what_it_holds_is_recorded(made, factory):
    assert describe(made, 0) == {
        "type": "instance",
        "factory": factory,
        "args": [],
        "kwargs": {"width": constant(8), "name": constant("gpt")},
    }


def test_what_it_holds_may_have_changed_since_it_was_made_and_hold_others():
    made = Sized(8)
    made.depth = Bag(layers=[1, 2])
    found = describe(made, 0)
    assert found["kwargs"]["width"] == constant(8)
    assert found["kwargs"]["depth"]["kwargs"]["layers"]["items"] == [constant(1), constant(2)]


@pytest.mark.parametrize(
    "made",
    [Derived(8), Counted(8), OwnNew(8), Bag(), Bag(file=object()), Bag(text="x" * 100)],
    ids=["more", "another", "own new", "nothing", "a handle", "data"],
)
def test_any_other_object_is_not(made):
    with pytest.raises(UnrecordableError, match=f"is an object of .*{type(made).__name__}"):
        describe(made, 0)


def test_a_constructor_gets_no_tensor_of_the_program():
    table = torch.ones(2)
    made = Weighted(table)
    with pytest.raises(UnrecordableError):
        describe(made, 0)
    assert table.tolist() == [2.0, 2.0]
