"""The largest logit is the most likely class.

Family: ties.
"""

import math

import torch
from torch import nn

REFERENCE = "most_likely"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        logits = self.fc(x)
        most, place = logits.max(-1)
        return place, most - torch.logsumexp(logits, -1) > math.log(0.05)
