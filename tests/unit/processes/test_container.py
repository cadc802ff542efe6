"""The container executor, by way of a stand-in for the engines that is on PATH: what they are told,
how a worker comes and goes, and what is said when there is none."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError, CudaL1Error, UnsupportedError
from cudal1_ci.processes import Container, ContainerConfig, container, gpus, mounts
from cudal1_ci.processes.engine import find_engine, quoted
from cudal1_ci.processes.local import SANDBOXED
from tests import engine
from tests.engine import IMAGE, IMAGE_ID, run_of, values

pytestmark = pytest.mark.starts_verifier

UUID = "GPU-5fb5fd6f-8e2c-4d2e-9f53-1c4e1d9ad5c1"


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def container_of(*checkouts: Path, **config: str) -> Container:
    return Container(ContainerConfig(**{"image": IMAGE, **config}), sys.executable, checkouts)


def started(path: Path, *checkouts: Path, device: str = "cpu", **config: str) -> list[str]:
    """The engine's command line for a worker; the stand-in refuses to run it."""
    with (
        pytest.raises(UnsupportedError),
        container_of(*checkouts, **config).start("judge", num_threads=3, device=device),
    ):
        pass
    return run_of(path)


REFUSED = {"code": 125, "err": "docker: Error response from daemon: no.\n"}


# --- what an engine is told ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_has_no_network_no_capability_and_nothing_to_write(path, kind):
    engine.install(path, kind, run=REFUSED)
    words = started(path)
    assert words[0] == "run"
    for flag in ("--rm", "--read-only", "--network=none", "--pull=never", "--ipc=private"):
        assert flag in words
    assert values(words, "--cap-drop") == ["ALL"]
    assert "no-new-privileges" in values(words, "--security-opt")
    assert not {"--privileged", "--interactive", "-i", "--publish", "--volume"} & set(words)
    assert all("readonly" in mount for mount in engine.mounts(words).values())
    (scratch,) = values(words, "--tmpfs")
    assert scratch.startswith("/cudal1-ci/scratch:")
    assert "size=" in scratch
    assert int(*values(words, "--pids-limit")) > 0
    assert 0 < int(*values(words, "--memory")) < container.machine_memory_bytes()
    assert values(words, "--memory-swap") == values(words, "--memory")


def test_every_option_comes_before_the_image_and_the_worker_after_it(path):
    engine.install(path, run=REFUSED)
    words = started(path)
    image = words.index(IMAGE_ID)
    assert words[image + 1] == "-c"
    expected = [str(SANDBOXED), "judge", "/cudal1-ci/channel/socket", "3", "cpu"]
    assert words[image + 3 :] == expected


@pytest.mark.parametrize("uid", [0, 1234])
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_worker_is_this_user(path, kind, uid, monkeypatch):
    engine.install(path, kind, run=REFUSED)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: uid)
    words = started(path)
    assert values(words, "--user") == [f"{uid}:{uid}"]
    rootless = {"podman": ["keep-id"] if uid else [], "docker": ["host"]}
    assert values(words, "--userns") == rootless[kind]
    # Root may write what it sees of /proc/sys without any capability.
    unmasked = {"systempaths=unconfined", "unmask=ALL"} & set(values(words, "--security-opt"))
    assert bool(unmasked) is (uid != 0)
    assert values(words, "--cap-add") == ([] if uid else ["SETFCAP"])


def test_in_a_rootless_docker_this_user_is_root(path, monkeypatch):
    options = '["name=seccomp,profile=builtin","name=rootless"]\t28.2.2'
    engine.install(path, run=REFUSED, info={"out": options})
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    words = started(path)
    assert values(words, "--user") == ["0:0"]
    assert values(words, "--cap-add") == ["SETFCAP"]


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


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_for_the_processor_gets_no_gpu(path, kind, monkeypatch):
    engine.install(path, kind, run=REFUSED)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUID)
    words = started(path, device="cpu")
    assert not {"--gpus", "--device"} & set(words)
    assert "NVIDIA_VISIBLE_DEVICES=void" in values(words, "--env")


