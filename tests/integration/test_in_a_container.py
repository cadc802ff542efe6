"""Containers of an image that `CUDAL1_CI_TEST_IMAGE` names: what is granted, seen, left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cudal1_ci.processes import Container, ContainerConfig
from cudal1_ci.processes.container import ask, find_engine
from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.verification import Session
from cudal1_ci.verification.verify import text_problem
from tests.conftest import QUICK
from tests.integration.conftest import run

pytestmark = [
    pytest.mark.starts_verifier,
    pytest.mark.skipif(
        "CUDAL1_CI_TEST_IMAGE" not in os.environ, reason="CUDAL1_CI_TEST_IMAGE names no image"
    ),
]

REFERENCE = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        y = x
        for _ in range(8):
            y = torch.tanh(x @ x.transpose(0, 1)).sum() + x
        return y

def get_inputs():
    return [torch.randn(128, 128)]
"""
FASTER = REFERENCE.replace("range(8)", "range(1)")
WRONG = REFERENCE.replace("return y", "return y + 1")


IMAGE = os.environ.get("CUDAL1_CI_TEST_IMAGE")
"""An image on this machine whose Python has torch."""


def executor(*checkouts: Path) -> Container:
    return Container(ContainerConfig(image=IMAGE), checkouts)


def names() -> set[str]:
    """The containers of this tool that there are, running or not."""
    engine = find_engine(ContainerConfig(image=IMAGE))
    listed = ask(engine.path, "ps", "--all", "--format", "{{.Names}}").split()
    return {name for name in listed if name.startswith("cudal1-ci-")}


def test_a_verdict_in_a_container_is_the_same_and_says_so(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "faster.py").write_text(FASTER)
    (tmp_path / "wrong.py").write_text(WRONG)
    before = names()
    ran = run(
        *("verify", "reference.py", "faster.py", "wrong.py", "--json", "-", "--device", "cpu"),
        *("--executor", "container", "--container-image", str(IMAGE)),
        cwd=tmp_path,
        CUDAL1_CI_TRIAL_MEASURE="0.5s",
    )
    assert ran.code == 1, ran.stderr
    faster, wrong = map(json.loads, ran.stdout.splitlines())
    assert faster["status"] in ("passed", "inconclusive"), faster
    assert wrong["status"] == "incorrect_values"
    software = faster["device"]["software"]
    assert software["container"].startswith(f"{IMAGE} sha256:")
    assert names() <= before, "the container is still there"


LOOK = """
import json, os, socket

def tried(call, *args):
    try:
        return repr(call(*args))
    except OSError as error:
        return type(error).__name__

raise RuntimeError("SAID" + json.dumps({
    "status": open("/proc/self/status").read(),
    "interfaces": os.listdir("/sys/class/net"),
    "write": [tried(open, path, "w") for path in ("/x", "/usr/x", "{checkout}/x", "/cudal1-ci/x")],
    "token": tried(open, "{checkout}/.git/config"),
    "secret": os.environ.get("GITHUB_TOKEN"),
    "outside": tried(os.stat, "{outside}"),
    "inside": tried(os.stat, "{checkout}/src.py"),
}) + "DIAS")
"""


def test_what_a_program_in_a_container_finds(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_token")
    checkout, outside = tmp_path / "project", tmp_path / "outside"
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".git" / "config").write_text("a token")
    (checkout / "src.py").touch()
    outside.touch()
    (tmp_path / "reference.py").write_text(REFERENCE)
    problem = text_problem(tmp_path / "reference.py", "infer")
    text = LOOK.replace("{checkout}", str(checkout)).replace("{outside}", str(outside))
    program = TextProgram(source=textwrap.dedent(text), entry="ModelNew")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    with Session(QUICK, device="cpu", executor=executor(checkout)) as session:
        verdict = session.evaluate(problem, candidate).verdict
        missing = set(session.device().sandbox_missing)
    words = re.search("SAID({.*?})DIAS", verdict.log)
    assert words is not None, verdict
    found = json.loads(words.group(1))
    status = dict(line.partition(":\t")[::2] for line in found["status"].splitlines())
    for capabilities in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert int(status["Seccomp_filters"]) >= 1
    assert set(found["interfaces"]) <= {"lo"}
    assert not [said for said in found["write"] if "Error" not in said]
    assert "Error" in found["token"]
    assert found["secret"] is None
    assert found["outside"] == "FileNotFoundError", "not even its name is seen"
    assert "st_mode" in found["inside"]
    # As root the kernel's own files stay covered, so that no other /proc can be mounted.
    assert not missing - ({"private_proc", "process_limit"} if os.geteuid() == 0 else set())


HOST = """
import sys, time
from cudal1_ci.processes import Container, ContainerConfig
container = Container(ContainerConfig(image=sys.argv[1]))
with container.start("verifier", num_threads=1, device="cpu") as worker:
    print(worker.name, flush=True)
    time.sleep(300)
"""


def test_a_host_that_is_killed_leaves_no_container():
    command = [sys.executable, "-c", HOST, str(IMAGE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        name = host.stdout.readline().strip()
        assert name in names()
        host.kill()
    deadline = time.monotonic() + 20
    while name in names() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert name not in names()
