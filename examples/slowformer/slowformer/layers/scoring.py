"""Heads and losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GoodnessScore(nn.Module):
    """The sum of a hidden layer's activations, as in forward-forward training."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc = nn.Linear(dim, hidden)

    def forward(self, x):
        return self.fc(x).sum(dim=-1)


class TokenLoss(nn.Module):
    """Mean negative log-likelihood of the targets."""

    def forward(self, logits, targets):
        log_probs = F.log_softmax(logits, dim=-1)
        picked = log_probs.gather(dim=1, index=targets.unsqueeze(1))
        return -picked.mean()


class ClassifierHead(nn.Module):
    """Mean over the tokens, then one linear layer."""

    def __init__(self, dim, num_classes):
        super().__init__()
        self.fc = nn.Linear(dim, num_classes)

    def forward(self, x):
        return self.fc(x.mean(dim=1))


class Temperature(nn.Module):
    """Softmax with a learned temperature, written so that large logits do not overflow."""

    def __init__(self):
        super().__init__()
        self.log_t = nn.Parameter(torch.zeros(()))

    def forward(self, logits):
        logits = logits / self.log_t.exp()
        shifted = torch.exp(logits - logits.max(dim=-1, keepdim=True)[0])
        return shifted / shifted.sum(dim=-1, keepdim=True)
