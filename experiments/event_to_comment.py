"""Measure the seconds from the event of a pull request to its comment.

    python experiments/event_to_comment.py --runs 5 --output assets/results/event-to-comment.json

The workflow for pull requests runs as in tests/integration/test_action.py: under `act`, without
containers, with processes and a device that are real, and a GitHub on this machine that answers by
GitHub's own description. Environments exist already, as on a runner that was used before. Waiting
for a runner, the download of actions and the environment of the publishing job are not in it. The
clock starts with `act` and stops when the comment is there. A result that exists is continued.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import detection  # noqa: E402
import text_trials  # noqa: E402
from provenance import provenance  # noqa: E402

from cudal1_ci.records.report import Report  # noqa: E402
from cudal1_ci.render.reading import read_report  # noqa: E402
from tests import github_fake  # noqa: E402
from tests.github_fake import GitHub  # noqa: E402
from tests.github_judge import Judge  # noqa: E402
from tests.integration.test_action import Rig, shipped  # noqa: E402
from tests.unit.github_action.jobs import OWN, commit, git  # noqa: E402

PULL = 7
CASES = {
    "nothing to do": "A comment in a file changes.",
    "one module": "Locals of one module get other names.",
    "one module, slower": "One module does more, so that each alarm is measured three times.",
    "one module, with proposals": "Locals change, and faster code is looked for.",
}


def trees_of(case: str, number: int) -> tuple[detection.Files, detection.Files]:
    """Return base and head of a case; the kind of module is the next one each time."""
    kind = detection.KINDS[sorted(detection.KINDS)[number % len(detection.KINDS)]]
    width, count = kind.sizes["cpu"].widths[1], kind.sizes["cpu"].counts[0]
    base = detection.files_of(kind, width, count)
    if case == "one module, slower":
        return base, detection.with_extra(kind, width, count, "layers", count)
    edit = "comment" if case == "nothing to do" else "locals renamed"
    return base, detection.EDITS[edit](base)


class Repository(Rig):
    """A runner, and a repository with these two commits."""

    def __init__(
        self, folder: Path, github: GitHub, trees: tuple[detection.Files, detection.Files]
    ) -> None:
        self.trees = trees
        super().__init__(folder, github)

    def _make_repository(self) -> None:
        git(self.origin, "init", "-q")
        self.base = commit(self.origin, self.trees[0])
        git(self.origin, "checkout", "-q", "-b", "topic")
        self.head = commit(self.origin, self.trees[1], "two")


def run(case: str, number: int, judge: Judge) -> dict[str, Any]:
    """Return the row of one run."""
    optimize = "true" if case == "one module, with proposals" else "false"
    workflow = shipped(optimize=optimize, fail_on="regression", comment="always")
    with tempfile.TemporaryDirectory() as folder, judge.serving(GitHub()) as github:
        rig = Repository(Path(folder), github, trees_of(case, number))
        github.add_pull(PULL, rig.head)
        github.contents[rig.base, "pyproject.toml"] = rig.trees[0]["pyproject.toml"]
        load = os.getloadavg()[0]
        posted_s: list[float] = []
        is_over = threading.Event()

        def watch() -> None:
            while not github.comments and not is_over.wait(0.02):
                pass
            posted_s.append(time.monotonic())

        started_s, before_s = time.monotonic(), processor_s()
        watcher = threading.Thread(target=watch)
        watcher.start()
        done = rig.run(workflow, rig.event())
        is_over.set()
        watcher.join()
        ended_s, used_s = time.monotonic(), processor_s() - before_s
        row = {"case": case, "number": number, "load": round(load, 1), "exit_code": done.returncode}
        if not github.comments:
            return row | {"error": (done.stdout + done.stderr)[-2000:]}
        reports = sorted(rig.artifacts.glob("*/report.json"))
        return row | {
            "seconds": round(posted_s[0] - started_s, 2),
            "whole_s": round(ended_s - started_s, 2),
            "processor_s": round(used_s, 2),
            "verdicts": verdicts(read_report(reports[0])) if reports else [],
            "conclusions": [one["conclusion"] for one in github.checks.values()],
            "measuring_s": round(read_report(reports[0]).elapsed_s, 2) if reports else None,
        }


def processor_s() -> float:
    """Return the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def verdicts(report: Report) -> list[str]:
    """Return what was said of each target that was measured."""
    compared = [entry.comparison for entry in report.entries if entry.comparison is not None]
    return [one.verdict for one in compared if one.rows]


def table(document: Mapping[str, Any]) -> list[str]:
    """Return a row of Markdown for each case."""
    lines = [
        "| request | runs | event to comment, s (median, longest) | of it `compare` "
        "| processor time, s | verdicts |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        rows = [row for row in document["rows"] if row["case"] == case and "seconds" in row]
        if not rows:
            continue
        took = [row["seconds"] for row in rows]
        within = statistics.median(row["measuring_s"] for row in rows)
        used = statistics.median(row["processor_s"] for row in rows if "processor_s" in row)
        said = ", ".join(sorted({one for row in rows for one in row["verdicts"]})) or "-"
        lines.append(
            f"| {case} | {len(rows)} | {statistics.median(took):.1f}, {max(took):.1f} "
            f"| {within:.1f} | {used:.1f} | {said} |"
        )
    loads = [row["load"] for row in document["rows"]]
    lines += [
        "",
        f"{document['processor']}, {document['date'][:10]}, commit `{document['commit']}`: "
        f"`{document['command']}`. Load of {document['num_cores']} cores when a run began: median "
        f"{statistics.median(loads):.1f}, highest {max(loads):.1f}.",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of each case")
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of this call")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    document = {**provenance(), "rows": []}
    if options.output is not None and options.output.exists():
        document = json.loads(options.output.read_text(encoding="utf-8"))
    rows = document["rows"]
    ends_s = time.monotonic() + options.limit
    with mock.patch.object(github_fake, "REPOSITORY", OWN), Judge() as judge:
        for number in range(options.runs):
            for case in options.cases:
                known = [row for row in rows if (row["case"], row["number"]) == (case, number)]
                if known or time.monotonic() > ends_s:
                    continue
                rows.append(run(case, number, judge))
                print(rows[-1], file=sys.stderr)
                if options.output is not None:
                    text_trials.write(options.output, document)
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
