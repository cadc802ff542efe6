"""The end of the last block and the new one, written into one block.

Family: mutation.
"""

import torch
from torch import nn

REFERENCE = "streaming"


class ModelNew(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv = nn.Conv1d(c, c, k)
        self.register_buffer("left", torch.zeros(1, c, k - 1), persistent=False)

    def forward(self, x):
        n = self.left.shape[-1]
        b = x.new_empty(x.shape[0], x.shape[1], n + x.shape[2])
        b[..., :n] = self.left
        b[..., n:] = x
        self.left = b[:1, :, -n:].detach().clone()
        return self.conv(b)
