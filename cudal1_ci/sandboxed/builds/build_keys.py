"""What a folder of builds is found by: the content of a program, and all that compiles it.

Read by the judge, which never reads what is in the folder itself (builds.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

LAYOUT = 1
"""Of the folders."""
MAX_CHECKOUT_FILES = 20_000
MAX_CHECKOUT_BYTES = 128 * 2**20
"""What a larger checkout's programs build is not kept: to know it would take a second and more."""
CHUNK_BYTES = 2**20
COMPILER_VARIABLES = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC", "TORCH_CUDA_ARCH_LIST")


class Unknowable(Exception):
    """A checkout that is too large to be known by its content, or that cannot be read."""


def digest(value: Any) -> str:
    """32 hexadecimal digits of a value's canonical JSON."""
    encoded = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(encoded).hexdigest()[:32]


def digest_of_checkout(root: Path) -> str:
    """Of all files that a runner of a program in it can read: a build may depend on any of them,
    and a changed one must not find what the others led to.

    Raises:
        Unknowable: There are too many, or they are too large.
        OSError: One cannot be read.
    """
    total = hashlib.sha256()
    num_bytes = 0
    for num_files, path in enumerate(files_of(root), 1):
        with path.open("rb") as file:
            content = hashlib.sha256()
            while part := file.read(CHUNK_BYTES):
                num_bytes += len(part)
                content.update(part)
                if num_bytes > MAX_CHECKOUT_BYTES:
                    raise Unknowable(f"{root} holds more than {MAX_CHECKOUT_BYTES:,} bytes")
        if num_files > MAX_CHECKOUT_FILES:
            raise Unknowable(f"{root} holds more than {MAX_CHECKOUT_FILES:,} files")
        total.update(f"{path.relative_to(root)}\0{content.hexdigest()}\n".encode(errors="replace"))
    return total.hexdigest()[:32]


def files_of(root: Path) -> Iterator[Path]:
    """Regular files in a fixed order, without what is hidden at the top, as the sandbox has it."""
    for top, folders, files in os.walk(root, onerror=raise_it):
        is_top = top == str(root)
        folders[:] = sorted(name for name in folders if not (is_top and name.startswith(".")))
        for name in sorted(files):
            path = Path(top, name)
            if not (is_top and name.startswith(".")) and stat.S_ISREG(path.lstat().st_mode):
                yield path


def raise_it(error: OSError) -> None:
    """For os.walk, which is silent otherwise."""
    raise error


def software_key(architecture: str | None) -> str:
    """16 hexadecimal digits of all versions that a build product depends on."""
    described = {
        "layout": LAYOUT,
        "python": [sys.version, sys.prefix],
        "torch": [torch.__version__, torch.version.cuda, torch.version.hip],
        "torch_path": str(Path(torch.__file__).parent),
        "triton": installed_version("triton"),
        "platform": [platform.machine(), platform.libc_ver(), processor()],
        "compilers": [said_by(*command) for command in compilers()],
        "environment": {name: os.environ.get(name) for name in COMPILER_VARIABLES},
        "architecture": architecture,
    }
    return digest(described)[:16]


def compilers() -> list[tuple[str, ...]]:
    """Commands that say the versions of the compilers that would be used."""
    nvcc = "nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            nvcc = str(Path(os.environ[name], "bin", "nvcc"))
            break
    cxx = os.environ.get("CXX", "c++").split()[:1] or ["c++"]
    return [(cxx[0], "--version"), (nvcc, "--version"), ("ld", "--version")]


def said_by(*command: str) -> str:
    """The path of a program and what it prints; empty where there is none."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
        return f"{path}: {done.stdout.decode(errors='replace')}"
    return path


def processor() -> str:
    """What `-march=native` depends on."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor()


def installed_version(package: str) -> str | None:

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def architecture_of(device: str) -> str | None:
    """For TORCH_CUDA_ARCH_LIST: what the user set, else the capability of the GPU, as torch would
    find it out (at most the newest that it was built for, and then with PTX); None without one."""
    given = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if given or device != "cuda":
        return given or None
    capability = torch.cuda.get_device_capability(0)
    known = [name[3:].rstrip("af") for name in torch.cuda.get_arch_list() if name.startswith("sm_")]
    newest = max(((int(n[:-1]), int(n[-1])) for n in known if n.isdigit()), default=capability)
    major, minor = min(capability, newest)
    return f"{major}.{minor}" + ("+PTX" if capability > newest else "")
