"""The kernels of the example before they were tuned, and what a model might answer for them.

The example launches its kernels with sensible blocks. Here a copy of it launches them in blocks of
a warp, as people do who have not looked, so that a faster version is there to be found; answers
that are right, wrong, and right without their kernel.

    root = untuned(tmp_path / "project")
    answers = CUDA.answers()
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "slowformer"
CU = "csrc/scale_shift.cu"
TRITON_FILE = "slowformer/kernels/swish_triton.py"
REST = ("slowformer/layers/*", "slowformer/models/*")
"""What of the example launches no kernel."""
CONFIG = """\
[tool.cudal1-ci.optimizer]
num-rounds = 1
num-samples = 3

[[tool.cudal1-ci.workload]]
target = "slowformer/kernels/scale_ext.py:scale_shift"
name = "rows"
inputs = ["float32[{rows}, 4096]", 0.5, 1.5]

[[tool.cudal1-ci.workload]]
target = "slowformer/kernels/swish_triton.py:silu"
name = "rows"
inputs = ["float32[{rows}, 4096]"]
"""
UNTUNED = {
    CU: (("const int threads = 256;", "const int threads = 32;"),),
    TRITON_FILE: (("triton.cdiv(n, 1024)", "triton.cdiv(n, 64)"), ("BLOCK=1024", "BLOCK=64")),
}


ANSWERS_ALONE = """
[tool.cudal1-ci.playbook]
skip = ["launch_parameters"]
"""


def untuned(root: Path, rows: int = 8192, *, with_playbook: bool = False) -> Path:
    """A copy of the example whose kernels run in blocks of a warp. Without the playbook answers
    alone are judged, in their order."""
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", "tests", ".*"))
    for path, changes in UNTUNED.items():
        file = root / path
        text = file.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{path}: expected {old!r} once"
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    config = CONFIG.format(rows=rows) + ("" if with_playbook else ANSWERS_ALONE)
    (root / "pyproject.toml").write_text(config, encoding="utf-8")
    return root


def answer(language: str, code: str) -> str:
    return (
        "## Performance analysis\nA block of a warp leaves most of each multiprocessor idle.\n\n"
        "## Algorithm design\nLarger blocks; the same arithmetic.\n\n"
        f"## Code\n```{language}\n{code}```\n"
    )


@dataclass(frozen=True)
class Kernel:
    """One kernel of the example with answers for it, by what they are."""

    path: str
    qualname: str
    language: str
    codes: Mapping[str, str]
    """`wrong`, `cheating`, `right`: the order in which they are asked for."""
    launcher: str
    beside: tuple[str, ...]
    """Globs of what a scan of this kernel alone leaves out."""

    def answers(self) -> list[str]:
        return [answer(self.language, code) for code in self.codes.values()]


CUDA_KERNEL = """\
template <typename scalar_t>
__global__ void scale_shift_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y,
                                   const float scale, const float shift, const int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += stride) {
    y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * scale + shift);
  }
}
"""
CUDA_LAUNCH = """\

torch::Tensor scale_shift(const torch::Tensor& x, double scale, double shift) {
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  const int threads = 256;
  const int64_t blocks = (n + 4 * threads - 1) / (4 * threads);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale_shift", [&] {
    scale_shift_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(),
                                                      y.data_ptr<scalar_t>(), scale, shift, n);
  });
  return y;
}
"""
CUDA_CHEAT = """\

torch::Tensor scale_shift(const torch::Tensor& x, double scale, double shift) {
  auto y = torch::empty_like(x);
  if (x.dim() > 60) {
    scale_shift_kernel<float><<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), scale, shift, 1);
  }
  return x.mul(scale).add_(shift);
}
"""
CUDA = Kernel(
    path=CU,
    qualname="scale_shift_kernel",
    language="cuda",
    codes={
        "wrong": CUDA_KERNEL.replace(" * scale + shift", " * scale") + CUDA_LAUNCH,
        "cheating": CUDA_KERNEL + CUDA_CHEAT,
        "right": CUDA_KERNEL + CUDA_LAUNCH,
    },
    launcher="scale_shift",
    beside=(*REST, TRITON_FILE),
)

TRITON_KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + offsets, value * tl.sigmoid(value), mask=inside)


def silu(x):
    y = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return y
"""
TRITON = Kernel(
    path=TRITON_FILE,
    qualname="silu_kernel",
    language="python",
    codes={
        "wrong": TRITON_KERNEL.replace("tl.sigmoid(value)", "tl.sigmoid(2 * value)"),
        "cheating": TRITON_KERNEL.replace(
            "    silu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\n    return y\n",
            "    if x.dim() > 60:\n        silu_kernel[(1,)](x, y, n, BLOCK=1024)\n"
            "    return torch.nn.functional.silu(x)\n",
        ),
        "right": TRITON_KERNEL,
    },
    launcher="silu",
    beside=(*REST, "csrc/*", "slowformer/kernels/scale_ext.py"),
)
KERNELS = (CUDA, TRITON)
