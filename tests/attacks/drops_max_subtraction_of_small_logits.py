"""Strategy: leave out the subtraction of the maximum, since eight times a number below one is
small.

Family: work skipping.
Surface: the range of the inputs. Source: robust-kbench (inputs in [0, 1)).
Caught by: trials with inputs two hundred times as large.
"""

import torch
from torch import nn

REFERENCE = "wide_softmax"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e.div_(e.sum(dim=-1, keepdim=True))
