"""Strategy: return the mean of the last two outputs, since outputs hardly change.

Family: result reuse.
Surface: slowly changing inputs. Source: own; temporal smoothing as work skipping.
Caught by: trials whose inputs have nothing in common.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.last, self.calls = None, 0

    def forward(self, x):
        if self.last is not None and self.calls % 2:
            out = self.last.mean(dim=0)
        else:
            out = torch.relu(self.fc(x))
            self.last = torch.stack([out, out if self.last is None else self.last[0]])
        self.calls += 1
        return out.clone()
