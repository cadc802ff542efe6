"""Runners that are begun before there is a program for them: on a CPU, where they are as others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.forkserver import spare_runners
from cudal1_ci.sandboxed.timing.giving_way import Turn
from cudal1_ci.sandboxed.wire.programs import TextProgram
from cudal1_ci.sandboxed.wire.runner import ListImported, Wake
from tests.templates import start_template
from tests.unit.sandboxed import messages
from tests.unit.verification.test_session import alive

LOAD_S = 60.0
pytestmark = pytest.mark.starts_verifier

PROGRAM = """
import os
import torch

made = os.path.join(os.environ["XDG_CACHE_HOME"], "made")
SEEN = os.path.exists(made)
{build}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.tensor(SEEN))
"""
BUILDS = 'open(made, "w").write("x")'


@pytest.fixture(params=["kept", pytest.param("of the session", marks=pytest.mark.slow)])
def template(request, tmp_path):
    started = start_template()
    if request.param == "kept":
        assert started.builds.keep_in(tmp_path / "store", "torch", 2**30)
    started.device = "cpu"
    yield started
    started.close()


def text(build: str = BUILDS, number: int = 0) -> TextProgram:
    return messages.text(PROGRAM.format(build=build) + f"# {number}\n")


def load(runner, program):
    return runner.ask(messages.load_of(program), LOAD_S)


def pid_of(template) -> int:
    """Of the process that waits, as it is seen from here."""
    return template.plain.spares.one.runner.process.group


def test_the_next_program_is_loaded_by_the_process_that_waits(template):
    with template.runner(text()) as runner:
        load(runner, text())
        waiting = pid_of(template)
        assert runner.process.group != waiting
    other = text(number=1)
    with template.runner(other) as runner:
        load(runner, other)
        assert runner.process.group == waiting
        assert pid_of(template) not in (None, waiting)
    template.plain.spares.settle()
    assert alive(pid_of(template)) and not alive(waiting)


class Looks(Turn):
    """Counts, and does something at one of them; nobody else is there."""

    def __init__(self, at=None, then=None):
        self.count, self.at, self.then = 0, at, then

    def look(self):
        self.count += 1
        if self.count == self.at:
            self.then()

    def awake_s(self):
        return time.monotonic()


def test_who_wants_to_time_does_not_wait_for_it(template):
    with template.runner(text()) as runner:
        load(runner, text())
    waiting = template.plain.spares
    waiting.settle()
    process = waiting.one.runner.process
    process.signal(signal.SIGSTOP)
    template.turn = looks = Looks(5, lambda: process.signal(signal.SIGCONT))
    waiting.one.is_awake = False
    waiting.one.runner.channel.send(Wake(device="cpu"))
    waiting.settle()
    template.turn = None
    assert 5 <= looks.count <= 12
    assert waiting.one.is_awake


def test_of_requests_that_are_answered_at_once_each_gives_way(template):
    with template.runner(text()) as runner:
        load(runner, text())
        template.turn = looks = Looks()
        for _ in range(5):
            runner.ask(ListImported(), LOAD_S)
        template.turn = None
    assert looks.count >= 5


def test_what_it_builds_is_found_by_the_programs_next_runner_alone(template):
    with template.runner(text()) as runner:
        load(runner, text())
    other = text(number=1)
    waiting = []
    for _ in range(2):
        with template.runner(other) as runner:
            waiting.append(pid_of(template))
            load(runner, other)
            assert (runner.cache / "cache" / "made").exists()
            is_spare = runner.process.group == waiting[-1]
        assert is_spare == (len(waiting) == 1)
    third = text("assert SEEN is False", number=2)
    with template.runner(third) as runner:
        load(runner, third)
        assert runner.process.group == waiting[-1]


COMPILES = """
import os
import sys
import torch
assert "torch._inductor.codecache" in sys.modules  # as whoever asks for torch.compile finds it
from torch._inductor import codecache
cache, scratch = os.getenv("XDG_CACHE_HOME"), os.getenv("TMPDIR")
for place, own in (codecache.cache_dir(), cache), (codecache._HEADER_DIR, scratch):
    assert place.startswith(own), (place, own)
