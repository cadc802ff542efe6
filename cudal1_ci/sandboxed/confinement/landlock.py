"""Restrict which files a runner may read, run and write, and its signals and abstract sockets.

The readable files are a list of what interpreters, compilers and drivers need. Names, sizes and
times of other files stay visible: Landlock does not restrict `stat`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from . import kernel

NEWEST = 7
"""The newest interface version that this module knows. The kernel may have a newer one."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
TRUNCATE, IOCTL = 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
DEVICE = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL
READ = EXECUTE | READ_FILE | READ_DIR
EVERYTHING = ~(MAKE_CHAR | MAKE_BLOCK)
WRITE_NEW = WRITE_FILE | TRUNCATE | 1 << 7 | 1 << 8
"""Make files and folders, and write to files."""
RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16}
"""Number of file rights that each version can deny."""
TCP_BIND_AND_CONNECT = 0b11
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
VERSION_WITH_TCP, VERSION_WITH_SCOPES, VERSION_WITH_LOG = 4, 6, 7
ASK_VERSION = 1
RULE_PATH_BENEATH = 1
LOG_NOTHING = 1

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys", "/proc"),
    *("/nix/store", "/gnu/store"),
)
CONFIGURATION = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "localtime", "timezone"),
    *("passwd", "group", "nsswitch.conf", "hosts", "alternatives", "os-release", "locale.alias"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "ca-certificates", "crypto-policies"),
    *("OpenCL", "vulkan", "glvnd", "nvidia", "fonts", "python3", "mime.types", "magic"),
)
"""Parts of /etc that libraries look up, without keys."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fd", "kfd", "dri", "nvidia-caps")
"""Parts of /dev, with `nvidia*` and a private `shm`. Disks are not among them: root owns them."""
DEVICES_OF_GPUS = ("/dev/nvidia", "/dev/dri", "/dev/kfd")
PACKAGES = ("site-packages", "dist-packages")
SELF_HOSTED_RUNNER = ".credentials"
"""A folder of /opt with this file holds the registration of a CI runner."""


def version() -> int:
    """Return the kernel's interface version, at most `NEWEST`. Raises OSError where there is
    none."""
    found = kernel.call("landlock_create_ruleset", None, 0, ASK_VERSION)
    return min(found, NEWEST)


def restrict(
    scratch: Path,
    checkouts: Iterable[str],
    cache: str | None,
    private_shm: bool,
    gpu: bool = True,
    hidden: Collection[str] = (),
    copied: Collection[str] = (),
) -> int:
    """Restrict this thread and its children for good. Return the version that did it."""
    return apply(grants(scratch, checkouts, cache, private_shm, gpu, hidden, copied))


def apply(rules: Iterable[tuple[str, int]], *, with_tcp: bool = False) -> int:
    """Restrict this thread and its children to these paths, each with the rights on what is below
    it. Return the version that did it."""
    found = version()
    handled = (1 << RIGHTS_OF_VERSION[found]) - 1
    attributes = [handled]
    if found >= VERSION_WITH_TCP:
        attributes.append(0 if with_tcp else TCP_BIND_AND_CONNECT)
    if found >= VERSION_WITH_SCOPES:
        attributes.append(SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    ruleset = kernel.call("landlock_create_ruleset", ctypes.c_char_p(packed), len(packed), 0)
    try:
        for path, rights in rules:
            grant(ruleset, path, rights & handled)
        flags = LOG_NOTHING if found >= VERSION_WITH_LOG else 0
        kernel.call("landlock_restrict_self", ruleset, flags)
    finally:
        os.close(ruleset)
    return found


def grant(ruleset: int, path: str, rights: int) -> None:
    """Add a rule. A file that does not exist needs none."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights, fd)
        kernel.call("landlock_add_rule", ruleset, RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(fd)


def grants(
    scratch: Path,
    checkouts: Iterable[str],
    cache: str | None,
    private_shm: bool,
    gpu: bool,
    hidden: Collection[str] = (),
    copied: Collection[str] = (),
) -> Iterator[tuple[str, int]]:
    """Yield paths and the rights on what is below them; none on the `hidden` devices. What is
    written to `copied` checkouts does not reach them.
    """
    yield str(scratch), EVERYTHING
    if cache is not None:
        yield cache, EVERYTHING
    if private_shm:
        yield "/dev/shm", EVERYTHING & ~EXECUTE
    # CUDA names its threads here, or fails with error 304. Other parts of /proc are excluded: root
    # may write there what the kernel runs on a crash.
    yield "/proc/self", READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE
    for path, rights in readable(tuple(sys.path)):
        if path not in hidden and (gpu or not path.startswith(DEVICES_OF_GPUS)):
            yield path, rights
    for checkout in checkouts:
        is_copied = os.path.realpath(checkout) in copied
        yield from grants_of_checkout(checkout, is_copied=is_copied)


@functools.cache
def readable(search_path: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return what a Python program of this interpreter reads and runs besides its own files."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    found += [path for path in search_path if Path(path).name in PACKAGES]
    trusted = system_folders(found)
    granted = [(path, READ) for path in dict.fromkeys(trusted) if Path(path).exists()]
    devices = [Path("/dev", name) for name in DEVICES] + [*Path("/dev").glob("nvidia*")]
    granted += [(str(path), DEVICE) for path in devices if path.exists()]
    for path in search_path:
        if path and not any(Path(path).is_relative_to(known) for known in trusted):
            # A folder that an editable installation names is a checkout.
            granted += grants_of_checkout(path)
    return tuple(granted)


def system_folders(found: Iterable[str]) -> list[str]:
    """Return the system's folders, and those of `found` that hold no home."""
    found = list(found)
    for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        found += [path for path in os.environ.get(name, "").split(":") if path]
    if Path("/opt").is_dir():
        folders = [path for path in Path("/opt").iterdir() if not path.is_symlink()]
        found += [str(path) for path in folders if not (path / SELF_HOSTED_RUNNER).exists()]
    worker = Path(__file__).resolve().parent.parent
    trusted = [*SYSTEM, *(f"/etc/{name}" for name in CONFIGURATION), str(worker)]
    trusted += [str(path) for path in Path("/run").glob("nvidia*")]
    return trusted + [path for path in found if not holds_home(os.path.realpath(path))]


def grants_of_checkout(root: str, *, is_copied: bool = False) -> Iterator[tuple[str, int]]:
    """Yield rights on a checkout without hidden files at its top: `.git` may hold a token,
    `.env` a password. Links that leave the checkout do not work. What is new at the top of a copy
    can be written and not read, as rights on the top would hold for hidden files too.
    """
    top = os.path.realpath(root)
    if top == "/":
        return
    if not Path(top).is_dir():  # such as a zip file
        yield top, READ
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(top):
            hidden = entry.name.startswith(".")
            if not hidden and not entry.is_symlink() and not holds_home(entry.path):
                yield entry.path, EVERYTHING if is_copied else READ
        # Only the names of all that is below.
        yield top, READ_DIR | (WRITE_NEW if is_copied else 0)


@functools.cache
def home() -> str:
    """Return the user's home. HOME is the worker's own folder."""
    try:
        return os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return "/root"


def holds_home(path: str) -> bool:
    """Return whether a folder is the user's home or holds it."""
    return home() == path or home().startswith(path.rstrip("/") + "/")
