"""No step is made along what is no number, and cuDNN's attention is not asked for gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from cudal1_ci.errors import UnsupportedError
from model_training.trainer_callbacks import MAX_IN_A_ROW, SoundSteps, norm_of, sound_attention


def test_only_what_follows_without_a_gap_is_an_error():
    sound, model = SoundSteps(), torch.nn.Linear(2, 1, bias=False)

    def step(value: float) -> bool:
        model.weight.grad = torch.full((1, 2), value)
        sound.on_pre_optimizer_step(None, None, None, model=model)
        return model.weight.grad is not None

    for _ in range(3):
        for _ in range(MAX_IN_A_ROW - 1):
            assert not step(math.inf)
        assert step(1.0)
    assert sound.num_skipped == 3 * (MAX_IN_A_ROW - 1)
    assert norm_of([torch.nn.Parameter(torch.ones(2))]) == 0.0
    with pytest.raises(UnsupportedError, match="3 steps in a row"):
        for _ in range(MAX_IN_A_ROW):
            step(math.nan)
    assert model.weight.grad is None


def test_the_backend_is_left_as_it_was():
    for was_enabled in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)
        with sound_attention():
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() == was_enabled
    torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.gpu
def test_the_gradient_of_masked_attention_is_a_number():
    """Scores far below zero, and 64 tokens more than a multiple of 128."""
    length, width = 704, 64
    random = torch.Generator("cuda").manual_seed(0)

    def drawn(first):
        found = torch.randn(1, 1, length, width, device="cuda", generator=random)
        found[..., 0] = first
        return found.bfloat16()

    queries = drawn(1.0).requires_grad_()
    keys, values = drawn(-120.0 * math.sqrt(width)), drawn(0.0)
    mask = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()[None, None]
    with sound_attention():
        output = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        output.sum().backward()
    assert bool(queries.grad.isfinite().all())
