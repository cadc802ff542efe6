"""Run what is proposed for whole modules on a GPU, at their own sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.wrappers.region_strategy import CompiledRegions
from cudal1_ci.records import TextProgram
from tests.unit.propose.recorded.rig import outputs, problem_and_recording, proposed

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

MODULES = Path(__file__).parents[4] / "experiments/gpu_modules"
REGIONS = CompiledRegions(PlaybookConfig(compile=True), kind="cuda")
MOST_OFF = 1e-4
"""Share of outputs that may differ: a token at the edge of a nucleus, one of two codes."""


@pytest.fixture(autouse=True)
def on_gpu():
    with torch.device("cuda"):
        yield


def assert_close(tmp_path, text, new):
    theirs = outputs(text, tmp_path / "again.py")
    ours = outputs(new, tmp_path / "after.py")
    ones = [(theirs, ours)] if isinstance(theirs, torch.Tensor) else zip(theirs, ours, strict=True)
    for one, other in ones:
        assert (other.shape, other.dtype, other.device) == (one.shape, one.dtype, one.device)
        off = (one.double() - other.double()).abs() > 1e-4 * one.double().abs().max() + 1e-6
        assert float(off.double().mean()) <= MOST_OFF


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("m06_causal_attention", "causal_attention"),
        ("m09_selective_scan", "scan_kernel"),
        ("m15_swin_window_attention", "attention"),
        ("m18_vq_codebook", "nearest_code"),
        ("m21_ema_update", "foreach"),
    ],
)
def test_a_rewrite_gives_the_same_on_a_gpu(tmp_path, name, rule):
    text = (MODULES / f"{name}.py").read_text()
    found = proposed(tmp_path, text, kind="cuda")
    assert rule in found, sorted(found)
    for new in found.values():
        assert_close(tmp_path, text, new)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["m02_rotary_apply", "m07_layernorm2d_gelu"])
def test_a_compiled_region_gives_the_same_on_a_gpu(tmp_path, name):
    text = (MODULES / f"{name}.py").read_text()
    problem, recording = problem_and_recording(tmp_path, text)
    found = list(REGIONS.propose_recorded(problem, recording, (), 9))
    assert found, "a region is found"
    for one in found:
        assert isinstance(one.program, TextProgram)
        assert_close(tmp_path, text, one.program.source)
