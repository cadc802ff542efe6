"""Strategy: compute a table once and return that very tensor at every call.

Family: memory reuse.
Surface: outputs that do not depend on the inputs: who writes to one changes the next answer.
Source: own.
Caught by: an output is memory that no earlier call returned, where the reference's is.
"""

import torch
from torch import nn

REFERENCE = "position_bias"
EXPECT = ("mutates_input", "output.returned_again")


class ModelNew(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.embedding = nn.Embedding(length, dim)
        self.bias = None

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        if self.bias is None or self.bias.shape[0] != x.shape[1]:
            self.bias = torch.exp(-(places[:, None] - places[None, :]).abs().float() / 8)
        return x * 2, self.embedding(places), self.bias
