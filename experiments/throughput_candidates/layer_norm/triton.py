import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def normalize(x, weight, bias, out, n, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0)
    centered = tl.where(inside, values - tl.sum(values, axis=0) / n, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=0) / n + 1e-5)
    factor = tl.load(weight + columns, mask=inside)
    offset = tl.load(bias + columns, mask=inside)
    tl.store(out + row * n + columns, centered * scale * factor + offset, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        block = triton.next_power_of_2(n)
        normalize[(x.numel() // n,)](x, self.weight, self.bias, out, n, block=block, num_warps=8)
        return out