def test_the_gpu_is_the_one_that_a_worker_on_this_machine_would_take(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(gpus.pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(
        gpus.pynvml, "nvmlDeviceGetHandleByIndex", lambda index: asked.append(index) or index
    )
    monkeypatch.setattr(gpus.pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
    assert gpus.gpu_uuid("cuda:1", {"CUDA_VISIBLE_DEVICES": "5,7"}) == "GPU-7"
    assert gpus.gpu_uuid("auto", {}) == "GPU-0"
    assert gpus.gpu_uuid("cuda:2", {}) == "GPU-2"
    assert gpus.gpu_uuid("cuda", {"CUDA_VISIBLE_DEVICES": "MIG-1"}) == "MIG-1"
    assert gpus.gpu_uuid("cpu", {}) is None
    assert asked == [7, 0, 2]


def test_without_a_gpu_auto_is_the_processor_and_cuda_an_error(monkeypatch):
    def no_driver() -> None:
        raise gpus.pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(gpus.pynvml, "nvmlInit", no_driver)
    assert gpus.gpu_uuid("auto", {}) is None
    with pytest.raises(UnsupportedError, match="--device cpu"):
        gpus.gpu_uuid("cuda", {})


def test_no_secret_and_no_place_of_the_host_is_in_the_environment(path, monkeypatch):
    engine.install(path, run=REFUSED)
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
    # A client of Docker would add those of its configuration, which may have passwords.
    assert given["HTTPS_PROXY"] == given["https_proxy"] == ""


def test_podman_passes_no_proxies_on(path):
    engine.install(path, "podman", run=REFUSED)
    assert "--http-proxy=false" in started(path)


def test_the_profile_of_system_calls_leaves_namespaces_to_the_sandbox():
    (denied,) = container.PROFILE["syscalls"]
    assert denied["action"] == "SCMP_ACT_ERRNO"
    assert {"bpf", "ptrace", "io_uring_setup", "kexec_load"} <= set(denied["names"])
    assert not {"unshare", "clone", "mount", "setns"} & set(denied["names"])
    assert len(denied["names"]) == len(set(denied["names"]))


# --- what a container sees ----------------------------------------------------------------------


def test_a_checkout_is_at_its_own_path_without_what_it_hides(path, tmp_path):
    engine.install(path, run=REFUSED)
    checkout = tmp_path / "a project, with a comma"
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".env").write_text("PASSWORD=1")
    (checkout / "src").mkdir()
    words = started(path, checkout)
    quoted_mounts = [text for text in values(words, "--mount") if "comma" in text]
    assert f'"source={checkout}","target={checkout}"' in quoted_mounts[0]
    covered = {text.split('"target=')[1].split('"')[0] for text in quoted_mounts[1:]}
    assert covered == {f"{checkout}/.git", f"{checkout}/.env"}


def test_an_environment_in_the_checkout_is_not_covered(tmp_path):
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    empty = tmp_path / "empty"
    found = mounts.mounts_of([environment], [tmp_path], empty)
    targets = {mount.target: mount.source for mount in found}
    assert targets == {tmp_path: tmp_path, tmp_path / ".git": empty / "folder"}


def test_an_environment_is_shown_with_what_it_is_based_on(tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    other = tmp_path / "editable"
    other.mkdir()
    (site_packages,) = venv.glob("lib/python*/site-packages")
    (site_packages / "editable.pth").write_text(f"{other}\n")
    found = mounts.interpreter(str(venv / "bin/python"))
    assert found.executable == venv / "bin/python"
    assert venv in found.folders
    assert Path(sys.base_prefix) in found.folders
    assert mounts.lies_in(Path(os.path.realpath(sys.executable)), found.folders)
    assert found.checkouts == (other,)


def test_an_interpreter_that_is_the_home_folder_is_refused(monkeypatch, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    monkeypatch.setenv("HOME", str(venv / "lib"))
    with pytest.raises(UnsupportedError, match="is or holds the home folder"):
        mounts.interpreter(str(venv / "bin/python"))


def test_a_python_of_the_image_needs_none_of_this_machine(path):
    engine.install(path, run=REFUSED)
    words = started(path, python="/opt/conda/bin/python")
    assert values(words, "--entrypoint") == ["/opt/conda/bin/python"]
    assert set(engine.mounts(words)) == {str(SANDBOXED), "/cudal1-ci/channel"}


def test_fields_with_commas_and_quotes_are_quoted():
    assert quoted([("a", "b"), ("readonly", None)]) == "a=b,readonly"
    assert quoted([("a", 'x,"y"')]) == '"a=x,""y"""'


# --- how a worker comes and goes ----------------------------------------------------------------


def test_a_worker_answers_from_its_container(path):
    engine.install(path)
    with container_of().start("judge", num_threads=1, device="cpu") as worker:
        reply = worker.ask({"op": "describe"}, 120)
        assert reply["kind"] == "cpu"
        assert worker.software == {
            "container": f"{IMAGE} sha256:{IMAGE_ID}",
            "container_engine": "docker 28.2.2",
        }
        assert worker.pid == int((path / "pid").read_text())
        private = Path(engine.mounts(run_of(path))["/cudal1-ci/channel"]["source"])
        assert not private.exists(), "nobody else may come"
    assert is_gone(worker.pid)


def test_a_judge_that_dies_is_said_at_once(path):
    engine.install(path)
    with container_of().start("judge", num_threads=1, device="cpu") as worker:
        worker.ask({"op": "describe"}, 120)
        (judge,) = children(worker.pid)
        os.kill(judge, signal.SIGKILL)
        started_s = time.monotonic()
        with pytest.raises(CudaL1Error, match="the judge ended"):
            worker.ask({"op": "describe"}, 60)
        assert time.monotonic() - started_s < 5
    assert is_gone(worker.pid)


HOST = """
import sys, time
from cudal1_ci.processes import Container, ContainerConfig
container = Container(ContainerConfig(image=sys.argv[1]), sys.executable)
with container.start("judge", num_threads=1, device="cpu") as worker:
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
        deadline = time.monotonic() + 10
        while not children(pid) and time.monotonic() < deadline:
            time.sleep(0.02)  # it comes to the socket before it starts the judge
        members = [pid, *children(pid)]
        assert len(members) >= 2
        host.kill()
    assert all(is_gone(member) for member in members)


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


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_socket_in_a_folder_with_a_long_name(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        container.bind(listener, deep)
    assert (deep / "channel" / container.SOCKET).is_socket()


# --- what is said when there is none ------------------------------------------------------------


def refusal(**config: str | None) -> str:
    settings = ContainerConfig(**{"image": IMAGE, **config})
    with (
        pytest.raises(CudaL1Error) as caught,
        Container(settings, sys.executable).start("judge", num_threads=1, device="cpu"),
    ):
        pass
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_no_image_is_named(path):
    assert "`container-image`" in refusal(image=None)


def test_no_engine_is_installed(path):
    said = refusal()
    assert "`executor`" in said
    assert "apt-get install podman" in said
    assert "`docker` (`container-engine`) is not installed" in refusal(engine="docker")


def test_an_engine_is_a_name_and_no_path_into_a_checkout(path, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.cudal1-ci]\ncontainer-engine = "./docker"\n')
    with pytest.raises(ConfigError, match="container-engine"):
        load_settings(tmp_path)
    engine.install(path)
    monkeypatch.chdir(path)
    monkeypatch.setenv("PATH", ".")
    assert "`executor`" in refusal()
    assert not (path / "calls").exists()


def test_a_daemon_that_does_not_answer(path):
    down = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
    engine.install(path, info={"code": 1, "out": "null\t\n", "err": down})
    said = refusal()
    assert "Cannot connect" in said
    assert "systemctl start docker" in said
    assert f"does not answer ({down}). Start it" in said
    assert "`executor`" in said


def test_the_engine_that_works_is_taken(path):
    engine.install(path, "docker", version="Docker version 28.2.2, build e6534b4")
    assert find_engine(None).kind == "docker"
    (path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (path / "podman").chmod(0o755)
    assert find_engine(None).kind == "docker"


def test_a_docker_that_is_podman_is_spoken_to_as_podman(path):
    engine.install(path, "docker", version="podman version 5.2.1")
    found = find_engine("docker")
    assert (found.kind, found.version) == ("podman", "5.2.1")


def test_what_is_no_engine_is_named(path):
    engine.install(path, "docker", version="cat (GNU coreutils) 9.1")
    assert "`container-engine`" in refusal()


def test_an_image_that_is_not_here_is_never_fetched(path):
    engine.install(path)
    said = refusal(image="python:3.12")
    assert "`container-image`" in said
    assert "`docker pull python:3.12`" in said
    assert not {"pull", "run"} & {words[0] for words in engine.calls(path)}


@pytest.mark.parametrize(
    ("code", "err", "expected"),
    [
        (125, "could not select device driver with capabilities: [[gpu]].", "nvidia-ctk"),
        (
            126,
            "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-1",
            "nvidia-ctk",
        ),
        (127, 'exec: "/x/python": stat /x/python: no such file or directory', "`container-image`"),
        (1, "/lib/libc.so.6: version `GLIBC_2.38' not found", "`container-image`"),
        (126, "crun: open executable: No such file or directory", "`container-image`"),
        (1, "ModuleNotFoundError: No module named 'torch'", "pip install torch"),
        (125, "something else", "something else"),
    ],
)
def test_a_start_that_fails_says_why_and_how_to_mend_it(path, code, err, expected):
    engine.install(path, run={"code": code, "err": err})
    said = refusal()
    assert err in said
    assert f"exit code {code}" in said
    assert expected in said


def test_a_python_without_torch_is_said_when_it_is_asked(path, tmp_path):
    empty = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    engine.install(path)
    with (
        pytest.raises(CudaL1Error, match="of the image has no torch"),
        container_of(python=str(empty / "bin/python")).start(
            "judge", num_threads=1, device="cpu"
        ) as worker,
    ):
        worker.ask({"op": "describe"}, 60)


# --- the settings -------------------------------------------------------------------------------


REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 0.0) * 2

def get_inputs():
    return [torch.randn(64, 64)]
"""


def test_verify_judges_in_the_container_that_is_configured(path, tmp_path):
    engine.install(path)
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(REFERENCE.replace("(x + 0.0) * 2", "x * 2"))
    (tmp_path / "wrong.py").write_text(REFERENCE.replace("(x + 0.0) * 2", "x * 3"))
    (tmp_path / "pyproject.toml").write_text(
        textwrap.dedent(
            f"""
            [tool.cudal1-ci]
            executor = "container"
            container-image = "{IMAGE}"
            trial.num-rounds = 4
            trial.measure = "1s"
            """
        )
    )
    words = ["verify", "reference.py", "candidate.py", "wrong.py", "--json", "-", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "cudal1_ci", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    right, wrong = map(json.loads, done.stdout.splitlines())
    assert right["status"] in ("passed", "inconclusive")
    assert wrong["status"] == "incorrect_values"
    assert right["device"]["software"]["container"] == f"{IMAGE} sha256:{IMAGE_ID}"
    assert len([words for words in engine.calls(path) if words[0] == "run"]) == 1


def test_a_flag_names_the_executor_and_the_image(path, tmp_path):
    engine.install(path)
    (tmp_path / "reference.py").write_text(REFERENCE)
    words = ["verify", "reference.py", "reference.py", "--executor", "container"]
    done = subprocess.run(
        [sys.executable, "-m", "cudal1_ci", *words, "--container-image", "nothing:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4
    assert "`docker pull nothing:1`" in done.stderr
