"""The container executor, by way of a stand-in for the engines that is on PATH: what they are told,
how a worker comes and goes, and what is said when there is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

from cudal1_ci.errors import CudaL1Error, UnsupportedError
from cudal1_ci.processes import Container, ContainerConfig, container, gpus
from cudal1_ci.processes.local import SANDBOXED
from cudal1_ci.sandboxed.wire.verifier import Describe
from tests import engine
from tests.engine import IMAGE, IMAGE_ID, run_of, values

pytestmark = pytest.mark.starts_verifier

UUID = "GPU-5fb5fd6f-8e2c-4d2e-9f53-1c4e1d9ad5c1"
REFUSED = {"code": 125, "err": "docker: Error response from daemon: no.\n"}


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def container_of(*checkouts: Path, **config: str | None) -> Container:
    return Container(
        ContainerConfig(**{"image": IMAGE, "python": sys.executable, **config}), checkouts
    )


def refusal(*checkouts: Path, device: str = "cpu", **config: str | None) -> str:
    """What is said of a worker that cannot be started."""
    with (
        pytest.raises(UnsupportedError) as caught,
        container_of(*checkouts, **config).start("verifier", num_threads=3, device=device),
    ):
        pass
    return str(caught.value)


def started(path: Path, *checkouts: Path, device: str = "cpu") -> list[str]:
    """The engine's command line for a worker; the stand-in refuses to run it."""
    assert "exit code 125" in refusal(*checkouts, device=device)
    return run_of(path)


# --- what an engine is told ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_has_no_network_no_capability_and_nothing_to_write(path, kind):
    engine.install(path, kind, run=REFUSED)
    words = started(path)
    assert words[0] == "run"
    for flag in ("--rm", "--read-only", "--network=none", "--pull=never", "--cap-drop=ALL"):
        assert flag in words
    assert "no-new-privileges" in values(words, "--security-opt")
    assert not {"--privileged", "--interactive", "-i", "--publish", "--volume"} & set(words)
    assert all("readonly" in mount for mount in engine.mounts(words).values())
    (scratch,) = values(words, "--tmpfs")
    assert scratch.startswith("/cudal1-ci/scratch:")
    assert int(*values(words, "--pids-limit")) > 0
    assert int(*values(words, "--memory")) > 0
    assert values(words, "--memory-swap") == values(words, "--memory")


def test_every_option_comes_before_the_image_and_the_worker_after_it(path):
    engine.install(path, run=REFUSED)
    words = started(path)
    assert values(words, "--entrypoint") == [sys.executable]
    image = words.index(IMAGE_ID)
    assert words[image + 1] == "-c"
    expected = [str(SANDBOXED), "verifier", "/cudal1-ci/channel/socket", "3", "cpu"]
    assert words[image + 3 :] == expected


@pytest.mark.parametrize("uid", [0, 1234])
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_worker_is_this_user(path, kind, uid, monkeypatch):
    engine.install(path, kind, run=REFUSED)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: uid)
    words = started(path)
    assert values(words, "--user") == [f"{uid}:{uid}"]
    assert values(words, "--userns") == (["keep-id"] if uid and kind == "podman" else [])
    # Root may write what it sees of /proc/sys without any capability.
    unmasked = {"systempaths=unconfined", "unmask=ALL"} & set(values(words, "--security-opt"))
    assert bool(unmasked) is (uid != 0)
    assert values(words, "--cap-add") == ([] if uid else ["SETFCAP"])


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [("docker", "--gpus", f"device={UUID}"), ("podman", "--device", f"nvidia.com/gpu={UUID}")],
)
def test_a_container_gets_one_gpu(path, kind, option, value, monkeypatch):
    engine.install(path, kind, run=REFUSED)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-other,{UUID}")
    words = started(path, device="cuda:1")
    assert values(words, option) == [value]
    assert words[-1] == "cuda"
    assert "CUDA_VISIBLE_DEVICES=0" in values(words, "--env")


def test_a_container_for_the_processor_gets_no_gpu(path, monkeypatch):
    engine.install(path, run=REFUSED)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUID)
    assert not {"--gpus", "--device"} & set(started(path, device="cpu"))


def test_the_gpu_is_the_one_that_a_worker_on_this_machine_would_take(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetHandleByIndex", lambda index: asked.append(index) or index
    )
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
    assert gpus.gpu_uuid("cuda:1", {"CUDA_VISIBLE_DEVICES": "5,7"}) == "GPU-7"
    assert gpus.gpu_uuid("auto", {}) == "GPU-0"
    assert gpus.gpu_uuid("cuda:2", {}) == "GPU-2"
    assert gpus.gpu_uuid("cuda", {"CUDA_VISIBLE_DEVICES": "MIG-1"}) == "MIG-1"
    assert gpus.gpu_uuid("cpu", {}) is None
    assert asked == [7, 0, 2]


def test_without_a_gpu_auto_is_the_processor_and_cuda_an_error(monkeypatch):
    def no_driver() -> None:
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert gpus.gpu_uuid("auto", {}) is None
    with pytest.raises(UnsupportedError, match="--device cpu"):
        gpus.gpu_uuid("cuda", {})


def test_no_secret_and_no_place_of_the_host_is_in_the_environment(path, monkeypatch):
    engine.install(path, "podman", run=REFUSED)
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    monkeypatch.setenv("TRITON_API_KEY", "sk-secret")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.setenv("TORCH_LOGS", "dynamo")
    words = started(path)
    assert not [word for word in words if "secret" in word]
    given = dict(text.partition("=")[::2] for text in values(words, "--env"))
    assert given["TORCH_LOGS"] == "dynamo"
    assert given["OMP_NUM_THREADS"] == "3"
    assert given["HOME"] == "/cudal1-ci/scratch"
    assert not {"PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV"} & set(given)
    # An engine would add those of its configuration, which may have passwords.
    assert given["HTTPS_PROXY"] == given["https_proxy"] == ""
    assert "--http-proxy=false" in words


