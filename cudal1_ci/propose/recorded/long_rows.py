"""Normalize over many numbers each with as many programs as a GPU has room for.

torch gives each mean and variance to one block of threads, so few of them leave most of a GPU idle.
A LayerNorm over whole images, for example, has only one mean per image. For instances torch uses
the routines of batches. Here one kernel computes mean and variance of each part of a row. A second
kernel joins those of the row's parts, then reads the row again. The second kernel begins at the
rows that the first one read last, which may still be in the cache.

Source of the joining: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances", Stanford STAN-CS-79-773, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.patterns import layer_match, written
from cudal1_ci.propose.recorded.rule import TRITON, Call, Change, RecordedRule

HELPERS = '''

@triton.jit
def row_moments_kernel(x, means, squares, cols, num_parts, BLOCK: tl.constexpr):
    row = (tl.program_id(0) // num_parts).to(tl.int64)
    first = tl.program_id(0) % num_parts * BLOCK
    col = first + tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + col, col < cols, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0, keep_dims=False) / min(cols - first, BLOCK)
    apart = tl.where(col < cols, value - mean, 0.0)
    tl.store(means + tl.program_id(0), mean)
    tl.store(squares + tl.program_id(0), tl.sum(apart * apart, 0, keep_dims=False))


@triton.jit
def row_normal_kernel(
    x,
    means,
    squares,
    weight,
    bias,
    out,
    num_programs,
    cols,
    num_parts,
    num_groups,
    per_group,
    inner,
    eps,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # The last rows first: they were read last, and the cache may still have them.
    place = num_programs - 1 - tl.program_id(0)
    row = (place // num_parts).to(tl.int64)
    part = tl.arange(0, PARTS)
    is_part = part < num_parts
    number = tl.where(is_part, tl.minimum(cols - part * BLOCK, BLOCK), 0).to(tl.float32)
    part_mean = tl.load(means + row * num_parts + part, is_part, other=0.0)
    mean = tl.sum(part_mean * number, 0, keep_dims=False) / cols
    apart = part_mean - mean
    square = tl.load(squares + row * num_parts + part, is_part, other=0.0)
    total = tl.sum(square + number * apart * apart, 0, keep_dims=False)
    col = place % num_parts * BLOCK + tl.arange(0, BLOCK)
    is_col = col < cols
    value = tl.load(x + row * cols + col, is_col, other=0.0).to(tl.float32)
    value = (value - mean) / tl.sqrt(total / cols + eps)
    channel = row % num_groups * per_group + col // inner
    if HAS_WEIGHT:
        value = value * tl.load(weight + channel, is_col, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value = value + tl.load(bias + channel, is_col, other=0.0).to(tl.float32)
    tl.store(out + row * cols + col, value, is_col)


def norm_by_rows(x, num_groups, per_group, inner, weight, bias, eps):
    """x with mean 0 and variance 1 over rows of per_group * inner numbers, of which num_groups in a
    row have weights of their own: one for each inner numbers."""
    out, cols = torch.empty_like(x), per_group * inner
    num_parts = triton.cdiv(cols, 8192)
    num_programs = x.numel() // cols * num_parts
    means, squares = x.new_empty(2, num_programs, dtype=torch.float32)
    options = {"BLOCK": 8192, "num_warps": 8}
    row_moments_kernel[(num_programs,)](x, means, squares, cols, num_parts, **options)
    row_normal_kernel[(num_programs,)](
        x,
        means,
        squares,
        x if weight is None else weight,
        x if bias is None else bias,
        out,
        num_programs,
        cols,
        num_parts,
        num_groups,
        per_group,
        inner,
        eps,
        HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None,
        PARTS=triton.next_power_of_2(num_parts),
        **options,
    )
    return out


def rows_of_norm(norm, x):
    """Groups of rows that differ in their weights, weights of a row, and numbers of each weight;
    None where it is not known."""
    if type(norm) is torch.nn.LayerNorm:
        shape = tuple(norm.normalized_shape)
        is_known = x.shape[x.dim() - len(shape) :] == shape
        return (1, torch.Size(shape).numel(), 1) if is_known else None
    instances = (torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)
    if type(norm) in instances and norm.running_mean is None:
        is_known = x.dim() == 3 + instances.index(type(norm)) and x.shape[1] == norm.num_features
        return (x.shape[1], 1, x[0, 0].numel()) if is_known else None
    if type(norm) is torch.nn.GroupNorm and x.dim() > 1 and x.shape[1] == norm.num_channels:
        return norm.num_groups, x.shape[1] // norm.num_groups, x[0, 0].numel()
    return None


def long_row_norm(norm, x):
    """norm(x), in two kernels for rows of many numbers, where no gradients are wanted."""
    if x.numel() < 2**22 or not x.is_cuda or not x.is_contiguous():
        return norm(x)
    if torch.is_grad_enabled() or torch.is_autocast_enabled():
        return norm(x)
    is_float = x.dtype in (torch.float32, torch.float16, torch.bfloat16)
    parts = [one for one in (norm.weight, norm.bias) if one is not None]
    rows = rows_of_norm(norm, x)
    if rows is None or not is_float or any(one.dtype != x.dtype for one in parts):
        return norm(x)
    if not 2**14 <= rows[1] * rows[2] <= 2**25 or not all(one.is_contiguous() for one in parts):
        return norm(x)
    with torch.cuda.device(x.device):
        return norm_by_rows(x, *rows, norm.weight, norm.bias, norm.eps)
'''


LEAST, LONG = 2**22, 2**14
"""Least numbers of all rows and of one row, as in the helpers."""


def find_norms(call: Call) -> Iterator[Change]:
    """Find layers that normalize over long rows."""
    for operation in call.graph.operations if call.has_triton and call.is_inference else ():
        found = layer_match(call, operation)
        if found is None or not is_long(call, operation):
            continue
        layer, match = found
        template = f"long_row_norm({layer}, X)"
        change = written(call, match, template, HELPERS, TRITON)
        if change is not None:
            yield change


def is_long(call: Call, operation: Operation) -> bool:
    """Return whether each mean is one of many numbers."""
    known = call.graph.of(operation.value(0))
    if known is None or math.prod(known.shape) < LEAST:
        return False
    count, sizes = math.prod(known.shape[1:]), operation.literal(1, "normalized_shape")
    if operation.name == "layer_norm" and isinstance(sizes, tuple):
        return math.prod(sizes) >= LONG
    if operation.name == "group_norm":
        groups = operation.literal(1, "num_groups")
        return isinstance(groups, int) and count // groups >= LONG
    statistics = operation.value(1, "running_mean")
    is_own = operation.name == "instance_norm" and statistics is None
    return is_own and math.prod(known.shape[2:]) >= LONG


RULES = (
    RecordedRule(
        name="long_row_norm",
        family="normalization",
        why="each mean and variance is one block's work in torch, and few of them leave a GPU "
        "idle; taken of parts of a row and joined, all of it reads",
        precondition="a call of an nn.LayerNorm, an nn.GroupNorm or an nn.InstanceNorm without "
        "running statistics on a GPU, in inference; normalized over 16,384 numbers or more, of "
        "4 million or more; two Triton kernels are added to the file",
        find=find_norms,
    ),
)
