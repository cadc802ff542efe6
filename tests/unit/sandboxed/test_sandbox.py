"""What a program in a runner cannot do, and what it still can."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudal1_ci.processes.local import scrubbed_environment
from cudal1_ci.sandboxed import start
from cudal1_ci.sandboxed.confinement import (
    OWN_FOLDERS,
    SandboxError,
    kernel,
    landlock,
    missing,
    namespaces,
)
from cudal1_ci.sandboxed.forkserver import server
from cudal1_ci.sandboxed.forkserver.client import Template
from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure, RunnerHandle
from cudal1_ci.sandboxed.wire.programs import Program, TextProgram
from tests.templates import start_template
from tests.unit.sandboxed.messages import load_of, tree

SECRET = "ghs_a-token-of-the-host"
pytestmark = pytest.mark.starts_verifier

Run = Callable[..., Any]

PREAMBLE = """
import ctypes, errno, json, os, socket, subprocess, sys, tempfile, threading, time

def tried(call, *args):
    try:
        return repr(call(*args))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

def read(path):
    with open(path, "rb") as file:
        return file.read(4096).decode(errors="replace")

def write(path):
    with open(path, "w") as file:
        file.write("x")
    return "written"

libc = ctypes.CDLL(None, use_errno=True)

def called(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(one) for one in (number, *args)])
    return errno.errorcode[ctypes.get_errno()] if result == -1 else result

class Said(Exception):
    pass
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A template as a judge starts one, in the environment that the host leaves a judge."""
    home = tmp_path_factory.mktemp("home")
    environment = scrubbed_environment({**os.environ, "GITHUB_TOKEN": SECRET}, home, 2)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        started = start_template()
        yield started
        started.close()


def answer(runner: RunnerHandle, body: str, root: Path | None = None) -> Any:
    """What a program says of its attempts: the value of the expression at the end of its text."""
    *lines, last = textwrap.dedent(body).strip().splitlines()
    text = "\n".join([PREAMBLE, *lines, f"raise Said(json.dumps({last}))"])
    program: Program = TextProgram(source=text, entry="f")
    if root is not None:
        program = tree(root, "said:f", **{"said.py": text})
        (root / "said.py").write_text("")
    with pytest.raises(RunnerFailure) as failure:
        runner.ask(load_of(program), 60)
    error = failure.value.error
    assert error is not None and error.kind == "Said", (failure.value.message, runner.log())
    return json.loads(error.message)


@pytest.fixture
def run(template: Template) -> Run:
    """Run a text in a runner of its own."""

    def in_a_runner(body: str, root: Path | None = None) -> Any:
        with template.runner() as runner:
            return answer(runner, body, root)

    return in_a_runner


def needs(template: Template, *layers: str) -> None:
    """Skip where the kernel grants less."""
    absent = set(layers) & set(missing(template.sandbox))
    if absent:
        pytest.skip(f"not granted here: {', '.join(sorted(absent))}")


@pytest.fixture
def neighbor() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that holds a secret, as the host does."""
    environment = {**os.environ, "GITHUB_TOKEN": SECRET}
    with subprocess.Popen(["sleep", "120"], env=environment) as process:
        deadline = time.monotonic() + 5
        while SECRET not in Path(f"/proc/{process.pid}/environ").read_text():
            assert time.monotonic() < deadline, "the secret would be found by who may look"
        yield process
        process.kill()


# --- secrets and files -------------------------------------------------------------------------


def test_the_environment_holds_no_secret(template, run, neighbor):
    needs(template, "landlock")
    places = [f"/proc/{pid}/environ" for pid in ("self", 1, neighbor.pid, os.getpid())]
    half, rest = SECRET[:8], SECRET[8:]
    own, *found = run(
        f"""
        secret = {half!r} + {rest!r}
        texts = [json.dumps(dict(os.environ)), *(tried(read, place) for place in {places})]
        [[secret in text for text in texts], *(text[:6] for text in texts[2:])]
        """
    )
    assert own == [False] * 5
    assert found[0] in ("EACCES", "EPERM")
    assert set(found[1:]) <= {"ENOENT", "EACCES", "EPERM"}


def test_memory_of_other_processes_cannot_be_opened(template, run, neighbor):
    needs(template, "landlock")
    found = run(f"[tried(read, f'/proc/{{p}}/mem') for p in (1, {neighbor.pid}, {os.getpid()})]")
    assert set(found) <= {"ENOENT", "EACCES", "EPERM"}


