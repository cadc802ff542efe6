"""Keep what scans of whole repositories say of their root models, and print it as a table.

    cudal1-ci scan . --harvest --device cuda --budget 9m --json vit-pytorch.json
    python experiments/repository_roots.py --commit 5d4f3257 --budget 9m \\
        --output assets/results/roots-h200.json vit-pytorch@69d24fe=vit-pytorch.json

Each REPORT is a repository with its commit and the JSON of its scan; `--commit` is that of this
project, `--budget` the scan's. Other repositories in the output file stay. Every scan was alone on
its GPU.

`--later NOTE` keeps what a later scan of some targets measured of candidates, next to what is known
of the repository. NOTE says which targets, and what else used the GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ci.render.wording import interval_text, time_text

MOST_CHARS = 300
KEPT = ("host_us", "device_us", "num_launches", "peak_bytes", "energy_j")
HEADS = ("repository", "model", "call", "time", "speedup", "device time", "compiled alone")


def kept_of(cost: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a call takes besides its time; None where that was not measured."""
    return None if cost is None else {key: cost[key] for key in KEPT}


def repository_of(
    name: str, commit: str, report: dict[str, Any], made_with: str, budget: str
) -> dict[str, Any]:
    """Return what a scan says of a repository's root calls, without kernels and timelines.
    `made_with` is the commit of this project."""
    roots = [
        {
            **{key: one[key] for key in ("root", "mode", "before_us", "after_us", "low", "high")},
            **{side: kept_of(one[side]) for side in ("before", "after")},
            "compiled": one["compiled"],
        }
        for one in report["impact"] or ()
    ]
    return {
        "repository": name,
        "commit": commit,
        "made_with": made_with,
        "budget": budget,
        "elapsed_s": round(report["elapsed_s"], 1),
        "ended": report["ended"],
        "generated_at": report["generated_at"],
        "device": report["device"]["name"],
        "software": report["device"]["software"],
        "totals": report["totals"],
        "roots": roots,
        "measured": measured(report),
        "failed": list(failed(report)),
    }


def failed(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield candidates that did not pass, and references that were not verified (no `proposer`)."""
    for entry in report["entries"]:
        target = f"{entry['target']['path'].rpartition('/')[2]}:{entry['target']['qualname']}"
        reason = entry["skipped"] or ""
        if "reference" in reason:
            yield {"target": target, "status": reason[:MOST_CHARS]}
        for one in entry["evaluations"]:
            if one["status"] != "passed":
                said = one["findings"][0]["message"][:MOST_CHARS] if one["findings"] else ""
                proposer = one["candidate"]["proposer"]
                yield {"target": target, "proposer": proposer, "status": one["status"], "why": said}


def later(report: dict[str, Any], made_with: str, note: str) -> dict[str, Any]:
    """Return what a later scan of some targets measured of candidates."""
    date = report["generated_at"][:10]
    return {"made_with": made_with, "date": date, "note": note, "measured": measured(report)}


def measured(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a scan measured of candidates, one row a workload."""
    return [
        {
            "path": entry["target"]["path"],
            "target": entry["target"]["qualname"],
            "proposer": one["candidate"]["proposer"],
            "phase": one["phase"],
            "is_proposed": place == entry["best"],
            **{key: found[key] for key in ("workload", "speedup", "speedup_low", "speedup_high")},
        }
        for entry in report["entries"]
        for place, one in enumerate(entry["evaluations"])
        for found in one["measurements"]
    ]


def device_time(root: dict[str, Any]) -> str:
    """Return the time in kernels before and after."""
    sides = [root[side] for side in ("before", "after")]
    return " -> ".join(time_text(one["device_us"]) for one in sides) if all(sides) else "-"


def row(repository: str, root: dict[str, Any]) -> str:
    """Return a root call as a line of the table."""
    compiled = root["compiled"] or {}
    alone = f"{compiled['speedup']:.2f}x" if compiled.get("speedup") else "refused"
    speedup = root["before_us"] / root["after_us"]
    cells = (
        repository,
        f"`{root['root'].rpartition('/')[2]}`",
        {"train": "training", "infer": "inference"}[root["mode"]],
        f"{time_text(root['before_us'])} -> {time_text(root['after_us'])}",
        interval_text(speedup, root["low"], root["high"]),
        device_time(root),
        alone if compiled else "-",
    )
    return f"| {' | '.join(cells)} |"


def summary(one: dict[str, Any]) -> str:
    """Return a repository as an item of a list."""
    totals, roots = one["totals"], {root["root"] for root in one["roots"]}
    return (
        f"- {one['repository']} `{one['commit']}`: {totals['num_targets']} targets, of which "
        f"{totals['num_judged']} were measured in {one['elapsed_s'] / 60:.0f} min. "
        f"{totals['num_proposals']} have a proposal; {len(roots)} root models use them. "
        f"{one['device']}, commit `{one['made_with']}`, {one['generated_at'][:10]}."
    )


def table(raw: dict[str, Any]) -> str:
    """Return a list of the repositories, and all root calls as a Markdown table."""
    lines = [*map(summary, raw["repositories"]), ""]
    lines += [f"| {' | '.join(HEADS)} |", f"|{'---|' * 3}{'--:|' * (len(HEADS) - 3)}"]
    for one in raw["repositories"]:
        lines += [row(one["repository"], root) for root in one["roots"]]
    return "\n".join(lines)


def main() -> None:
    """Write the raw result and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", metavar="NAME@COMMIT=REPORT")
    parser.add_argument("--commit", required=True, help="of this project")
    parser.add_argument("--budget", required=True, help="of the scan")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--later", metavar="NOTE", help="keep candidates of a scan of some targets")
    given = parser.parse_args()
    known = json.loads(given.output.read_text("utf-8")) if given.output.exists() else {}
    found = {one["repository"]: one for one in known.get("repositories", ())}
    for one in given.reports:
        name, _, path = one.partition("=")
        repository, _, commit = name.partition("@")
        report = json.loads(Path(path).read_text("utf-8"))
        if given.later:
            found[repository]["later"] = later(report, given.commit, given.later)
        else:
            found[repository] = repository_of(
                repository, commit, report, given.commit, given.budget
            )
    command = "cudal1-ci scan . --harvest --device cuda --budget BUDGET --json REPORT"
    raw = {"command": command, "repositories": list(found.values())}
    given.output.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    print(table(raw))


if __name__ == "__main__":
    main()
