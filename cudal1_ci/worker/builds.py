"""Where programs keep what they compile: a folder for each, in the session or across sessions.

A folder is found by content: the program (of a checkout: with the content of all its files), the
versions of the interpreter, torch, CUDA and the compilers, the processor and the architecture of
the GPU. So what a program wrote is read by the same text under the same software alone; the
sandbox lets a runner write in its own folder and in no other one. What is in a folder is the
program's word: here it is weighed, emptied of stale locks and removed, and never read.

    <store>/<software>/<program>/lock        held by the one process that uses it
                                 size        bytes, as of the last use
                                 products/   what the program's runners see

A folder that another process holds is not waited for, and never shared: two runners of one text
in two sessions could work for each other. This session then has one of its own, as it has where
there is no store: no Landlock, or no folder that this user alone can write.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

LAYOUT = 1
"""Of what is above."""
MAX_ENTRY_BYTES = 512 * 2**20
"""What a program builds beyond it is not kept."""
MAX_CHECKOUT_FILES = 20_000
MAX_CHECKOUT_BYTES = 128 * 2**20
"""What a larger checkout's programs build is not kept: to know it would take a second and more."""
CHUNK_BYTES = 2**20
CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Backups may leave this folder out.\n"
UNKNOWN = ""
COMPILER_VARIABLES = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC", "TORCH_CUDA_ARCH_LIST")
BATON = "lock"
"""torch.utils.cpp_extension makes this file beside a build; whoever finds it waits until it is
gone, which is for ever when its maker was killed."""


class Unknowable(Exception):
    """A checkout that is too large to be known by its content, or that cannot be read."""


@dataclass
class Held:
    """A folder in use."""

    products: Path
    lock: int | None = None
    """Descriptor; None for a folder of this session's."""
    num_users: int = 0


class Builds:
    """The folders of one process, which forks the runners that use them."""

    def __init__(self, own: Path, num_idle: int = 16):
        self.own = own
        self.num_idle = num_idle
        """Folders that stay held when no runner uses them, so that a candidate finds at its
        launches what it built when it was examined."""
        self.store: Path | None = None
        self.software = ""
        self.max_bytes = 0
        self.held: dict[str, Held] = {}
        """In the order of their last use."""
        self.checkouts: dict[str, str] = {}
        self.lock = threading.Lock()

    def keep_in(self, store: Path, software: str, max_bytes: int) -> bool:
        """From now on keep what is built in `store`, and remove what was not used for longest
        beyond so many bytes. False when there can be no such folder, or it is not this user's."""
        try:
            store.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = store.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not is_ours or found.st_mode & 0o022:
                return False
            tag = store / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(CACHE_TAG)
        except OSError:
            return False
        self.store, self.software, self.max_bytes = store, software, max_bytes
        return True

    @contextlib.contextmanager
    def use(self, program: dict[str, Any]) -> Iterator[Path]:
        """The program's folder, for as long as a runner of it lives."""
        content = self.content_of(program["root"]) if program["type"] == "tree" else None
        key = digest([program, content])
        with self.lock:
            held = self.held.pop(key, None) or self.take(key, is_known=content != UNKNOWN)
            self.held[key] = held
            if not held.num_users:
                remove_batons(held.products)
            held.num_users += 1
        try:
            yield held.products
        finally:
            with self.lock:
                held.num_users -= 1
                idle = [one for one in self.held if not self.held[one].num_users]
                for one in idle[: max(0, len(idle) - self.num_idle)]:
                    self.release(one)

    def content_of(self, root: str) -> str:
        """Of a checkout as it was when it was first seen; `forget_checkouts` looks again."""
        if root not in self.checkouts:
            try:
                self.checkouts[root] = digest_of_checkout(Path(root))
            except (OSError, Unknowable):
                self.checkouts[root] = UNKNOWN
        return self.checkouts[root]

    def forget_checkouts(self) -> None:
        """They may have changed."""
        self.checkouts.clear()

    def take(self, key: str, is_known: bool) -> Held:
        """A folder that nobody else holds; of this session where the content is not known."""
        if self.store is not None and is_known:
            with contextlib.suppress(OSError):
                held = self.take_kept(self.store / self.software / key)
                if held is not None:
                    return held
        products = self.own / key
        products.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Held(products)

    def take_kept(self, entry: Path) -> Held | None:
        """The entry of the store, locked; None when another process has it. Raises OSError."""
        for _ in range(3):
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = locked(entry)
            if lock is None:
                return None
            with contextlib.suppress(FileNotFoundError):
                # Otherwise it was removed by another process, after it was opened here.
                if os.fstat(lock).st_ino == (entry / "lock").stat().st_ino:
                    os.utime(lock)
                    (entry / "products").mkdir(mode=0o700, exist_ok=True)
                    return Held(entry / "products", lock)
            os.close(lock)
        return None

    def release(self, key: str) -> None:
        """Give a folder back; one with nothing in it, or too much, is removed."""
        held = self.held.pop(key)
        if held.lock is None:
            return
        entry = held.products.parent
        try:
            size = size_of(held.products)
            if size is None or not 0 < size <= MAX_ENTRY_BYTES:
                remove(entry)
            else:
                (entry / "size").write_text(str(size))
        except OSError:
            remove(entry)
        finally:
            os.close(held.lock)

    def close(self) -> None:
        """Give all back, when no runner is left, and keep the store within its bounds."""
        with self.lock:
            for key in list(self.held):
                self.release(key)
            if self.store is not None:
                evict(self.store, self.max_bytes)


