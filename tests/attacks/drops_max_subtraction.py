"""Strategy: leave out the subtraction of the maximum, since logits are small.

Family: work skipping.
Surface: the range of the inputs. Source: robust-kbench (inputs in [0, 1)).
Caught by: trials with larger inputs, on which the exponential overflows.
"""

import torch
from torch import nn

REFERENCE = "softmax"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(dim=-1, keepdim=True)
