"""Wrong answers that a check has to refuse: what they are where an output is a single number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.verifier import mutants as module
from cudal1_ci.sandboxed.verifier.cases import Rejected
from cudal1_ci.sandboxed.verifier.compare import tolerance
from cudal1_ci.sandboxed.verifier.mutants import MUTANTS, check_constancy, try_mutants


def mutants_of(outputs):
    return {
        kind: [mutant(outputs, number, 0) for number in range(len(outputs))]
        for kind, mutant in MUTANTS.items()
    }


def test_the_mutants_of_a_single_number_are_other_numbers():
    outputs = [[torch.tensor(1.0)], [torch.tensor(2.0)], [torch.tensor(6.0)]]
    found = mutants_of(outputs)
    assert [one.item() for one in found["a constant"]] == [3.0] * 3
    for kind in ("a constant", "noise", "zeros", "the previous call"):
        assert all(one.shape == () for one in found[kind])
        assert any(one != output[0] for one, output in zip(found[kind], outputs, strict=True))


def test_a_number_that_is_always_the_same_is_its_own_constant():
    found = mutants_of([[torch.tensor([[4.0]])]] * 3)
    assert all(torch.equal(one, torch.tensor([[4.0]])) for one in found["a constant"])
    assert all(torch.equal(one, torch.tensor([[4.0]])) for one in found["noise"])


def test_the_mutants_of_a_tensor_are_made_of_that_tensor():
    outputs = [[torch.tensor([0.0, 2.0])], [torch.tensor([10.0, 30.0])]]
    assert mutants_of(outputs)["a constant"][1].tolist() == [20.0, 20.0]


def learned(answers, inputs=None, *, train=False, given=None):
    """A case of which the reference gave these answers, each to inputs of its own."""
    inputs = range(len(answers)) if inputs is None else inputs
    return SimpleNamespace(
        train=train,
        given=given,
        truth=lambda _: [None],
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        trials=[("drawn", SimpleNamespace(tensors=[torch.tensor(one)])) for one in inputs],
        expected=SimpleNamespace(outputs=[[one] for one in answers]),
        tolerances=[[tolerance(one, None, given)] for one in answers],
    )


QUARTERS = torch.full((8,), 0.25)


def test_a_reference_that_is_constant_but_for_rounding_is_degenerate():
    with pytest.raises(Rejected) as found:
        check_constancy(learned([QUARTERS, QUARTERS * (1 + 2**-23), QUARTERS * (1 - 2**-23)]))
    assert (found.value.status, found.value.finding.rule) == ("degenerate", "reference.constant")


@pytest.mark.parametrize(
    "case",
    [
        learned([QUARTERS, QUARTERS, QUARTERS * 1.01]),
        learned([QUARTERS, QUARTERS[:4]]),
        learned([QUARTERS, QUARTERS], inputs=[7, 7]),
        learned([QUARTERS, QUARTERS], train=True),
        learned([QUARTERS, QUARTERS * 1.01], given=(1.0, 1.0)),
        learned([QUARTERS]),
    ],
    ids=["one differs", "shapes", "the same inputs", "train", "the user's tolerance", "one trial"],
)
def test_a_reference_of_which_that_cannot_be_said_is_not(case):
    check_constancy(case)


def test_mutants_are_compared_on_the_device_wherever_outputs_lie(monkeypatch):
    case = learned([QUARTERS, 2 * QUARTERS])
    case.accelerator, case.findings = SimpleNamespace(device=torch.device("meta")), []
    seen = set()

    def difference(mutant, output, oracle, budget):
        seen.update((mutant.device.type, output.device.type))
        return SimpleNamespace(excess=2.0)

    kinds = {kind: MUTANTS[kind] for kind in ("zeros", "the previous call")}
    monkeypatch.setattr(module, "MUTANTS", kinds)
    monkeypatch.setattr(module, "difference", difference)
    try_mutants(case)
    assert seen == {"meta"}
    assert not case.findings
