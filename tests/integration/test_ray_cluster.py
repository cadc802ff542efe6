"""With Ray itself, where it is installed: `pip install ray`, then `pytest -m slow`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_nothing_is_lost_with_an_actor_that_is_killed(tmp_path):
    pytest.importorskip("ray")
    output = tmp_path / "result.json"
    arguments = ["--sleep", "0.2", "--seats", "2", "--candidates", "24", "--kill", "1"]
    done = subprocess.run(
        [sys.executable, "benchmarks/scaling.py", *arguments, "--output", str(output)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    whole, killed = json.loads(output.read_text("utf-8"))["runs"]
    assert (whole["num_seats_opened"], killed["num_seats_opened"]) == (2, 3)
    for run in (whole, killed):
        assert run["num_lost"] == run["num_judged_twice"] == 0
        assert sum(run["judged_by_seat"].values()) == 24
    assert "lost sleeper 0" in done.stderr
    assert len(done.stdout.splitlines()) == 2, "Ray takes stdout"
