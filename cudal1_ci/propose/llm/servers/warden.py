"""Run one command and ensure that it does not outlive the tool. Started as a script.

    python warden.py SECONDS COMMAND ARGUMENT...

The tool holds the other end of standard input. When the tool ends in any way, the kernel closes
that end. The warden then asks the command's process group to end, and kills it after so many
seconds. A command that ends by itself gets the same treatment for the processes that it leaves:
vLLM's processes release shared memory after their parent is gone. If the warden is killed, the
kernel kills the command with it. Not covered: processes that leave the process group.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
"""Seconds that a server usually has to release shared memory and the GPU."""
POLL_S = 0.02


def main(grace_s: float, command: list[str]) -> int:
    """Run the command; its exit code, 128 and the signal for one that was killed."""
    libc = ctypes.CDLL(None)
    # Safe: this process has no other thread yet. The command lives as long as the thread that
    # started it, which is the main one.
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    threading.Thread(target=end_with_the_tool, args=[server.pid, grace_s], daemon=True).start()
    # Not reaped before its group is gone: until then no other process has the number.
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    kill(server.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while is_running(server.pid) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    kill(server.pid, signal.SIGKILL)
    code = server.wait()
    return code if code >= 0 else 128 - code


def end_with_the_tool(group: int, grace_s: float) -> None:
    """Wait for the end of standard input, then end the group."""
    while os.read(0, 4096):
        pass
    kill(group, signal.SIGTERM)
    time.sleep(grace_s)
    kill(group, signal.SIGKILL)


def is_running(group: int) -> bool:
    """Return whether a process of the group is still running."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                return True
    return False


def kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
