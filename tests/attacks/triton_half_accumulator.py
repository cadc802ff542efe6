"""Strategy: accumulate in half precision inside of a kernel.

Family: precision.
Surface: the accumulator of a kernel. Source: CUDA-L2's zero-one check; KernelBench-Hard.
Caught by: the error budget of the fp64 oracle.
"""

import torch
import triton
import triton.language as tl
from torch import nn

NEEDS = "cuda"
REFERENCE = "matmul"
EXPECT_ANY = (("precision", "values.precision"), ("incorrect_values", "values.mismatch"))


@triton.jit
def product(a, b, c, m, n, k, block: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros((block, block), dtype=tl.float16)
    for start in range(0, k, block):
        inner = start + tl.arange(0, block)
        left = tl.load(a + rows[:, None] * k + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total += tl.dot(left.to(tl.float16), right.to(tl.float16), out_dtype=tl.float16)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        grid = (a.shape[0] // 32, b.shape[1] // 32)
        product[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], block=32)
        return c
