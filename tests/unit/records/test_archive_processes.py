"""The archive under several processes at once, and under SIGKILL."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from cudal1_ci.records import Evaluation
from cudal1_ci.records.archive import Archive
from tests.fakes import CPU, a_candidate, a_problem, an_evaluation

ROOT = Path(__file__).parents[3]

WRITER = """
import sys, time
from pathlib import Path
from cudal1_ci.records.archive import Archive
from tests.unit.records.test_archive_processes import evaluation_number

path, first, last, start_at = Path(sys.argv[1]), *map(float, sys.argv[2:])
while time.time() < start_at:
    pass
with Archive.open(path) as archive:
    for number in range(int(first), int(last)):
        archive.record(evaluation_number(number), "policy")
        print(number, flush=True)
"""


def evaluation_number(number: int) -> Evaluation:
    """An evaluation that is told from the others by the text of its candidate."""
    return an_evaluation(a_candidate(a_problem(), f"class ModelNew: number = {number}"))


def start_writer(path: Path, first: int, last: int, start_at: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first), str(last), str(start_at)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def found(path: Path, numbers: range) -> list[int]:
    with Archive.open(path) as archive:
        looked_up = {
            n: archive.lookup(a_problem().id, evaluation_number(n).candidate.id, CPU.key, "policy")
            for n in numbers
        }
    return [n for n, evaluation in looked_up.items() if evaluation == evaluation_number(n)]


def test_processes_that_open_and_write_a_new_archive_at_once_lose_nothing(tmp_path):
    path = tmp_path / "archive.sqlite"
    start_at = time.time() + 1.0
    writers = [start_writer(path, 30 * i, 30 * (i + 1), start_at) for i in range(4)]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    assert found(path, range(120)) == list(range(120))


def test_a_killed_process_leaves_every_evaluation_that_it_had_finished(tmp_path):
    path = tmp_path / "archive.sqlite"
    for round_number in range(3):
        first = 100_000 * round_number
        writer = start_writer(path, first, first + 100_000)
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(10)]
        writer.send_signal(signal.SIGKILL)
        # What was printed before the signal arrived was recorded before it was printed.
        acknowledged += [int(line) for line in writer.communicate(timeout=60)[0].splitlines()]
        assert writer.returncode == -signal.SIGKILL
        assert found(path, range(first, first + len(acknowledged))) == acknowledged
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
