"""Inputs that are tried for a model that nothing calls, and how long it is tried."""

from __future__ import annotations

import types

import pytest
import torch

from cudal1_ci.sandboxed.harvester import probe
from cudal1_ci.sandboxed.harvester.arguments import CannotError, constructions
from cudal1_ci.sandboxed.harvester.configured import Recipe


class Timed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(5, 5, 3, padding=1)

    def forward(self, x, timesteps=None, context=None):
        return self.conv(x) * timesteps[:, None, None, None]


class Pixels(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = torch.nn.Linear(width, 2)

    def forward(self, x):
        batch, _, _, _ = x.shape
        return self.fc(x.view(batch, -1))


class Residual(torch.nn.Module):
    """A block of a diffusion model, as many repositories have it."""

    def __init__(self, channels, emb_channels, use_emb=True):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.GroupNorm(4, channels), torch.nn.Conv2d(channels, channels, 1)
        )
        self.project = torch.nn.Linear(emb_channels, channels)

    def forward(self, x, emb):
        return self.layers(x) + self.project(emb)[..., None, None]


class Joined(torch.nn.Module):
    """Attention over queries, keys and values that are joined."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, qkv):
        _, width, _ = qkv.shape
        assert width % (3 * self.n_heads) == 0
        return qkv


class Encoder(torch.nn.Module):
    """Token ids, and a mask that stands between heads and positions."""

    def __init__(self, n_src_vocab, d_word_vec, pad_idx):
        super().__init__()
        self.words = torch.nn.Embedding(n_src_vocab, d_word_vec, padding_idx=pad_idx)

    def forward(self, src_seq, src_mask):
        x = self.words(src_seq)
        scores = (x @ x.transpose(1, 2))[:, None].expand(2, 8, 32, 32)
        return scores.masked_fill(~src_mask.unsqueeze(1), -1e9).softmax(-1)


class Marked(torch.nn.Module):
    """Values, what is known of their times, and pictures of another number of channels."""

    def __init__(self):
        super().__init__()
        self.of_values, self.norm = torch.nn.Linear(7, 8), torch.nn.LayerNorm(5)
        self.of_marks, self.of_pictures = torch.nn.Linear(5, 8), torch.nn.Conv1d(11, 8, 1)

    def forward(self, x, x_mark, pictures):
        x = self.of_values(x) + self.of_marks(self.norm(x_mark))
        return x.mean(1) + self.of_pictures(pictures).mean(2)


class Fussy(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no input will do")


@pytest.fixture
def tracer():
    return types.SimpleNamespace(local=types.SimpleNamespace(is_busy=False), source="a.py:3")


def recipes(*kinds):
    return iter([Recipe(f"m.py:{one.__name__}", one, {}) for one in kinds])


def test_optional_times_are_given_one_for_each_of_the_batch(tracer):
    failed = []
    assert probe.called(Timed(), {}, tracer, failed)
    assert failed, "it was called without times first"


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(Residual, {"use_emb": True, "channels": 64, "emb_channels": 24}), (Joined, {"n_heads": 5})],
)
def test_inputs_follow_from_what_an_object_is_made_of(tracer, cls, arguments):
    assert probe.called(cls(**arguments), arguments, tracer, [])


def test_a_size_that_an_error_asks_for_is_tried(tracer):
    failed = []
    assert probe.called(Marked(), {}, tracer, failed)
    assert len(failed) < probe.MAX_REPAIRS


def test_ids_and_a_mask_of_another_shape_are_found_by_their_names(tracer):
    arguments = next(constructions(Encoder))
    assert arguments == {"n_src_vocab": 256, "d_word_vec": 64, "pad_idx": 0}
    assert probe.called(Encoder(**arguments), arguments, tracer, [])


@pytest.mark.parametrize("width", [784, 3 * 32 * 32])
def test_as_many_features_as_an_image_has_pixels_are_an_image(tracer, width):
    assert probe.called(Pixels(width), {}, tracer, [])


def test_the_first_reason_is_given_and_few_objects_are_tried(tracer):
    with pytest.raises(CannotError, match="no input will do"):
        probe.call_class(recipes(Fussy, Fussy, Timed), tracer, 2)
    probe.call_class(recipes(Fussy, Timed), tracer, 2)
    assert tracer.source == "m.py:Timed"
    with pytest.raises(CannotError, match=r"^$"):
        probe.call_class(recipes(), tracer, 2)
