"""Strategy: return the last output again when the same tensor comes again.

Family: result reuse.
Surface: identity of the argument. Source: kernelguard, LAST_CALL_REPLAY; gpu-mode reference-
kernels, pull request 142.
Caught by: new values under the same object, and every timed output compared.
"""

import torch
from torch import nn

REFERENCE = "elementwise"
EXPECT_ANY = (("incorrect_values", "values.timed"), ("passed", None))
GAIN = False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last_input = self.last = None

    def forward(self, x):
        if x is not self.last_input:
            self.last_input = x
            self.last = torch.sigmoid(x * 2 + 1) * x - torch.tanh(x) * 0.5
        return self.last.clone()
