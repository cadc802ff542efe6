"""Count what measured candidates came to, as the order in which a scan tries them is made of it.

    python experiments/ranking.py                  # cudal1_ci/optimize/ranking.json, of raw results
    python experiments/ranking.py report.json --commit C --command "..."   # first adds this scan

The second form adds a scan's candidates with their times to assets/results/scans-h100.json. Of
report cards the tries of single columns count too; the class of a call is not known there. Of the
first two scans neither the commit nor the command was noted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.optimize.ranking import UNKNOWN, Cell, Count, Situation, Tried, cells_of, counts_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "assets" / "results"
SCANS = RESULTS / "scans-h100.json"
CARDS = (
    RESULTS / "report-card-h100.json.gz",
    RESULTS / "report-card-kernelbench-h100.json.gz",
)
TABLE = ROOT / "cudal1_ci" / "optimize" / "ranking.json"
COLUMNS = ("compile", "compile-reduce-overhead", "cuda-graph", "playbook", "best")
RENAMED = {"compile_reduce_overhead": "reduce_overhead"}


def compact(report: dict[str, Any], commit: str) -> dict[str, Any]:
    """Return a scan's candidates, with what was known of their targets before."""
    targets = []
    for entry in report["entries"]:
        seen = entry.get("understanding") or {}
        late = [one["proposer"] for one in entry.get("not_tried") or ()]
        if not entry["evaluations"] and not seen:
            continue
        targets.append(
            {
                "file": entry["target"]["path"],
                **{name: seen.get(name) for name in ("class", "total_us", "bound_us")},
                "best": entry["best"],
                "candidates": [candidate(one) for one in entry["evaluations"]],
                "not_tried": late,
            }
        )
    return {
        "device": report["device"]["name"],
        "kind": report["device"]["kind"],
        "commit": commit,
        "date": report["generated_at"],
        "elapsed_s": report["elapsed_s"],
        "targets": targets,
    }


def candidate(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return one candidate."""
    measured = evaluation["measurements"][:1]
    return {
        "operators": [one["operator"] for one in evaluation["candidate"]["edits"]],
        "status": evaluation["status"],
        "phase": evaluation["phase"],
        "seconds": round(evaluation["elapsed_s"], 1),
        "speedup": measured[0]["speedup"] if measured else None,
        "reference_us": measured[0]["reference_us"] if measured else None,
    }


def of_scan(scan: dict[str, Any]) -> Iterator[Count]:
    """Yield the counts of a scan."""
    for target in scan["targets"]:
        rows = target["candidates"]
        where = Situation(scan["kind"], target["total_us"], target["class"] or UNKNOWN)
        yield from counts_of([tried(one) for one in rows], where)


def tried(row: dict[str, Any]) -> Tried:
    """Return what a row came to."""
    log = math.log(row["speedup"]) if row["speedup"] else None
    is_confirmation = row["phase"] == "confirmed"
    return Tried(tuple(row["operators"]), log, row["seconds"], is_confirmation)


def of_card(card: dict[str, Any]) -> Iterator[Count]:
    """Yield the counts of a report card."""
    for task in card["tasks"]:
        trials = [
            trial
            for result in task["results"]
            if result["solver"] in COLUMNS
            for trial in result["trials"]
            if trial["status"] not in ("inconclusive", "harness_error", "invalid_reference")
        ]
        times = [m["reference_us"] for trial in trials for m in trial["measurements"][:1]]
        if times:
            where = Situation("cuda", statistics.geometric_mean(times))
            yield from counts_of([of_trial(one) for one in trials], where)


def of_trial(trial: dict[str, Any]) -> Tried:
    """Return what a trial of a report card came to."""
    found = trial["measurements"][:1]
    log = math.log(found[0]["speedup"]) if found and found[0]["speedup"] else None
    return Tried(operators(trial["candidate"]["proposer"]), log, trial["elapsed_s"])


def operators(proposer: str) -> tuple[str, ...]:
    """Return what a report card's proposer applied."""
    names = proposer.rpartition(":")[2].replace("-", "_").split("+")
    return tuple(RENAMED.get(one, one) for one in names)


def table() -> list[Cell]:
    """Return the cells of the committed raw results."""
    scans = json.loads(SCANS.read_text("utf-8"))["scans"]
    counts = [count for scan in scans for count in of_scan(scan)]
    for path in CARDS:
        counts += of_card(json.loads(gzip.decompress(path.read_bytes())))
    return cells_of(counts)


def text(cells: list[Cell]) -> str:
    """Return the file of the package: a line a cell."""
    lines = (msgspec.json.encode(cell).decode() for cell in cells)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main() -> None:
    """Write the table, with another scan if one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", type=Path)
    parser.add_argument("--commit")
    parser.add_argument("--command")
    given = parser.parse_args()
    if given.report is not None:
        document = json.loads(SCANS.read_text("utf-8"))
        document["scans"].append(compact(json.loads(given.report.read_text("utf-8")), given.commit))
        document |= {"commit": given.commit, "command": given.command}
        SCANS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(text(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
