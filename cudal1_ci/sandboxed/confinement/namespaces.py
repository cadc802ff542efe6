"""Set up namespaces, capabilities and limits of a runner.

The process that runners are forked from enters a user, a network and a PID namespace once, while it
has one thread. Every runner has its own PID, IPC and mount namespaces inside these. No program
finds what another one leaves behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import socket
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from . import kernel

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 0x40000

SCRATCH_BYTES = 2**30
"""A build folder of a CUDA extension takes some ten megabytes."""
SHM_BYTES = 256 * 2**20
MAX_INODES = 65536
MAX_PIDS = 1024
"""Processes and threads of a runner: a parallel build on 128 cores takes some 500."""
MAX_PROCESSES_OF_USER = 4096
"""For all runners of one verifier together, where the kernel counts by user."""
MAX_OPEN_FILES = 4096
MAX_ANSWER_BYTES = 1000
MAX_FILE_BYTES = 256 * 2**20
"""Size limit of any file that a runner writes: a program that prints forever must not fill the
disk."""

CAPABILITY_VERSION_3 = 0x20080522
NO_ROOT_LOCKED = 0xEF
"""Every secure bit and its lock, except `keep_caps` itself. User 0 has no privileges after an
exec."""


def enter_user_namespace() -> bool:
    """Enter a user namespace that maps this user to itself and no other user.

    Root may lack the capability to set capabilities of files. It then gets a namespace but may not
    map itself into it. It would be the overflow user there, which can make no file. So a child
    tries it first.
    """

    def enter() -> None:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(CLONE_NEWUSER)
        # Without this an ordinary user may not write the map of groups.
        with contextlib.suppress(FileNotFoundError):
            Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")

    rehearse(enter)
    enter()
    return True


def rehearse(body: Callable[[], None]) -> None:
    """Run `body` in a child that then ends. Raises the child's OSError."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        number = code if code in errno.errorcode else errno.EPERM
        raise OSError(number, os.strerror(number))


def enter_network_namespace() -> bool:
    """Enter a network namespace without an active interface, even loopback."""
    kernel.unshare(CLONE_NEWNET)
    return True


def enter_ipc_namespace() -> bool:
    """Enter an IPC namespace: no other System V memory, semaphores or message queues."""
    kernel.unshare(CLONE_NEWIPC)
    return True


def enter_mount_namespace() -> bool:
    """Enter a mount namespace. Only this process and its children see its mounts."""
    kernel.unshare(CLONE_NEWNS)
    kernel.mount("none", "/", "", MS_REC | MS_PRIVATE)
    return True


def mount_proc() -> bool:
    """Mount a /proc that shows only this PID namespace."""
    kernel.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    return True


def mount_tmpfs(scratch: Path) -> bool:
    """Mount scratch and shared memory of a limited size. They vanish with the runner."""
    flags = MS_NOSUID | MS_NODEV
    inodes = f"nr_inodes={MAX_INODES},mode=0700"
    kernel.mount("tmpfs", str(scratch), "tmpfs", flags, f"size={SCRATCH_BYTES},{inodes}")
    if Path("/dev/shm").is_dir():
        kernel.mount("tmpfs", "/dev/shm", "tmpfs", flags, f"size={SHM_BYTES},{inodes}")
    return True


def limit_processes(own_pid_namespace: bool) -> bool:
    """Limit the number of processes against a fork bomb. The kernel does not count the processes of
    the real root. Since Linux 6.14 it counts those of a PID namespace.

    Raises:
        OSError: Neither can be counted.
    """
    counted = os.geteuid() != 0
    if counted:
        limit_user_processes(MAX_PROCESSES_OF_USER)
    if own_pid_namespace:
        try:
            Path("/proc/sys/kernel/pid_max").write_text(str(MAX_PIDS))
        except OSError:
            if not counted:
                raise
    elif not counted:
        raise OSError(errno.EPERM, "processes of root are not counted")
    return True


