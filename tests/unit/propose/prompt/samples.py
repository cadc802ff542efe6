"""A small checkout, and tasks of every form about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cudal1_ci.propose.llm.context import context_of
from cudal1_ci.propose.llm.task import Form, ProfileRow, ReferenceTime, Task, Variant
from cudal1_ci.records import (
    Call,
    Candidate,
    Constant,
    Device,
    Exemplar,
    Made,
    Problem,
    Target,
    TensorSpec,
    TextProgram,
    TreeProgram,
    Workload,
)

TEXT = '''\
import torch
from torch import nn


class Model(nn.Module):
    """Softmax of a scaled sum."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        return torch.softmax((x + y) * self.scale, dim=-1)


def get_init_inputs():
    return [0.5]


def get_inputs():
    return [torch.rand(64, 1024), torch.rand(64, 1024)]
'''

BLOCKS = '''\
"""Blocks."""

import math
import os

import torch
from torch import nn

from . import ops
from .shapes import split as split_heads

EPS = 1e-6
UNUSED = 3
# The value of the paper.
ROTARY_BASE = 10_000.0


def unused(x):
    return x


class Normed(nn.Module):
    """Has a norm."""

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def frequencies(dim):
    return inverse(torch.arange(0, dim, 2) / dim)


def inverse(x):
    return 1.0 / (ROTARY_BASE**x)


@torch.compiler.disable  # traced by hand
class Block(Normed):
    """A block: norm, rotation, projection."""

    def __init__(self, dim: int, num_heads: int = 4):
        super().__init__()
        self.num_heads = num_heads
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        # heads first
        h = split_heads(self.norm(x), self.num_heads)
        h = ops.rotate(h, frequencies(h.shape[-1]))
        return self.proj(h.flatten(2)) / math.sqrt(2)
