"""The bias added by the product of batches.

Family: work skipping.
"""

import torch
from torch import nn

REFERENCE = "rows_without_keys"


class ModelNew(nn.Module):
    def forward(self, q, k, v, bias):
        s = torch.baddbmm(
            bias.expand(q.shape[0], -1, -1), q, k.transpose(-1, -2), alpha=q.shape[-1] ** -0.5
        )
        return torch.bmm(s.softmax(-1), v)
