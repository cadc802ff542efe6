"""How much memory a worker may take where it runs."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.worker import accelerators


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
    gpu.device, gpu.total_bytes, gpu.limit_bytes = torch.device("cuda", 0), 80 * 2**30, None
    assert gpu.memory_bytes() == 8 * 2**30
    assert bool(emptied) is is_emptied
    gpu.limit_bytes = 2**30
    assert gpu.memory_bytes() == 2**30


@pytest.mark.parametrize(
    ("num_trials", "largest"),
    [(17, 2**30), (8, 2**30), (4, 2**31), (3, 64 * 2**30 // 24), (0, 2**33)],
)
def test_the_fewer_trials_there_are_the_larger_may_be_what_the_device_holds(num_trials, largest):
    gpu = object.__new__(accelerators.Cuda)
    gpu.total_bytes, gpu.limit_bytes = 80 * 2**30, 64 * 2**30
    for nbytes, place in ((largest, "device"), (largest + 1, "host")):
        tensor = SimpleNamespace(nbytes=nbytes, clone=lambda: "device", cpu=lambda: "host")
        assert gpu.keep(tensor, num_trials) == place
