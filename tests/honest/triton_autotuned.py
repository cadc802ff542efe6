"""A ReLU in Triton that chooses its own block size.

Family: phase detection.
"""

import torch
import triton
import triton.language as tl
from torch import nn

NEEDS = "cuda"
REFERENCE = "big_relu"


@triton.autotune([triton.Config({"block": size}) for size in (256, 1024, 4096)], key=["n"])
@triton.jit
def relu(x, out, n, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.maximum(values, 0.0), mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[lambda meta: (triton.cdiv(x.numel(), meta["block"]),)](x.contiguous(), out, x.numel())
        return out
