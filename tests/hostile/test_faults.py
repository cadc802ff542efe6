"""Kills and faults of the API: no measurement is lost, and no check says what was not measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.publication_faults import KILLS, table
from tests.hostile.faults import FAULTS, FLOWS, trial, whole

ROOT = Path(__file__).parents[2]
QUICK = ("502", "cut after", "half after", "cancelled after", "comment deleted")
"""One of each kind; all of them are marked slow."""


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    "fault", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in FAULTS]
)
def test_no_fault_of_the_api_loses_a_measurement_or_makes_a_check_lie(tmp_path, capfd, flow, fault):
    """Each request of a publication in turn has this fault, and then the job runs again."""
    expected, num_requests = whole(flow, tmp_path)
    assert num_requests >= 3
    rows = [trial(flow, fault, at, tmp_path, expected) for at in range(1, num_requests + 1)]
    capfd.readouterr()
    assert [row for row in rows if row.wrong] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLS)
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path, kind):
    words = [sys.executable, "-m", "tests.hostile.killed", kind, str(KILLS[kind]), str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_page_on_adoption_states_what_the_raw_result_holds():
    raw = ROOT / "assets" / "results" / "publication-faults.json"
    document = json.loads(raw.read_text("utf-8"))
    page = (ROOT / "docs" / "lab" / "adoption.md").read_text("utf-8")
    assert table(document) in page
    assert len(document["api"]) + sum(row["kills"] for row in document["kills"]) >= 500
    assert not any(row["wrong"] for row in [*document["api"], *document["kills"]])
