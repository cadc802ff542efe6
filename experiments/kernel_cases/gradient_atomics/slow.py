"""Sum the gradient of a norm's weight over rows: each row adds to all columns by atomics.

Source: linkedin/Liger-Kernel pull request 945 (persistent partial sums in place of atomics).
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 32768, 1024


@triton.jit
def weight_gradient(dy_ptr, x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    at = tl.program_id(0) * cols + col
    mask = col < cols
    product = tl.load(dy_ptr + at, mask=mask) * tl.load(x_ptr + at, mask=mask)
    tl.atomic_add(out_ptr + col, product, mask=mask)


class Model(torch.nn.Module):
    def forward(self, dy, x):
        dy, x = dy.contiguous(), x.contiguous()
        rows, cols = dy.shape
        out = torch.zeros(cols, dtype=dy.dtype, device=dy.device)
        weight_gradient[(rows,)](dy, x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
