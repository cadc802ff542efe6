"""Which waits are counted, from a folder like /proc."""

from __future__ import annotations

import pytest

IOCTL = """[<0>] os_acquire_rwlock_read+0x3a/0x60 [nvidia]
[<0>] rmapiLockAcquire+0x1ee/0x2a0 [nvidia]
[<0>] rm_ioctl+0x4c/0x60 [nvidia]
"""


@pytest.fixture
def waits(benchmark_module):
    return benchmark_module("kernel_waits")


def test_threads_that_wait_are_told_by_what_they_are_in(waits, tmp_path):
    def process(number, name, *threads):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "comm").write_text(f"{name}\n")
        for tid, (state, stack) in enumerate(threads, number):
            thread = folder / "task" / str(tid)
            thread.mkdir(parents=True)
            (thread / "stat").write_text(f"{tid} (python (3)) {state} 1 2 3")
            (thread / "stack").write_text(stack)

    process(10, "python3", ("D", IOCTL), ("S", IOCTL), ("R", ""))
    process(20, "bash", ("D", IOCTL))
    process(30, "python3", ("D", "[<0>] filemap_fault+0x1/0x2\n"))
    (tmp_path / "40").mkdir()  # has ended
    (tmp_path / "self").mkdir()
    found = list(waits.looks(tmp_path))
    assert sorted(state for state, _ in found) == ["D", "D", "R"]
    told = waits.counted(found, 1)
    assert (told["num_running"], told["num_waiting"], told["num_waiting_for_the_lock"]) == (1, 2, 1)
    assert told["waits"] == {
        "os_acquire_rwlock_read < rmapiLockAcquire < rm_ioctl": 1,
        "filemap_fault": 1,
    }
