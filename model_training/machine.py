"""Record what a run was made with: versions, the machine, the weights, the commit.

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

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "triton", "vllm")


def environment(weights: Path, seed: int) -> dict[str, Any]:
    """Return the record of a run; None for what is not there."""
    files = [*weights.glob("*.safetensors"), *weights.glob("*.bin")]
    return {
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "num_threads": torch.get_num_threads(),
        "commit": commit(),
        "seed": seed,
        "weights": str(weights),
        "weights_sha256": {path.name: sha256(path) for path in sorted(files)},
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return this checkout's commit, with a plus where files have changed since; None outside of
    one."""
    words = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    options: dict[str, Any] = {"cwd": Path(__file__).parent, "timeout": 30, "check": True}
    try:
        return str(subprocess.run(words, capture_output=True, text=True, **options).stdout.strip())
    except (OSError, subprocess.SubprocessError):
        return None
