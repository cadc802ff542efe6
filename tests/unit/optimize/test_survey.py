"""What is planned depends on where it can be measured."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.discover import DiscoveryConfig
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import survey
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.preview import preview
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.launch_config.strategy import KernelLaunches
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import FakeSession

MODEL = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x, n):
    tl.store(x, tl.load(x) * 2)
"""


def plan(root, inputs, on_gpu):
    found = surveyed(root, inputs, on_gpu)
    return {planned.target.qualname: planned for planned in found.targets}


def surveyed(root, inputs, on_gpu, **more):
    (root / "model.py").write_text(MODEL)
    workloads = ({"target": "model.py:Scale", "inputs": inputs, **more},)
    evidence = Evidence(declared=declarations(workloads, "test"))
    return survey(root, DiscoveryConfig(), evidence=evidence, repository="r", on_gpu=on_gpu)


@pytest.mark.parametrize(
    ("inputs", "on_gpu", "is_judged"),
    [
        (["float32[4, 4]"], False, True),
        (["float32[4, 4]"], True, True),
        (["float32[4, 4] on cuda"], False, False),
        (["float32[4, 4] on cuda"], True, True),
    ],
)
def test_calls_with_cuda_tensors_are_judged_where_there_is_a_gpu(
    tmp_path, inputs, on_gpu, is_judged
):
    planned = plan(tmp_path, inputs, on_gpu)["Scale"]
    assert (planned.problem is not None) is is_judged
    if not is_judged:
        assert "--device cuda" in planned.hint


def foreseen(tmp_path, plan, strategy) -> list[str]:
    with Archive.open(tmp_path / "state" / "archive.sqlite") as archive:
        context = RunContext(
            session=FakeSession({}),
            strategies=(strategy,),
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(num_candidates=9),
            policy="p",
        )
        return [*preview(plan, context)]


@pytest.mark.parametrize(
    ("mode", "said"), [("infer", "(declared):"), ("train", "(declared, train)")]
)
def test_a_preview_says_what_is_trained(tmp_path, mode, said):
    plan = surveyed(tmp_path, ["float32[4, 4]"], False, mode=mode)
    (line,) = foreseen(tmp_path, plan, KernelLaunches())
    assert said in line


LAUNCHED = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x, y, n):
    tl.store(y, tl.load(x) * 2)

def near(x):
    y = torch.empty_like(x)
    scale_kernel[(1,)](x, y, x.numel())
    return y

