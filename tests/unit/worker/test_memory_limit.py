"""How much memory a worker may take where it runs."""

from __future__ import annotations

import os

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
