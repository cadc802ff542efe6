import torch
import torch.nn.functional as F

from slowformer import TextConfig, TextModel


def test_text_model_learns():
    torch.manual_seed(0)
    model = TextModel(TextConfig(dim=64, num_layers=1)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 512, (4, 65))
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
