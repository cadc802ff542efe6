"""Builds on another machine: what is asked of whom, with builders that build nothing, and with real
ones, of which one is taken for another machine's."""

from __future__ import annotations

import shutil
import time

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import Local
from cudal1_ci.processes.elsewhere import BuildsElsewhere, TwoBuilders, is_portable

OPENED = {
    "is_kept": True,
    "num_at_once": 2,
    "software": "torch-1",
    "store": "/store",
    "sandbox_missing": ["cgroup"],
}
OPEN = {"op": "open", "store": {"folder": "/store"}, "cores": [0], "num_at_once": 2}
ERROR = {"rule": "program.compile", "message": "main.cpp:1:1: error: no"}


class Builder:
    """Ends what it was given once it is asked for it, and has it built."""

    def __init__(self, **opened):
        self.opened = OPENED | opened
        self.asked, self.numbers, self.verdicts = [], [], {}
        self.is_closed = self.is_lost = False
        self.pid, self.software = 7, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self.is_closed = True

    def ask(self, request, timeout_s):
        assert not self.is_closed
        if self.is_lost:
            raise WorkerError("gone")
        self.asked.append(request)
        if request["op"] == "open":
            return self.opened
        if request["op"] == "begin":
            self.numbers.append(request["number"])
        if request["op"] == "pack":
            return {"key": f"key of {request['program']['source']}", "parcel": "parcel"}
        if request["op"] == "poll":
            ended, self.numbers = self.numbers, []
            return {"ended": [{"number": n, "verdict": self.verdicts.get(n)} for n in ended]}
        return {}

    def ops(self, *but):
        return [one["op"] for one in self.asked if one["op"] not in but]


def text(source="load_inline()"):
    return {"type": "text", "source": source, "entry": "Model"}


def begin(number, source="load_inline()"):
    return {"op": "begin", "number": number, "program": text(source), "limit_s": 9.0}


POLL = {"op": "poll", "wait_s": 0.0}
DONE = [{"number": 1, "verdict": None}]


def test_what_is_built_elsewhere_is_put_here():
    here, there = Builder(), Builder(num_at_once=30, sandbox_missing=[])
    with TwoBuilders(here, lambda: there) as both:
        assert both.ask(OPEN, 9)["num_at_once"] == 30
        assert both.ask(begin(1), 9) == {}
        assert both.ask(POLL, 9) == {"ended": DONE}
        assert both.pid == 7
    assert there.ops() == ["open", "begin", "poll", "pack"]
    assert here.ops("poll") == ["open", "unpack"]
    unpacked = {
        "op": "unpack",
        "program": text(),
        "key": "key of load_inline()",
        "parcel": "parcel",
    }
    assert unpacked in here.asked
    assert here.is_closed and there.is_closed


@pytest.mark.parametrize("verdict", [None, ERROR])
def test_what_does_not_compile_there_is_compiled_here_which_alone_counts(verdict):
    """A header may be missing on that machine."""
    here, there = Builder(), Builder()
    there.verdicts[1], here.verdicts[1] = ERROR | {"message": "no such file"}, verdict
    with TwoBuilders(here, lambda: there) as both:
        both.ask(OPEN, 9)
        both.ask(begin(1), 9)
        assert both.ask(POLL, 9) == {"ended": [{"number": 1, "verdict": verdict}]}
        both.ask({"op": "cancel", "number": 1}, 9)
    assert there.ops() == ["open", "begin", "poll"]
    assert here.ops() == ["open", "begin", "poll", "cancel"]
    assert here.asked[1] == begin(1)


@pytest.mark.parametrize(
    "other",
    [
        {"software": "torch-2"},
        {"store": "/elsewhere"},
        {"is_kept": False},
        {"sandbox_missing": ["cgroup", "network"]},
    ],
)
def test_a_machine_that_builds_otherwise_builds_nothing(other):
    """Or under another path, by which ninja would build it anew, or confines less."""
    here, there = Builder(), Builder(**other)
    with TwoBuilders(here, lambda: there) as both:
        assert both.ask(OPEN, 9) == OPENED
        assert there.is_closed
        both.ask(begin(1), 9)
        assert both.ask(POLL, 9) == {"ended": DONE}
    assert there.ops() == ["open"] and here.ops() == ["open", "begin", "poll"]


def test_where_there_is_no_other_machine_it_is_as_without():
    for found in (lambda: None, refused):
        here = Builder()
        with TwoBuilders(here, found) as both:
            assert both.ask(OPEN, 9) == OPENED
            both.ask(begin(1), 9)
            assert both.ask(POLL, 9) == {"ended": DONE}
        assert here.ops() == ["open", "begin", "poll"]


def refused():
    raise WorkerError("Ray does not answer")


def test_where_nothing_is_kept_here_nobody_is_asked_elsewhere():
    here = Builder(is_kept=False)
    with TwoBuilders(here, refused) as both:
        assert not both.ask(OPEN, 9)["is_kept"]


@pytest.mark.parametrize("flag", ["-march=native", "-mtune=native", "-mcpu=native"])
def test_what_is_for_its_own_processor_is_built_here(flag):
    source = f"load_inline(extra_cflags=['{flag}'])"
    assert not is_portable(text(source)) and is_portable(text("load_inline(march_of_time)"))
    here, there = Builder(), Builder()
    with TwoBuilders(here, lambda: there) as both:
        both.ask(OPEN, 9)
        both.ask(begin(1, source), 9)
        both.ask(begin(2), 9)
        ended = both.ask(POLL, 9)["ended"]
        both.ask({"op": "cancel", "number": 1}, 9)
    assert {one["number"] for one in ended} == {1, 2}
    assert there.ops() == ["open", "begin", "poll", "pack"]
    assert here.ops("poll") == ["open", "begin", "unpack", "cancel"]


