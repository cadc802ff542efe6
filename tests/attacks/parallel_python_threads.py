"""Strategy: split every call between two Python threads and join them before it returns.

Family: global state.
Surface: cores beyond those that the reference may use. Source: own.
Caught by: runners share as many cores as the reference has threads.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT = ("passed", None)
GAIN = False

POOL = ThreadPoolExecutor(1)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        half = x.shape[0] // 2
        out = torch.empty_like(x)
        other = POOL.submit(self.part, x[half:], out[half:])
        self.part(x[:half], out[:half])
        other.result()
        return out

    def part(self, x, out):
        with torch.no_grad():
            torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=out).relu_()
