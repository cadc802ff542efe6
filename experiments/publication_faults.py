"""Publish while GitHub fails at each request in turn, and kill what measures and records.

    python experiments/publication_faults.py --output assets/results/publication-faults.json
    python experiments/publication_faults.py --table assets/results/publication-faults.json

Faults of the API: every request of four publications, with each fault of `tests/hostile/faults.py`.
Kills: those of `tests/hostile/killed.py`, at random moments. A row is wrong where a measurement
was lost, a check said what was not measured, or the job that ran again did not put it right.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.provenance import provenance  # noqa: E402
from tests.hostile import faults  # noqa: E402

KILLS = {"archive": 150, "report": 100, "trees": 40, "command": 20}


def api_rows(folder: Path, until_s: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each fault at each request of each publication, in an order by chance."""
    whole = {flow: faults.whole(flow, folder) for flow in faults.FLOWS}
    waiting = [
        (flow, fault, at)
        for flow, (_, num_requests) in whole.items()
        for fault in faults.FAULTS
        for at in range(1, num_requests + 1)
    ]
    random.Random(0).shuffle(waiting)
    for flow, fault, at in waiting:
        if time.monotonic() > until_s:
            return
        yield faults.as_json(faults.trial(flow, fault, at, folder, whole[flow][0]))


def kill_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each kind of work that was killed."""
    for kind, count in KILLS.items():
        place = folder / kind
        place.mkdir()
        words = [sys.executable, "-m", "tests.hostile.killed", kind, str(count), str(place)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        wrong = done.stdout.splitlines() + ([done.stderr] if done.returncode else [])
        yield {"kind": kind, "kills": count, "wrong": wrong}


def table(document: dict[str, Any]) -> str:
    """Return a row of Markdown for each fault and each kind of kill."""
    lines = ["| fault | injected | wrong |", "|---|---|---|"]
    for fault in dict.fromkeys(row["fault"] for row in document["api"]):
        rows = [row for row in document["api"] if row["fault"] == fault]
        lines.append(f"| {fault} | {len(rows)} | {sum(bool(row['wrong']) for row in rows)} |")
    lines += [
        f"| kill: {r['kind']} | {r['kills']} | {len(r['wrong'])} |" for r in document["kills"]
    ]
    injected = len(document["api"]) + sum(row["kills"] for row in document["kills"])
    wrong = sum(bool(row["wrong"]) for row in document["api"])
    wrong += sum(len(row["wrong"]) for row in document["kills"])
    return "\n".join([*lines, f"| **all** | {injected} | {wrong} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for all of them")
    parser.add_argument("--table", type=Path, help="print what a result holds")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))))
        return
    here, started_s = provenance(), time.monotonic()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(1) as side:
        kills = side.submit(lambda: list(kill_rows(Path(place))))
        api = list(api_rows(Path(place), started_s + options.limit))
        document = {
            **here,
            "kills": kills.result(),
            "api": api,
            "wall_s": round(time.monotonic() - started_s, 1),
        }
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(table(document))


if __name__ == "__main__":
    main()
