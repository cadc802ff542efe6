"""Launch numbers of kernels that a recorded call launched: what is moved, and what cannot help."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.launch_config.strategy import RecordedLaunches
from cudal1_ci.records import Evaluation
from cudal1_ci.records.recording import Launch
from tests import triton_on_torch
from tests.fakes import an_evaluation
from tests.unit.propose.recorded.rig import problem_and_recording

TEXT = """
import torch
import triton
import triton.language as tl


@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        silu[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=64)
        return out


def get_inputs():
    return [torch.ones(SIZE)]
"""


def proposed(tmp_path, size, evaluations=(), config=None):
    text = TEXT.replace("SIZE", str(size))
    with triton_on_torch.installed():
        problem, recording = problem_and_recording(tmp_path, text)
    strategy = RecordedLaunches(config)
    return strategy.propose_recorded(problem, recording, evaluations, 9)


def settings(candidates) -> list[str]:
    return [re.sub(r".*\((.*)\)", r"\1", one.proposer) for one in candidates]


def test_where_few_programs_run_blocks_get_smaller_first_and_warps_without_work_are_not_added(
    tmp_path,
):
    found = proposed(tmp_path, 1000)
    assert settings(found)[:2] == ["BLOCK=32", "num_warps=2"]
    # Blocks of 64 give work to two warps: eight would idle.
    assert not {"num_warps=8", "num_warps=16"} & {*settings(found)}
    assert "num_warps=1" in settings(found)
    assert "BLOCK=32)" in found[0].program.source and "class Model" in found[0].program.source


def test_where_many_programs_run_blocks_grow_first(tmp_path):
    assert settings(proposed(tmp_path, 20_000))[:2] == ["BLOCK=128", "BLOCK=32"]


def test_a_block_is_not_made_longer_than_all_the_work(tmp_path):
    assert settings(proposed(tmp_path, 60)) == [
        "BLOCK=32",
        "num_warps=2",
        "BLOCK=16",
        "num_warps=1",
    ]


def test_what_gained_is_combined_and_moves_further(tmp_path):
    first = proposed(tmp_path, 20_000)
    gains = {"BLOCK=128": 1.4, "num_warps=2": 1.2}
    evaluations: list[Evaluation] = [
        an_evaluation(one, speedup=gains.get(name, 0.8))
        for one, name in zip(first, settings(first), strict=True)
    ]
    assert settings(proposed(tmp_path, 20_000, evaluations)) == [
        "BLOCK=128, num_warps=2",
        "BLOCK=256, num_warps=2",
    ]


def test_the_playbook_can_leave_it_out(tmp_path):
    assert not proposed(tmp_path, 1000, config=PlaybookConfig(skip=("launch_parameters",)))


CUDA = """
import torch

SOURCE = '''
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
'''


class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.ones(4)]
"""


@pytest.mark.parametrize("is_launch", [True, False])
def test_of_an_extension_the_blocks_in_strings_of_its_caller_are_moved(tmp_path, is_launch):
    problem, recording = problem_and_recording(tmp_path, CUDA)
    (one,) = recording.operations
    launch = Launch(language="extension", kernel="run", is_sure=False) if is_launch else None
    called = msgspec.structs.replace(one, name="ext:run", launch=launch)
    recording = msgspec.structs.replace(recording, operations=(called,))
    found = RecordedLaunches().propose_recorded(problem, recording, (), 9)
    assert settings(found) == (
        ["blockDim=512", "blockDim=128", "blockDim=1024", "blockDim=64"] * is_launch
    )
    if found:
        assert "scale<<<(n + 511) / 512, 512>>>" in found[0].program.source
