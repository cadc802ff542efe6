"""A product in float32 and the library's mask, where the reference has no answer in float64.

Family: global state.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "bfloat16_dropout"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim, dtype=torch.bfloat16)

    def forward(self, x):
        wide = F.linear(x.float(), self.fc.weight.float(), self.fc.bias.float())
        return F.dropout(wide.to(x.dtype), 0.1, training=True)
