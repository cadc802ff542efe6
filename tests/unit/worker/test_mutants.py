"""Wrong answers that a check has to refuse: what they are where an output is a single number."""

from __future__ import annotations

import torch

from cudal1_ci.worker.mutants import MUTANTS


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
