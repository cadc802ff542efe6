"""A scan of the example's kernels on a GPU, from the question to the patch.

A copy of the example launches its kernels in blocks of a warp. A server answers what a model might:
a wrong kernel, one that is written and not launched, a faster one; then the playbook, without a
model, tries other numbers in the launches. Reported are the verdicts, the speedup of the patch with
its interval, how long the scan took, and whether git takes the patch.

    python -m benchmarks.scan_kernels --time-limit 15m --output build/scan-kernels.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.discovery_speed import provenance
from tests.kernel_answers import KERNELS, Kernel, untuned
from tests.replay_server import replay_server

LIMITS = {
    "CUDAL1_CI_TRIAL_CALL": "300s",  # nvcc builds the reference and each answer at a first call
    "CUDAL1_CI_MODEL_NUM_CONCURRENT": "1",  # the answers come in their order
    "OPENAI_API_KEY": "unused",
}
UNITS = {"s": 1, "m": 60, "h": 3600}
BY = ("model", "playbook")
GRACE_S = 120
"""From a spent budget to the report: what is being built is waited for."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=8192, help="of 4096 floats, in a call")
    parser.add_argument("--only", choices=[one.language for one in KERNELS])
    parser.add_argument("--by", choices=BY, help="who proposes; both without")
    parser.add_argument("--time-limit", type=seconds, default=900, help="90s, 15m: of all scans")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    ends_s = time.monotonic() + given.time_limit
    results = []
    scans = [
        (kernel, by)
        for by in BY
        for kernel in KERNELS
        if given.only in (None, kernel.language) and given.by in (None, by)
    ]
    for number, (kernel, by) in enumerate(scans):
        share_s = max(1.0, (ends_s - time.monotonic()) / (len(scans) - number))
        results.append({"by": by} | scanned(kernel, by, given.device, given.rows, share_s))
        print(row(results[-1]), flush=True)
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        command = " ".join(["python -m benchmarks.scan_kernels", *sys.argv[1:]])
        found = {**provenance(), "command": command, "rows": given.rows, "kernels": results}
        given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def seconds(text: str) -> float:
    return float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)


def scanned(kernel: Kernel, by: str, device: str, rows: int, limit_s: float) -> dict[str, Any]:
    """What a scan of one kernel came to."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        root = untuned(Path(folder) / "project", rows, with_playbook=by == "playbook")
        excluded = [word for glob in kernel.beside for word in ("--exclude", glob)]
        command = [sys.executable, "-m", "cudal1_ci", "scan", str(root), "--device", device]
        command += [*excluded, "--json", "-", "--budget", f"{limit_s:.0f}s"]
        if by == "model":
            server = stack.enter_context(replay_server(answers=kernel.answers()))
            command += ["--model", server.url]
        started_s = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **LIMITS},
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s + GRACE_S,
            )
        except subprocess.TimeoutExpired:
            return {"kernel": kernel.qualname, "failure": f"no report in {limit_s:.0f} s"}
        elapsed_s = time.monotonic() - started_s
        try:
            report = json.loads(done.stdout)
        except ValueError:
            return {"kernel": kernel.qualname, "failure": done.stderr[-2000:]}
        return result_of(kernel, report, root, elapsed_s)


def kinds_of(kernel: Kernel, entry: Any) -> list[str]:
    """What each candidate of an entry is: an answer by its name, or the numbers that it changes.
    Cut short by the time limit, the last answers are missing."""
    proposers = [one["candidate"]["proposer"] for one in entry["evaluations"]]
    if any(one.startswith("playbook:") for one in proposers):
        return proposers
    return list(kernel.codes)[: len(proposers)]


def result_of(kernel: Kernel, report: Any, root: Path, elapsed_s: float) -> dict[str, Any]:
    """Of a report: verdicts by what the answers are, and the best one."""
    (entry,) = (e for e in report["entries"] if e["target"]["qualname"] == kernel.qualname)
    kinds = kinds_of(kernel, entry)
    found: dict[str, Any] = {
        "kernel": kernel.qualname,
        "skipped": entry["skipped"],
        "device": report["device"],
        "elapsed_s": round(elapsed_s, 1),
        "verdicts": {
            kind: one["status"] for kind, one in zip(kinds, entry["evaluations"], strict=True)
        },
        "evaluations": entry["evaluations"],
        "best": None,
    }
    if entry["best"] is not None:
        best = entry["evaluations"][entry["best"]]
        (measured,) = best["measurements"]
        check = ["git", "apply", "--check", "-"]
        patch = best["candidate"]["patch"].encode()
        applies = subprocess.run(check, input=patch, cwd=root, check=False, capture_output=True)
        found["best"] = {
            "kind": kinds[entry["best"]],
            "applies": applies.returncode == 0,
            **{key: measured[key] for key in ("speedup", "speedup_low", "speedup_high")},
            **{key: measured[key] for key in ("reference_us", "candidate_us")},
        }
    return found


def row(result: dict[str, Any]) -> str:
    """A line for people."""
    name = f"{result['kernel']:20}"
    reason = result.get("failure") or result.get("skipped")
    if reason is not None:
        return f"{name} {reason}"
    verdicts = ", ".join(f"{kind}: {status}" for kind, status in result["verdicts"].items())
    best = result["best"]
    if best is None:
        return f"{name} no faster version; {verdicts}; {result['elapsed_s']:.0f} s"
    return (
        f"{name} {best['speedup']:.2f}x [{best['speedup_low']:.2f}, {best['speedup_high']:.2f}], "
        f"{best['reference_us']:.0f} -> {best['candidate_us']:.0f} us, {best['kind']}"
        f"{'' if best['applies'] else ', whose patch does not apply'}; {verdicts}; "
        f"{result['elapsed_s']:.0f} s"
    )


if __name__ == "__main__":
    main()
