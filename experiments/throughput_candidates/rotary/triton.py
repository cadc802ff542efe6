import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotate(x, cos, sin, out, heads, half, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = columns < half
    low = row * 2 * half + columns
    angle = row // heads * 2 * half + columns
    first = tl.load(x + low, mask=inside)
    second = tl.load(x + low + half, mask=inside)
    one = first * tl.load(cos + angle, mask=inside) - second * tl.load(sin + angle, mask=inside)
    angle += half
    other = second * tl.load(cos + angle, mask=inside) + first * tl.load(sin + angle, mask=inside)
    tl.store(out + low, one, mask=inside)
    tl.store(out + low + half, other, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        out = torch.empty_like(x)
        rows, heads, dim = x.shape
        block = triton.next_power_of_2(dim // 2)
        rotate[(rows * heads,)](x, cos, sin, out, heads, dim // 2, block=block)
        return out
