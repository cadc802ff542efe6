"""Measure what share of other people's targets gets a workload from their own scripts alone.

**Rule of choice, stated before anything was measured.** Eleven repositories that an earlier study
had looked at: in all of them, the text alone gave 4 of 904 targets a workload. And nine others: of
the repositories that had been fetched for other measurements, in alphabetical order of owner and
name, those of 20 to 700 targets, at most three of one owner.

No test command is given and nothing is installed for a repository but its packages by name. The
harvest has a budget for each; `loralib` is the folder of that name in its repository.

    python experiments/harvest.py --python ../venv/bin/python --budget 180 --output FILE CHECKOUT...
    python experiments/harvest.py --show FILE            # the table
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from provenance import provenance

from cudal1_ci.config import load_settings
from cudal1_ci.discover import discover
from cudal1_ci.discover.ladder import Evidence, NoWorkload, workloads_of
from cudal1_ci.discover.traces import read_traces
from cudal1_ci.optimize.harvest import FOLDER, harvest

ELEVEN = (
    *("vit-pytorch", "nanoGPT", "mamba-minimal", "auraloss", "encodec"),
    *("denoising-diffusion-pytorch", "torchscale", "minGPT", "LoRA"),
    *("vector-quantize-pytorch", "x-transformers"),
)
NINE = (
    *("adapters", "GenerativeModels", "xformers", "MMAudio", "PaLM-rlhf-pytorch", "alphafold2"),
    *("alphafold3-pytorch", "open_clip", "segmentation_models.pytorch"),
)
INCLUDED = {"LoRA": ("loralib/**",)}
MOST_REASONS = 12


def measured(folder: Path, python: Path, budget_s: float) -> dict[str, Any]:
    """Harvest a checkout, and count its targets by the provenance of their first workload."""
    settings = load_settings(folder, overrides={})
    config = msgspec.structs.replace(settings.discover, include=INCLUDED.get(folder.name, ()))
    discovery = discover(folder, config)
    state = folder / settings.state_dir
    shutil.rmtree(state / FOLDER, ignore_errors=True)
    started_s = time.monotonic()
    found = harvest(
        discovery,
        state,
        python=str(python),
        budget_s=budget_s,
        num_threads=1,
        say=lambda text: print(f"{folder.name}: {text}", file=sys.stderr),
    )
    elapsed_s = time.monotonic() - started_s
    traces = read_traces(state / FOLDER)
    targets = [target for target in discovery.targets if not target.is_kernel]
    by_provenance: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    before = 0
    for target in targets:
        before += not isinstance(workloads_of(folder, target, Evidence()), NoWorkload)
        workloads = workloads_of(folder, target, Evidence(traces=traces))
        if isinstance(workloads, NoWorkload):
            reasons[workloads.reason[:120]] += 1
        else:
            by_provenance[workloads[0].provenance] += 1
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    left = Counter(f"{one.outcome}: {one.reason.partition(' (')[0][:90]}" for one in found.left)
    return {
        "repository": folder.name,
        "commit": head[:7],
        "targets": len(targets),
        "by_text": before,
        "with_workload": sum(by_provenance.values()),
        "by_provenance": dict(by_provenance),
        "train_share": traces.train_share,
        "scripts": found.num_scripts,
        "cells": found.num_cells,
        "left_out": dict(left.most_common(MOST_REASONS)),
        "without": dict(reasons.most_common(MOST_REASONS)),
        "is_complete": found.is_complete,
        "budget_s": budget_s,
        "elapsed_s": round(elapsed_s, 1),
    }


def table(raw: dict[str, Any]) -> list[str]:
    """Return the lines of a page: each repository, and all of them."""
    lines = [
        "| repository | commit | targets | by text | with a workload | of these, from | min |",
        "|---|---|--:|--:|--:|---|--:|",
    ]
    rows = sorted(raw["repositories"], key=lambda row: (ELEVEN + NINE).index(row["repository"]))
    for row in rows:
        counts = sorted(row["by_provenance"].items(), key=lambda item: -item[1])
        named = ", ".join(f"{count} {kind}" for kind, count in counts)
        lines.append(
            f"| {row['repository']} | `{row['commit']}` | {row['targets']} | {row['by_text']} "
            f"| {row['with_workload']} ({share(row):.0%}) | {named or '-'} "
            f"| {row['elapsed_s'] / 60:.1f} |"
        )
    for name, chosen in (("the eleven", ELEVEN), ("the nine", NINE), ("all", ELEVEN + NINE)):
        these = [row for row in rows if row["repository"] in chosen]
        if not these:
            continue
        num_targets = sum(row["targets"] for row in these)
        num_found = sum(row["with_workload"] for row in these)
        median = statistics.median(map(share, these))
        by_text = sum(row["by_text"] for row in these)
        minutes = sum(row["elapsed_s"] for row in these) / 60
        lines.append(
            f"| **{name}** | | {num_targets} | {by_text} | {num_found} "
            f"({num_found / num_targets:.0%}; median {median:.0%}) | | {minutes:.0f} |"
        )
    return lines


def share(row: dict[str, Any]) -> float:
    return float(row["with_workload"] / row["targets"]) if row["targets"] else 0.0


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--budget", type=float, default=180.0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("checkouts", nargs="*", type=Path)
    options = parser.parse_args(argv)
    if options.show:
        print("\n".join(table(json.loads(options.show.read_text()))))
        return
    rows: list[dict[str, Any]] = []
    if options.output and options.output.exists():
        rows = json.loads(options.output.read_text())["repositories"]
    for folder in options.checkouts:
        row = measured(folder.resolve(), options.python.absolute(), options.budget)
        rows = [*(one for one in rows if one["repository"] != row["repository"]), row]
        raw = {**provenance(), "repositories": rows}
        if options.output:
            options.output.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(table({"repositories": rows})))


if __name__ == "__main__":
    main(sys.argv[1:])
