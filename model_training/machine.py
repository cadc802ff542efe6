"""What a run was made with: versions, the machine, the weights, the commit.

environment(Path("weights"), seed=0)["torch"]
"""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from cudal1_ci.propose.llm.servers.adapter_record import sha256

PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "triton",
    "vllm",
    "msgspec",
    "numpy",
)


def environment(weights: Path, seed: int) -> dict[str, Any]:
    """The record of a run; None for what is not there."""
    return {
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "cuda_driver": driver(),
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "num_threads": torch.get_num_threads(),
        "commit": commit(),
        "seed": seed,
        "weights": str(weights),
        "weights_sha256": hashes(weights),
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver() -> str | None:
    """Of NVIDIA's GPUs."""
    import pynvml  # here, as it wants a driver's library

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def commit() -> str | None:
    """Of this checkout, with a plus where files have changed since; None outside of one."""
    root = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def hashes(weights: Path) -> dict[str, str]:
    """Of each file of weights in a folder, by its name."""
    files = sorted([*weights.glob("*.safetensors"), *weights.glob("*.bin")])
    return {path.name: sha256(path) for path in files}
