"""Confine a hostile program to its process, and report which layers the kernel granted.

    kernel       system calls that the standard library does not wrap
    namespaces   user, network, PID, IPC and mount namespaces; capabilities and limits
    landlock     which files may be read, run and written
    seccomp      which system calls exist
    gpus         the device files of each GPU

Each layer is tried once in a process that runs nothing (`confine` without `granted`). Every runner
must get what the kernel granted there; a runner that cannot have it does not start. `granted` names
each refused layer with the reason; the other layers stay. docs/security.md says what each layer
bounds, and what none does.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import gpus, kernel, landlock, namespaces, root, seccomp

Granted = dict[str, bool | int | str]
"""By layer: True, or the version of an interface, or why it was refused."""

OWN_FOLDERS = {
    "HOME": "",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "TORCH_EXTENSIONS_DIR": "cache/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "cache/torchinductor",
    "TRITON_CACHE_DIR": "cache/triton",
    "CUDA_CACHE_PATH": "cache/cuda",
}
"""Variables that name a folder, and its place in scratch (or in the cache)."""


class SandboxError(RuntimeError):
    """A layer that was granted before is refused now. The tool failed, not the program."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The files and devices that a runner may use."""

    scratch: Path
    checkouts: tuple[str, ...] = ()
    copies: bool = False
    """Whether checkouts seem writable, and what is written there vanishes with scratch."""
    cache: str | None = None
    gpu: bool = True
    """Whether it may use the devices of a GPU."""
    hidden: tuple[str, ...] = ()
    """Devices that it still may not use."""


def enter() -> Granted:
    """Enter the namespaces that all runners share, in a process that has one thread."""
    granted: Granted = {}
    attempt(granted, "user_namespace", namespaces.enter_user_namespace)
    attempt(granted, "network_namespace", namespaces.enter_network_namespace)
    attempt(granted, "pid_namespace", namespaces.enter_pid_namespace)
    return granted


def confine(place: Place, outer: Granted, strict: bool) -> Granted:
    """Apply all layers of a runner, in a process that has one thread. Return what was granted.

    `outer` holds the layers that already apply. For a trial that is not `strict` these are the
    shared namespaces, for a runner all that a trial was granted.

    Raises:
        SandboxError: A layer that `outer` has was refused.
    """
    held: Granted = {name: outer[name] for name in OUTER if name in outer}
    copied: list[str] = []

    def has(name: str) -> bool:
        return held.get(name) is True

    def own_proc() -> bool:
        if not (has("pid_namespace") and has("mount_namespace")):
            raise OSError("needs a PID and a mount namespace")
        return namespaces.mount_proc()

    def own_tmpfs() -> bool:
        if not has("mount_namespace"):
            raise OSError("needs a mount namespace")
        namespaces.mount_tmpfs(place.scratch)
        if place.copies:
            copied.extend(filter(own_copy, map(os.path.realpath, place.checkouts)))
            root.hide(place.scratch / root.LAYERS)
        return True

    def own_copy(checkout: str) -> bool:
        with contextlib.suppress(OSError):  # it stays read-only
            root.overlay(checkout, Path(checkout), place.scratch)
            return True
        return False

    def file_rules() -> int:
        private_shm = has("private_tmpfs")
        folders = (place.scratch, place.checkouts, place.cache)
        return landlock.restrict(*folders, private_shm, place.gpu, place.hidden, copied)

    layers: dict[str, Callable[[], bool | int]] = {
        "ipc_namespace": namespaces.enter_ipc_namespace,
        "mount_namespace": namespaces.enter_mount_namespace,
        "private_proc": own_proc,
        "private_tmpfs": own_tmpfs,
        "process_limit": lambda: namespaces.limit_processes(has("pid_namespace")),
        "no_capabilities": namespaces.drop_capabilities,
        "no_new_privs": namespaces.forbid_new_privileges,
        "landlock": file_rules,
        "seccomp": seccomp.filter_calls,
    }
    for name, layer in layers.items():
        if not strict or is_granted(outer.get(name)):
            attempt(held, name, layer)
            if strict and not is_granted(held[name]):
                raise SandboxError(f"{name} was granted before and is refused now: {held[name]}")
    return held


OUTER = ("user_namespace", "network_namespace", "pid_namespace")
"""Layers that hold for a runner before it starts."""


def attempt(granted: Granted, name: str, layer: Callable[[], bool | int]) -> None:
    """Try a layer and record the result."""
    try:
        granted[name] = layer()
    except OSError as error:
        granted[name] = f"refused: {error.strerror or error}"


def is_granted(value: bool | int | str | None) -> bool:
    return value is not None and value is not False and not isinstance(value, str)


def missing(granted: Granted) -> list[str]:
    """Return the names of the layers that are absent here."""
    return [name for name, value in granted.items() if not is_granted(value)]


def move_in(place: Place) -> None:
    """Point programs' default output paths to their own folders."""
    cache = place.scratch if place.cache is None else Path(place.cache)
    try:
        make_folders(cache, place.scratch)
    except OSError:  # left by an earlier runner of the program: it builds again
        make_folders(place.scratch, place.scratch)
    tempfile.tempdir = None
    os.chdir(place.scratch)


def make_folders(cache: Path, scratch: Path) -> None:
    """Make the folders and name them in the environment. Raises OSError."""
    for name, inside in OWN_FOLDERS.items():
        folder = (cache if inside.startswith("cache") else scratch) / inside
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(folder)


__all__ = [
    "Granted",
    "Place",
    "SandboxError",
    "confine",
    "enter",
    "gpus",
    "is_granted",
    "kernel",
    "make_folders",
    "missing",
    "move_in",
    "namespaces",
]
