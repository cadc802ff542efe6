"""Let the kernel refuse system calls that no program needs to compute something.

The list names denied calls, not allowed ones: CUDA's driver and compilers use many calls, and the
other layers bound what these can reach. In addition:

- `clone` makes processes and threads, no namespaces. `clone3`, whose flags a filter cannot read,
appears not to exist, and glibc falls back to `clone`.
- A socket is a local one that must be connected before a write, and `connect` is denied. CUDA fails
with error 304 when it cannot make, name and listen at one. A pair of sockets may be a stream; over
datagram sockets a program could write to any address.
- `setsid` and `setpgid` do nothing and report success. So all that a runner starts stays in its
process group, which one signal stops or ends whole. ninja and other builders insist on success.

The project's own commands (enclosure.py) keep sessions, servers and sockets: a suite starts some.
Where no namespace takes the network from them, they get local sockets alone.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Sequence

from . import kernel

DENIED = (
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    "sched_setaffinity",  # cores are given to a runner, as many as its reference has
    # namespaces and mounts
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree"),
    *("open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    # the kernel
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "bpf"),
    *("perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("add_key", "request_key", "keyctl", "syslog", "fanotify_init", "name_to_handle_at"),
    *("open_by_handle_at", "modify_ldt", "iopl", "ioperm", "uselib"),
    # the machine
    *("reboot", "swapon", "swapoff", "sethostname", "setdomainname", "settimeofday", "acct"),
    *("clock_settime", "clock_adjtime", "adjtimex", "quotactl", "quotactl_fd", "vhangup"),
    # servers
    "connect",
)
FEIGNED = ("setsid", "setpgid")
OF_COMMANDS = ("connect", "sched_setaffinity")
"""What the project's own commands may call."""

NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* flag that `clone` takes."""
SOCKET_TYPE_MASK = 0xF

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_CALLS = 0x40000000
"""The second call table of an x86-64 kernel starts here."""

SET_MODE_FILTER = 1
SPEC_ALLOW = 4
"""Without it older kernels slow a filtered process against speculation, which would be measured."""

Instruction = tuple[int, int, int, int]


class Program(ctypes.Structure):
    """The C structure sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def when(name: str, action: int) -> list[Instruction]:
    """Return instructions that end with `action` for the named call; none where there is no such
    call."""
    number = kernel.number_of(name)
    if number is None:
        return []
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, action)]


DENY = ERRNO | errno.EPERM


def instructions() -> list[Instruction]:
    """Return the filter of a runner for this machine. Raises OSError for an unknown one."""
    pair, single = kernel.number_of("socketpair"), kernel.number_of("socket")
    assert pair is not None
    assert single is not None
    code = beginning(DENIED)
    for name in FEIGNED:
        code += when(name, ERRNO)
    return [
        *code,
        # Each ends with a decision, so that none reads the number that another replaced.
        (EQUAL, 0, 5, pair),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (AND, 0, 0, SOCKET_TYPE_MASK),
        (EQUAL, 1, 0, socket.SOCK_STREAM),
        (RETURN, 0, 0, DENY),
        (RETURN, 0, 0, ALLOW),
        (EQUAL, 0, 6, single),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 0, 3, socket.AF_UNIX),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (AND, 0, 0, SOCKET_TYPE_MASK),
        (EQUAL, 1, 0, socket.SOCK_SEQPACKET),
        (RETURN, 0, 0, DENY),
        (RETURN, 0, 0, ALLOW),
    ]


def instructions_for_commands(with_network: bool) -> list[Instruction]:
    """Return the filter of the project's own commands. Raises OSError for an unknown machine."""
    single = kernel.number_of("socket")
    assert single is not None
    code = beginning(tuple(name for name in DENIED if name not in OF_COMMANDS))
    if not with_network:
        code += [
            (EQUAL, 0, 3, single),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (EQUAL, 1, 0, socket.AF_UNIX),
            (RETURN, 0, 0, DENY),
        ]
    return [*code, (RETURN, 0, 0, ALLOW)]


def beginning(denied: Sequence[str]) -> list[Instruction]:
    """Return what every filter begins with: the call's number, and calls that none may make."""
    clone = kernel.number_of("clone")
    assert clone is not None
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, AUDIT_ARCHITECTURE[platform.machine()]),
        (RETURN, 0, 0, ERRNO | errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
    ]
    if platform.machine() == "x86_64":
        code += [(AT_LEAST, 0, 1, X32_CALLS), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    for name in denied:
        code += when(name, DENY)
    code += when("clone3", ERRNO | errno.ENOSYS)
    return [
        *code,
        (EQUAL, 0, 4, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, DENY),
        (RETURN, 0, 0, ALLOW),
    ]


def filter_calls(code: Sequence[Instruction] | None = None) -> bool:
    """Install a filter, a runner's by default, for this thread and its children, for good."""
    code = instructions() if code is None else code
    packed = b"".join(struct.pack("=HBBI", *one) for one in code)
    program = Program(len(code), packed)
    try:
        kernel.call("seccomp", SET_MODE_FILTER, SPEC_ALLOW, ctypes.byref(program))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        kernel.call("seccomp", SET_MODE_FILTER, 0, ctypes.byref(program))
    return True
