"""Run one of the project's own commands, as hostile as a candidate: its tests, its build.

`processes/enclosed.py` starts this module with a description of the place. It enters the layers
one by one, reports what was granted, and becomes the command. Unlike a runner, the command may
start servers and sessions, and write to copies of folders. It ends with all that it has started.

    outer process    waits, and ends as the command ends
    init             first process of the PID namespace; reaps, and ends what is left
    command
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from . import Granted, attempt, kernel, landlock, namespaces, root, seccomp

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_PROCESSES = 16384
NOT_STARTED = 127
FOR_NETWORK = tuple(f"/etc/{name}" for name in ("resolv.conf", "gai.conf", "services", "protocols"))


@dataclass(frozen=True, kw_only=True)
class Enclosure:
    """What the host asks for."""

    command: tuple[str, ...]
    folder: str
    place: root.Root
    network: bool
    unconfined: bool
    """Start the command even if nothing confines it here."""
    report: int
    """Descriptor for what was granted, and for why the command cannot start."""


def main(words: list[str]) -> NoReturn:
    """Run the command that the first word describes as JSON."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a host that is killed ends all
    wanted = read(json.loads(words[0]))
    os.set_inheritable(wanted.report, False)
    granted: Granted = {}
    attempt(granted, "user_namespace", namespaces.enter_user_namespace)
    if not wanted.network:
        attempt(granted, "network_namespace", enter_network)
    attempt(granted, "ipc_namespace", namespaces.enter_ipc_namespace)
    attempt(granted, "pid_namespace", unshare_pids)
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    init = os.fork()
    if init:
        os.close(wanted.report)
        os._exit(ended(init))
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    attempt(granted, "mount_namespace", namespaces.enter_mount_namespace)
    attempt(granted, "private_root", lambda: enter_root(wanted, granted))
    command = os.fork()
    if command == 0:
        become(wanted, granted)
    os.close(wanted.report)
    code = ended(command)
    end_all()
    os._exit(code)


def read(given: dict[str, Any]) -> Enclosure:
    """Return the request of the host."""
    place = given.pop("place")
    readable = landlock.system_folders(place["readable"])
    return Enclosure(
        command=tuple(given.pop("command")),
        place=root.Root(
            scratch=Path(place["scratch"]),
            readable=(*readable, *(FOR_NETWORK if given["network"] else ())),
            writable=tuple(place["writable"]),
            copied=tuple(place["copied"]),
            hidden=tuple(place["hidden"]),
        ),
        **given,
    )


def enter_network() -> bool:
    """Enter a network namespace in which only loopback works."""
    namespaces.enter_network_namespace()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        flags = struct.pack("16sh14x", b"lo", IFF_UP)
        fcntl.ioctl(one, SIOCSIFFLAGS, flags)
    return True


def unshare_pids() -> bool:
    """Let children be in a PID namespace."""
    kernel.unshare(namespaces.CLONE_NEWPID)
    return True


def enter_root(wanted: Enclosure, granted: Granted) -> bool:
    """Enter a root of the command's own."""
    if granted["mount_namespace"] is not True:
        raise OSError("needs a mount namespace")
    return root.enter(wanted.place, MAX_PROCESSES)


def become(wanted: Enclosure, granted: Granted) -> NoReturn:
    """Drop every right and run the command."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python has set them
        signal.signal(number, signal.SIG_DFL)
    has_root = granted["private_root"] is True
    is_alone = granted.get("network_namespace") is True
    if os.geteuid() != 0:  # root's are counted by the PID namespace, where it is new enough
        namespaces.limit_user_processes(MAX_PROCESSES)
    os.umask(0o022)
    attempt(granted, "no_capabilities", namespaces.drop_capabilities)
    attempt(granted, "no_new_privs", namespaces.forbid_new_privileges)
    rules = rules_in_root(wanted.place) if has_root else rules_outside(wanted.place)
    with_tcp = wanted.network or is_alone
    attempt(granted, "landlock", lambda: landlock.apply(rules, with_tcp=with_tcp))
    calls = seccomp.instructions_for_commands
    attempt(granted, "seccomp", lambda: seccomp.filter_calls(calls(with_network=with_tcp)))
    said: Mapping[str, Any] = {"granted": granted}
    is_open = granted["landlock"] is False or isinstance(granted["landlock"], str)
    if is_open and not has_root and not wanted.unconfined:
        os.write(wanted.report, json.dumps(said).encode() + b"\n")
        os._exit(NOT_STARTED)
    try:
        os.chdir(wanted.folder)
        os.write(wanted.report, json.dumps(said).encode() + b"\n")
        os.execvpe(wanted.command[0], wanted.command, os.environ)
    except OSError as error:
        said = {"errno": error.errno, "granted": granted}
        os.write(wanted.report, json.dumps(said).encode() + b"\n")
    os._exit(NOT_STARTED)


def rules_in_root(place: root.Root) -> Iterator[tuple[str, int]]:
    """Yield what Landlock grants besides mounts: rights that these do not have, such as making
    devices."""
    yield "/", landlock.READ
    yield "/dev", landlock.DEVICE
    yield "/proc", landlock.READ_FILE | landlock.READ_DIR | landlock.WRITE_FILE | landlock.TRUNCATE
    for path in ("/tmp", "/var/tmp", "/dev/shm", "/dev/pts", str(place.scratch)):
        yield path, landlock.EVERYTHING
    for path in (*place.writable, *place.copied):
        yield path, landlock.EVERYTHING


def rules_outside(place: root.Root) -> Iterator[tuple[str, int]]:
    """Yield what Landlock grants where there is no root of the command's own.

    A copied folder is the folder itself here: its files can be written to, hidden ones not even
    read, and new ones cannot be made at its top.
    """
    hidden = set(root.both(place.hidden))
    yield str(place.scratch), landlock.EVERYTHING
    yield "/dev/shm", landlock.EVERYTHING & ~landlock.EXECUTE
    yield "/proc/self", landlock.READ_FILE | landlock.READ_DIR | landlock.WRITE_FILE
    for name in landlock.DEVICES:
        yield f"/dev/{name}", landlock.DEVICE
    for device in Path("/dev").glob("nvidia*"):
        yield str(device), landlock.DEVICE
    for path in place.readable:
        yield path, landlock.READ
    for path in place.writable:
        yield path, landlock.EVERYTHING
    for top in root.both(place.copied):
        yield from rules_around(top, hidden)


def rules_around(top: str, hidden: set[str]) -> Iterator[tuple[str, int]]:
    """Yield rights on a folder but for what is hidden in it."""
    if not any(Path(path).is_relative_to(top) for path in hidden):
        yield top, landlock.EVERYTHING
        return
    if top in hidden:
        return
    yield top, landlock.READ_DIR
    for entry in os.scandir(top):
        if entry.is_dir(follow_symlinks=False):
            yield from rules_around(entry.path, hidden)
        elif entry.path not in hidden and not entry.is_symlink():
            yield entry.path, landlock.EVERYTHING


def ended(child: int) -> int:
    """Reap until this child has ended. Return its exit code, as a shell has it."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_all() -> None:
    """Kill what the command has left. In a PID namespace the kernel does it; elsewhere orphans
    become children of this process."""
    # Nothing can be imported any more: the interpreter may lie outside of the new root.
    path = f"/proc/self/task/{os.getpid()}/children"
    while True:
        try:
            end = os.open(path, os.O_RDONLY)
            found = os.read(end, 4096).split()
            os.close(end)
        except OSError:
            return
        if not found:
            return
        for pid in found:
            os.kill(int(pid), signal.SIGKILL)
        os.wait()
