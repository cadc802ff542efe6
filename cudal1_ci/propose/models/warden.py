"""Runs one command and sees that it does not outlive the tool. Started as a script.

    python warden.py COMMAND ARGUMENT...

The tool holds the other end of standard input. When the tool ends, in whatever way, the kernel
closes it: the process group, which is this process's own, is asked to end and killed after that.
Should this process be killed, the kernel kills the command with it. Not covered: what leaves the
process group.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
"""For a server to give back shared memory and the GPU."""


def main(command: list[str]) -> int:
    """Run the command; its exit code, 128 and the signal for one that was killed."""
    libc = ctypes.CDLL(None)
    # The group's SIGTERM is this process's own doing, and must leave it alive to do the rest.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def prepare() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    # Safe before the exec: this process has no thread yet, and this one lives as long as it.
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=prepare,
    )
    threading.Thread(target=end_with_the_tool, args=[server], daemon=True).start()
    code = server.wait()
    return code if code >= 0 else 128 - code


def end_with_the_tool(server: subprocess.Popen[bytes]) -> None:
    """Wait for the end of standard input, then end the group, this process with it."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    deadline_s = time.monotonic() + GRACE_S
    while server.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
