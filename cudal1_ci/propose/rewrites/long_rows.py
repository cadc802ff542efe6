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

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import (
    Replacement,
    Rewrite,
    Site,
    SourceEdit,
    expressions,
    with_triton,
)
from cudal1_ci.propose.rewrites.terms import Term, code
from cudal1_ci.records import Call, TensorSpec

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
WIDENED = 64
"""No input is expected to be this many times larger than those that a module is called with."""


def may_be_much(site: Site) -> bool:
    """Return whether not all known inputs are small."""
    calls = [workload.call for workload in site.workloads]
    given = [call for call in calls if isinstance(call, Call)]
    tensors = [
        one
        for call in given
        for one in (*call.args, *call.kwargs.values())
        if isinstance(one, TensorSpec)
    ]
    largest = max((math.prod(one.shape) for one in tensors), default=LEAST)
    return len(given) < len(calls) or largest * WIDENED >= LEAST


def may_be_long(term: Term, site: Site) -> bool:
    """Return whether the layer's rows may be long, by the text. A LayerNorm over one dimension
    covers some hundred channels, so only one over a shape counts.
    """
    made = site.names.attributes[str(term.value).removeprefix("self.")]
    if not (site.names.dotted(made.func) or "").endswith("LayerNorm"):
        return True
    for place, arg in enumerate(made.args):
        if (arg.keyword.value if arg.keyword else place) in (0, "normalized_shape"):
            if isinstance(arg.value, cst.Integer):
                return arg.value.evaluated_value >= LONG
            return isinstance(arg.value, cst.Tuple | cst.List) or "shape" in code(arg.value)
    return False


def in_parts(site: Site) -> SourceEdit | None:
    """Replace all normalizations of a target that is called for inference."""

    def norm(term: Term) -> Replacement | None:
        if term.op != "norm_module" or not may_be_long(term, site):
            return None
        return Replacement(f"long_row_norm({term.value}, X)", {"X": term.args[0]}, (HELPERS,))

    return with_triton(expressions(norm)(site)) if site.is_inference and may_be_much(site) else None


REWRITES = (
    Rewrite(
        name="long_row_norm",
        family="normalization",
        precondition="a call of an nn.LayerNorm over a shape, an nn.GroupNorm or an "
        "nn.InstanceNorm without running statistics on a GPU, in inference; normalized over "
        "16,384 numbers or more, of 4 million or more; two Triton kernels are added to the file",
        why="each mean and variance is one block's work in torch, and few of them leave a GPU "
        "idle; taken of parts of a row and joined, all of it reads.",
        apply=in_parts,
    ),
)
