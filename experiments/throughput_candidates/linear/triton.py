import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_and_cut(out, bias, count, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    value = tl.load(out + at, mask=inside) + tl.load(bias + at % n, mask=inside)
    tl.store(out + at, tl.where(value < 0.0, 0.0, value), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.matmul(x, self.fc.weight.T)
        count = out.numel()
        grid = (triton.cdiv(count, 1024),)
        add_and_cut[grid](out, self.fc.bias, count, out.shape[-1], block=1024)
        return out
