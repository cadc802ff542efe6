"""Multiply float32 matrices on a GPU's tensor cores, as exactly as float32 does.

A float32 number is the sum of two TF32 numbers. A product of two such sums is four products, and
the smallest one is below the precision of float32. The other three products in TF32 take a GPU of
the Hopper generation less time than one in float32. Tensor cores truncate sums where float32 rounds
to nearest, and the truncation errors add up. So each sum on them is short and begins at zero; the
short sums are added in float32.

Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing
the FP32 theoretical peak performance", arXiv 2203.03341.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.patterns import Leaf, Match, written
from cudal1_ci.propose.recorded.rule import TRITON, Call, Change, RecordedRule

HELPERS = '''

@triton.jit
def fp32_split_kernel(
    x, high, low, rows, cols, x_batch, x_row, x_col, size, num_cols, BLOCK: tl.constexpr
):
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    place = x + batch * x_batch + row * x_row + col * x_col
    value = tl.load(place, (row < rows) & (col < cols), other=0.0)
    bits = value.to(tl.int32, bitcast=True) & -8192  # the ten bits of the mantissa in TF32
    first = bits.to(tl.float32, bitcast=True)
    place = batch * size + row * num_cols + col
    tl.store(high + place, first)
    tl.store(low + place, value - first)


@triton.jit
def fp32_product_kernel(
    a_high,
    a_low,
    b_high,
    b_low,
    out,
    m,
    n,
    k,
    a_size,
    b_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Neighbours in time read the same rows and columns, which are in the cache then.
    num_m = tl.cdiv(m, BLOCK_M)
    num_in_group = GROUP * tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // num_in_group * GROUP
    size = min(num_m - first, GROUP)
    place = tl.program_id(0) % num_in_group
    row = (first + place % size) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = (place // size) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    batch = tl.program_id(1).to(tl.int64)
    a = batch * a_size + row[:, None].to(tl.int64) * k + inner[None, :]
    b = batch * b_size + col[:, None].to(tl.int64) * k + inner[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, k, BLOCK_K):
        x, y = tl.load(a_high + a), tl.load(b_high + b)
        part = tl.dot(tl.load(a_low + a), y.T, input_precision="tf32")
        part = tl.dot(x, tl.load(b_low + b).T, part, input_precision="tf32")
        # Added in float32; Triton leaves that to tensor cores where a product begins at zero.
        total += tl.dot(x, y.T, part, input_precision="tf32")
        a += BLOCK_K
        b += BLOCK_K
    place = out + batch * m * n + row[:, None].to(tl.int64) * n + col[None, :]
    tl.store(place, total, (row[:, None] < m) & (col[None, :] < n))


def fp32_split(x):
    """Matrices as the sums of two that TF32 holds, with zeros up to whole blocks."""
    num, rows, cols = x.shape
    all_rows, all_cols = triton.cdiv(rows, 128) * 128, triton.cdiv(cols, 32) * 32
    high, low = x.new_empty(2, num, all_rows, all_cols)
    grid = (all_rows // 32, all_cols // 32, num)
    sizes = (rows, cols, *x.stride(), all_rows * all_cols, all_cols)
    fp32_split_kernel[grid](x, high, low, *sizes, BLOCK=32)
    return high, low


def fp32_product(a, b):
    """a @ b of as many matrices of float32, each by three products in TF32."""
    (num, m, _), n = a.shape, b.shape[2]
    out = a.new_empty(num, m, n)
    (a_high, a_low), (b_high, b_low) = fp32_split(a), fp32_split(b.transpose(1, 2))
    fp32_product_kernel[(triton.cdiv(m, 128) * triton.cdiv(n, 128), num)](
        a_high,
        a_low,
        b_high,
        b_low,
        out,
        m,
        n,
        a_high.shape[2],
        a_high.stride(0),
        b_high.stride(0),
        BLOCK_M=128,
        BLOCK_N=128,
        BLOCK_K=32,
        GROUP=8,
        num_warps=8,
        num_stages=3,
    )
    return out


def fp32_is_large(a, b, num_columns):
    """Whether a product of so many columns is faster on tensor cores: of float32, large, and no
    gradients are wanted. b is a matrix, turned or not, or has one for each of a's. Its size is
    asked first: what is small is done before more is asked."""
    if a.numel() * num_columns < 2**32 or a.dim() < 2:
        return False
    if not (a.is_cuda and b.is_cuda and a.dtype == b.dtype == torch.float32):
        return False
    if torch.is_grad_enabled() or torch.is_autocast_enabled():
        return False
    num, least = (1, 32) if b.dim() == 2 else (a.shape[:-2].numel(), 128)
    num_rows = a.numel() // a.shape[-1] // num
    num_blocks = num * triton.cdiv(num_rows, 128) * triton.cdiv(num_columns, 128)
    is_wide = num_blocks >= 128 and min(num_rows, *b.shape[-2:]) >= least and num < 2**16
    return is_wide and torch.get_float32_matmul_precision() == "highest"


def fp32_matmul(a, b):
    """a @ b, on tensor cores where that is faster."""
    is_one = b.dim() == 2
    if not is_one and (b.dim() < 3 or a.shape[:-2] != b.shape[:-2]):
        return torch.matmul(a, b)
    if not fp32_is_large(a, b, b.shape[-1]):
        return torch.matmul(a, b)
    with torch.cuda.device(a.device):
        rows = a.reshape(1, -1, a.shape[-1]) if is_one else a.reshape(-1, *a.shape[-2:])
        product = fp32_product(rows, b.reshape(-1, *b.shape[-2:]))
    return product.view(*a.shape[:-1], b.shape[-1])


def fp32_linear(x, weight, bias):
    """A linear layer, on tensor cores where that is faster."""
    if not fp32_is_large(x, weight, weight.shape[0]):
        return torch.nn.functional.linear(x, weight, bias)
    return fp32_matmul(x, weight.t()) + bias
'''


MUCH = 2**32
"""Multiplications of a product that is worth it, as in the helpers."""


def find_products(call: Call) -> Iterator[Change]:
    """Find large products of matrices, and linear layers with a bias, of float32."""
    for operation in call.graph.operations if call.has_triton and call.is_inference else ():
        names, template = "XY", "fp32_matmul(X, Y)"
        if operation.name == "linear":
            names, template = "XWB", "fp32_linear(X, W, B)"
        elif operation.name != "matmul":
            continue
        arguments = [operation.argument(n) for n in range(len(names))]
        leaves = {
            name: Leaf(one, operation, n)
            for n, (name, one) in enumerate(zip(names, arguments, strict=True))
            if one is not None and one.value is not None
        }
        if len(leaves) == len(names) and is_large(call, operation):
            change = written(
                call, Match(call.graph, (operation,), leaves), template, HELPERS, TRITON
            )
            if change is not None:
                yield change


def is_large(call: Call, operation: Operation) -> bool:
    """Return whether a product of float32 has many multiplications."""
    one, out = call.graph.of(operation.value(0)), call.graph.of(operation.output)
    if one is None or out is None or one.dtype != "float32" or len(one.shape) < 2:
        return False
    return math.prod(one.shape) * out.shape[-1] >= MUCH


RULES = (
    RecordedRule(
        name="fp32_tensor_cores",
        family="tensor cores",
        why="a float32 number is the sum of two in TF32: three products on tensor cores are as "
        "exact as one in float32, which has no tensor cores",
        precondition="a product of matrices, or of many pairs of them, of finite float32 numbers "
        "on a GPU, in inference; two Triton kernels are added to the file",
        find=find_products,
    ),
)
