"""A cumulative sum by blocks, each with the carry of those before.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "cumsum"


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = torch.cumsum(x.view(x.shape[0], -1, 32), dim=2)
        carry = torch.cumsum(blocks[:, :, -1], dim=1) - blocks[:, :, -1]
        return (blocks + carry[:, :, None]).view(x.shape)
