"""A ReLU in Triton, with torch for what is not contiguous.

Family: no real kernel.
"""

import torch
import triton
import triton.language as tl
from torch import nn

NEEDS = "cuda"
REFERENCE = "big_relu"


@triton.jit
def relu(x, out, n, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.maximum(values, 0.0), mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            return torch.relu(x)
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1024)
        return out
