import math

import triton
import triton.language as tl
from torch import nn


@triton.jit
def causal_softmax(scores, scale, n, block: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, block)
    inside = (columns < n) & (columns <= row % n)
    at = scores + row * n + columns
    values = tl.load(at, mask=inside, other=-float("inf")) * scale
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(at, powers / tl.sum(powers, axis=0), mask=columns < n)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)
        n = scores.shape[-1]
        block = triton.next_power_of_2(n)
        causal_softmax[(scores.numel() // n,)](scores, 1 / math.sqrt(q.shape[-1]), n, block=block)
        return scores @ v
