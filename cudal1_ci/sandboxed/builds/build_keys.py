"""Compute the keys of build folders: the content of a program, and all that compiles it.

The verifier uses the keys. It never reads the content of the folders (folders.py).
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

from ..wire.codec import fields_of

LAYOUT = 1
"""Version of the folders' layout."""
MAX_CHECKOUT_FILES = 20_000
MAX_CHECKOUT_BYTES = 128 * 2**20
"""Builds of a program in a larger checkout are not kept: hashing it would take a second or more."""
CHUNK_BYTES = 2**20
COMPILER_VARIABLES = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC", "TORCH_CUDA_ARCH_LIST")


class Unknowable(Exception):
    """A checkout that is too large to hash, or that cannot be read."""


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits of the canonical JSON of a value, or of a message."""
    encoded = json.dumps(value, sort_keys=True, default=fields_of).encode()
    return hashlib.sha256(encoded).hexdigest()[:32]


def digest_of_checkout(root: Path) -> str:
    """Return the digest of all files that a runner of a program in the checkout can read. A build
    may depend on any of them, so a change to one must lead to another folder.

    Raises:
        Unknowable: There are too many files, or they are too large.
        OSError: A file cannot be read.
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
    """Yield regular files in a fixed order, without hidden ones at the top, as the sandbox shows
    them."""
    for top, folders, files in os.walk(root, onerror=raise_it):
        is_top = top == str(root)
        folders[:] = sorted(name for name in folders if not (is_top and name.startswith(".")))
        for name in sorted(files):
            path = Path(top, name)
            if not (is_top and name.startswith(".")) and stat.S_ISREG(path.lstat().st_mode):
                yield path


def raise_it(error: OSError) -> None:
    """Raise an error of os.walk, which is silent otherwise."""
    raise error


def software_key(architecture: str | None) -> str:
    """Return 16 hexadecimal digits of all versions that a build depends on."""
    described = {
        "layout": LAYOUT,
        "python": [sys.version, sys.prefix],
        "torch": [torch.__version__, torch.version.cuda, torch.version.hip],
        "torch_path": str(Path(torch.__file__).parent),
        "triton": installed_version("triton"),
        "platform": [platform.machine(), platform.libc_ver(), processor()],
        "compilers": [version_output(*command) for command in compilers()],
        "environment": {name: os.environ.get(name) for name in COMPILER_VARIABLES},
        "architecture": architecture,
    }
    return digest(described)[:16]


def compilers() -> list[tuple[str, ...]]:
    """Return commands that print the versions of the compilers."""
    nvcc = "nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            nvcc = str(Path(os.environ[name], "bin", "nvcc"))
            break
    cxx = os.environ.get("CXX", "c++").split()[:1] or ["c++"]
    return [(cxx[0], "--version"), (nvcc, "--version"), ("ld", "--version")]


def version_output(*command: str) -> str:
    """Return the path of a program and what it prints; empty where there is none."""
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
    """Return what `-march=native` depends on."""
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
    """Return the value for TORCH_CUDA_ARCH_LIST, or None without a GPU. It is the user's, else
    the capability of the GPU, as torch finds it: at most the newest that torch was built for,
    and then with PTX."""
    given = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if given or device != "cuda":
        return given or None
    capability = torch.cuda.get_device_capability(0)
    known = [name[3:].rstrip("af") for name in torch.cuda.get_arch_list() if name.startswith("sm_")]
    newest = max(((int(n[:-1]), int(n[-1])) for n in known if n.isdigit()), default=capability)
    major, minor = min(capability, newest)
    return f"{major}.{minor}" + ("+PTX" if capability > newest else "")
