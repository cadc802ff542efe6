"""Call Linux system calls that the standard library does not wrap.

This module knows numbers and calling conventions on x86-64 and aarch64, not the calls' purposes.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)

ARCHITECTURES = ("x86_64", "aarch64")
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "listen": (50, 201),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "seccomp": (317, 277),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""By name: the number on each of `ARCHITECTURES`; None where there is no such call."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


def number_of(name: str) -> int | None:
    """Return the number of a call on this machine.

    Raises:
        OSError: Numbers of this architecture are not known.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(f"system calls of {machine} are not known")
    return NUMBERS[name][ARCHITECTURES.index(machine)]


def checked(result: int, what: str) -> int:
    """Raise OSError when a call of libc failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def call(name: str, *arguments: Any) -> int:
    """Make a system call by its name. Raises OSError."""
    number = number_of(name)
    if number is None:
        raise OSError(f"there is no {name} on {platform.machine()}")
    # Variadic: a bare int would be passed as 32 bits with an undefined upper half.
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *wide), name)


def prctl(option: int, value: int, third: int = 0) -> int:
    """Call prctl. Raises OSError when the kernel refuses."""
    wide = [ctypes.c_ulong(a) for a in (value, third, 0, 0)]
    return checked(libc.prctl(option, *wide), f"prctl({option})")


def unshare(flags: int) -> None:
    """Replace the namespaces that `flags` name with new ones. Raises OSError."""
    call("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system. Raises OSError when the kernel refuses."""
    words = [ctypes.c_char_p(word.encode()) for word in (source, target, kind)]
    call("mount", *words, flags, ctypes.c_char_p(options.encode()))