def locked(entry: Path) -> int | None:
    """A descriptor that holds an entry; None when another process does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(entry / "lock", flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


def evict(store: Path, max_bytes: int) -> None:
    """Remove the entries that were not used for longest until the rest is within `max_bytes`. One
    that is held stays."""
    entries = []
    for gone in store.glob("*/*.gone"):  # whoever removed it was killed
        with contextlib.suppress(OSError):
            remove(gone)
    for lock in store.glob("*/*/lock"):
        with contextlib.suppress(OSError):
            entries.append((lock.stat().st_mtime_ns, weight(lock.parent), lock.parent))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= max_bytes:
            return
        with contextlib.suppress(OSError):
            descriptor = locked(entry)
            if descriptor is not None:
                try:
                    remove(entry)
                    total -= size
                finally:
                    os.close(descriptor)


def weight(entry: Path) -> int:
    """Bytes of an entry: as written at its last use, or counted where its user was killed."""
    try:
        return int((entry / "size").read_text())
    except (OSError, ValueError):
        size = size_of(entry / "products")
        return MAX_ENTRY_BYTES if size is None else size


def size_of(folder: Path) -> int | None:
    """Bytes of the files beneath; None where that cannot be counted, which a hostile program can
    see to."""
    total = 0
    try:
        for top, _, files in os.walk(folder, onerror=raise_it):
            for name in files:
                found = os.lstat(os.path.join(top, name))  # noqa: PTH118 - of a million files
                total += max(1, found.st_size)
    except (OSError, RecursionError):
        return None
    return total


def remove(entry: Path) -> None:
    """An entry with whatever a program left in it: folders that cannot be entered, or as deep as
    no path is long. Links are not followed."""
    gone = entry.with_name(f"{entry.name}.{os.getpid()}.{time.monotonic_ns()}.gone")
    with contextlib.suppress(OSError):
        entry.rename(gone)
    with contextlib.suppress(OSError, RecursionError):
        for top, folders, _ in os.walk(gone):
            for name in folders:
                path = Path(top, name)
                if not path.is_symlink():
                    path.chmod(0o700)
    with contextlib.suppress(RecursionError):
        shutil.rmtree(gone, ignore_errors=True)
    if gone.exists():
        subprocess.run(["rm", "-rf", "--", str(gone)], capture_output=True, check=False)


def remove_batons(products: Path) -> None:
    """Locks of builds whose makers were killed; no runner of the program is alive. Nothing in this
    folder is followed to another one: whoever wrote it chooses its links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            folder = os.open(products, flags)
            stack.callback(os.close, folder)
            for name in ("cache", "torch_extensions"):
                folder = os.open(name, flags, dir_fd=folder)
                stack.callback(os.close, folder)
            names = os.listdir(folder)  # noqa: PTH208 - of a descriptor
        except OSError:
            return
        for name in names:
            with contextlib.suppress(OSError):
                build = os.open(name, flags, dir_fd=folder)
                try:
                    os.unlink(BATON, dir_fd=build)
                finally:
                    os.close(build)


# --- what a folder is found by -----------------------------------------------------------------


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
    from importlib.metadata import PackageNotFoundError, version

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
