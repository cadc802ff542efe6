"""A scan of kernels with a model behind a real server, on a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import Ran, command, environment
from tests.kernel_answers import CUDA, REST, TRITON, Kernel, untuned
from tests.replay_server import replay_server

pytestmark = pytest.mark.starts_verifier

SCAN_S = 1500
LIMITS = {
    # The reference and each answer are built by nvcc at their first call: a minute each.
    "CUDAL1_CI_TRIAL_CALL": "300s",
    "CUDAL1_CI_TRIAL_LOAD": "120s",
    "CUDAL1_CI_TRIAL_MEASURE": "20s",
    "CUDAL1_CI_TRIAL_NUM_ROUNDS": "6",
    "CUDAL1_CI_TRIAL_BATCH_US": "10000",
    "CUDAL1_CI_MODEL_NUM_CONCURRENT": "1",
    "OPENAI_API_KEY": "unused",
}
EXPECTED = {
    "wrong": ("incorrect_values", None),
    "cheating": ("reward_hack", "kernel.unlaunched"),
    "right": ("passed", None),
}


def has_nvcc() -> bool:
    """Where torch looks for it."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which("nvcc") is not None or (Path(home) / "bin" / "nvcc").exists()


def scan(root, *words, timeout_s: float = SCAN_S) -> Ran:
    done = subprocess.run(
        command("scan", root, "--json", "-", *words),
        env=environment(**LIMITS),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def entry_of(ran: Ran, kernel: Kernel):
    assert ran.code == 0, ran.stderr
    (entry,) = (one for one in ran.json["entries"] if one["target"]["qualname"] == kernel.qualname)
    return entry


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [CUDA, TRITON], ids=["cuda", "triton"])
def test_the_right_kernel_wins_and_becomes_a_patch(tmp_path, kernel):
    root = untuned(tmp_path / "project")
    if kernel is CUDA and not has_nvcc():
        pytest.skip("there is no nvcc")
    before = {path: path.read_text() for path in root.rglob("*.*") if path.is_file()}
    words = [word for glob in kernel.beside for word in ("--exclude", glob)]
    with replay_server(answers=kernel.answers()) as server:
        ran = scan(root, "--device", "cuda", *words, "--model", server.url)
        prompts = [request["messages"][-1]["content"] for request in server.requests]
    entry = entry_of(ran, kernel)
    assert entry["skipped"] is None, ran.stderr
    assert [one["name"] for one in entry["workloads"]] == [f"{kernel.launcher}: rows"]
    assert len(prompts) == len(kernel.codes)
    assert all(f"`{kernel.qualname}`" in prompt for prompt in prompts)
    assert (
        kernel.qualname
        in prompts[0].partition("# Profile of the reference")[2].partition("# Your answer")[0]
    ), "the profile has the kernel"

    judged = dict(zip(kernel.codes, entry["evaluations"], strict=True))
    for kind, (status, rule) in EXPECTED.items():
        assert judged[kind]["status"] == status, (kind, judged[kind]["findings"])
        rules = [finding["rule"] for finding in judged[kind]["findings"]]
        assert rule is None or rule in rules
    assert entry["best"] == list(kernel.codes).index("right"), judged["right"]
    best = judged["right"]
    assert best["measurements"][0]["speedup_low"] > 1.05
    assert any(one["is_own"] and kernel.qualname in one["name"] for one in best["kernels"])

    assert {path: path.read_text() for path in before} == before, "the checkout is left alone"
    patch = best["candidate"]["patch"]
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=root, check=True)
    changed = [path for path, text in before.items() if path.read_text() != text]
    assert changed == [root / kernel.path]


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [CUDA, TRITON], ids=["cuda", "triton"])
def test_without_a_model_a_better_number_in_its_launch_becomes_a_patch(tmp_path, kernel):
    root = untuned(tmp_path / "project", with_playbook=True)
    if kernel is CUDA and not has_nvcc():
        pytest.skip("there is no nvcc")
    words = [word for glob in kernel.beside for word in ("--exclude", glob)]
    entry = entry_of(scan(root, "--device", "cuda", *words), kernel)
    assert entry["skipped"] is None
    statuses = [one["status"] for one in entry["evaluations"]]
    assert statuses == ["passed"] * len(statuses), entry["evaluations"]
    best = entry["evaluations"][entry["best"]]
    assert best["measurements"][0]["speedup_low"] > 1.05
    assert any(one["is_own"] and kernel.qualname in one["name"] for one in best["kernels"])
    before = (root / kernel.path).read_text()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    patch = best["candidate"]["patch"].encode()
    subprocess.run(["git", "apply", "-"], input=patch, cwd=root, check=True)
    differ = zip(before.splitlines(), (root / kernel.path).read_text().splitlines(), strict=True)
    assert sum(old != new for old, new in differ) == 1


def test_without_a_gpu_kernels_are_left_with_what_they_lack(tmp_path):
    root = untuned(tmp_path / "project")
    words = [word for glob in REST for word in ("--exclude", glob)]
    ran = scan(root, "--device", "cpu", *words, timeout_s=200)
    for kernel in (CUDA, TRITON):
        entry = entry_of(ran, kernel)
        assert "needs a GPU" in entry["skipped"]
        assert "--device cuda" in entry["hint"]
    assert not ran.json["warnings"], "what is declared for a launcher is for something"
