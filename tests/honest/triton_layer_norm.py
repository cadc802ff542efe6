"""Layer normalization in Triton, a row for every program, moments in single precision.

Family: precision.
"""

import torch
import triton
import triton.language as tl
from torch import nn

NEEDS = "cuda"
REFERENCE = "layer_norm"


@triton.jit
def normalize(x, weight, bias, out, n, eps, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / n
    centered = tl.where(inside, values - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=0) / n + eps)
    affine = tl.load(weight + columns, mask=inside), tl.load(bias + columns, mask=inside)
    tl.store(out + row * n + columns, centered * scale * affine[0] + affine[1], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        out = torch.empty_like(x)
        norm = self.norm
        normalize[(x.shape[0],)](x, norm.weight, norm.bias, out, x.shape[1], norm.eps, block=64)
        return out