def test_files_of_the_user_and_the_machine_cannot_be_read(template, run, tmp_path):
    needs(template, "landlock")
    secret = tmp_path / ".ssh" / "id_ed25519"
    secret.parent.mkdir()
    secret.write_text(SECRET)
    paths = [str(secret), str(template.scratch.parent / "log"), "/etc/shadow", "/root", "/home"]
    found = run(f"[tried(os.listdir if p in ('/root', '/home') else read, p) for p in {paths!r}]")
    assert set(found) <= {"EACCES", "ENOENT"}
    assert found[0] == found[2] == "EACCES"


def test_a_checkout_is_read_without_what_it_hides(template, run, tmp_path):
    needs(template, "landlock")
    for name in ("pkg", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(SECRET)
    (tmp_path / ".env").write_text(SECRET)
    outside = tmp_path.with_name(f"{tmp_path.name}-beside")
    outside.mkdir()
    (outside / "key").write_text(SECRET)
    (tmp_path / "link").symlink_to(outside)
    names = [".git/config", ".env", "link/key", "pkg/config"]
    found = run(f"[tried(read, name) for name in {names!r}] + [tried(write, 'pkg/new')]", tmp_path)
    assert found == ["EACCES", "EACCES", "EACCES", repr(SECRET), "EACCES"]


def test_a_checkout_that_is_a_home_or_the_root_shows_no_other_home(monkeypatch, tmp_path):
    user = tmp_path / "home" / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / "project").mkdir()
    monkeypatch.setattr(landlock, "home", lambda: str(user))
    whole = [path for path, rights in landlock.grants_of_checkout(str(user)) if rights != 8]
    assert whole == [str(user / "project")]
    above = [p for p, rights in landlock.grants_of_checkout(str(tmp_path)) if rights != 8]
    assert above == []
    assert list(landlock.grants_of_checkout("/")) == []


def test_nothing_is_written_outside_of_scratch(template, run, tmp_path):
    needs(template, "landlock")
    new = f"x-{uuid.uuid4().hex}"  # that is nothing yet
    folders = (tmp_path, "/tmp", Path.home(), sys.prefix, "/etc", "/dev", "/usr/local")
    paths = [f"{folder}/{new}" for folder in folders]
    paths += ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
    found = run(f"[tried(write, p) for p in {paths!r}] + [tried(write, 'inside')]")
    assert set(found[:-1]) <= {"EACCES", "EROFS", "ENOENT", "EPERM"}
    assert found[-1] == "'written'"
    assert not (tmp_path / "x").exists()


def test_disks_cannot_be_opened(template, run):
    needs(template, "landlock")
    disks = [str(path) for path in Path("/dev").iterdir() if path.is_block_device()]
    found = run(f"[tried(read, path) for path in {disks!r}]")
    assert set(found) <= {"EACCES", "EPERM", "ENXIO"}


def test_scratch_of_another_runner_cannot_be_read(template):
    needs(template, "landlock")
    with template.runner() as one, template.runner() as other:
        path = answer(one, "open('note', 'w').write('x')\nos.path.abspath('note')")
        assert answer(other, f"tried(read, {path!r})") in ("EACCES", "ENOENT")


# --- network and sockets -----------------------------------------------------------------------


def test_no_server_can_be_reached(template, run, tmp_path):
    needs(template, "seccomp")
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0cudal1-test-{os.getpid()}")
        abstract.listen()
        path = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        path.bind(str(tmp_path / "s"))
        port = tcp.getsockname()[1]
        found = run(reach(port, str(tmp_path / "s")))
    assert found == ["EPERM"] * 10 + [2, "None"]


def reach(port: int, path: str) -> str:
    """Every way to another process's socket, and what must be possible."""
    name = f"\\0cudal1-test-{os.getpid()}"
    return f"""
        def connect(family, kind, address):
            with socket.socket(family, kind) as s:
                s.connect(address)

        def over_datagrams(address):
            one, other = socket.socketpair(type=socket.SOCK_DGRAM)
            return one.sendto(b"x", address)

        def over_a_pair(address):
            one, other = socket.socketpair()
            one.connect(address)

        def listen():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.bind("\\0cuda-own")
                s.listen()

        found = [tried(connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port}))]
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            for address in ("{name}", {path!r}):
                found.append(tried(connect, socket.AF_UNIX, kind, address))
        found.append(tried(over_datagrams, {path!r}))
        found.append(tried(over_a_pair, "{name}"))
        found.append(tried(socket.create_server, ("127.0.0.1", 0)))
        found + [len(socket.socketpair()), tried(listen)]
        """


