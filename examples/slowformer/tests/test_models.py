import torch

from slowformer import TextConfig, TextModel, VisionModel


@torch.no_grad()
def test_text_model_returns_logits_and_hidden_states():
    model = TextModel(TextConfig(dim=64, num_layers=1)).eval()
    out = model(torch.randint(0, 512, (2, 64)), return_hidden=True)
    assert out.logits.shape == (2, 64, 512)
    assert out.hidden.shape == (2, 64, 64)


@torch.no_grad()
def test_vision_model_classifies():
    model = VisionModel(dim=64, num_layers=1).eval()
    assert model(torch.randn(2, 3, 64, 64))["logits"].shape == (2, 10)


def test_text_model_trains():
    model = TextModel(TextConfig(dim=32, num_heads=2, num_layers=1)).train()
    tokens = torch.randint(0, 512, (2, 16))
    model(tokens).logits.float().mean().backward()
    assert model.embed.weight.grad is not None
