"""Real containers, where an engine works here: what is granted, what is seen, what is left behind.

The image is what this machine's interpreter needs of the base system and nothing else, so that
nothing has to be fetched.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.processes import Container, ContainerConfig
from cudal1_ci.processes.engine import ENGINES, Engine, find_engine
from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.verification import Session
from cudal1_ci.verification.verify import text_problem
from tests.conftest import QUICK
from tests.integration.conftest import run

pytestmark = pytest.mark.starts_verifier

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


@dataclass(frozen=True)
class Here:
    """An engine that works on this machine, and an image that it has."""

    engine: Engine
    image: str

    def executor(self, *checkouts: Path) -> Container:
        config = ContainerConfig(image=self.image, engine=self.engine.kind)
        return Container(config, sys.executable, checkouts)

    def names(self) -> set[str]:
        """Of the containers of this tool that there are, running or not."""
        listed = self.engine.ask("ps", "--all", "--format", "{{.Names}}").stdout.split()
        return {name for name in listed if name.startswith("cudal1-ci-")}


@pytest.fixture(scope="module", params=ENGINES)
def here(request: pytest.FixtureRequest) -> Iterator[Here]:
    try:
        engine = find_engine(request.param)
    except CudaL1Error as error:
        pytest.skip(f"no {request.param} works here: {error}")
    if engine.kind != request.param:
        pytest.skip(f"{request.param} is {engine.kind} here")
    image = f"localhost/cudal1-ci-test:{secrets.token_hex(4)}"
    done = subprocess.run(
        [engine.path, "import", "-", image], input=base_system(), capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"{request.param} cannot import an image here: {done.stderr.decode()}")
    found = Here(engine, image)
    try:
        engine.image_id(image)
        yield found
    finally:
        engine.ask("rmi", "--force", image)


def base_system() -> bytes:
    """A tar of the system's libraries that the interpreter, its modules and torch are linked to."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("platlib"))
    linked = [Path(os.path.realpath(sys.executable)), *stdlib.glob("lib-dynload/*.so")]
    linked += [*packages.glob("torch/lib/*.so*"), *packages.glob("numpy/**/*.so")]
    said = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False).stdout
    own = (str(stdlib.parent), sys.prefix, sys.base_prefix)
    files = {path for path in re.findall(r"(/\S+) \(0x", said) if not path.startswith(own)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for name in sorted(files):
            tar.add(name, arcname=name.lstrip("/"))
    return packed.getvalue()


def test_a_verdict_in_a_container_is_the_same_and_says_so(here, tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "faster.py").write_text(FASTER)
    (tmp_path / "wrong.py").write_text(WRONG)
    before = here.names()
    ran = run(
        *("verify", "reference.py", "faster.py", "wrong.py", "--json", "-", "--device", "cpu"),
        *("--executor", "container", "--container-image", here.image),
        cwd=tmp_path,
        CUDAL1_CI_CONTAINER_ENGINE=here.engine.kind,
        CUDAL1_CI_TRIAL_MEASURE="0.5s",
    )
    assert ran.code == 1, ran.stderr
    faster, wrong = map(json.loads, ran.stdout.splitlines())
    assert faster["status"] in ("passed", "inconclusive"), faster
    assert wrong["status"] == "incorrect_values"
    software = faster["device"]["software"]
    assert software["container"].startswith(f"{here.image} sha256:")
    assert software["container_engine"].startswith(here.engine.kind)
    assert here.names() <= before, "the container is still there"


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


def test_what_a_program_in_a_container_finds(here, tmp_path, monkeypatch):
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
    with Session(QUICK, device="cpu", executor=here.executor(checkout)) as session:
        verdict = session.evaluate(problem, candidate).verdict
        missing = set(session.device().sandbox_missing)
    words = re.search("SAID({.*?})DIAS", verdict.log)
    assert words is not None, verdict
    found = json.loads(words.group(1))
    status = dict(line.partition(":\t")[::2] for line in found["status"].splitlines())
    for capabilities in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert int(status["Seccomp_filters"]) >= 2, "the container's and the runner's"
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
config = ContainerConfig(engine=sys.argv[1], image=sys.argv[2])
with Container(config, sys.executable).start("judge", num_threads=1, device="cpu") as worker:
    print(worker.name, flush=True)
    time.sleep(300)
"""


def test_a_host_that_is_killed_leaves_no_container(here):
    command = [sys.executable, "-c", HOST, here.engine.kind, here.image]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        name = host.stdout.readline().strip()
        assert name in here.names()
        host.kill()
    deadline = time.monotonic() + 20
    while name in here.names() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert name not in here.names()


def test_an_image_that_the_interpreter_does_not_run_in(here, tmp_path):
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w") as tar:
        tar.add(tmp_path, arcname="etc")
    image = f"{here.image}-empty"
    subprocess.run(
        [here.engine.path, "import", "-", image],
        input=empty.getvalue(),
        capture_output=True,
        check=True,
    )
    try:
        executor = Container(ContainerConfig(image=image, engine=here.engine.kind), sys.executable)
        with (
            pytest.raises(CudaL1Error, match="`container-image`: the interpreter does not run"),
            executor.start("judge", num_threads=1, device="cpu"),
        ):
            pass
    finally:
        here.engine.ask("rmi", "--force", image)
