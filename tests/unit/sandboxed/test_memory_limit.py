"""How much memory a worker may take where it runs."""

from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory import accelerators
from cudal1_ci.sandboxed.verifier.cases import Answer, Case
from cudal1_ci.sandboxed.verifier.inputs import InputSet
from cudal1_ci.sandboxed.verifier.reference import try_first
from tests.unit.sandboxed.messages import called


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    limit, unlimited, absent = tmp_path / "limit", tmp_path / "unlimited", tmp_path / "absent"
    limit.write_text(f"{2**30}\n")
    unlimited.write_text("max\n")
    monkeypatch.setattr(accelerators, "MEMORY_LIMITS", (absent, unlimited, limit))
    assert accelerators.available_memory_bytes() == 2**30 * 4 // 5
    monkeypatch.setattr(accelerators, "MEMORY_LIMITS", (absent, unlimited))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**30 < accelerators.available_memory_bytes() <= machine * 4 // 5


@pytest.mark.parametrize(("cached", "is_emptied"), [(2**20, False), (2**31, True)])
def test_a_judge_gives_back_what_it_has_cached_where_that_is_much(monkeypatch, cached, is_emptied):
    emptied = []
    for name, answer in (
        ("memory_reserved", 2**32 + cached),
        ("memory_allocated", 2**32),
        ("mem_get_info", (10 * 2**30, 80 * 2**30)),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    gpu = object.__new__(accelerators.Cuda)
    gpu.device, gpu.total_bytes = torch.device("cuda", 0), 80 * 2**30
    gpu.limit_bytes = gpu.share_bytes = None
    assert gpu.memory_bytes() == 8 * 2**30
    assert bool(emptied) is is_emptied


@pytest.mark.parametrize(
    ("limit", "share", "beside", "alone"),
    [(None, None, 8, 8), (None, 2, 2, 8), (4, 2, 2, 4), (1, 2, 1, 1), (None, 9, 8, 8)],
)
def test_who_holds_a_device_alone_has_more_than_a_share(monkeypatch, limit, share, beside, alone):
    """In GiB; four fifths of 10 are free."""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 2**30, 80 * 2**30))
    gpu = object.__new__(accelerators.Cuda)
    gpu.device, gpu.total_bytes = torch.device("cuda", 0), 80 * 2**30
    gpu.limit_bytes = limit and limit * 2**30
    gpu.share_bytes = share and share * 2**30
    assert gpu.memory_bytes() == beside * 2**30
    assert gpu.memory_bytes(is_alone=True) == alone * 2**30


@pytest.mark.parametrize(
    ("num_trials", "largest"),
    [(17, 2**30), (8, 2**30), (4, 2**31), (3, 64 * 2**30 // 24), (0, 2**33)],
)
@pytest.mark.parametrize(("free", "allowed"), [(60, 64), (30, 80)])
def test_the_fewer_trials_there_are_the_larger_may_be_what_the_device_holds(
    monkeypatch, num_trials, largest, free, allowed
):
    """Of 64 GiB: those are allowed, or four fifths of what is free and of the judge's own."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 50 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    gpu = object.__new__(accelerators.Cuda)
    gpu.total_bytes, gpu.limit_bytes = 80 * 2**30, None
    gpu.share_bytes = allowed * 2**30
    gpu.device = torch.device("cuda", 0)
    for nbytes, place in ((largest, gpu.device), (largest + 1, torch.device("cpu"))):
        tensor = SimpleNamespace(nbytes=nbytes)
        assert accelerators.place_for(gpu, tensor, num_trials) == place


@pytest.mark.parametrize("held", [0, 31, 32])
def test_a_judge_leaves_half_of_what_is_free_to_runners(monkeypatch, held):
    """However little each of its tensors takes: of 80 GiB, of which 64 count as free. Those that
    are small beside that are not asked about."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: ((80 - held) * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: held * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: held * 2**30)
    gpu = object.__new__(accelerators.Cuda)
    gpu.total_bytes, gpu.device = 80 * 2**30, torch.device("cuda", 0)
    gpu.limit_bytes = gpu.share_bytes = None
    assert gpu.holds(SimpleNamespace(nbytes=2**29), 28) is (held < 32)
    assert gpu.holds(SimpleNamespace(nbytes=2**20), 28)


def a_case(most_bytes: int, num_trials: int) -> Case:
    """With a device that holds no more of one tensor."""
    fields = {field.name: None for field in dataclasses.fields(Case)}
    gpu = SimpleNamespace(
        device=torch.device("meta"),
        holds=lambda tensor, count: tensor.nbytes <= most_bytes // count,
    )
    trials = [("drawn", InputSet([]))] * num_trials
    return Case(**{**fields, "accelerator": gpu, "trials": trials, "findings": []})


def test_what_the_judge_has_alone_is_moved_and_not_copied():
    case = a_case(160, num_trials=5)
    near = torch.ones(8, device="meta")
    assert case.put(near) is near and case.keep(near) is not near
    far = torch.ones(9)
    assert case.put(far) is far
    copy = case.keep(far)
    assert torch.equal(copy, far) and copy.data_ptr() != far.data_ptr()
    assert case.put(torch.ones(8)).device == case.accelerator.device


def test_of_fewer_trials_outputs_come_to_the_device_that_holds_them_then():
    case = a_case(160, num_trials=5)
    tensors = [torch.ones(size) for size in (8, 13, 14)]
    outputs = [[case.put(one) for one in tensors]] * 5
    assert [one.device.type for one in outputs[0]] == ["meta", "cpu", "cpu"]
    case.expected = Answer(calls=[called()] * 5, outputs=outputs, mutated={}, flags=None)
    try_first(case, 3, "it is slow")
    assert len(case.expected.outputs) == len(case.trials) == 3
    for (small, middle, large), before in zip(case.expected.outputs, outputs, strict=False):
        assert small is before[0] and large is before[2]
        assert middle.device.type == "meta"