def limit_user_processes(limit: int) -> None:
    """Limit the processes of this user, from here on. Those of root are not counted."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def limit_resources(memory_bytes: int | None) -> None:
    """Limit sizes of files, of memory and of the descriptor table; forbid core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if memory_bytes is not None:  # on a GPU the driver reserves more addresses than there is memory
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def drop_capabilities() -> bool:
    """Drop all capabilities, so that neither root nor a file with capabilities regains one."""
    with contextlib.suppress(OSError):  # an ordinary user has none to drop
        kernel.prctl(kernel.PR_SET_SECUREBITS, NO_ROOT_LOCKED)
        for capability in range(64):
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    kernel.call("capset", header, nothing)
    return True


def forbid_new_privileges() -> bool:
    """Forbid that a set-user-id program gives this process more privileges."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    return True


def enter_pid_namespace() -> bool:
    """Continue as the first process of a PID namespace. The original process waits for it and
    ends as it ends. Only from such a process can one enter further namespaces and return. The
    namespace that a process started in belongs to a user namespace that it has left."""
    kernel.unshare(CLONE_NEWPID)
    continue_in_fork()
    return True


def continue_in_fork() -> None:
    """Return in a child, which is in the namespaces for children. This process waits for it and
    ends as it ends."""
    pid = os.fork()
    if pid == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def close_others(*kept: int) -> None:
    """Close all descriptors but the standard ones and these."""
    numbers = [2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
    for before, after in pairwise(numbers):
        os.closerange(before + 1, after)


class Nursery:
    """Make PID namespaces from a small process, started before its parent is large. The first
    process of a namespace only reaps, and costs a fork to start and an exit to end."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        if os.fork() == 0:
            breed(theirs)
        theirs.close()

    def follow(self, has_user_namespace: bool) -> None:
        """Let the small process enter the namespaces that this one has entered. Raises OSError."""
        self.own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        fds = [self.own]
        if has_user_namespace:
            fds.insert(0, os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC))
        socket.send_fds(self.end, [b"!"], fds)
        for fd in fds[:-1]:
            os.close(fd)

    @contextlib.contextmanager
    def namespace(self) -> Iterator[int]:
        """Yield a descriptor of the first process of a new namespace. Children made inside the
        `with` are in that namespace, which ends with that process.

        Raises:
            OSError: The kernel refused something.
        """
        self.end.sendall(b"?")
        answer = self.end.recv(MAX_ANSWER_BYTES).decode()
        if not answer.isdecimal():
            raise OSError(answer or "the process that makes PID namespaces ended")
        keeper = os.pidfd_open(int(answer))
        try:
            kernel.call("setns", keeper, CLONE_NEWPID)
            try:
                yield keeper
            finally:
                kernel.call("setns", self.own, CLONE_NEWPID)
        except BaseException:
            close_namespace(keeper)
            raise


def breed(end: socket.socket) -> NoReturn:
    """Run a nursery: enter the namespaces that come along with the first byte, and make one for
    each further byte, until the input ends."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        # A namespace is entered through a process in it only if that can be inspected.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        os.setsid()
        close_others(end.fileno())
        _, fds, _, _ = socket.recv_fds(end, 1, 2)
        os.dup2(end.fileno(), 0)
        if fds:
            os.dup2(fds[-1], 1)
            make_namespaces(fds[:-1])
    except OSError as error:
        os.write(0, str(error).encode()[:MAX_ANSWER_BYTES])
    finally:
        os._exit(0)


def make_namespaces(outer: list[int]) -> None:
    """Enter the `outer` namespaces and that of descriptor 1. Make one in it for each byte of
    descriptor 0. Raises OSError where one cannot be entered."""
    for fd in outer:
        kernel.call("setns", fd, CLONE_NEWUSER)
    kernel.call("setns", 1, CLONE_NEWPID)
    continue_in_fork()
    os.closerange(2, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while os.read(0, 1):
        try:
            kernel.unshare(CLONE_NEWPID)
            pid = os.fork()
            if pid == 0:
                os.closerange(0, 2)
                while True:
                    signal.pause()
            kernel.call("setns", 1, CLONE_NEWPID)
            os.write(0, str(pid).encode())
        except OSError as error:
            os.write(0, str(error).encode()[:MAX_ANSWER_BYTES])


def close_namespace(keeper: int) -> None:
    """Close the descriptor and end the namespace of that first process. Children of this process
    in that namespace must have been waited for."""
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(keeper, signal.SIGKILL)
        select.select([keeper], [], [])
    os.close(keeper)
