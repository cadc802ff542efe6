"""What controls showed is kept, and no file can do harm."""

from __future__ import annotations

import pytest

from cudal1_ci.stats.spreads import MOST, USUAL
from cudal1_ci.verification.spread_memory import MOST_KEYS, SpreadMemory

USUAL_US = USUAL["cuda"][1]


def test_a_later_process_knows_what_an_earlier_one_saw(tmp_path):
    path = tmp_path / "caches" / "spreads.json"
    SpreadMemory(path).note("gpu", 100.0, [0.001, -0.001] * 20)
    later = SpreadMemory(path)
    assert later.spread("cuda", "gpu", 100.0) < 0.75 * USUAL_US
    assert later.spread("cuda", "gpu", 10.0) == USUAL["cuda"][0], "of another length"
    assert later.spread("cuda", "another gpu", 100.0) == USUAL_US


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[1]", b'{"gpu/1": "no"}', b'{"gpu/1": [1e9]}', b"{}" + b" " * 2**21],
)
def test_a_damaged_or_foreign_file_is_as_good_as_none(tmp_path, content):
    path = tmp_path / "spreads.json"
    path.write_bytes(content)
    memory = SpreadMemory(path)
    assert memory.spread("cuda", "gpu", 100.0) == USUAL_US
    memory.note("gpu", 100.0, [0.001] * 20)
    assert memory.spread("cuda", "gpu", 100.0) < USUAL_US


def test_its_size_is_bounded(tmp_path):
    path = tmp_path / "spreads.json"
    memory = SpreadMemory(path)
    for number in range(MOST_KEYS + 5):
        memory.note(f"gpu {number}", 100.0, [0.001] * (MOST + 5))
    assert path.stat().st_size < 20 * MOST_KEYS * MOST
    assert memory.spread("cuda", "gpu 0", 100.0) == USUAL_US, "the oldest is dropped"
    assert [one.name for one in tmp_path.iterdir()] == ["spreads.json"]


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    memory = SpreadMemory(tmp_path / "file" / "spreads.json")
    memory.note("gpu", 100.0, [0.001] * 20)
    assert memory.spread("cuda", "gpu", 100.0) == USUAL_US