# --- what a container sees ----------------------------------------------------------------------


def test_a_checkout_is_at_its_own_path_without_what_it_hides(path, tmp_path):
    engine.install(path, run=REFUSED)
    checkout = tmp_path / "a project, with a comma"
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".env").write_text("PASSWORD=1")
    (checkout / "src").mkdir()
    shown = [text for text in values(started(path, checkout), "--mount") if "comma" in text]
    assert shown == [
        f'type=bind,"source={checkout}","target={checkout}",readonly',
        f'type=bind,source=/dev/null,"target={checkout}/.env",readonly',
        f'type=tmpfs,"target={checkout}/.git",tmpfs-mode=0555',
    ]


def test_a_checkout_behind_a_link_is_at_both_of_its_paths(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    targets = [one.partition("target=")[2] for one in container.mounts_of(tmp_path / "link")]
    assert targets == [f"{tmp_path}/link,readonly", f"{tmp_path}/real,readonly"]


def test_fields_with_commas_and_quotes_are_quoted():
    assert container.quoted("a=b") == "a=b"
    assert container.quoted('a=x,"y"') == '"a=x,""y"""'


# --- how a worker comes and goes ----------------------------------------------------------------


def test_a_worker_answers_from_its_container(path):
    engine.install(path)
    with container_of().start("verifier", num_threads=1, device="cpu") as worker:
        assert worker.ask(Describe(), 120).hardware.kind == "cpu"
        assert worker.software == {
            "container": f"{IMAGE} sha256:{IMAGE_ID}",
            "container_engine": "docker 28.2.2",
        }
        assert worker.pid == int((path / "pid").read_text())
        private = Path(engine.mounts(run_of(path))["/cudal1-ci/channel"]["source"])
        assert not private.exists(), "no other process may come"
    assert is_gone(worker.pid)


def test_a_judge_that_dies_is_reported_at_once(path):
    engine.install(path)
    with container_of().start("verifier", num_threads=1, device="cpu") as worker:
        worker.ask(Describe(), 120)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(CudaL1Error, match=r"the verifier in base:12 .* ended"):
            worker.ask(Describe(), 60)


HOST = """
import sys, time
from cudal1_ci.sandboxed.wire.verifier import Describe
from cudal1_ci.processes import Container, ContainerConfig
container = Container(ContainerConfig(image=sys.argv[1], python=sys.executable))
with container.start("verifier", num_threads=1, device="cpu") as worker:
    worker.ask(Describe(), 120)
    print(worker.pid, flush=True)
    time.sleep(100)
"""


def test_a_container_ends_when_the_host_is_killed(path):
    engine.install(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOST, IMAGE], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        host.kill()
    assert is_gone(pid)


def is_gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


# --- what is said when there is none ------------------------------------------------------------


def test_no_image_is_named(path):
    assert "`container-image`" in refusal(image=None)


def test_no_engine_is_installed(path):
    assert "apt-get install podman" in refusal()


def test_an_engine_in_the_folder_that_is_judged_is_not_run(path, monkeypatch):
    engine.install(path)
    monkeypatch.chdir(path)
    monkeypatch.setenv("PATH", ".")
    assert "apt-get install podman" in refusal()
    assert not (path / "calls").exists()


def test_the_engine_that_works_is_taken(path):
    engine.install(path)
    (path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (path / "podman").chmod(0o755)
    assert container.find_engine(ContainerConfig(image=IMAGE)).version == "docker 28.2.2"


def test_a_docker_that_is_podman_is_spoken_to_as_podman(path):
    engine.install(path, version="podman version 5.2.1", run=REFUSED)
    assert "--http-proxy=false" in started(path)


def test_an_image_that_is_not_here_is_never_fetched(path):
    engine.install(path)
    said = refusal(image="python:3.12")
    assert "No such image: python:3.12" in said
    assert "`docker pull python:3.12`" in said
    assert not {"pull", "run"} & {words[0] for words in engine.calls(path)}


def test_a_start_that_fails_says_what_the_engine_said(path):
    engine.install(path, run={"code": 127, "err": 'exec: "python3": not found'})
    said = refusal(python="python3")
    assert "base:12 (python3) ended (exit code 127)" in said
    assert 'exec: "python3": not found' in said


# --- the settings -------------------------------------------------------------------------------


REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 0.0) * 2

def get_inputs():
    return [torch.randn(64, 64)]
"""


def verify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "reference.py").write_text(REFERENCE)
    return subprocess.run(
        [sys.executable, "-m", "cudal1_ci", "verify", "reference.py", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_verify_judges_in_the_container_that_is_configured(path, tmp_path):
    engine.install(path)
    (tmp_path / "wrong.py").write_text(REFERENCE.replace("(x + 0.0) * 2", "x * 3"))
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.cudal1-ci]\nexecutor = "container"\ncontainer-image = "{IMAGE}"\n'
        f'container-python = "{sys.executable}"\n'
    )
    done = verify(tmp_path, "wrong.py", "--json", "-", "--device", "cpu")
    assert done.returncode == 1, done.stderr
    wrong = json.loads(done.stdout)
    assert wrong["status"] == "incorrect_values"
    assert wrong["device"]["software"]["container"] == f"{IMAGE} sha256:{IMAGE_ID}"


def test_a_flag_names_the_executor_and_the_image(path, tmp_path):
    engine.install(path)
    done = verify(
        tmp_path, "reference.py", "--executor", "container", "--container-image", "nothing:1"
    )
    assert done.returncode == 4
    assert "`docker pull nothing:1`" in done.stderr
