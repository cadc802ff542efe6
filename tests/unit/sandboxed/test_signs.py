"""Signs of vectors: free where the reference's turn too, and only together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory.accelerators import Cpu
from cudal1_ci.sandboxed.runner.sign_flips import SignFlips
from cudal1_ci.sandboxed.verifier.compare import Tolerance
from cudal1_ci.sandboxed.verifier.signs import Vectors, aligned, directions, vectors_of

MATRIX = torch.randn(3, 16, 6, generator=torch.Generator().manual_seed(1))
CASE = SimpleNamespace(accelerator=Cpu())


def turned(function, seed=0):
    with SignFlips(seed):
        return function(MATRIX)


def svd(x):
    return torch.linalg.svd(x, full_matrices=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_factors_turn_and_their_product_stays(dtype):
    matrix = MATRIX.to(dtype)
    with SignFlips(3):
        u, s, vh = svd(matrix)
        q, r = torch.linalg.qr(matrix)
        values, vectors = torch.linalg.eigh(matrix.mH @ matrix)
    assert not torch.allclose(u, svd(matrix)[0], atol=1e-3)
    torch.testing.assert_close(u * s.unsqueeze(-2).to(dtype) @ vh, matrix, atol=1e-4, rtol=0)
    torch.testing.assert_close(q @ r, matrix, atol=1e-4, rtol=0)
    again = vectors * values.unsqueeze(-2).to(dtype) @ vectors.mH
    torch.testing.assert_close(again, matrix.mH @ matrix, atol=1e-3, rtol=0)


def case_of(function, num_calls=3):
    """A case of a reference, and its answers with turned vectors."""
    expected = list(function(MATRIX))
    answers = [SimpleNamespace(outputs=[list(turned(function, seed))]) for seed in range(num_calls)]
    case = SimpleNamespace(
        accelerator=Cpu(),
        expected=SimpleNamespace(outputs=[expected], calls=[SimpleNamespace(num_leaves=9)]),
        tolerances=[[Tolerance(1e-5, 1e-5) for _ in expected]],
    )
    case.expected.calls[0].num_leaves = len(expected)
    return case, answers


def test_both_factors_are_vectors_of_one_group_and_the_values_are_none():
    found = vectors_of(*case_of(svd))
    assert found == {0: Vectors((1,), 0), 2: Vectors((2,), 0)}


def test_two_decompositions_turn_apart():
    found = vectors_of(*case_of(lambda x: (svd(x).U, torch.linalg.qr(x).Q)))
    assert {one.group for one in found.values()} == {0, 1}


def test_signs_that_the_reference_makes_definite_are_not_free():
    def definite(x):
        v = svd(x).Vh
        return (v * v.gather(-1, v.abs().argmax(-1, keepdim=True)).sign(),)

    assert vectors_of(*case_of(definite)) == {}
    assert vectors_of(*case_of(lambda x: (svd(x).U.relu(),))) == {}
    assert vectors_of(*case_of(lambda x: (x * 2,))) == {}


def test_vectors_of_a_group_are_turned_together_or_not_at_all():
    u, s, vh = svd(MATRIX)
    signs = vectors_of(*case_of(svd))
    factors = torch.tensor([1.0, -1, 1, -1, -1, 1])
    both = aligned(signs, [u * factors, s, vh * factors[:, None]], [u, s, vh])
    assert all(torch.equal(*pair) for pair in zip(both, [u, s, vh], strict=True))
    one = aligned(signs, [u * factors, s, vh], [u, s, vh])
    assert not torch.allclose(one[0], u, atol=1e-3)


def test_signs_are_found_beside_the_calls_of_a_batch():
    u, s, vh = (torch.stack([one, one]) for one in svd(MATRIX))
    signs = vectors_of(*case_of(svd))
    got = [u.clone(), s, vh.clone()]
    got[0][1] *= -1
    got[2][1] *= -1
    assert all(
        torch.equal(*pair)
        for pair in zip(aligned(signs, got, [u, s, vh], 1), [u, s, vh], strict=True)
    )


def test_as_many_elements_as_possible_turn_together():
    x = torch.randn(5, 4, 3)
    budget = Tolerance(1e-5, 1e-5)
    assert directions(CASE, [(x, -x, budget)]) == (0, 1, 2)
    signs = torch.tensor([1.0, -1, 1])
    assert directions(CASE, [(x, x * signs, budget)]) == (0, 1)
    assert directions(CASE, [(x, x, budget)]) is None
    assert directions(CASE, [(x, x + 1, budget)]) is None
    assert directions(CASE, [(x.long(), -x.long(), budget)]) is None
