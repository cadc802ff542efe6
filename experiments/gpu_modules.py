"""What a scan with default settings proposes for twelve modules as people write them.

    cd experiments/gpu_modules && cudal1-ci scan . --device cuda --budget 14m --json report.json
    python experiments/gpu_modules.py report.json --commit COMMIT --command "..."

Writes assets/results/gpu-modules.json: every candidate with its verdict and interval.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RAW = ROOT / "assets" / "results" / "gpu-modules.json"
# The best of torch.compile and an expert's rewriting, compiled or not, over eager. By plain timing
# on one NVIDIA H100 80GB, torch 2.11+cu130, float32, 2026-11-26. The verifier does not time these.
BEST_KNOWN = {
    "rotary_apply": 4.13,
    "moe_loop": 3.86,
    "causal_attention": 2.07,
    "layernorm2d_gelu": 1.45,
    "selective_scan": 263.0,
    "focal_loss": 9.42,
    "top_p_filter": 25.5,
    "swin_window_attention": 2.08,
    "vq_codebook": 1.38,
    "gqa_repeat_kv": 1.42,
    "ema_update": 7.94,
    "dequant_linear": 1.42,
}
MOST_OF_IT = 0.7  # of the logarithm of the best-known speedup


def compact(report: dict[str, Any], commit: str, command: str) -> dict[str, Any]:
    """Return what the table is made of."""
    modules = []
    for entry in report["entries"]:
        is_late = (entry["skipped"] or "").startswith("not reached")
        if not entry["evaluations"] and not is_late:
            continue
        tried = [row(one) for one in entry["evaluations"]]
        modules.append(
            {"file": entry["target"]["path"], "best": entry["best"], "candidates": tried}
        )
    device = report["device"]
    return {
        "device": {"name": device["name"], "kind": device["kind"], "software": device["software"]},
        "commit": commit,
        "command": command,
        "shared_by": 3,
        "date": report["generated_at"],
        "elapsed_s": report["elapsed_s"],
        "ended": report["ended"],
        "modules": sorted(modules, key=lambda one: str(one["file"])),
    }


def row(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return one candidate."""
    found = {"proposer": evaluation["candidate"]["proposer"], "status": evaluation["status"]}
    for measured in evaluation["measurements"][:1]:
        found |= {
            name: measured[name]
            for name in ("speedup", "speedup_low", "speedup_high", "reference_us", "control_spread")
        }
    return found


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each module, and what they come to together."""
    lines = [
        "| module | proposal | speedup | torch.compile, as one candidate | best known "
        "| of its log gain | candidates |",
        "|---|---|---|---|---|---|---|",
    ]
    logs, shares = [], []
    for module in document["modules"]:
        candidates = module["candidates"]
        best = None if module["best"] is None else candidates[module["best"]]
        alone = next((one for one in candidates if one["proposer"].endswith(":compile")), None)
        logs.append(math.log(best["speedup"]) if best else 0.0)
        name = Path(module["file"]).stem.partition("_")[2]
        shares.append(logs[-1] / math.log(BEST_KNOWN[name]))
        lines.append(
            f"| {name} | {operators(best) if best else 'none'} | {interval(best)} "
            f"| {verdict(alone)} | {BEST_KNOWN[name]:.2f}x | {100 * shares[-1]:.0f} % "
            f"| {len(candidates)} |"
        )
    mean = math.exp(math.fsum(logs) / len(logs))
    num = sum(module["best"] is not None for module in document["modules"])
    lines += [
        "",
        f"{num} of {len(logs)} modules have a proposal; the geometric mean over all is "
        f"{mean:.2f}x, where a module without one counts 1. "
        f"{sum(one >= MOST_OF_IT for one in shares)} of {len(shares)} reach "
        f"{100 * MOST_OF_IT:.0f} % of the best-known log gain. One {document['device']['name']}, "
        "shared by "
        f"{document['shared_by']} verifiers of which one times at once; "
        f"{document['elapsed_s'] / 60:.0f} minutes, {document['date'][:10]}, commit "
        f"`{document['commit']}`: `{document['command']}`.",
    ]
    return lines


def operators(candidate: dict[str, Any]) -> str:
    """Return what was applied."""
    return str(candidate["proposer"]).partition(":")[2].replace("+", ", ").replace("_", " ")


def interval(candidate: dict[str, Any] | None) -> str:
    """Return a speedup with its interval."""
    if candidate is None or "speedup" not in candidate:
        return "-"
    low, high = candidate["speedup_low"], candidate["speedup_high"]
    return f"{candidate['speedup']:.2f}x [{low:.2f}, {high:.2f}]"


def verdict(candidate: dict[str, Any] | None) -> str:
    """Return what came of a candidate, times where it passed."""
    if candidate is None:
        return "not reached"
    return interval(candidate) if candidate["status"] == "passed" else candidate["status"]


def main() -> None:
    """Write the raw result of a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--command", required=True)
    given = parser.parse_args()
    report = json.loads(given.report.read_text("utf-8"))
    document = compact(report, given.commit, given.command)
    RAW.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
