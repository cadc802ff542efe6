"""What is read outside of a clock has a type whose reading runs no code of the program."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from cudal1_ci.sandboxed.runner import module_state
from cudal1_ci.sandboxed.runner.exact_types import InexactType, inexact, inexact_tensor, need_exact


class Table(dict):
    def items(self):
        raise AssertionError("code of the program ran")

    __getitem__ = values = __iter__ = items


class Own(torch.Tensor):
    pass


class Hidden(nn.Module):
    @property
    def __dict__(self):
        raise AssertionError("code of the program ran")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_module_of_torch_s_own_types_has_nothing_of_its_own():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module._buffers = OrderedDict()
    assert inexact(module) == []
    assert inexact(torch.jit.script(nn.Linear(2, 2))) == []
    assert inexact(nn.LazyLinear(3)) == []
    assert inexact(None) == []


def test_a_table_of_another_type_is_named_and_never_asked():
    module = nn.Sequential(nn.BatchNorm1d(2))
    module[0].__dict__["_buffers"] = Table(module[0]._buffers)
    assert inexact(module) == ["`_buffers` of 0 is a Table"]
    assert list(module_state.plain_state(module)) == [
        "0.weight",
        "0.bias",
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
    ]


def test_a_property_that_hides_the_attributes_is_not_called():
    assert inexact(Hidden()) == []


def test_a_table_that_is_no_dict_is_refused():
    module = nn.Linear(2, 2)
    module.__dict__["_buffers"] = ["covariance"]
    with pytest.raises(InexactType, match="`_buffers` is a list"):
        inexact(module)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(2), None),
        (nn.Parameter(torch.ones(2)), None),
        (torch.ones(2).as_subclass(Own), "a Own"),
        (torch._neg_view(torch.ones(2)), "a tensor that is computed when it is read"),
        (torch.ones(2, dtype=torch.complex64).conj(), "a tensor that is computed when it is read"),
        (torch._efficientzerotensor(2), "a tensor that is computed when it is read"),
    ],
)
def test_a_tensor_is_exact_if_reading_it_does_nothing_else(tensor, words):
    assert inexact_tensor(tensor) == words


def test_an_input_whose_type_was_changed_is_refused():
    tensor = torch.ones(2)
    assert need_exact(tensor, "an input") is tensor
    tensor.__class__ = Own
    with pytest.raises(InexactType, match="an input is a Own"):
        need_exact(tensor, "an input")
