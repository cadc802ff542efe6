"""Verify the slow and the good form of each kernel case both ways, on a GPU.

    python experiments/kernel_cases.py --device cuda --commit COMMIT

The good form must be a gain over the slow one, and the slow form must be found slower than the good
one. Several verifiers run at once, so that builds overlap; one of them times at a time. Writes
assets/results/kernel-cases.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).parent / "kernel_cases"
RAW = ROOT / "assets" / "results" / "kernel-cases.json"
WAYS = {"gain": ("slow", "good"), "loss": ("good", "slow")}
"""Reference and candidate: what is verified as a gain, and what as a regression."""

Verdict = dict[str, Any]


def cases() -> list[Path]:
    """Return the folders of the cases, those that compile with nvcc first: they take longest."""
    found = sorted(one.parent for one in CASES.glob("*/slow.py"))
    return sorted(found, key=lambda one: language(one) != "cuda")


def language(case: Path) -> str:
    """Return what a case's kernels are written in."""
    text = (case / "slow.py").read_text("utf-8")
    return "cuda" if "load_inline" in text else "triton"


def verified(reference: Path, candidate: Path, device: str, timeout_s: float) -> Verdict:
    """Return the verdict of the verifier; `{"status": "timeout"}` where it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "verdict.json"
        command = [sys.executable, "-m", "cudal1_ci", "verify", str(reference), str(candidate)]
        command += ["--device", device, "--timeout", f"{timeout_s:.0f}s", "--json", str(to)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, timeout=timeout_s, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return {"status": "timeout"}
        if not to.exists():
            return {"status": "failed", "log": done.stderr[-500:]}
        return dict(json.loads(to.read_text("utf-8")))


def row(verdict: Verdict) -> dict[str, Any]:
    """Return what is kept of a verdict."""
    found = {"status": verdict["status"]}
    found |= {name: verdict[name] for name in ("elapsed_s", "log") if verdict.get(name)}
    if verdict.get("findings"):
        found["findings"] = [f"{one['rule']}: {one['message']}" for one in verdict["findings"]]
    for measured in (verdict.get("measurements") or ())[:1]:
        names = ("speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us")
        found |= {name: measured[name] for name in names}
    return found


def is_gain(one: dict[str, Any]) -> bool:
    """Return whether the whole interval is above 1, of a candidate that passed."""
    return one["status"] == "passed" and one.get("speedup_low", 0.0) > 1.0


def is_regression(one: dict[str, Any]) -> bool:
    """Return whether the whole interval is below 1, of a candidate that computes the same."""
    return one["status"] == "passed" and one.get("speedup_high", 1.0) < 1.0


def measured(
    folders: Sequence[Path],
    verify: Callable[[Path, Path], Verdict],
    jobs: int,
    budget_s: float,
) -> list[dict[str, Any]]:
    """Return a row for each case. What has not begun when the budget is spent is not run."""
    ends_s = time.monotonic() + budget_s

    def one(case: Path, way: str) -> dict[str, Any]:
        if time.monotonic() > ends_s:
            return {"status": "not run"}
        reference, candidate = WAYS[way]
        return row(verify(case / f"{reference}.py", case / f"{candidate}.py"))

    with ThreadPoolExecutor(jobs) as pool:
        begun = [(case, {way: pool.submit(one, case, way) for way in WAYS}) for case in folders]
        return [
            {"case": case.name, "language": language(case)}
            | {way: future.result() for way, future in ways.items()}
            for case, ways in begun
        ]


def document(
    rows: Sequence[dict[str, Any]], device: dict[str, Any], **facts: Any
) -> dict[str, Any]:
    """Return the raw result."""
    return {
        **facts,
        "device": device,
        "num_cases": len(rows),
        "num_gains": sum(is_gain(one["gain"]) for one in rows),
        "num_regressions_found": sum(is_regression(one["loss"]) for one in rows),
        "cases": list(rows),
    }


def table(found: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each case."""
    lines = ["| case | in | good over slow | slow over good |", "|---|---|---|---|"]
    lines += [
        f"| {one['case']} | {one['language']} | {cell(one['gain'])} | {cell(one['loss'])} |"
        for one in found["cases"]
    ]
    return [
        *lines,
        "",
        f"{found['num_gains']} of {found['num_cases']} are gains, and "
        f"{found['num_regressions_found']} are found as regressions the other way.",
    ]


def cell(one: dict[str, Any]) -> str:
    """Return a speedup with its interval, or what came instead."""
    if "speedup" not in one:
        return str(one["status"])
    shown = f"{one['speedup']:.2f}x [{one['speedup_low']:.2f}, {one['speedup_high']:.2f}]"
    return shown if one["status"] == "passed" else f"{shown}, {one['status']}"


def main() -> None:
    """Verify all cases, and write the raw result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of cases; all where none is given")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--timeout-s", type=float, default=110.0, help="of one verification")
    parser.add_argument("--budget-s", type=float, default=180.0, help="none begins later")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--output", type=Path, default=RAW)
    given = parser.parse_args()
    seen: list[dict[str, Any]] = []

    def verify(reference: Path, candidate: Path) -> Verdict:
        verdict = verified(reference, candidate, given.device, given.timeout_s)
        seen.extend([verdict["device"]] if verdict.get("device") else [])
        what = f"{reference.parent.name}: {candidate.stem} over {reference.stem}"
        print(what, cell(row(verdict)), file=sys.stderr, flush=True)
        return verdict

    started_s = time.monotonic()
    folders = [one for one in cases() if not given.names or one.name in given.names]
    rows = measured(folders, verify, given.jobs, given.budget_s)
    found = document(
        rows,
        seen[0] if seen else {"name": "unknown"},
        commit=given.commit,
        command=" ".join(["python", "experiments/kernel_cases.py", *sys.argv[1:]]),
        elapsed_s=round(time.monotonic() - started_s, 1),
    )
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