@pytest.mark.parametrize("when", ["begin", "poll", "pack"])
def test_a_machine_that_is_lost_costs_its_builds_and_nothing_else(when):
    here, there = Builder(), Builder()
    with TwoBuilders(here, lambda: there) as both:
        both.ask(OPEN, 9)
        there.is_lost = when == "begin"
        both.ask(begin(1), 9)
        there.is_lost = there.is_lost or when == "poll"
        if when == "pack":
            ask = there.ask

            def asked(request, timeout_s):
                there.is_lost = request["op"] == "pack"
                return ask(request, timeout_s)

            there.ask = asked
        assert both.ask(POLL, 9) == {"ended": DONE}
        assert there.is_closed
        both.ask(begin(2), 9)
        assert both.ask(POLL, 9) == {"ended": [{"number": 2, "verdict": None}]}
    assert here.ops("poll") == ["open", "begin"]


def test_a_build_that_takes_too_long_is_ended_where_it_is():
    here, there = Builder(), Builder()
    with TwoBuilders(here, lambda: there) as both:
        both.ask(OPEN, 9)
        both.ask(begin(1), 9)
        both.ask({"op": "cancel", "number": 1}, 9)
    assert there.ops() == ["open", "begin", "cancel"] and here.ops() == ["open"]


def test_other_workers_are_what_they_were():
    class Executor:
        has_disk = True

        def start(self, role, **how):
            return (role, how)

    executor = BuildsElsewhere(Executor(), refused)
    assert executor.has_disk
    assert executor.start("judge", num_threads=1, device="cpu") == (
        "judge",
        {"num_threads": 1, "device": "cpu"},
    )


SOURCE = """
import os, uuid
from pathlib import Path

# as load_inline does
folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "made"
if not folder.exists():
    folder.mkdir(parents=True)
    (folder / "made.so").write_text(uuid.uuid4().hex)
"""


class OtherMachine:
    """A real builder with a store of its own, which it says to be where that of this machine is."""

    def __init__(self, worker, store, said):
        self.worker, self.store, self.said = worker, store, said

    def ask(self, request, timeout_s):
        if request["op"] != "open":
            return self.worker.ask(request, timeout_s)
        request |= {"store": {"folder": str(self.store), "max_bytes": 2**30}}
        return self.worker.ask(request, timeout_s) | {"store": str(self.said)}

    def close(self):
        self.worker.__exit__(None, None, None)


def ended(both, within_s=60):
    until_s = time.monotonic() + within_s
    while not (found := both.ask({"op": "poll", "wait_s": 1.0}, 60)["ended"]):
        assert time.monotonic() < until_s
    return found


def made_in(store):
    return [path.read_text() for path in store.rglob("made.so")]


@pytest.mark.starts_verifier
def test_what_one_builder_has_built_another_one_finds(tmp_path):
    """Through both stores, sandboxes and sockets; a second program finds nothing of the first."""
    store, other = tmp_path / "here", tmp_path / "there"
    worker = Local().start("builder", num_threads=1, device="none").__enter__()
    remote = OtherMachine(worker, other, store)
    executor = BuildsElsewhere(Local(), lambda: remote)
    opens = {
        "op": "open",
        "store": {"folder": str(store), "max_bytes": 2**30},
        "architecture": None,
        "cores": [0],
        "num_at_once": 1,
    }
    with executor.start("builder", num_threads=1, device="none") as both:
        said = both.ask(opens, 60)
        if not said["is_kept"]:
            pytest.skip("nothing is kept without Landlock")
        both.ask(begin(1, SOURCE), 60)
        assert ended(both) == DONE
        (made,) = made_in(other)
        assert made_in(store) == [made]
        # It is built no more: here, what came is found, and nothing takes its place.
        remote.close()
        both.ask(begin(2, SOURCE), 60)
        assert ended(both) == [{"number": 2, "verdict": None}]
        both.ask(begin(3, SOURCE), 60)
        assert ended(both) == [{"number": 3, "verdict": None}]
        assert made_in(store) == [made]
        both.ask(begin(4, SOURCE + "# another"), 60)
        assert ended(both) == [{"number": 4, "verdict": None}]
        assert len(set(made_in(store))) == 2


EXTENSION = """
from torch.utils.cpp_extension import load_inline

load_inline("made", cpp_sources="int one() { return 1; }", functions=["one"])
"""


@pytest.mark.slow
@pytest.mark.starts_verifier
def test_what_arrives_under_the_same_path_is_compiled_no_more(tmp_path):
    """By ninja, which looks at times and at what it noted of them."""
    store = tmp_path / "store"
    opens = {
        "op": "open",
        "store": {"folder": str(store), "max_bytes": 2**30},
        "architecture": None,
        "cores": [0, 1],
        "num_at_once": 1,
    }

    def times():
        return {path.name: path.stat().st_mtime_ns for path in store.rglob("*.[so]*")}

    with Local().start("builder", num_threads=1, device="none") as there:
        if not there.ask(opens, 60)["is_kept"]:
            pytest.skip("nothing is kept without Landlock")
        there.ask(begin(1, EXTENSION) | {"limit_s": 280.0}, 60)
        assert ended(there, 280) == DONE
        parcel = there.ask({"op": "pack", "program": text(EXTENSION)}, 60)
    before = times()
    assert {"made.so", "main.o"} <= set(before)
    shutil.rmtree(store)
    with Local().start("builder", num_threads=1, device="none") as here:
        here.ask(opens, 60)
        asked = {"op": "unpack", "program": text(EXTENSION), **parcel}
        assert here.ask(asked, 60) == {"is_there": True}
        here.ask(begin(1, EXTENSION) | {"limit_s": 280.0}, 60)
        assert ended(here, 280) == DONE
    assert times() == before
