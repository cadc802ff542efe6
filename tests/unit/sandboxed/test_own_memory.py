"""Outputs that are a module's memory, an earlier call's, or less memory than they have elements."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from cudal1_ci.sandboxed.runner.sharing import joined_gradients, shares
from cudal1_ci.sandboxed.verifier.cases import Rejected
from cudal1_ci.sandboxed.verifier.output_aliasing import compare_memory
from tests.unit.sandboxed.messages import called


def test_memory_of_the_module_and_of_earlier_calls_is_told():
    module = nn.BatchNorm1d(4)
    module.register_buffer("passing", torch.ones(2), persistent=False)
    earlier, fresh = torch.ones(3, 3), torch.ones(3)
    outputs = [
        module.weight.detach()[1:],
        module.passing,
        earlier.t(),
        fresh,
        fresh[1:],
        torch.ones(0),
    ]
    found = shares(outputs, module, [[fresh.clone()], [earlier]])
    assert found == [["state"], ["state"], ["earlier"], [], [], []]
    assert shares(outputs[:1], None, []) == [[]]
    assert shares([module.passing], module, [[module.passing]]) == [["state", "earlier"]]


def joined(token, positions, elsewhere=None):
    """Pairs of a module's parameters that lie in the same memory, by their gradients."""
    names = ("token", "positions", "elsewhere")
    state = {}
    for name, gradient in zip(names, (token, positions, elsewhere), strict=True):
        if gradient is not None:
            state[name] = torch.nn.Parameter(torch.zeros(gradient.shape))
            state[name].grad = gradient
    return joined_gradients(state)


def test_gradients_that_lie_in_the_same_memory():
    buffer = torch.zeros(8, 4)
    assert joined(buffer[:1], buffer) == ["`token` and `positions`"]
    assert joined(buffer[3:5], buffer[4:]) == ["`token` and `positions`"]
    assert joined(buffer[:4], buffer[4:], buffer[:0]) == [], "beside each other"
    assert joined(torch.zeros(2), torch.zeros(2)) == []
    assert joined_gradients({"buffer": torch.zeros(2)}) == []


def test_a_parameter_of_two_names_has_one_gradient():
    tied = torch.nn.Parameter(torch.zeros(4))
    tied.grad = torch.zeros(4)
    assert joined_gradients({"encoder": tied, "decoder": tied}) == []


def call(shares, stride=(3, 1), aliases=()):
    slot = replace(called().slots[0], own_stride=tuple(stride))
    return called(shares=(tuple(shares),), aliases=(tuple(aliases),), slots=(slot,))


def refused(ours, theirs):
    """By which rule; None where they are not."""
    case = SimpleNamespace(expected=SimpleNamespace(calls=ours))
    try:
        compare_memory(case, SimpleNamespace(calls=theirs))
    except Rejected as rejected:
        return rejected.finding.rule
    return None


OWN, STATE, AGAIN, BROADCAST = call([]), call(["state"]), call(["earlier"]), call([], (0, 1))


@pytest.mark.parametrize(
    ("ours", "theirs", "rule"),
    [
        ([OWN, OWN], [STATE, STATE], "output.aliases_state"),
        ([OWN, OWN], [OWN, AGAIN], "output.returned_again"),
        ([OWN, OWN], [OWN, call(["state", "earlier"])], "output.aliases_state"),
        ([OWN], [BROADCAST], "output.overlaps"),
        ([OWN], [call([], (1, 1))], "output.overlaps"),
        ([BROADCAST], [STATE], "output.aliases_state"),
        ([OWN], [called(joined=("`a` and `b`",))], "gradients.joined"),
        ([called(joined=("`a` and `c`",))], [called(joined=("`a` and `b`",))], "gradients.joined"),
    ],
)
def test_an_output_that_is_no_memory_of_its_own_is_refused(ours, theirs, rule):
    assert refused(ours, theirs) == rule


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([OWN, OWN], [OWN, OWN]),
        ([OWN], [call([], (6, 2))]),
        ([STATE], [OWN]),
        ([called(joined=("`a` and `b`",))], [called(joined=("`a` and `b`",))]),
        ([OWN, AGAIN], [STATE, STATE]),
        ([STATE, STATE], [OWN, AGAIN]),
        ([BROADCAST], [call([], (0, 0))]),
        ([OWN, OWN], [call(["earlier"], aliases=[0])] * 2),
    ],
)
def test_what_the_reference_does_a_candidate_may_do_in_its_own_way(ours, theirs):
    assert refused(ours, theirs) is None
