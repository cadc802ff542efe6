"""Whether somebody else works on a device, by how long a little work takes there."""

from __future__ import annotations

import math
import time

import pytest

from cudal1_ci.sandboxed.memory import accelerators
from cudal1_ci.sandboxed.memory.accelerators import settled


@pytest.mark.parametrize(
    ("least_s", "times_s", "num_probes"),
    [
        (math.inf, [100e-6], 1),
        (100e-6, [500e-6], 1),
        (100e-6, [5e-3, 4e-3, 150e-6, 100e-6], 3),
        # The least is known better with every one.
        (math.inf, [2e-3, 100e-6], 1),
        (1e-3, [90e-6], 1),
    ],
)
def test_probed_until_it_is_idle(least_s, times_s, num_probes):
    left = list(times_s)
    found_s = settled(lambda: left.pop(0), least_s)
    assert len(times_s) - len(left) == num_probes
    assert found_s == min(least_s, *times_s[:num_probes])


def test_patience_ends_where_it_never_is(monkeypatch):
    monkeypatch.setattr(accelerators, "PATIENCE_S", 0.01)
    probed = []

    def probe() -> float:
        probed.append(1)
        time.sleep(0.001)
        return 5e-3

    assert settled(probe, 100e-6) == 100e-6
    assert 2 <= len(probed) <= 12
