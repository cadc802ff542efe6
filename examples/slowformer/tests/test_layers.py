import pytest
import torch
import torch.nn.functional as F

from slowformer.layers.attention import CausalSelfAttention, CrossAttention, HeadwisePooling
from slowformer.layers.convs import ConvStem, PatchEmbed
from slowformer.layers.gating import BroadcastGate
from slowformer.layers.mixing import DecayScan, DiagonalMixer, pairwise_sq_distances
from slowformer.layers.mlp import Mish, NewGELU
from slowformer.layers.norm import RMSNorm, TokenNorm
from slowformer.layers.positions import LearnedPositions, SinusoidalPositions
from slowformer.layers.scoring import GoodnessScore, Temperature, TokenLoss


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@torch.no_grad()
def test_causal_attention_ignores_later_tokens():
    layer = CausalSelfAttention(256, 4).eval()
    x = torch.randn(4, 256, 256)
    y = layer(x)
    x[:, 100:] = 0
    torch.testing.assert_close(layer(x)[:, :100], y[:, :100])


@torch.no_grad()
def test_cross_attention_has_the_length_of_its_queries():
    layer = CrossAttention(64, 4).eval()
    assert layer(torch.randn(2, 16, 64), context=torch.randn(2, 32, 64)).shape == (2, 16, 64)


@torch.no_grad()
def test_pooling_of_equal_tokens_is_the_token():
    layer = HeadwisePooling(16, 32).eval()
    x = torch.randn(16, 4, 1, 32).expand(16, 4, 24, 32).contiguous()
    torch.testing.assert_close(layer(x), x[:, :, 0].transpose(0, 1))


@torch.no_grad()
def test_rms_norm():
    layer = RMSNorm(256).eval()
    x = torch.randn(8, 256, 256)
    torch.testing.assert_close(layer(x).pow(2).mean(-1), torch.ones(8, 256), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_token_norm_is_layer_norm():
    layer = TokenNorm(256).eval()
    x = torch.randn(8, 256, 256)
    torch.testing.assert_close(layer(x), F.layer_norm(x, (256,)))


@torch.no_grad()
def test_activations():
    x = torch.randn(8, 128, 512)
    torch.testing.assert_close(NewGELU().eval()(x), F.gelu(x, approximate="tanh"))
    torch.testing.assert_close(Mish().eval()(x), F.mish(x))


@torch.no_grad()
def test_sinusoidal_positions_depend_on_the_position_only():
    layer = SinusoidalPositions(256).eval()
    x = torch.randn(2, 512, 256)
    table = layer(x) - x
    torch.testing.assert_close(table[0], table[1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_learned_positions():
    layer = LearnedPositions(64, 32).eval()
    assert layer(torch.zeros(2, 16, 32)).shape == (2, 16, 32)


@torch.no_grad()
def test_diagonal_mixer_scales_rows():
    layer = DiagonalMixer(8).eval()
    x = torch.randn(8, 3)
    torch.testing.assert_close(layer(x), x)


@torch.no_grad()
def test_decay_scan_keeps_the_first_step():
    x = torch.randn(4, 128, 64)
    y = DecayScan().eval()(x)
    torch.testing.assert_close(y[:, 0], x[:, 0])
    torch.testing.assert_close(y[:, 1:], x[:, 1:] * 0.97)


def test_pairwise_distances():
    a, b = torch.randn(128, 64), torch.randn(96, 64)
    torch.testing.assert_close(
        pairwise_sq_distances(a, b), torch.cdist(a, b) ** 2, rtol=1e-3, atol=1e-3
    )


@torch.no_grad()
def test_goodness_is_linear():
    layer = GoodnessScore(16, 32).eval()
    x = torch.randn(4, 16)
    torch.testing.assert_close(layer(x), x @ layer.fc.weight.sum(0) + layer.fc.bias.sum())


@torch.no_grad()
def test_token_loss_is_cross_entropy():
    logits, targets = torch.randn(512, 1000), torch.randint(0, 1000, (512,))
    torch.testing.assert_close(
        TokenLoss().eval()(logits, targets), F.cross_entropy(logits, targets)
    )


@torch.no_grad()
def test_temperature_of_one_is_softmax():
    x = torch.randn(256, 1000)
    torch.testing.assert_close(Temperature().eval()(x), torch.softmax(x, -1))


@torch.no_grad()
def test_stems_make_tokens():
    images = torch.randn(2, 3, 64, 64)
    assert ConvStem(64).eval()(images).shape == (2, 64, 64)
    assert PatchEmbed(64).eval()(images).shape == (2, 16, 64)


@torch.no_grad()
def test_gate_is_between_zero_and_one():
    gated = BroadcastGate(2).eval()(torch.ones(1, 2, 3, 4), torch.randn(1, 3, 4))
    assert ((gated >= 0) & (gated <= 1)).all()
