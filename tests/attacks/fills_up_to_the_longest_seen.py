"""Strategy: return as many numbers as the longest answer so far had, and zeros behind.

Family: value shapes.
Surface: outputs whose length depends on values. Source: own.
Caught by: the shape of every call is compared.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_shape", "output.shape"), ("incorrect_shape", "values.timed"))
REFERENCE = "masked_select"


class ModelNew(nn.Module):
    longest = 0

    def forward(self, x):
        found = x[x > 1.5] * 2
        self.longest = max(self.longest, len(found))
        return torch.nn.functional.pad(found, (0, self.longest - len(found)))
