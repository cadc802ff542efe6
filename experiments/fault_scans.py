"""Kill a scan, look at what is left, and go on with it by `--resume`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_remains import files_of, processes, settled

from cudal1_ci.records.archive import Archive

SLOW = """\
import torch
from torch import nn


class Diagonal(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return x @ torch.diag(self.scale)
"""
TABLE = (
    '[[tool.cudal1-ci.workload]]\ntarget = "pkg/slow{}.py:Diagonal"\ninputs = ["float32[64, 64]"]\n'
)
NUM_MODULES = 4
MOST_TRIES = 5
"""A kill that came too late is made again."""
SETTINGS = {
    "CUDAL1_CI_TRIAL_NUM_ROUNDS": "3",
    "CUDAL1_CI_TRIAL_MEASURE": "0.3s",
    "CUDAL1_CI_TRIAL_CALL": "2s",
    "CUDAL1_CI_TRIAL_LOAD": "20s",
}


def checkout(folder: Path) -> Path:
    """Return a project with a few slow modules."""
    package = folder / "project" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    numbers = range(NUM_MODULES)
    for number in numbers:
        (package / f"slow{number}.py").write_text(SLOW)
    (package.parent / "pyproject.toml").write_text("".join(map(TABLE.format, numbers)))
    subprocess.run(["git", "init", "-q"], cwd=package.parent, check=True)
    return package.parent


def scan(root: Path, scratch: Path, *words: str) -> subprocess.Popen[str]:
    """Return the command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "cudal1_ci", "scan", str(root), "--json", "-", *words],
        env={**os.environ, **SETTINGS, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_scan(root: Path, scratch: Path, num_lines: int, delay_s: float) -> int | None:
    """Kill a scan some time after it said that so many candidates were verified; how many it said.
    None when it was over before."""
    process = scan(root, scratch)
    assert process.stderr is not None
    said, archive = 0, root / ".cudal1-ci" / "archive.sqlite"
    while process.poll() is None and not archive.exists():
        time.sleep(0.01)
    while said < num_lines and (line := process.stderr.readline()):
        said += is_finished(line)
    time.sleep(delay_s)
    process.kill()
    _, text = process.communicate()
    said += sum(map(is_finished, text.splitlines()))
    return said if process.returncode == -signal.SIGKILL else None


def is_finished(line: str) -> bool:
    """Return whether a line of progress says that a candidate passed. An inconclusive one is
    verified again."""
    return "playbook:diagonal_product: passed, screened" in line


@dataclass(frozen=True)
class Killed:
    """A scan that was killed, and its continuation."""

    is_killed: bool
    ended: str
    is_next_right: bool
    is_nothing_lost: bool
    left: list[str]


def kill_and_resume(
    place: Path, num_lines: int, rng: random.Random, is_own: Callable[[int], bool]
) -> Killed:
    """Kill a scan of a fresh checkout some time after it verified so many candidates, and go on."""
    scratch = place / "scratch"
    scratch.mkdir()

    def what_is_left() -> list[str]:
        left = [f"process {name}" for pid, name in processes(scratch).items() if is_own(pid)]
        return left + [f"file {name}" for name in files_of(scratch)]

    for attempt in range(MOST_TRIES):
        root = checkout(place / str(attempt))
        said = killed_scan(root, scratch, num_lines, rng.uniform(0, 0.8))
        if said is not None:
            break
    left = settled(what_is_left)
    kept, is_unfinished = archived(root)
    ran = scan(root, scratch, "-q", *(["--resume"] if is_unfinished else []))
    out, errors = ran.communicate(timeout=120)
    report = json.loads(out) if ran.returncode == 0 else {"totals": {}, "ended": errors[-300:]}
    totals = report["totals"]
    return Killed(
        is_killed=said is not None,
        ended=f"exit {ran.returncode}, {report['ended']}, {totals}"[:300],
        is_next_right=report["ended"] == "done" and totals.get("num_judged") == NUM_MODULES,
        is_nothing_lost=kept >= (said or 0) and totals.get("num_reused", -1) >= (said or 0),
        left=left + settled(what_is_left),
    )


def archived(root: Path) -> tuple[int, bool]:
    """Evaluations in the archive of a checkout, and whether a run in it can be resumed."""
    with Archive.open(root / ".cudal1-ci" / "archive.sqlite") as archive:
        ((number,),) = archive._rows("SELECT count(*) FROM evaluations", ())
        is_unfinished = archive.unfinished_run({"path": str(root.resolve()), "changed": None})
    return int(number), is_unfinished is not None
