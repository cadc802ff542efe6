"""Powers of ten built at the first call, of which the scale of a softmax is looked up.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "softmax"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.tensor([10.0**n for n in range(-4, 5)])
        top = x.amax(dim=-1, keepdim=True)
        e = torch.exp(x - top) * self.table[4]
        return e / e.sum(dim=-1, keepdim=True)
