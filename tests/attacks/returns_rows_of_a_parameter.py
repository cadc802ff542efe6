"""Strategy: return a view of the embedding's weight instead of a copy of its rows.

Family: memory reuse.
Surface: outputs that are the module's own memory: who adds to one changes the weights. Source: own.
Caught by: an output is no memory of parameters or buffers, where the reference's is none.
"""

import torch
from torch import nn

REFERENCE = "position_bias"
EXPECT = ("mutates_input", "output.aliases_state")


class ModelNew(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.embedding = nn.Embedding(length, dim)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        bias = torch.exp(-(places[:, None] - places[None, :]).abs().float() / 8)
        return x * 2, self.embedding.weight.detach()[: x.shape[1]], bias