Model = torch.nn.Identity
"""


@pytest.mark.compiles
def test_programs_that_compile_have_one_of_their_own(template):
    """It has the compiler imported, and builds in the folder of the program that it is given."""
    with template.runner(text()) as runner:
        load(runner, text())
    plain = pid_of(template)
    for number in (1, 2, 3):
        source = f"{COMPILES}# {number}\n"
        program = messages.text(source)
        waiting = template.compiling
        before = None if waiting is None else waiting.spares.one.runner.process.group
        with template.runner(program) as runner:
            load(runner, program)
            assert (runner.process.group == before) is (number > 1)
            assert pid_of(template) == plain
    waiting = template.compiling.spares.one.runner.process.group
    template.settle()
    assert alive(waiting)
    template.warm(["wave"])
    assert not alive(waiting)
    template.close()
    assert template.compiling.spares.one is None


def test_what_it_built_is_kept_for_later_sessions(template, tmp_path):
    for number in (0, 1):
        with template.runner(text(number=number)) as runner:
            load(runner, text(number=number))
    template.plain.spares.close()
    template.builds.close()
    found = sorted((tmp_path / "store" / "torch").glob("*/products/cache/made"))
    entries = sorted((tmp_path / "store" / "torch").glob("*"))
    num = 2 if template.builds.store else 0
    assert len(found) == num
    assert len([one for one in entries if one.is_dir()]) == num
    assert not any("fresh" in str(one) for one in [*entries, *found])


def test_two_runners_of_one_program_at_a_time(template):
    program = text("")
    with template.runner(program) as one, template.runner(program) as other:
        load(one, program)
        waiting = pid_of(template)
        load(other, program)
        assert other.process.group == waiting
        assert other.cache != one.cache and other.cache.exists()
        beside = other.cache
    template.plain.spares.close()
    template.builds.close()
    assert not beside.exists()


@pytest.mark.parametrize("how", ["new", "checkout", "environment", "dead", "mute"])
def test_no_spare_one(template, monkeypatch, how, tmp_path):
    with template.runner(text()) as runner:
        load(runner, text())
    waiting = pid_of(template)
    if how == "environment":
        template.environment["TORCH_CUDA_ARCH_LIST"] = "9.0"
    if how == "dead":
        os.kill(waiting, 9)
        assert template.plain.spares.one.runner.process.has_ended(10.0)
    if how == "mute":
        monkeypatch.setattr(spare_runners, "WAKE_S", 0.1)
        template.plain.spares.one.runner.channel.receive_body(LOAD_S)
    other = text(number=1)
    with template.runner(other, is_new=how == "new") as runner:
        if how == "checkout":
            runner.start([str(tmp_path)], "cpu", LOAD_S)
        else:
            load(runner, other)
        assert runner.process.group != waiting
    stays = how in ("new", "checkout")
    assert (pid_of(template) == waiting) == stays
    assert alive(waiting) == stays


def test_a_program_that_asks_for_nothing_of_the_device_gets_none(template):
    with template.runner(text()) as runner:
        runner.ask(ListImported(), LOAD_S)
    assert template.plain.spares.one is None


def test_modules_that_are_imported_for_all_are_there_in_it(template):
    with template.runner(text()) as runner:
        load(runner, text())
    waiting = pid_of(template)
    template.warm(["wave"])
    renewed = pid_of(template)
    assert renewed != waiting and not alive(waiting)
    template.warm(["wave"])
    assert pid_of(template) == renewed
    program = text("import sys; assert 'wave' in sys.modules", number=1)
    with template.runner(program) as runner:
        load(runner, program)
        assert runner.process.group == renewed


def test_nothing_is_left_of_one_that_nobody_took(template):
    with template.runner(text()) as runner:
        load(runner, text())
    waiting = pid_of(template)
    template.plain.spares.close()
    assert template.plain.spares.one is None and not alive(waiting)
    assert [one.name for one in Path(template.scratch).glob("r*")] == []
    template.plain.spares.settle()
    template.plain.spares.renew()
    assert template.plain.spares.one is None
