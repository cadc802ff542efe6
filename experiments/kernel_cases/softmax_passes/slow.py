"""Take softmax backward: tiles of 32 rows are read once for the sum and again for the result.

Source: meta-pytorch/tritonbench pull request 975 (one row a program, read once).
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 4096, 4096


@triton.jit
def softmax_backward(
    y_ptr, dy_ptr, out_ptr, rows, cols: tl.constexpr, TALL: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * TALL + tl.arange(0, TALL)
    total = tl.zeros((TALL,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (col[None, :] < cols)
        at = row[:, None] * cols + col[None, :]
        y = tl.load(y_ptr + at, mask=mask, other=0.0)
        total += tl.sum(y * tl.load(dy_ptr + at, mask=mask, other=0.0), 1)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (col[None, :] < cols)
        at = row[:, None] * cols + col[None, :]
        y = tl.load(y_ptr + at, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
        tl.store(out_ptr + at, y * (dy - total[:, None]), mask=mask)


class Model(torch.nn.Module):
    def forward(self, y, dy):
        y, dy = y.contiguous(), dy.contiguous()
        rows, cols = y.shape
        out = torch.empty_like(y)
        grid = (triton.cdiv(rows, 32),)
        softmax_backward[grid](y, dy, out, rows, cols, TALL=32, BLOCK=64)
        return out


def get_inputs():
    return [torch.rand(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