def test_the_network_namespace_has_no_way_out(template, run):
    needs(template, "network_namespace")
    lines = run("read('/proc/self/net/route').splitlines()")
    assert len(lines) <= 1, "a heading and no route"


# --- other processes ---------------------------------------------------------------------------


def test_dangerous_calls_are_refused(template, run):
    needs(template, "seccomp")
    names = ["ptrace", "process_vm_readv", "unshare", "mount", "bpf", "perf_event_open", "keyctl"]
    names += ["io_uring_setup", "userfaultfd", "pidfd_getfd", "kexec_load", "setns", "chroot"]
    numbers = [kernel.number_of(name) for name in names]
    clone, clone3 = kernel.number_of("clone"), kernel.number_of("clone3")
    body = f"[called(n, 0, 0, 0, 0, 0, 0) for n in {numbers}]"
    body += f" + [called({clone}, {namespaces.CLONE_NEWUSER | 17}, 0, 0, 0, 0)]"
    body += f" + [called({clone3}, 0, 0)]"
    found = run(body)
    assert found == ["EPERM"] * (len(names) + 1) + ["ENOSYS"]


def test_other_processes_cannot_be_signaled(template, neighbor):
    needs(template, "landlock", "pid_namespace")
    with template.runner() as sibling, template.runner() as runner:
        answer(sibling, "1")
        pids = [neighbor.pid, os.getpid(), template.pid, sibling.process.group]
        pids += [sibling.process.number, 1]
        found = answer(runner, f"[tried(os.kill, pid, 0) for pid in {pids} if pid != os.getpid()]")
        assert set(found) <= {"ESRCH", "EPERM"}
        found = answer(runner, "[name for name in os.listdir('/proc') if name.isdigit()]")
        assert len(found) == 2, "itself and the first process of its namespace"


def test_what_one_runner_shares_no_other_finds(template):
    needs(template, "ipc_namespace")
    with template.runner() as one, template.runner() as other:
        key = 0x0C0DA1
        assert answer(one, f"libc.shmget({key}, 4096, 0o1600) >= 0")
        assert answer(other, f"libc.shmget({key}, 4096, 0o600)") == -1


def test_mounts_are_neither_shared_nor_changed(template):
    """What a runner writes to its scratch is there for no other process, at the same path."""
    needs(template, "mount_namespace", "private_tmpfs")
    before = Path("/proc/self/mountinfo").read_text()
    with template.runner() as one, template.runner() as other:
        body = """
            home = os.environ["HOME"]
            open(home + "/mine", "w").close()
            mounts = [libc.mount(b"none", to, b"tmpfs", 0, None) for to in (b"/usr", b"/proc")]
            taken = [libc.umount2(one, 2) for one in (b"/proc", b"/dev/shm", home.encode())]
            [home, mounts + taken, os.path.exists(home + "/mine")]
            """
        home, refused, is_there = answer(one, body)
        assert (set(refused), is_there) == ({-1}, True)
        assert not Path(home, "mine").exists()
        assert not answer(other, f"os.path.exists({home + '/mine'!r})")
    assert Path("/proc/self/mountinfo").read_text() == before


def test_no_descriptors_are_inherited(run):
    assert run("sorted(os.listdir('/proc/self/fd'))") == ["0", "1", "2", "3", "4"], "4 lists"
    assert run("[os.readlink('/proc/self/fd/3')[:6], os.readlink('/proc/self/fd/0')]") == [
        "socket",
        "/dev/null",
    ]


