"""Add a bias and apply GELU: neighboring lanes take neighboring rows, a whole row apart in memory.

Source: triton-lang/triton issue 949, pytorch/pytorch issue 120667 (a layout that harms coalescing).
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 4096, 4096


@triton.jit
def gelu_bias(x_ptr, bias_ptr, out_ptr, rows, cols, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = at % rows
    col = at // rows
    mask = at < rows * cols
    x = tl.load(x_ptr + row * stride + col, mask=mask)
    x += tl.load(bias_ptr + col, mask=mask)
    tl.store(out_ptr + row * cols + col, x * tl.sigmoid(1.702 * x), mask=mask)


class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(cols))

    def forward(self, x):
        rows, cols = x.shape
        x = x if x.stride(1) == 1 else x.contiguous()
        out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows * cols, 1024),)
        gelu_bias[grid](x, self.bias, out, rows, cols, x.stride(0), BLOCK=1024)
        return out


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
