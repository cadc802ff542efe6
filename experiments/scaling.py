"""Measure how many candidates `cudal1-ci bench` verifies in an hour on more and more devices.

    python experiments/scaling.py KernelBench --devices cuda:0 cuda:0,cuda:1 --flags='--level 1'

`--flags` are those of `bench`. Each run has an empty archive and an empty store of builds,
and so many copies of the tasks, which differ in a comment, as it has devices. What is counted are
trials of this run; the time is that of the run, with the start of all slots but the first.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

OUTPUT = Path(__file__).parents[1] / "assets" / "results" / "scaling.json"
ROOT = Path(__file__).resolve().parents[1]


def copy_tasks(tasks: Path, folder: Path, num_copies: int) -> None:
    """Write so many copies of each task; a comment makes each a problem of its own."""
    for path in tasks.rglob("*.py"):
        for copy in range(num_copies):
            target = folder / f"copy{copy}" / path.relative_to(tasks)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{path.read_text(encoding='utf-8')}\n# copy {copy}\n", "utf-8")


def bench(tasks: Path, devices: str, num_copies: int, flags: list[str]) -> dict[str, Any]:
    """Return the run document of `cudal1-ci bench` on these devices."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        copy_tasks(tasks, folder / "tasks", num_copies)
        copies = sorted(map(str, (folder / "tasks").iterdir()))
        words = ["bench", *copies, "--device", devices, "--output", str(folder / "run.json")]
        subprocess.run(
            [sys.executable, "-m", "cudal1_ci", *words, *flags],
            cwd=folder,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "CUDAL1_CI_BUILDS_FOLDER": str(folder / "builds")},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        document: dict[str, Any] = json.loads((folder / "run.json").read_text("utf-8"))
    return document


def row_of(document: dict[str, Any], devices: str) -> dict[str, Any]:
    """Return what one run amounts to."""
    trials = [
        trial
        for task in document["tasks"]
        for result in task["results"]
        for trial in result["trials"]
        if not trial["reused"]
    ]
    return {
        "devices": devices,
        "num_slots": len(devices.split(",")),
        "num_tasks": len(document["tasks"]),
        "num_candidates": len(trials),
        "elapsed_s": round(document["elapsed_s"], 1),
        "per_hour": round(3600 * len(trials) / document["elapsed_s"], 1),
        "machines": sorted({task["machine"] for task in document["tasks"]}),
    }


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each run."""
    lines = [
        "| devices | tasks | candidates | seconds | candidates an hour | times |",
        "|---" * 6 + "|",
    ]
    for run in document["runs"]:
        cells = [
            run["devices"],
            str(run["num_tasks"]),
            str(run["num_candidates"]),
            f"{run['elapsed_s']:,.0f}",
            f"{run['per_hour']:,.0f}",
            f"{run['speedup']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", type=Path, help="a folder of tasks, as of `bench`")
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:0,cuda:1"])
    parser.add_argument("--copies", type=int, default=1, help="of each task, for each device")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--flags", default="", help="of `bench`, in one word")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for devices in options.devices:
        num_copies = options.copies * len(devices.split(","))
        row = row_of(bench(options.tasks, devices, num_copies, shlex.split(options.flags)), devices)
        rows.append(row | {"speedup": round(row["per_hour"] / (rows or [row])[0]["per_hour"], 3)})
        document = {**provenance(), "device": row["machines"][0], "runs": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print("\n".join(table(document)), flush=True)


if __name__ == "__main__":
    main()