def test_no_capability_is_left_or_regained(run):
    words = run("subprocess.run(['cat', '/proc/self/status'], capture_output=True).stdout.decode()")
    status = dict(line.split(":\t", 1) for line in words.splitlines() if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"


DAEMON = """
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        os.setpgid(0, 0)
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", name])
        os._exit(0)
    os.wait()
    time.sleep(0.3)
    return True
"""


def running(name: str) -> list[int]:
    """Processes with an argument."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def test_what_a_runner_leaves_behind_ends_with_it_and_no_earlier(template):
    names = [f"{900 + i}.{os.getpid()}" for i in range(2)]
    with template.runner() as first:
        answer(first, f"{DAEMON}\ndaemon({names[0]!r})")
        with template.runner() as second:
            answer(second, f"{DAEMON}\ndaemon({names[1]!r})")
            assert [len(running(name)) for name in names] == [1, 1]
        assert [len(running(name)) for name in names] == [1, 0]
    assert [len(running(name)) for name in names] == [0, 0]


def test_a_pause_stops_what_a_runner_started_too(template):
    needs(template, "seccomp")
    name = f"902.{os.getpid()}"
    with template.runner() as runner:
        answer(runner, f"{DAEMON}\ndaemon({name!r})")
        (pid,) = running(name)
        states = []
        for act in (runner.pause, runner.resume):
            act()
            time.sleep(0.1)
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    assert states == ["T", "S"]


def test_a_template_ends_all_of_its_runners(tmp_path, monkeypatch):
    name = f"903.{os.getpid()}"
    monkeypatch.setenv("HOME", str(tmp_path))
    template = start_template()
    with contextlib.suppress(Exception), template.runner() as runner:
        answer(runner, f"{DAEMON}\ndaemon({name!r})")
        assert running(name)
        os.kill(template.pid, signal.SIGKILL)
        os.waitpid(template.pid, 0)
        deadline = time.monotonic() + 5
        while running(name) and time.monotonic() < deadline:
            time.sleep(0.05)
    template.plain.channel.close()
    assert not running(name)


def test_a_template_keeps_no_descriptor_of_the_process_it_is_forked_from():
    heard, held = os.pipe()
    os.set_inheritable(held, True)
    started = start_template()
    os.close(held)
    try:
        assert select.select([heard], [], [], 10.0)[0]
        assert os.read(heard, 1) == b""
    finally:
        started.close()
        os.close(heard)


# --- limits ------------------------------------------------------------------------------------


def test_scratch_and_shared_memory_are_limited(template, run):
    needs(template, "private_tmpfs")
    found = run(
        """
        def fill(folder):
            for number in range(64):
                with open(f"{folder}/{number}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, 200 * 2**20)

        [tried(fill, "."), tried(fill, "/dev/shm")]
        """
    )
    assert found == ["ENOSPC", "ENOSPC"]
    assert not list(Path("/dev/shm").glob("0")), "it is the runner's own"


def test_processes_are_limited(template, run):
    needs(template, "process_limit")
    started_s = time.monotonic()
    found = run(
        """
        def bomb():
            for number in range(6000):
                os.posix_spawn("/bin/sleep", ["sleep", "904"], {})

        tried(bomb)
        """
    )
    assert found == "EAGAIN"
    assert time.monotonic() - started_s < 60
    assert not running("904")


def test_the_log_is_limited_and_its_end_can_be_read(template):
    with template.runner() as runner:
        found = answer(
            runner,
            """
            def shout():
                for _ in range(1024):
                    os.write(1, b"x" * 2**20)

            tried(shout)
            """,
        )
        assert found == "EFBIG"
        assert runner.log_path.stat().st_size <= namespaces.MAX_FILE_BYTES
        assert runner.log() == "x" * 4000
    assert runner.log() == "x" * 4000, "also after the end"
    assert not runner.log_path.exists()


def test_descriptors_that_a_runner_sends_do_not_pile_up(template):
    with template.runner() as runner:
        answer(runner, "1")
        before = len([*Path("/proc/self/fd").iterdir()])
        body = """
            import struct
            body = json.dumps(
                {"op": "raised", "kind": "Said", "message": "1", "traceback": "", "stage": None}
            ).encode()
            channel = socket.socket(fileno=3)
            socket.send_fds(channel, [struct.pack("!Q", len(body)) + body], [0] * 8)
            channel.detach()
            time.sleep(30)
            1
            """
        assert answer(runner, body) == 1
        assert len([*Path("/proc/self/fd").iterdir()]) == before


# --- what is granted ---------------------------------------------------------------------------


def test_what_was_granted_is_said_by_layer(template):
    assert list(template.sandbox) == [
        *("user_namespace", "network_namespace", "pid_namespace", "ipc_namespace"),
        *("mount_namespace", "private_proc", "private_tmpfs", "process_limit"),
        *("no_capabilities", "no_new_privs", "landlock", "seccomp"),
    ]
    assert json.loads(json.dumps(template.sandbox)) == template.sandbox


def test_what_is_missing_is_named():
    granted = {"landlock": 3, "seccomp": True, "pid_namespace": "refused: no", "mount": False}
    assert missing(granted) == ["pid_namespace", "mount"]


def test_a_runner_that_cannot_have_a_granted_layer_does_not_start(template, tmp_path):
    needs(template, "private_tmpfs")
    with pytest.raises(SandboxError, match="private_tmpfs was granted before"):
        template.fork(tmp_path / "absent", tmp_path / "log", [], None, template.plain)
    with template.runner() as runner:
        assert answer(runner, "1") == 1


def test_the_template_imports_no_code_of_a_checkout(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    assert server.warm(["planted"]) == 0
    assert not (tmp_path / "ran").exists()


def test_a_judge_is_not_to_be_looked_at(monkeypatch):
    calls = []
    monkeypatch.setattr(kernel, "prctl", lambda *args: calls.append(args))
    monkeypatch.setattr(start, "start_template", lambda *args: sys.exit(0))
    monkeypatch.setattr(start.socket, "socket", lambda fileno: None)
    with pytest.raises(SystemExit):
        start.main(["verifier", "0", "1", "cpu"])
    assert calls == [(kernel.PR_SET_DUMPABLE, 0)]


# --- what honest programs do -------------------------------------------------------------------


def test_torch_threads_and_subprocesses_work(run):
    found = run(
        """
        import torch
        torch.set_num_threads(2)
        total = float((torch.ones(512, 512) @ torch.ones(512, 512)).sum())
        made = []
        threads = [threading.Thread(target=made.append, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        echo = subprocess.run(["sh", "-c", "echo hi"], capture_output=True, start_new_session=True)
        [total, sorted(made), echo.stdout.decode(), os.cpu_count() > 0]
        """
    )
    assert found == [512.0**3, [0, 1, 2, 3], "hi\n", True]


def test_an_extension_is_compiled_and_loaded(run):
    source = 'extern "C" int twice(int x) { return 2 * x; }'
    found = run(
        f"""
        with open("twice.cpp", "w") as file:
            file.write({source!r})
        command = ["g++", "-shared", "-fPIC", "-o", "twice.so", "twice.cpp"]
        built = subprocess.run(command, capture_output=True)
        [built.stderr.decode(), ctypes.CDLL("./twice.so").twice(21)]
        """
    )
    assert found == ["", 42]


def test_temporary_files_and_caches_are_in_scratch(run):
    names = ["HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR"]
    names += ["CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR"]
    found = run(
        f"""
        with tempfile.NamedTemporaryFile() as file:
            place = file.name
        outside = [n for n in {names} if not os.environ[n].startswith(os.getcwd())]
        writable = [tried(write, os.environ[n] + "/x") for n in {names}]
        [place.startswith(os.getcwd()), outside, set(writable) == {{"'written'"}}]
        """
    )
    assert found == [True, [], True]


def test_a_process_of_ones_own_and_a_queue_work(template, run):
    needs(template, "private_tmpfs")
    found = run(
        """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=queue.put, args=(7,))
        child.start()
        got = queue.get(timeout=20)
        child.join()
        [got, child.exitcode]
        """
    )
    assert found == [7, 0]


CACHES = [name for name, inside in OWN_FOLDERS.items() if inside.startswith("cache/")]


def a_program(name: str) -> TextProgram:
    return TextProgram(source=name, entry="f")


def test_what_compilers_keep_is_there_for_the_next_runner_of_the_program(template):
    kept = f"[write(os.environ[name] + '/kernel') for name in {CACHES}]"
    again = f"[tried(read, os.environ[name] + '/kernel') for name in {CACHES}]"
    assert {"TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"} <= {*CACHES}
    with template.runner(a_program("one")) as runner:
        answer(runner, kept)
    with template.runner(a_program("one")) as runner:
        assert answer(runner, again) == ["'x'"] * len(CACHES)
    with template.runner(a_program("another")) as runner:
        assert answer(runner, again) == ["ENOENT"] * len(CACHES)


def test_what_another_program_builds_can_be_neither_read_nor_written(template, tmp_path):
    needs(template, "landlock")
    builds = template.builds
    assert builds.keep_in(tmp_path / "store", "software", 2**30)
    try:
        with builds.use(a_program("reference")) as other, builds.use(a_program("mine")) as own:
            (other / "kernel.so").write_text("honest")
            with template.runner(a_program("mine")) as runner:
                found = answer(
                    runner,
                    f"""
                    other, own = {str(other)!r}, {str(own)!r}
                    lock = os.path.dirname(own) + "/lock"
                    found = [
                        tried(read, other + "/kernel.so"),
                        tried(write, other + "/kernel.so"),
                        tried(write, other + "/new.so"),
                        tried(os.link, other + "/kernel.so", own + "/kernel.so"),
                        tried(os.rename, own, other + "/mine"),
                        tried(os.rename, other, own + "/other"),
                        tried(os.unlink, lock),
                        tried(write, os.path.dirname(own) + "/size"),
                        tried(os.mkdir, os.path.dirname(os.path.dirname(own)) + "/made"),
                        tried(os.listdir, os.path.dirname(os.path.dirname(own))),
                        tried(write, own + "/kernel.so"),
                    ]
                    found
                    """,
                )
            assert (other / "kernel.so").read_text() == "honest"
    finally:
        builds.store = None
    *refused, allowed = found
    assert all(one in ("EACCES", "EXDEV", "EPERM") for one in refused), found
    assert allowed == "'written'"


def test_a_program_that_breaks_its_folder_builds_anew(template):
    with template.builds.use(a_program("breaker")) as folder:
        (folder / "cache").write_text("no folder")
    with template.runner(a_program("breaker")) as runner:
        assert answer(runner, "write(os.environ['TRITON_CACHE_DIR'] + '/kernel')") == "written"


def test_variables_for_compilers_are_those_that_the_judge_names(template):
    template.environment["TORCH_CUDA_ARCH_LIST"] = "9.0"
    try:
        with template.runner() as runner:
            assert answer(runner, "os.environ['TORCH_CUDA_ARCH_LIST']") == "9.0"
    finally:
        del template.environment["TORCH_CUDA_ARCH_LIST"]


@pytest.mark.parametrize("gpu", [True, False])
def test_a_builder_cannot_open_a_gpu(tmp_path, monkeypatch, gpu):
    devices = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps", "/dev/dri", "/dev/kfd"]
    listed = tuple((path, landlock.DEVICE) for path in [*devices, "/dev/null"])
    monkeypatch.setattr(landlock, "readable", lambda search_path: listed)
    granted = {path for path, _ in landlock.grants(tmp_path, [], None, False, gpu)}
    assert "/dev/null" in granted
    assert granted.issuperset(devices) if gpu else granted.isdisjoint(devices)


def test_a_hidden_device_cannot_be_opened(template, run):
    needs(template, "landlock")
    body = "[tried(read, '/dev/full')[:3], tried(read, '/dev/zero')[:3]]"
    opened, refused = "'\\x", "EAC"
    assert run(body) == [opened, opened]
    template.hidden = ("/dev/zero",)
    try:
        assert run(body) == [opened, refused]
    finally:
        template.hidden = ()


def test_a_crash_is_told_by_its_signal(template):
    with template.runner() as runner, pytest.raises(AssertionError, match="SIGSEGV"):
        answer(runner, "os.kill(os.getpid(), 11)")


WITHOUT_SETFCAP = """
import os, sys
from cudal1_ci.sandboxed.confinement import kernel, namespaces
if len(sys.argv) == 1:
    kernel.prctl(kernel.PR_CAPBSET_DROP, 31)
    os.execv(sys.executable, [sys.executable, "-c", os.environ["TEXT"], "again"])
try:
    namespaces.enter_user_namespace()
    print("entered", os.geteuid())
except PermissionError:
    print("refused", os.geteuid())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lack the right to be itself")
def test_root_that_may_not_map_itself_stays_where_it_is():
    """As in a container without capabilities; in a namespace without a map it would be nobody."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SETFCAP],
        env={**os.environ, "TEXT": WITHOUT_SETFCAP},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["refused", "0"]


def test_a_rehearsal_says_what_would_go_wrong_and_changes_nothing(tmp_path):
    def fail() -> None:
        os.chdir("/")
        raise OSError(errno.ENOSPC, "full")

    before = Path.cwd()
    with pytest.raises(OSError, match="No space left") as caught:
        namespaces.rehearse(fail)
    assert caught.value.errno == errno.ENOSPC
    namespaces.rehearse(lambda: os.chdir("/"))
    assert Path.cwd() == before


@pytest.mark.compiles
def test_what_compiles_starts_no_other_process(run: Run) -> None:
    """Inductor's others would run beside what is timed."""
    body = """
    import torch
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile
    compiled = torch.compile(lambda x: torch.relu(x) + 1)
    compiled(torch.ones(8))
    has_pool = getattr(AsyncCompile, "use_process_pool", lambda: False)  # not in torch 2.6
    [config.compile_threads, has_pool()]
    """
    assert run(body) == [1, False]
