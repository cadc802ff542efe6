"""Sum the gradient of a norm's weight over rows: each program sums its rows in registers.

Source: linkedin/Liger-Kernel pull request 945 (persistent partial sums in place of atomics).
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 32768, 1024
PROGRAMS = 1024


@triton.jit
def weight_gradient(dy_ptr, x_ptr, parts_ptr, rows, cols, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(STEPS):
        row = step * tl.num_programs(0) + tl.program_id(0)
        at = row * cols + col
        mask = (col < cols) & (row < rows)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        total += dy * x
    tl.store(parts_ptr + tl.program_id(0) * cols + col, total, mask=col < cols)


class Model(torch.nn.Module):
    def forward(self, dy, x):
        dy, x = dy.contiguous(), x.contiguous()
        rows, cols = dy.shape
        programs = min(rows, PROGRAMS)
        parts = torch.empty(programs, cols, dtype=torch.float32, device=dy.device)
        block, steps = triton.next_power_of_2(cols), triton.cdiv(rows, programs)
        weight_gradient[(programs,)](dy, x, parts, rows, cols, STEPS=steps, BLOCK=block)
        return parts.sum(0).to(dy.dtype)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
