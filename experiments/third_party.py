"""Trace and scan checkouts of other people's repositories, and keep what was found.

Fetch the repositories and make an environment in which their tests run first; nothing of theirs
is kept. Each CHECKOUT is a folder and, after `=`, the command of its tests:

    python experiments/third_party.py --python ../venv/bin/python --budget 10m \\
        --output assets/results/third-party.json \\
        "../x-transformers=python -m pytest -q tests" "../kornia=python -m pytest -q tests/filters"
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from provenance import provenance

STATE = ".cudal1-ci"


def timed_run(command: list[str], folder: Path, python: Path) -> tuple[float, int]:
    """Return wall time and exit code of a command with the project's interpreter first
    on the path.
    """
    path = f"PATH={python.absolute().parent}:/usr/local/bin:/usr/bin:/bin"
    started_s = time.monotonic()
    code = subprocess.run(["env", path, *command], cwd=folder, check=False, stdout=2).returncode
    return time.monotonic() - started_s, code


def tool(*words: str) -> int:
    """Run a verb of this package and return its exit code."""
    return subprocess.run([sys.executable, "-m", "cudal1_ci", *words], check=False).returncode


def scanned(folder: Path, tests: list[str], python: Path, budget: str) -> dict[str, Any]:
    """Run the tests alone, the tests traced and a scan; return what the scan says of
    every target.
    """
    shutil.rmtree(folder / STATE, ignore_errors=True)
    report_file = folder / STATE / "report.json"
    plain_s, plain_code = timed_run(tests, folder, python)
    started_s = time.monotonic()
    trace_code = tool("trace", str(folder), "--python", str(python), "--", *tests)
    traced_s = time.monotonic() - started_s
    started_s = time.monotonic()
    scan_code = tool(
        *("scan", str(folder), "--python", str(python), "--budget", budget),
        *("--json", str(report_file), "--html", str(report_file.with_suffix(".html"))),
    )
    scan_s = time.monotonic() - started_s
    report = json.loads(report_file.read_text(encoding="utf-8"))
    return {
        "repository": folder.name,
        "commit": head_of(folder),
        "tests": shlex.join(tests),
        "tests_s": round(plain_s, 1),
        "tests_exit_code": plain_code,
        "traced_tests_s": round(traced_s, 1),
        "trace_exit_code": trace_code,
        "scan_exit_code": scan_code,
        "scan_s": round(scan_s, 1),
        "ended": report["ended"],
        **summary(report),
    }


def head_of(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Summarize a report: a count of every kind of answer, and each proposal."""
    entries = report["entries"]
    reasons: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    without_answer = []
    for entry in entries:
        statuses.update(each["status"] for each in entry["evaluations"])
        if entry["skipped"]:
            reasons[entry["skipped"].splitlines()[0][:100]] += 1
        elif not entry["workloads"]:
            without_answer.append(name_of(entry))
    return {
        "device": report["device"],
        "totals": report["totals"],
        "statuses": dict(statuses.most_common()),
        "skipped": dict(reasons.most_common()),
        "targets_without_verdict_or_reason": without_answer,
        "proposals": [proposal(entry) for entry in entries if entry["best"] is not None],
        "failed": [
            {
                "target": name_of(entry),
                "proposer": each["candidate"]["proposer"],
                "status": each["status"],
                "finding": each["findings"][0]["message"] if each["findings"] else None,
            }
            for entry in entries
            for each in entry["evaluations"]
            if each["status"] not in ("passed", "inconclusive")
        ],
    }


def name_of(entry: dict[str, Any]) -> str:
    return f"{entry['target']['path']}:{entry['target']['qualname']}"


def proposal(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the best candidate of a target with its numbers."""
    best = entry["evaluations"][entry["best"]]
    kept = ("workload", "speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us")
    return {
        "target": name_of(entry),
        "proposer": best["candidate"]["proposer"],
        "measurements": [{key: each[key] for key in kept} for each in best["measurements"]],
    }


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each repository, and what was proposed below."""
    lines = [
        "| repository | commit | tests traced | targets | measured | candidates | passed "
        "| proposals | scan, s | ended |",
        "|---" * 10 + "|",
    ]
    for one in document["results"]:
        totals = one["totals"]
        numbers = ("num_targets", "num_judged", "num_candidates", "num_passed", "num_proposals")
        cells = [
            one["repository"],
            f"`{one['commit'][:7]}`",
            f"`{one['tests'].removeprefix('python -m ')}`",
            *(str(totals[name]) for name in numbers),
            f"{one['scan_s']:.0f}",
            one["ended"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for one in document["results"]:
        for found in one["proposals"]:
            worst = min(found["measurements"], key=lambda each: each["speedup_low"])
            low, high = worst["speedup_low"], worst["speedup_high"]
            lines += [
                "",
                f"Proposed: `{found['target']}` by `{found['proposer']}`, {worst['speedup']:.2f}x "
                f"[{low:.2f}, {high:.2f}] on its slowest workload, "
                f"{worst['reference_us']:.1f} us -> {worst['candidate_us']:.1f} us a call.",
            ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", nargs="*", metavar="CHECKOUT=TESTS")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results = []
    for each in arguments.checkout:
        folder, _, tests = each.partition("=")
        results.append(
            scanned(Path(folder), shlex.split(tests), arguments.python, arguments.budget)
        )
        document = {**provenance(), "budget": arguments.budget, "results": results}
        if arguments.output is not None:  # after each, so that a kill loses no finished one
            arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        shown = results[-1]
        print(f"{shown['repository']}: {shown['totals']}, ended: {shown['ended']}")
        for one in shown["proposals"]:
            worst = min(m["speedup_low"] for m in one["measurements"])
            print(f"  {one['target']}: {one['proposer']}, at least {worst:.2f}x")
        for one in shown["failed"]:
            print(f"  {one['target']}: {one['proposer']}: {one['status']}: {one['finding']}")
    if not results:
        print("no checkouts given: nothing was scanned")


if __name__ == "__main__":
    main()
