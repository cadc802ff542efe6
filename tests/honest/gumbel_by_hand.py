"""The same noise from the same generator, without the function that draws it.

Family: specialization.
"""

import torch
from torch import nn

REFERENCE = "train_gumbel"


class ModelNew(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.fc = nn.Linear(d, k)
        self.book = nn.Embedding(k, d)

    def forward(self, x):
        logits = self.fc(x)
        g = (
            -torch.empty_like(logits, memory_format=torch.legacy_contiguous_format)
            .exponential_()
            .log()
        )
        y = ((logits + g) / 0.7).softmax(-1)
        hard = torch.zeros_like(logits).scatter_(-1, y.max(-1, keepdim=True)[1], 1.0)
        z = hard - y.detach() + y
        return z @ self.book.weight, z