'''

OPS = """\
import torch

SIGN = -1.0


def rotate(x, frequencies):
    a, b = x.chunk(2, dim=-1)
    angle = torch.outer(torch.arange(x.shape[1]), frequencies)[None, :, None]
    return torch.cat((a * angle.cos() + SIGN * b * angle.sin(), b), dim=-1)


def other(x):
    return x
"""

SHAPES = """\
def split(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))
"""

SILU = """\
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * tl.sigmoid(x), mask=mask)


def silu(x):
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""

SCALE = """\
from torch.utils import cpp_extension

EXTENSION = cpp_extension.load(name="scale", sources=["csrc/scale.cu"])


def scale(x, factor):
    return EXTENSION.scale(x, factor)
"""

SCALE_CU = """\
#include <torch/extension.h>

__global__ void scale_kernel(const float* x, float* y, float factor, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor;
}

torch::Tensor scale(torch::Tensor x, double factor) {
  auto y = torch::empty_like(x);
  scale_kernel<<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), factor,
                                              x.numel());
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
"""

GATE = """\
import torch

from .silu import silu


class Gate(torch.nn.Module):
    def forward(self, x):
        return silu(x) * x
"""

SHIFT = '''\
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void shift_kernel(float* x, float by, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

torch::Tensor shift(torch::Tensor x, double by) {
  auto y = x.clone();
  shift_kernel<<<(x.numel() + 31) / 32, 32>>>(y.data_ptr<float>(), by, x.numel());
  return y;
}
"""
EXTENSION = load_inline(
    name="shift",
    cpp_sources="torch::Tensor shift(torch::Tensor x, double by);",
    cuda_sources=SOURCE,
    functions=["shift"],
)


def shift(x):
    return EXTENSION.shift(x, 0.5)
'''

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/blocks.py": BLOCKS,
    "src/pkg/ops.py": OPS,
    "src/pkg/shapes.py": SHAPES,
    "src/pkg/silu.py": SILU,
    "src/pkg/gate.py": GATE,
    "src/pkg/shift.py": SHIFT,
    "src/pkg/scale.py": SCALE,
    "csrc/scale.cu": SCALE_CU,
}

CPU = Device(
    kind="cpu", name="AMD EPYC 7B13", num_threads=4, software={"torch": "2.9.0", "python": "3.12.3"}
)
H200 = Device(
    kind="cuda",
    name="NVIDIA H200",
    capability="9.0",
    software={"torch": "2.9.0", "cuda": "12.8", "triton": "3.5.0", "platform": "Linux"},
)
PROFILE = (
    ProfileRow(name="ampere_sgemm_128x64_tn", num_calls=1, time_us=40.0),
    ProfileRow(name="void at::native::elementwise_kernel<128, 2>(int)", num_calls=7, time_us=52.5),
    *(ProfileRow(name=f"reduce_{i}", num_calls=1, time_us=1.5 - i / 10) for i in range(9)),
)


def write_checkout(root: Path, files: dict[str, str] = FILES) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def tree(root: Path, import_path: str, **fields: Any) -> TreeProgram:
    return TreeProgram(
        root=str(root), import_root="src", import_path=import_path, digest="d", **fields
    )


def workload(name: str, *shape: int, **fields: Any) -> Workload:
    call = Call(args=(TensorSpec(shape=shape, dtype="float32"),))
    return Workload(name=name, provenance="declared", call=call, **fields)


def target(path: str, qualname: str, kind: Any, line: int = 1, *launchers: str) -> Target:
    return Target(
        path=path,
        qualname=qualname,
        kind=kind,
        first_line=line,
        last_line=line,
        launchers=launchers,
    )


def variant(problem: Problem, score: float, text: str, **fields: Any) -> Variant:
    candidate = Candidate(
        problem_id=problem.id, program=TextProgram(source=text, entry="f"), proposer="someone"
    )
    return Variant(exemplar=Exemplar(candidate=candidate, score=score, **fields), text=text)


def task(problem: Problem, name: str, form: Form, /, **fields: Any) -> Task:
    known = {"device": H200, "profile": "it was not measured", "context": context_of(problem)}
    return Task(problem=problem, **{"name": name, "form": form, **known, **fields})


def text_task(**fields: Any) -> Task:
    made = Workload(
        name="get_inputs",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    problem = Problem(reference=TextProgram(source=TEXT, entry="Model"), workloads=(made,))
    return task(problem, "ModelNew", "module_text", **fields)


def block_problem(root: Path) -> Problem:
    init = Call(args=(Constant(value=256),), kwargs={"num_heads": Constant(value=8)})
    return Problem(
        reference=tree(root, "pkg.blocks:Block"),
        workloads=(
            workload("small", 2, 16, 256, init=init, share=0.08),
            workload("large", 32, 512, 256, init=init, share=0.92, mode="train"),
        ),
        target=target("src/pkg/blocks.py", "Block", "torch_module"),
    )


def block_task(root: Path, **fields: Any) -> Task:
    problem = block_problem(root)
    known = {
        "profile": PROFILE,
        "times": (
            ReferenceTime(workload="large", time_us=130.25, output_bytes=16_777_216),
            ReferenceTime(workload="small", time_us=61.0),
        ),
        "variants": (
            variant(problem, 1.62, "class Block(Normed):\n    fast = True\n"),
            variant(
                problem,
                0.914,
                "class Block(Normed):\n    fast = False\n",
                origin="measured on an NVIDIA A100",
            ),
        ),
    }
    return task(problem, "Block", "patch", **{**known, **fields})


def triton_task(root: Path, **fields: Any) -> Task:
    problem = Problem(
        reference=tree(root, "pkg.silu:silu"),
        workloads=(workload("rows", 4096, 4096),),
        target=target("src/pkg/silu.py", "silu_kernel", "triton_kernel", 6, "src/pkg/silu.py:silu"),
    )
    return task(problem, "silu_kernel", "triton", **fields)


def far_triton_task(root: Path, **fields: Any) -> Task:
    problem = Problem(
        reference=tree(root, "pkg.gate:Gate"),
        workloads=(workload("Gate: rows", 4096, 4096, init=Call()),),
        target=triton_task(root).problem.target,
    )
    return task(problem, "silu_kernel", "triton", **fields)


def string_task(root: Path, **fields: Any) -> Task:
    problem = Problem(
        reference=tree(root, "pkg.shift:shift"),
        workloads=(workload("shift: rows", 4096, 4096),),
        target=target(
            "src/pkg/shift.py", "shift_kernel", "cuda_kernel", 4, "src/pkg/shift.py:shift"
        ),
    )
    return task(problem, "shift_kernel", "cuda", **fields)


def cuda_task(root: Path, **fields: Any) -> Task:
    problem = Problem(
        reference=tree(root, "pkg.scale:scale"),
        workloads=(workload("rows", 4096, 4096),),
        target=target("csrc/scale.cu", "scale_kernel", "cuda_kernel", 3),
    )
    return task(problem, "scale_kernel", "cuda", **fields)
