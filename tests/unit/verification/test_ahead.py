"""The order of builds and verdicts, with a builder that builds nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import lock
from cudal1_ci.records import Candidate, OverlayFile, TextProgram, TreeProgram
from cudal1_ci.verification import BuildsConfig, prebuild
from cudal1_ci.verification.prebuild import Ahead, Site, compiles, site_for

HERE = Site(lock=None, architecture=None, cores=(0,), num_at_once=1)
ERROR = {"rule": "program.compile", "message": "main.cpp:1:1: error: no"}


class FakeBuilder:
    """An executor, and its only worker, which ends a build when the test says so."""

    has_disk = True
    pid = 0
    software: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}
        self.cancelled: list[int] = []
        self.ended: list[dict[str, Any]] = []
        self.opened: dict[str, Any] = {}
        self.answers_cancel = True
        self.dies = False
        self.is_closed = False

    def start(self, role: str, *, num_threads: int, device: str) -> FakeBuilder:
        assert (role, num_threads, device) == ("builder", 1, "none")
        return self

    def __enter__(self) -> FakeBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self.is_closed = True

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self.dies or self.is_closed:
            raise WorkerError("gone")
        if request["op"] == "open":
            self.opened = request
            return {"is_kept": True, "num_at_once": 1}
        if request["op"] == "begin":
            self.begun[request["program"]["source"]] = request["number"]
        if request["op"] == "cancel":
            self.cancelled.append(request["number"])
            if self.answers_cancel:
                self.ended.append({"number": request["number"], "verdict": None})
        if request["op"] == "poll":
            time.sleep(0.01)
            ended, self.ended = self.ended, []
            return {"ended": ended}
        return {}

    def end(self, candidate: Candidate, verdict: dict[str, Any] | None = None) -> None:
        """Once it was begun."""
        source = candidate.program.source  # type: ignore[union-attr]
        until(lambda: source in self.begun)
        self.ended.append({"number": self.begun[source], "verdict": verdict})


def until(condition: Any) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def builder() -> FakeBuilder:
    return FakeBuilder()


@pytest.fixture
def builds(builder: FakeBuilder) -> Iterator[Ahead]:
    found = Ahead(BuildsConfig(), builder, threads=1, limit_s=10)
    yield found
    found.close()


def candidate(source: str = "load_inline()") -> Candidate:
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id="p", program=program, proposer="fake")


PLAIN = candidate("class ModelNew: ...")
ONE, TWO = candidate("load_inline(1)"), candidate("load_inline(2)")


def test_a_text_that_compiles_something_is_told_from_others():
    for text in ("load_inline(name='x')", "from torch.utils import cpp_extension", "RawKernel(s)"):
        assert compiles(TextProgram(source=text, entry="Model"))
    for text in ("x @ y", "@triton.jit\ndef kernel(): ...", "downloads(x)"):
        assert not compiles(TextProgram(source=text, entry="Model"))
    file = OverlayFile(path="m.py", text="load_inline(name='x')")
    tree = TreeProgram(root="/r", import_root=".", import_path="m:M", digest="d", overlay=(file,))
    assert compiles(tree)
    native = OverlayFile(path="csrc/k.cu", text="__global__ void k() {}")
    assert compiles(msgspec.structs.replace(tree, overlay=(native,)))


def test_on_a_cpu_builds_hold_the_lock_and_on_a_gpu_they_have_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(prebuild.os, "sched_getaffinity", lambda pid: set(range(8)))
    cpu = site_for("cpu", "cpu", None, 1, None)
    assert (cpu.lock, cpu.cores, cpu.num_at_once) == ("cpu", tuple(range(8)), 8)
    gpu = site_for("cuda", "GPU-1", "9.0", 1, None)
    assert (gpu.lock, gpu.cores, gpu.num_at_once) == (None, tuple(range(4)), 4)
    assert site_for("cuda", "GPU-1", "9.0", 1, 2).num_at_once == 2
    monkeypatch.setattr(prebuild.os, "sched_getaffinity", lambda pid: {0, 1})
    small = site_for("cuda", "GPU-1", "9.0", 1, None)
    assert (small.lock, small.cores) == ("GPU-1", (0, 1))


def test_those_that_are_built_come_before_those_that_are_not(builds, builder):
    builds.start([ONE, PLAIN, TWO], HERE)
    turns = builds.in_turn([ONE, PLAIN, TWO])
    assert next(turns) is PLAIN
    builder.end(TWO)
    assert next(turns) is TWO
    builder.end(ONE)
    assert next(turns) is ONE
    assert next(turns, None) is None
    assert set(builder.begun) == {"load_inline(1)", "load_inline(2)"}


def test_a_build_is_waited_for_until_it_is_over_and_ends_with_the_session(builds, builder):
    spent = threading.Event()
    builds.limit_s = 600
    builds.start([ONE, PLAIN], HERE)
    turns = builds.in_turn([ONE, PLAIN], spent.is_set)
    assert next(turns) is PLAIN
    found: list[Candidate] = []
    thread = threading.Thread(target=lambda: found.extend(turns))
    thread.start()
    until(lambda: builder.begun)
    thread.join(0.5)
    assert thread.is_alive() and not found
    spent.set()
    thread.join(5)
    assert found == [ONE]
    assert not builder.is_closed
    builds.close()
    assert builder.is_closed


def test_what_is_built_comes_first_also_when_it_is_over(builds, builder):
    builds.start([ONE, TWO], HERE)
    builder.end(TWO)
    until(lambda: builds._builds[TWO.id].state == "done")
    assert list(builds.in_turn([ONE, TWO], lambda: True)) == [TWO, ONE]


def test_a_candidate_is_not_judged_while_it_is_built(builds, builder):
    builds.start([ONE], HERE)
    settled = threading.Event()

    def settle() -> None:
        builds.settle(ONE)
        settled.set()

    thread = threading.Thread(target=settle)
    thread.start()
    until(lambda: builder.begun)
    assert not settled.wait(0.2)
    builder.end(ONE)
    assert settled.wait(5)
    thread.join()


def test_what_the_compiler_said_is_the_verdict_and_is_not_asked_for_twice(builds, builder):
    builds.start([ONE], HERE)
    builder.end(ONE, {"status": "compile_error", "findings": [ERROR], "log": "long"})
    for _ in range(2):
        verdict = builds.settle(ONE)
        assert verdict is not None
        assert verdict.status == "compile_error"
        assert verdict.findings[0].message == "main.cpp:1:1: error: no"
    builds.start([ONE], HERE)
    assert len(builder.begun) == 1


def test_a_build_that_takes_too_long_is_ended_before_the_judge_begins(builds, builder):
    builds.limit_s = 0.1
    builds.start([ONE], HERE)
    until(lambda: builder.begun)
    assert builds.settle(ONE) is None
    assert set(builder.cancelled) == {0}
    assert not builder.is_closed


def test_a_builder_that_does_not_end_a_build_is_ended_itself(builds, builder, monkeypatch):
    monkeypatch.setattr(prebuild, "CANCEL_S", 0.1)
    builder.answers_cancel = False
    builds.limit_s = 0.1
    builds.start([ONE, TWO], HERE)
    until(lambda: len(builder.begun) == 2)
    assert builds.settle(ONE) is None
    assert builder.is_closed
    assert builds.settle(TWO) is None


def test_a_builder_that_dies_costs_nothing_but_its_builds(builds, builder):
    builder.dies = True
    builds.start([ONE, TWO], HERE)
    assert list(builds.in_turn([ONE, TWO])) == [ONE, TWO]
    assert builds.settle(ONE) is None


@pytest.mark.parametrize("config", [BuildsConfig(num_processes=0), BuildsConfig(keep=False)])
def test_nothing_is_built_ahead_where_that_is_switched_off(builder, config):
    builds = Ahead(config, builder, threads=1, limit_s=10)
    builds.start([ONE], HERE)
    assert builds.settle(ONE) is None
    assert builder.opened == {}


def test_builds_wait_for_a_measurement_and_a_measurement_for_builds(
    builds, builder, tmp_path, monkeypatch
):
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    site = Site(lock="cpu", architecture=None, cores=(0,), num_at_once=1)
    with lock.exclusive("cpu"):
        builds.start([ONE], site)
        time.sleep(0.2)
        assert builder.begun == {}
    until(lambda: builder.begun)
    timed = threading.Event()

    def measure() -> None:
        with lock.exclusive("cpu"):
            timed.set()

    thread = threading.Thread(target=measure)
    thread.start()
    assert not timed.wait(0.2)
    builder.end(ONE)
    assert timed.wait(5)
    thread.join()


def test_a_session_that_ends_ends_its_builder(builds, builder):
    builds.start([ONE], HERE)
    until(lambda: builder.begun)
    builds.close()
    assert builder.is_closed
    assert not [t for t in threading.enumerate() if t.name.startswith("builds")]


def test_the_builder_is_told_where_what_and_for_which_device(builds, builder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    builds.start([ONE], Site(lock=None, architecture="9.0", cores=(1, 2), num_at_once=2))
    until(lambda: builder.begun)
    assert builder.opened == {
        "op": "open",
        "store": {"folder": "/caches/cudal1-ci/builds", "max_bytes": 2 * 2**30},
        "architecture": "9.0",
        "cores": [1, 2],
        "num_at_once": 2,
    }


def test_the_store_is_the_user_s_unless_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert BuildsConfig().place() == tmp_path / ".cache" / "cudal1-ci" / "builds"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert BuildsConfig().place() == tmp_path / ".cache" / "cudal1-ci" / "builds"
    assert BuildsConfig(folder="~/mine").place() == tmp_path / "mine"
