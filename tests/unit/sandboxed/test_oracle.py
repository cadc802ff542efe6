"""What the oracle says, where its dtype is another one."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from cudal1_ci.sandboxed.verifier.oracle import mismatch, with_the_largest


def test_the_least_number_of_a_dtype_is_that_of_the_reference():
    least = torch.finfo(torch.float32).min
    ours = torch.tensor([1.0, least, least, -least])
    exact = torch.tensor(
        [1.5, torch.finfo(torch.float64).min, -7.0, torch.finfo(torch.float64).max],
        dtype=torch.float64,
    )
    assert with_the_largest(ours, exact).tolist() == [1.5, least, -7.0, -least]
    assert with_the_largest(ours[:1], exact[:1]).data_ptr() == exact.data_ptr()


def test_where_nothing_is_the_largest_number_an_oracle_is_not_looked_at():
    exact = SimpleNamespace(dtype=torch.float64)
    ours = torch.tensor([1.0, float("inf"), float("nan"), 3e38])
    assert with_the_largest(ours, exact, torch.device("cpu")) is exact
    assert with_the_largest(ours[:0], exact) is exact


def test_what_underflows_in_the_dtype_is_no_misfit():
    case = SimpleNamespace(cast=None, accelerator=SimpleNamespace(device=torch.device("cpu")))
    ours, exact = torch.zeros(4), torch.full((4,), 1e-59, dtype=torch.float64)
    assert mismatch(case, ours, exact, is_rounding=False) is None
    assert mismatch(case, ours, exact * 1e30, is_rounding=False) is not None
