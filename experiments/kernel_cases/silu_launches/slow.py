"""Compute SwiGLU in two launches, with the activation in memory between them.

Source: sgl-project/sglang pull request 37376 (what follows the activation is fused with it).
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 4096, 4096


@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < n)


@triton.jit
def multiply(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(x_ptr + at, mask=at < n) * tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, product, mask=at < n)


class Model(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        n = gate.numel()
        grid = (triton.cdiv(n, 1024),)
        active = torch.empty_like(gate)
        silu[grid](gate, active, n, BLOCK=1024)
        out = torch.empty_like(gate)
        multiply[grid](active, up, out, n, BLOCK=1024)
        return out


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
