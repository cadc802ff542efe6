"""Build a file system that holds what a command needs, and make it the root.

What is not bound into it does not exist there: other folders, their names, and the sockets of
daemons. Everything is read-only but the writable folders. A copied folder may be written to, and
what is written is kept apart from the original (overlayfs).

    root.enter(Root(...))       in a mount namespace of one's own
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import kernel, landlock

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 0x20, 0x1000, 0x4000
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
ATTR_RDONLY, ATTR_NOSUID = 1, 2
COVERED_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi")
"""Parts of /proc that are the machine's, and that root may write to."""
LAYERS = "layers"
"""The folder of scratch that holds what is written to copied folders. The kernel also copies a file
there that is only opened for writing, so a program with rights on scratch must not see it."""
LINKS_OF_DEV = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


@dataclass(frozen=True, kw_only=True)
class Root:
    """The folders of a command."""

    scratch: Path
    """A folder of its own: `home`, `tmp`, and what is written to copied folders."""
    readable: tuple[str, ...]
    writable: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    """Folders that seem writable."""
    hidden: tuple[str, ...] = ()
    """Files and folders inside of the others that seem empty."""


def enter(place: Root, max_processes: int) -> bool:
    """Make the root of this mount namespace, and enter it. Raises OSError where the kernel refuses
    a step."""
    top = place.scratch / "root"
    top.mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(top), "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0755")
    bind(place.scratch / "tmp", top / "tmp")
    bind(place.scratch / "tmp", top / "var/tmp")
    bind(place.scratch, top / place.scratch.relative_to("/"), flags=MS_BIND)
    (top / "run").mkdir()
    make_devices(top / "dev")
    kinds = {
        **dict.fromkeys(both(place.readable), "readable"),
        **dict.fromkeys(both(place.copied), "copied"),
        **dict.fromkeys(both(place.writable), "writable"),
    }
    for path in sorted(kinds, key=lambda it: (it.count("/"), it)):
        show(path, top, kinds[path], place.scratch)
    for path in both(place.hidden):
        hide(top / path.lstrip("/"))
    show_processes(top / "proc", max_processes)
    kernel.mount("none", str(top), "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(top)
    kernel.call("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    kernel.call("umount2", ctypes.c_char_p(b"."), MNT_DETACH)
    os.chdir("/")
    return True


def show_processes(proc: Path, max_processes: int) -> None:
    """Mount a /proc of this PID namespace. The machine's, where that is partly covered, as in a
    container: the kernel grants no other there."""
    proc.mkdir(exist_ok=True)
    try:
        kernel.mount("proc", str(proc), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        with contextlib.suppress(OSError):  # counted by PID namespace since Linux 6.14
            (proc / "sys/kernel/pid_max").write_text(str(max_processes))
    except OSError:
        bind(Path("/proc"), proc)
    for name in COVERED_PROC:
        if (proc / name).exists():
            bind(proc / name, proc / name, is_writable=False)


def both(paths: Iterable[str]) -> list[str]:
    """Return absolute paths, and where their links lead."""
    found = [one for path in paths for one in (os.path.normpath(path), os.path.realpath(path))]
    own = ("/", "/proc", "/dev", "/tmp")
    return [path for path in dict.fromkeys(found) if path not in own and os.path.lexists(path)]


def show(path: str, top: Path, kind: str, scratch: Path) -> None:
    """Bind a path into the new root, or copy a link."""
    there = top / path.lstrip("/")
    source = Path(path)
    if source.is_symlink():
        if not os.path.lexists(there):
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(source.readlink())
        return
    if kind == "copied":
        with contextlib.suppress(OSError):  # as in a file system that takes no such layer
            overlay(path, there, scratch)
            return
    bind(source, there, is_writable=kind == "writable")


def bind(
    source: Path, target: Path, *, is_writable: bool = True, flags: int = MS_BIND | MS_REC
) -> None:
    """Show a file or a folder at another place. Raises OSError."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    kernel.mount(str(source), str(target), "", flags)
    attributes = ATTR_NOSUID | (0 if is_writable else ATTR_RDONLY)
    packed = struct.pack("=4Q", attributes, 0, 0, 0)
    path = ctypes.c_char_p(os.fsencode(target))
    kernel.call("mount_setattr", AT_FDCWD, path, AT_RECURSIVE, ctypes.c_char_p(packed), len(packed))


def overlay(path: str, target: Path, scratch: Path) -> None:
    """Show a folder whose changes are kept in scratch. Raises OSError."""
    if any(letter in path for letter in ",:\\"):
        raise OSError(f"{path}: cannot be named as a layer")
    target.mkdir(parents=True, exist_ok=True)
    (scratch / LAYERS).mkdir(exist_ok=True)
    layers = Path(tempfile.mkdtemp(dir=scratch / LAYERS))
    (layers / "upper").mkdir()
    (layers / "work").mkdir()
    options = f"lowerdir={path},upperdir={layers}/upper,workdir={layers}/work,userxattr"
    kernel.mount("overlay", str(target), "overlay", MS_NOSUID | MS_NODEV, options)


def hide(path: Path) -> None:
    """Cover a file or a folder by an empty one. Raises OSError."""
    if path.is_dir():
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV
        kernel.mount("tmpfs", str(path), "tmpfs", flags, "size=0,mode=0555")
    elif path.exists():
        kernel.mount("/dev/null", str(path), "", MS_BIND)


def make_devices(folder: Path) -> None:
    """Show harmless devices and those of GPUs. Raises OSError."""
    folder.mkdir()
    devices = [Path("/dev", name) for name in landlock.DEVICES if name != "fd"]
    for device in [*devices, *Path("/dev").glob("nvidia*")]:
        if device.exists() and not device.is_symlink():
            bind(device, folder / device.name)
    for name, target in LINKS_OF_DEV.items():
        (folder / name).symlink_to(target)
    (folder / "shm").mkdir()
    kernel.mount("tmpfs", str(folder / "shm"), "tmpfs", MS_NOSUID | MS_NODEV, "size=25%,mode=1777")
    with contextlib.suppress(OSError):
        (folder / "pts").mkdir()
        (folder / "ptmx").symlink_to("pts/ptmx")
        options = "newinstance,ptmxmode=0666,mode=0620"
        kernel.mount("devpts", str(folder / "pts"), "devpts", MS_NOSUID | MS_NOEXEC, options)
