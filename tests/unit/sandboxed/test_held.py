"""What a module holds is found without its own methods, as torch itself would list it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cudal1_ci.sandboxed.runner.module_state import (
    forget_gradients,
    is_plain,
    parameters_of,
    plain_state,
    state_dict_of,
    tensors_of,
)


class Several(nn.Module):
    """Shared layers, buffers that last and one that does not, nested modules, nothing at a name."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_parameter("none", None)
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])

    def forward(self, x):
        return self.norm(self.first(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        Several,
        lambda: torch.jit.script(Several().eval()),
        lambda: torch.jit.trace(Several().eval(), torch.ones(2, 3)),
        lambda: torch.compile(Several()),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        lambda: nn.LSTM(3, 3),
    ],
    ids=["module", "scripted", "traced", "compiled", "parametrized", "lstm"],
)
def test_it_is_what_torch_lists(make):
    module = make()
    assert is_plain(module)
    found = plain_state(module)
    assert list(found) == list(module.state_dict())
    assert all(torch.equal(found[key], one) for key, one in module.state_dict().items())
    listed = [*module.parameters(), *module.buffers()]
    assert {one.data_ptr() for one in tensors_of(module)} == {one.data_ptr() for one in listed}
    listed = list(module.parameters())
    assert [one.data_ptr() for one in parameters_of(module)] == [one.data_ptr() for one in listed]
    for one in listed:
        one.grad = torch.ones_like(one)
    forget_gradients(module)
    assert all(one.grad is None for one in module.parameters())


def test_a_module_that_says_more_is_asked():
    class Packed(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "packed"] = self.weight.flatten()

    assert not is_plain(Packed(2, 2))
    assert list(state_dict_of(Packed(2, 2))) == ["packed"]


def test_nothing_of_the_program_runs():
    class Sly(nn.Linear):
        asked = False

        def note(self, *args, **kwargs):
            type(self).asked = True
            return iter(())

        parameters = named_parameters = modules = named_modules = children = buffers = note

        @property
        def _buffers(self):
            type(self).asked = True
            return self.__dict__["_buffers"]

        @_buffers.setter
        def _buffers(self, value):
            self.__dict__["_buffers"] = value

    module = Sly(2, 2)
    Sly.asked = False
    assert list(plain_state(module)) == ["weight", "bias"]
    assert len(parameters_of(module)) == 2
    forget_gradients(module)
    assert not Sly.asked
