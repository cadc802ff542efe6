"""How large the page of a long history is, and how long it takes to make.

    python benchmarks/history_page.py --json benchmarks/results/history-page.json

A made-up history in which every commit touches and times every target, which no real one does: with
noise of half a percent, a step in every tenth target and one new driver. Of the steps that are
found and were not made, the number is told too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import platform
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cudal1_ci.trend.commits import commits_of
from cudal1_ci.trend.lines import append_lines, read_lines
from cudal1_ci.trend.page import render_page
from cudal1_ci.trend.record import AnyEntry, Machine, Row, Run
from cudal1_ci.trend.view import view

OLD = Machine(kind="cuda", name="NVIDIA H200", driver="570.86.15", software={"torch": "2.12.1"})
NEW = Machine(kind="cuda", name="NVIDIA H200", driver="580.12.01", software={"torch": "2.13.0"})
KEYS = ("0123456789abcdef", "fedcba9876543210")
START = datetime(2026, 1, 1, tzinfo=UTC)
STEP = 1.08


def sha(number: int) -> str:
    return f"{number:040x}"


def step_at(target: int, num_commits: int) -> int | None:
    """Every tenth target gets slower somewhere in the middle."""
    return None if target % 10 else num_commits // 3 + target


def entries(num_commits: int, num_targets: int) -> Iterator[AnyEntry]:
    """All lines, as comparisons of each commit with the one before leave them."""
    generator = random.Random(0)
    for number in range(num_commits):
        is_new = number >= num_commits // 2
        yield Run(
            schema_version=1,
            repository="acme/slowformer",
            commit=sha(number),
            base=sha(number - 1) if number else None,
            date=START + timedelta(hours=6 * number),
            device=KEYS[is_new],
            machine=NEW if is_new else OLD,
        )
        for target in range(num_targets):
            at = step_at(target, num_commits)
            level = STEP if at is not None and number >= at else 1.0
            time_us = 20.0 * (1 + target) * level * math.exp(generator.gauss(0, 0.005))
            ratio = (STEP if number == at else 1.0) * math.exp(generator.gauss(0, 0.002))
            yield Row(
                commit=sha(number),
                target=f"pkg/layers/part{target}.py:Module{target}",
                workload="8x128x256",
                device=KEYS[is_new],
                time_us=round(time_us, 3),
                slowdown=round(ratio, 5),
                slowdown_low=round(ratio * 0.995, 5),
                slowdown_high=round(ratio * 1.005, 5),
                verdict="regression" if number == at else "same",
            )


def measured(num_commits: int, num_targets: int) -> dict[str, object]:
    """Seconds and bytes of each part."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.jsonl"
        append_lines(file, list(entries(num_commits, num_targets)))
        started = time.monotonic()
        history = read_lines(file)
        read = time.monotonic()
        shown = view(history, commits_of(history))
        seen = time.monotonic()
        page = render_page(shown, "https://github.com/acme/slowformer").encode()
        rendered = time.monotonic()
        expected = sum(step_at(target, num_commits) is not None for target in range(num_targets))
        return {
            "num_commits": num_commits,
            "num_targets": num_targets,
            "history_bytes": file.stat().st_size,
            "page_bytes": len(page),
            "page_gzip_bytes": len(gzip.compress(page)),
            "read_s": round(read - started, 2),
            "view_s": round(seen - read, 2),
            "render_s": round(rendered - seen, 2),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "num_steps_made": expected,
            "num_steps_found": len(shown.steps),
            "python": platform.python_version(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--targets", type=int, default=50)
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    result = measured(words.commits, words.targets)
    text = json.dumps(result, indent=2) + "\n"
    if words.json:
        words.json.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
