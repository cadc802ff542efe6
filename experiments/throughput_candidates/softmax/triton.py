import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax(x, out, n, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * n + columns, powers / tl.sum(powers, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        softmax[(x.numel() // n,)](x, out, n, block=triton.next_power_of_2(n), num_warps=8)
        return out