class Far(torch.nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.proj = torch.nn.Linear(width, width)

    def forward(self, x):
        return near(self.proj(x))
"""
CU = """
#include <torch/extension.h>
__global__ void shift_kernel(float* x) { x[threadIdx.x] += 2; }
torch::Tensor shift(torch::Tensor x) { shift_kernel<<<1, 32>>>(x.data_ptr<float>()); return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("shift", &shift); }
"""
LOADER = """
from torch.utils.cpp_extension import load

EXTENSION = load(name="shift", sources=["shift.cu"])

def shift(x):
    return EXTENSION.shift(x)
"""
SETUP = """
from torch.utils.cpp_extension import CUDAExtension
EXTENSION = CUDAExtension("shift", ["shift.cu"])
"""


def kernel_plan(root, files, *declared, on_gpu=True):
    for name, text in files.items():
        (root / name).write_text(text)
    tables = [{"target": target, "inputs": ["float32[8, 64]"]} for target in declared]
    evidence = Evidence(declared=declarations(tables, "test"))
    found = survey(root, DiscoveryConfig(), evidence=evidence, repository="r", on_gpu=on_gpu)
    (planned,) = (one for one in found.targets if one.target.is_kernel)
    return planned, found


@pytest.mark.parametrize(
    ("declared", "reference", "workload"),
    [
        (("ops.py:near",), "ops:near", "near: 8x64"),
        (("ops.py:Far",), "ops:Far", "Far: 8x64"),  # nearer ones have no workload
        (("ops.py:Far", "ops.py:near"), "ops:near", "near: 8x64"),
        ((), "ops:Far", "Far: guess 8x128x64"),
    ],
)
def test_a_kernel_is_judged_through_the_nearest_launcher_whose_calls_are_known(
    tmp_path, declared, reference, workload
):
    planned, _ = kernel_plan(tmp_path, {"ops.py": LAUNCHED}, *declared)
    assert planned.problem.reference.import_path == reference
    assert planned.problem.target is planned.target
    assert [one.name for one in planned.problem.workloads] == [workload]


def test_a_guess_of_a_near_launcher_is_worth_less_than_a_declaration_of_a_far_one(tmp_path):
    near = LAUNCHED.replace("def near(x):", "def _near(x):").replace("near(self", "_near(self")
    far = "import torch\nfrom ops import Far\n\ndef farther(x):\n    return Far()(x) + 1\n"
    planned, _ = kernel_plan(tmp_path, {"ops.py": near, "far.py": far}, "far.py:farther")
    assert planned.problem.reference.import_path == "far:farther"


@pytest.mark.parametrize(
    ("files", "declared", "on_gpu", "reason", "hint"),
    [
        ({"k.py": KERNEL}, (), True, "no launcher", "module level"),
        ({"k.py": KERNEL}, (), False, "no launcher", "module level"),
        ({"ops.py": LAUNCHED}, ("ops.py:near",), False, "needs a GPU", "--device cuda"),
        ({"shift.cu": CU}, (), True, "no launcher", "cpp_extension.load"),
        ({"shift.cu": CU, "o.py": LOADER}, (), True, "no workload.*`o.py:shift`", "declare"),
        ({"shift.cu": CU, "o.py": LOADER}, ("o.py:shift",), False, "needs a GPU", "--device"),
        ({"shift.cu": CU, "setup.py": SETUP}, (), True, "installed", "cpp_extension.load"),
    ],
)
def test_what_a_kernel_lacks_is_said_with_the_mend(tmp_path, files, declared, on_gpu, reason, hint):
    planned, found = kernel_plan(tmp_path, files, *declared, on_gpu=on_gpu)
    assert planned.problem is None
    assert re.search(reason, planned.reason)
    assert hint in planned.hint
    assert not found.notices, "a declaration for a launcher is for something that was found"


def test_a_kernel_with_a_launcher_that_only_passes_tensors_on_is_judged(tmp_path):
    planned, _ = kernel_plan(tmp_path, {"shift.cu": CU, "o.py": LOADER}, "o.py:shift")
    assert planned.problem.reference.import_path == "o:shift"
    assert planned.problem.target.path == "shift.cu"


def test_two_kernels_of_one_launcher_are_two_problems_and_a_changed_file_another_one(tmp_path):
    def problem(text):
        return kernel_plan(tmp_path, {"shift.cu": text, "o.py": LOADER}, "o.py:shift")[0].problem

    one = problem(CU)
    launcher = msgspec.structs.replace(one, target=None)
    assert one.id != launcher.id
    assert one.id != problem(CU.replace("+= 2", "+= 3")).id
    assert one.id == problem(CU).id


def test_of_a_kernel_only_launches_are_changed(tmp_path):
    planned, found = kernel_plan(tmp_path, {"ops.py": LAUNCHED}, "ops.py:Far")
    for one in KernelLaunches().propose(planned.problem, (), 9):
        (file,) = one.program.overlay
        assert re.sub(r", num_warps=\d+", "", file.text) == LAUNCHED
    (line,) = (
        line for line in foreseen(tmp_path, found, KernelLaunches()) if "scale_kernel" in line
    )
    assert "playbook:launch_parameters(num_warps=8), " in line
    without = KernelLaunches(PlaybookConfig(skip=("launch_parameters",)))
    (line,) = (line for line in foreseen(tmp_path, found, without) if "scale_kernel" in line)
    assert line.endswith("a model, where one is given")
