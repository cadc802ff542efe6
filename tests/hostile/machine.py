"""A machine of a job, as an attacker finds it: a token, a state folder, another process with a key.

`attacked` runs a script as the project's own command. `damage` says what it achieved: what was
written outside of the command's own folders, what was read, what was reached, and which process was
ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cudal1_ci.processes.enclosed import Enclosure, enclosed

SECRET = "sk-of-the-model-4711"
VARIABLES = {
    "DATABASE_URL": f"postgresql://user:{SECRET}@db.example/x",
    "PIP_INDEX_URL": f"https://{SECRET}@pypi.example/simple",
    "HTTPS_PROXY": f"http://me:at@{SECRET}@proxy.example:3128",
    "STORAGE": f"Protocol=https;AccountKey={SECRET}",
    "DB_PASS": SECRET,
    "LOGIN_OF_THE_BOT": SECRET,
}
"""Of the job's environment, under names that do not say what they hold."""
READ_BACK = "breach"
"""What a script prints where it got somewhere without a secret to show."""


@dataclass
class Machine:
    """What there is, and what must still be there."""

    top: Path
    other: subprocess.Popen[bytes]
    """Another process of the user, with a key in its environment and its memory."""
    port: int
    local: str
    abstract: str
    heard: list[str] = field(default_factory=list)
    mark: str = field(default_factory=lambda: f"mark-{uuid.uuid4().hex[:12]}")

    @property
    def checkout(self) -> Path:
        return self.top / "work" / "checkout"

    @property
    def names(self) -> dict[str, str]:
        """What scripts call the places."""
        top = self.top
        return {
            "TOP": str(top),
            "STATE": str(top / "temp" / "state"),
            "BASE": str(top / "temp" / "state" / "trees" / "base"),
            "FILES": str(top / "temp" / "_runner_file_commands"),
            "TOOLS": str(top / "tools"),
            "USERHOME": str(top / "home"),
            "VENV": str(top / "venv"),
            "CHECKOUT": str(self.checkout),
            "OTHER": str(self.other.pid),
            "PORT": str(self.port),
            "LOCAL": self.local,
            "ABSTRACT": self.abstract,
            "MARK": self.mark,
            "PYTHON": sys.executable,
        }

    @property
    def environment(self) -> dict[str, str]:
        """What a job's step has."""
        return {**os.environ, **VARIABLES, **self.names, "HOME": self.names["USERHOME"]}

    def damage(self, before: dict[str, str], said: str, wait_s: float = 2.0) -> list[str]:
        """What a script has achieved. What it left gets some seconds to end."""
        found = [f"changed {path}" for path in differing(before, state(self.top))]
        if SECRET in said:
            found.append("read a secret")
        if READ_BACK in said.split():
            found.append("printed what it got")
        if self.other.poll() is not None or stopped(self.other.pid):
            found.append("ended or stopped another process")
        time.sleep(0.05)  # who listens may be behind
        if self.heard:
            found.append("reached the network")
        folders = [Path(one) for one in ("/tmp", "/dev/shm", "/var/tmp")]
        found += [f"left a file in {one}" for one in folders if (one / self.mark).exists()]
        if alive(self.mark, wait_s):
            found.append("left a process")
        return found

    def repaired(self) -> None:
        """Remove what an attack without confinement has left outside of the machine."""
        for folder in ("/tmp", "/dev/shm", "/var/tmp"):
            (Path(folder) / self.mark).unlink(missing_ok=True)
        for pid in alive(self.mark, 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def machine(top: Path) -> Iterator[Machine]:
    """Make one, with servers that note who comes."""
    for place, text in {
        "temp/state/archive.sqlite": f"archive {SECRET}",
        "temp/state/trees/base/pkg/model.py": "x = 1\n",
        "temp/_runner_file_commands/set_env": "",
        "temp/_runner_file_commands/set_output": "",
        "temp/_runner_file_commands/add_path": "",
        "tools/cudal1-ci/environment/bin/python": "#!/bin/sh\n",
        "home/.netrc": f"password {SECRET}",
        "home/.ssh/id_rsa": SECRET,
        "home/.docker/config.json": SECRET,
        "home/.cache/pip/http/wheel": "wheel",
        "home/.bashrc": "",
        "venv/pyvenv.cfg": f"home = {Path(sys.base_prefix, 'bin')}\n",
        "venv/lib/python3.11/site-packages/torch.py": "",
        "work/checkout/.git/config": f"extraheader = {SECRET}",
        "work/checkout/.git/hooks/none": "",
        "work/checkout/.env": f"PASSWORD={SECRET}",
        "work/checkout/.env.local": f"PASSWORD={SECRET}",
        "work/checkout/gha-creds-0123456789abcdef.json": SECRET,
        "work/checkout/pkg/model.py": "x = 2\n",
        "work/checkout/pyproject.toml": "[tool.cudal1-ci]\n",
    }.items():
        file = top / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (top / "venv" / "bin").mkdir()
    (top / "venv" / "bin" / "python").symlink_to(Path(sys.base_prefix, "bin", "python3"))
    environment = {**os.environ, "OPENAI_API_KEY": SECRET}
    code = "import os, sys, time; key = os.environ['OPENAI_API_KEY']; print(flush=True)\n"
    with (
        subprocess.Popen(
            [sys.executable, "-S", "-c", f"{code}time.sleep(600)"],
            env=environment,
            stdout=subprocess.PIPE,
        ) as other,
        contextlib.ExitStack() as stack,
    ):
        assert other.stdout
        other.stdout.readline()
        abstract = f"cudal1-{uuid.uuid4().hex}"
        local = str(top / "daemon.socket")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        found = Machine(top, other, tcp.getsockname()[1], local, abstract)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", found.port))
        listening = [stack.enter_context(udp), tcp]
        for address in (local, f"\0{abstract}"):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            one.bind(address)
            one.listen()
            listening.append(one)
        for one in listening:
            threading.Thread(target=listen, args=(one, found.heard), daemon=True).start()
        try:
            yield found
        finally:
            other.kill()
            for one in listening:  # wakes the thread that waits for it
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


def listen(end: socket.socket, heard: list[str]) -> None:
    """Note who connects or sends."""
    end.settimeout(None)
    with contextlib.suppress(OSError):
        while True:
            if end.type == socket.SOCK_DGRAM:
                if not end.recv(100):
                    return  # shut down
            else:
                end.accept()[0].close()
            heard.append(str(end.family))


def confined(machine: Machine, script: str) -> str:
    """Run a script as a command of the project. Return what it printed."""
    out = machine.top / "log"
    enclosure = Enclosure(
        pythons=(sys.executable, str(machine.top / "venv" / "bin" / "python")),
        copied=(str(machine.checkout),),
        hidden=(str(machine.top / "temp"),),
    )
    environment = machine.environment
    with out.open("wb") as log:
        command = ("/bin/sh", "-c", script)
        with enclosed(command, machine.checkout, enclosure, environment, output=log) as process:
            process.process.wait(30)
    said = out.read_text(errors="replace")
    out.unlink()
    return said


def free(machine: Machine, script: str) -> str:
    """Run a script as the user would: the proof that it does something."""
    environment = machine.environment
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=machine.checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def state(top: Path) -> dict[str, str]:
    """What lies below a folder."""
    found = {}
    for path in sorted(top.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[str(path)] = f"{path.lstat().st_mode:o}"
    return found


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(one for one in before.keys() | after.keys() if before.get(one) != after.get(one))


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def alive(mark: str, wait_s: float = 2.0) -> list[int]:
    """Processes whose command line has the mark. One that was killed takes a moment to end."""
    deadline = time.monotonic() + wait_s
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)
