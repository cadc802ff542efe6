"""Manage the folders where programs keep what they compile, one for each program.

A folder is found by content: the program (of a checkout: with the content of all its files), the
versions of the interpreter, torch, CUDA and the compilers, the processor and the architecture of
the GPU (build_keys.py). Only the same text under the same software therefore reads what a program
wrote. The sandbox lets a runner write in its own folder only. The content of a folder is untrusted.
This module measures it, removes stale locks and deletes it, and never reads it.

    <store>/<software>/<program>/lock        held by the one process that uses it
                                 size        bytes, as of the last use
                                 products/   what the program's runners see

A folder that another process holds is never shared, and there is no wait for it: two runners of one
text in two sessions could work for each other. This session then uses a folder of its own. It does
the same without a store: where there is no Landlock, or no folder that only this user can write.

A runner may start before its program is known (spare_runners.py). It gets a fresh folder, which
becomes the program's where nothing has been built yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..wire.programs import Program, TreeProgram
from .build_keys import Unknowable, digest, digest_of_checkout, raise_it

MAX_ENTRY_BYTES = 512 * 2**20
"""A program's builds beyond this size are not kept."""
CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Backups may leave this folder out.\n"
UNKNOWN = ""
BATON = "lock"
"""torch.utils.cpp_extension makes this file next to a build. Other processes wait until it is
gone. If its maker was killed, they would wait forever."""


@dataclass
class Held:
    """A folder in use."""

    products: Path
    lock: int | None = None
    """Descriptor; None for a folder of this session."""
    num_users: int = 0
    beside: list[Held] = field(default_factory=list)
    """Folders of runners that came while another one used the program's folder."""


class Builds:
    """The folders of one process, which forks the runners that use them."""

    def __init__(self, own: Path, num_idle: int = 16):
        self.own = own
        self.num_idle = num_idle
        """Folders that stay held when no runner uses them. A candidate then finds at its
        repetitions what it built during its examination."""
        self.store: Path | None = None
        self.software = ""
        self.max_bytes = 0
        self.held: dict[str, Held] = {}
        """In the order of their last use."""
        self.checkouts: dict[str, str] = {}
        self.lock = threading.Lock()

    def keep_in(self, store: Path, software: str, max_bytes: int) -> bool:
        """Keep builds in `store` from now on, and remove the least recently used ones beyond
        `max_bytes`. Return False when there can be no such folder, or it is not this user's."""
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
    def use(self, program: Program) -> Iterator[Path]:
        """Yield the program's folder, for as long as a runner of it lives."""
        content = self.content_of(program.root) if isinstance(program, TreeProgram) else None
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
        """Return the content key of a program. A checkout is as it was when it was first seen;
        `forget_checkouts` makes the next call read it again."""
        if root not in self.checkouts:
            try:
                self.checkouts[root] = digest_of_checkout(Path(root))
            except (OSError, Unknowable):
                self.checkouts[root] = UNKNOWN
        return self.checkouts[root]

    def forget_checkouts(self) -> None:
        """Forget the content of checkouts, which may have changed."""
        self.checkouts.clear()

    def take(self, key: str, is_known: bool) -> Held:
        """Take a folder that no other process holds. It is of this session where the content is
        not known."""
        if self.store is not None and is_known:
            with contextlib.suppress(OSError):
                held = self.take_kept(self.store / self.software / key)
                if held is not None:
                    return held
        products = self.own / key
        products.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Held(products)

    def take_kept(self, entry: Path) -> Held | None:
        """Return the entry of the store, locked; None when another process has it. Raises
        OSError."""
        for _ in range(3):
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = locked(entry)
            if lock is None:
                return None
            with contextlib.suppress(FileNotFoundError):
                # Otherwise another process removed it after it was opened here.
                if os.fstat(lock).st_ino == (entry / "lock").stat().st_ino:
                    os.utime(lock)
                    (entry / "products").mkdir(mode=0o700, exist_ok=True)
                    return Held(entry / "products", lock)
            os.close(lock)
        return None

    def fresh(self) -> Held:
        """Return an empty folder for an unknown program: `move_in`, or `give_up`."""
        return self.take(f"fresh-{uuid.uuid4().hex}", is_known=True)

    def move_in(self, products: Path, fresh: Held) -> Path | None:
        """Assign a runner that started in a `fresh` folder to a program's folder.

        The fresh folder replaces the program's. While another runner uses that one, the fresh
        folder stays next to it until the program's is released. Return the resulting place, or None
        where something was built.
        """
        with self.lock:
            held = next(one for one in self.held.values() if one.products == products)
            if size_of(products) != 0:
                return None
            if held.num_users > 1:
                held.beside.append(fresh)
                return fresh.products
            remove(products)  # folders with nothing in them
            fresh.products.rename(products)
            self.give_up(fresh)
            return products

    def give_up(self, fresh: Held) -> None:
        """Remove a folder that no program uses."""
        remove(fresh.products if fresh.lock is None else fresh.products.parent)
        if fresh.lock is not None:
            os.close(fresh.lock)

    def release(self, key: str) -> None:
        """Release a folder. An empty one, or one that is too large, is removed."""
        held = self.held.pop(key)
        for fresh in held.beside:
            self.give_up(fresh)
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
        """Release all folders, when no runner is left, and keep the store within its bounds."""
        with self.lock:
            for key in list(self.held):
                self.release(key)
            if self.store is not None:
                evict(self.store, self.max_bytes)


def locked(entry: Path) -> int | None:
    """Return a descriptor that locks an entry; None when another process does."""
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
    """Remove the least recently used entries until the rest is within `max_bytes`. Held entries
    stay."""
    entries = []
    for gone in store.glob("*/*.gone"):  # the process that removed it was killed
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
    """Return the bytes of an entry: as written at its last use, or counted where its user was
    killed."""
    try:
        return int((entry / "size").read_text())
    except (OSError, ValueError):
        size = size_of(entry / "products")
        return MAX_ENTRY_BYTES if size is None else size


def size_of(folder: Path) -> int | None:
    """Return the bytes of the files below; None where they cannot be counted. A hostile program
    can cause that."""
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
    """Remove an entry with all that a program left in it. It may hold folders that cannot be
    entered, or that are deeper than any path is long. Links are not followed."""
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
    """Remove locks of builds whose makers were killed. No runner of the program is alive. Links
    are not followed, because a program that wrote the folder chooses them."""
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
