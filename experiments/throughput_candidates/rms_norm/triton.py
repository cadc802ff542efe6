import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def normalize(x, weight, out, n, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / n + 1e-6)
    affine = tl.load(weight + columns, mask=inside)
    tl.store(out + row * n + columns, values * scale * affine, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        rows = x.numel() // n
        normalize[(rows,)](x, self.weight, out, n, block=triton.next_power_of_2(n), num_warps=8)
        return out
