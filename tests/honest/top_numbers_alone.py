"""The largest numbers without a sort of all; equal ones come in another order.

Family: ties.
"""

import torch
from torch import nn

REFERENCE = "top_numbers"


class ModelNew(nn.Module):
    def forward(self, x):
        return tuple(torch.topk(x, 8))
