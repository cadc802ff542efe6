"""What a timed call may hand over: what the same program's first call returned the form of."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory import committed as committed_module
from cudal1_ci.sandboxed.memory.committed import COMMITTED, CommittedSegment, WrittenSegment
from cudal1_ci.sandboxed.memory.segment import Segment, slot_of
from cudal1_ci.sandboxed.runner import batches as batches_module
from cudal1_ci.sandboxed.runner.autocast import Autocast
from cudal1_ci.sandboxed.runner.batches import Batches
from cudal1_ci.sandboxed.wire.tensors import OutputSlot


class Other(torch.Tensor):
    pass


@pytest.fixture(params=[False, True], ids=["late", "early"])
def batches(request):
    """One call of one output, of two float32 on the CPU."""
    segment = Segment.create(4096)
    subject = SimpleNamespace(
        train=False,
        synchronize=lambda: None,
        renew=lambda numbers: None,
        segments={"outputs": segment},
        device=torch.device("cpu"),
        inputs={},
        module=None,
        autocast=Autocast("cpu", None),
    )
    made = Batches(subject)
    slot = OutputSlot(**vars(slot_of(torch.ones(2))), device="cpu", own_stride=(1,))
    made.lay_out(
        [[slot]],
        step_bytes=64,
        num_regions=2,
        seeded=False,
        gathers_early=request.param,
        bounded=(),
    )
    made.get_ready(False, [0], 0, 0.0)
    return made


@pytest.mark.parametrize("region", [0, 1])
def test_outputs_go_where_they_are_wanted(batches, region):
    batches.timed = [torch.tensor([1.5, 2.5])]
    batches.deliver(region)
    (wanted,), (other,) = batches.regions[region], batches.regions[1 - region]
    assert wanted.tolist() == [1.5, 2.5]
    assert other.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (torch.ones(3), ValueError, r"shape \[3\] on cpu, expected \[2\]"),
        (torch.ones(2, device="meta"), ValueError, r"on meta, expected \[2\] on cpu"),
        (torch.ones(2).as_subclass(Other), TypeError, "a Other"),
        ((torch.ones(2), torch.ones(2)), ValueError, "zip"),
    ],
)
def test_what_has_another_form_is_refused(batches, output, error, words):
    batches.timed = [output]
    with pytest.raises(error, match=words):
        batches.deliver(0)
    assert batches.regions[0][0].tolist() == [0.0, 0.0]


def test_what_requires_a_gradient_is_copied_without_one(batches):
    batches.timed = [torch.nn.Parameter(torch.tensor([1.5, 2.5])) * 2]
    batches.deliver(0)
    (wanted,) = batches.regions[0]
    assert (wanted.tolist(), wanted.requires_grad) == ([3.0, 5.0], False)


def test_a_runner_waits_awake_for_what_is_timed_and_not_between(batches):
    batches.get_ready(False, None, 0, 0.1)
    assert batches.spin_s == 0.1
    batches.get_ready(True, [0], 0, 0.0)
    assert batches.spin_s == 0.0


def test_what_the_first_batches_leave_is_looked_at_no_more_and_later_garbage_is_collected(batches):
    class Node:
        def __init__(self):
            self.me = self

    for _ in range(2):
        batches.settle()
    num_frozen = gc.get_freeze_count()
    assert num_frozen > len(gc.get_objects())
    garbage = weakref.ref(Node())
    batches.settle()
    assert garbage() is None
    assert gc.get_freeze_count() <= num_frozen


def test_what_the_next_outputs_may_lie_in_is_no_number(batches, monkeypatch):
    """Whatever was there, infinities among it."""
    made = []

    def empty(*sizes, device):
        made.append(torch.tensor([0.0, float("inf")] * 8)[: sizes[0]].clone())
        return made[-1]

    monkeypatch.setattr(torch, "empty", empty)
    batches.poison()
    assert [len(one) for one in made] == [2]
    assert all(one.isnan().all() for one in made)


def test_a_call_ahead_of_a_batch_leaves_nothing_behind(batches):
    """No output, and no gradient that the next backward pass would add to."""
    weight = torch.nn.Parameter(torch.ones(2))
    module = torch.nn.ParameterList([weight])
    given, called = torch.ones(2, requires_grad=True), []

    def run(number):
        called.append((number, torch.is_grad_enabled()))
        output = given * weight
        output.sum().backward()
        return output

    vars(batches.subject).update(train=True, run=run, inputs={3: []}, module=module)
    batches.subject.without_collections = contextlib.nullcontext
    batches.subject.read_own_state = lambda: None
    batches.get_ready(False, [3], 0, 0.0)
    batches.batch(seed=0)
    batches.settle()
    batches.subject.inputs = {3: [given]}
    batches.get_ready(False, [1, 2], 0, 0.0)
    for _ in range(2):
        batches.rehearse(1)
    assert called == [(3, True)] * 3, "on inputs of the batch before"
    assert given.grad is None and weight.grad is None
    assert batches.timed == [] and batches.gathered is None


# --- outputs that are committed as soon as they are returned ------------------------------------


@pytest.fixture
def committing():
    """Three calls of one output, of two float32, that is written where nothing reads it."""
    written = WrittenSegment.create(4096)
    handed = CommittedSegment(os.dup(written.writer), written.num_bytes)
    given = [torch.ones(2) * number for number in range(3)]
    subject = SimpleNamespace(
        train=False,
        synchronize=lambda: None,
        renew=lambda numbers: None,
        segments={COMMITTED: handed},
        device=torch.device("cpu"),
        inputs={number: [one] for number, one in enumerate(given)},
        calls={number: ([one], {}) for number, one in enumerate(given)},
        aliases=lambda tensor, number: [],
        without_collections=contextlib.nullcontext,
        read_own_state=lambda: None,
        changed_settings=lambda: (),
        attributes={},
        module=None,
        autocast=Autocast("cpu", None),
    )
    made = Batches(subject)
    slot = OutputSlot(**vars(slot_of(torch.ones(2))), device="cpu", own_stride=(1,))
    slots = [[replace(slot, offset=64 * number)] for number in range(3)]
    made.lay_out(slots, step_bytes=64, num_regions=0, seeded=False, gathers_early=False, bounded=())
    made.get_ready(False, [0, 1, 2], 0, 0.0)
    yield made, written, slots
    handed.close()
    written.close()


def test_an_output_is_written_and_dropped_before_the_next_call(committing):
    batches, written, slots = committing
    alive = []

    def run(number):
        assert all(one() is None for one in alive)
        output = torch.tensor([number + 0.5, 7.0])
        alive.append(weakref.ref(output))
        return output

    batches.subject.run = run
    batches.batch(seed=0)
    found = [written.tensor(slot).tolist() for (slot,) in slots]
    assert found == [[0.5, 7.0], [1.5, 7.0], [2.5, 7.0]]
    assert len(batches.timed) == 1, "the last one is kept"


def test_an_output_that_is_written_again_is_wrong_where_all_are_held(committing):
    batches, written, slots = committing
    buffer = torch.zeros(2)
    batches.subject.run = lambda number: buffer.fill_(number)
    batches.batch(seed=0)
    assert [written.tensor(slot)[0].item() for (slot,) in slots] == [0, 1, 2]
    batches.batch(seed=0, keeps=True)
    assert [written.tensor(slot)[0].item() for (slot,) in slots] == [2, 2, 2]


@pytest.mark.parametrize(
    "output",
    [torch.arange(4.0)[::2], torch.tensor([0.0, 2.0], dtype=torch.float64)],
    ids=["strides", "dtype"],
)
def test_what_lies_otherwise_is_written_in_the_layout_of_its_place(committing, output):
    batches, written, slots = committing
    batches.subject.run = lambda number: output
    batches.batch(seed=0)
    assert written.tensor(slots[2][0]).tolist() == [0.0, 2.0]


def test_a_committed_output_of_another_form_is_refused(committing):
    batches = committing[0]
    batches.subject.run = lambda number: torch.ones(3)
    with pytest.raises(ValueError, match="shape"):
        batches.batch(seed=0)


def test_a_dropped_output_that_was_an_input_is_reported(committing, monkeypatch):
    batches = committing[0]
    monkeypatch.setattr(batches_module, "patched", lambda attributes: [])
    batches.subject.run = lambda number: (
        batches.subject.inputs[number][0] if number == 1 else (torch.ones(2))
    )
    batches.batch(seed=0)
    assert batches.left().aliases == (0,)
    batches.subject.run = lambda number: torch.ones(2)
    batches.batch(seed=0)
    assert batches.left().aliases == ()


def test_a_program_that_does_nothing_commits_and_says_how_long_it_wrote(committing):
    batches, written, slots = committing
    batches.subject.run = lambda number, program: program(batches.subject.inputs[number])
    started_s = time.perf_counter()
    claim = batches.exchange(0)
    assert 0 < claim.claim_us < (time.perf_counter() - started_s) * 1e6
    assert written.tensor(slots[1][0]).tolist() == [1.0, 1.0]


def test_a_program_can_neither_map_nor_replace_what_it_committed(committing):
    batches, written, _ = committing
    handed = batches.committed
    with pytest.raises(PermissionError):
        mmap.mmap(handed.fd, 4096)
    with pytest.raises(TypeError):
        handed.tensor(slot_of(torch.ones(2)))
    batches.subject.run = lambda number: torch.ones(2)
    batches.batch(seed=0)
    assert not written.was_opened()


REOPENED = "import os, sys; it = os.open(f'/proc/self/fd/{sys.argv[1]}', os.O_%s); os.close(it)"


@pytest.mark.parametrize(
    "code",
    [
        "import os, sys; fd = int(sys.argv[1]); os.fchmod(fd, 0o600); os.fchmod(fd, 0o200)",
        REOPENED % "WRONLY",
        REOPENED % "PATH" + "; os.chmod(f'/proc/self/fd/{sys.argv[1]}', 0o200)",
    ],
    ids=["mode", "again", "by path"],
)
def test_who_opens_what_was_committed_is_seen_though_it_is_closed_again(committing, code):
    batches, written, _ = committing
    handed = batches.committed.fd
    subprocess.run([sys.executable, "-c", code, str(handed)], pass_fds=[handed], check=True)
    assert written.was_opened()
    assert not written.was_opened()


def test_memory_whose_openings_the_kernel_does_not_note_is_refused(monkeypatch):
    monkeypatch.setattr(committed_module.LIBC, "inotify_init1", lambda flags: -1)
    with pytest.raises(OSError, match="notes nothing"):
        WrittenSegment.create(4096)


@pytest.mark.parametrize(
    ("calls_s", "expected"),
    [
        ([], 0.0),
        ([9.0], 0.0),  # a single call shows no usual time
        ([9.0, 5.0, 4.0, 4.0], 6.0),
        ([9.0, 6.0, 5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 9.0], 8.0),  # a later one is the program's own
        ([1.0, 1.0, 4.0, 4.0], 0.0),
    ],
)
def test_what_the_first_calls_take_more_than_usual_ones_is_cold(calls_s, expected):
    assert batches_module.cold_s(calls_s) == expected
