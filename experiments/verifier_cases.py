"""Verify folders of programs that are known to be honest or not, and say what became of each.

    python experiments/verifier_cases.py FOLDER --device cuda --jobs 4 --output cases.json

Each case is a folder with `reference.py`, `candidate.py` and `meta.json` (`kind`: hack or clean,
`class`, `flags` of verify). An honest program that passes is *right*, and *limited* where it breaks
a line of its contract. A hack is *stopped* where it has another verdict than passed,
*marked* where a line of its contract is broken or a finding of the trial names it, and *silent*
otherwise. A gain that a hack is granted without a broken line is counted apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.stats.speedups import RELATIVE_FLOOR

CONTRACT_CLASSES = frozenset(
    [
        "stale-weights",
        "layout",
        "specialisation",
        "range",
        "ignored-argument",
        "side-effects",
        "semantics",
    ]
)
RESULTS = ("held", "differs", "broken", "not_applicable", "not_tried")
NUMBERS = ("speedup_low", "speedup", "speedup_high")


def verified(case: Path, device: str) -> dict[str, Any]:
    """Verify one case with the command that users have."""
    meta = json.loads((case / "meta.json").read_text())
    command = [sys.executable, "-m", "cudal1_ci", "verify", "reference.py", "candidate.py"]
    command += ["--device", device, "--json", "-", *meta["flags"]]
    started_s = time.monotonic()
    try:
        done = subprocess.run(command, cwd=case, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return {"case": case.name, "class": meta["class"], "kind": meta["kind"], "status": "hung"}
    row: dict[str, Any] = {"case": case.name, "class": meta["class"], "kind": meta["kind"]}
    row["seconds"] = round(time.monotonic() - started_s, 1)
    if not done.stdout.strip():
        return row | {"status": "no verdict", "log": done.stderr[-400:]}
    found = json.loads(done.stdout)
    lines = found["contract"] or ()
    times = [m for m in found["measurements"] if m["speedup"] is not None]
    is_passed = found["status"] == "passed"
    return row | {
        "status": found["status"],
        "rules": sorted({one["rule"] for one in found["findings"]}),
        "broken": [
            f"{one['aspect']}: {one['detail']}"[:160] for one in lines if one["result"] == "broken"
        ],
        "lines": {kind: sum(one["result"] == kind for one in lines) for kind in RESULTS},
        "is_gain": is_passed and any(m["speedup_low"] > 1 + RELATIVE_FLOOR for m in times),
        "speedup": [[round(m[name], 3) for name in NUMBERS] for m in times],
        "judged_s": round(found["elapsed_s"], 1),
    }


def outcome(row: dict[str, Any]) -> str:
    """Return what became of a case, in one word."""
    if row["kind"] == "clean":
        if row["status"] != "passed":
            return "WRONG"
        return "limited" if row["broken"] else "right"
    if row["status"] != "passed":
        return "stopped"
    measured = [rule for rule in row["rules"] if not rule.startswith("static.")]
    if row["broken"] or measured:
        return "marked"
    return "SILENT"


def table(raw: dict[str, Any]) -> list[str]:
    """Return a table of what became of the cases, and on what they were verified."""
    rows = raw["rows"]
    hacks, honest = ([row for row in rows if row["kind"] == kind] for kind in ("hack", "clean"))
    kinds = Counter(row["outcome"] for row in hacks)
    outcomes = ", ".join(str(kinds[kind]) for kind in ("stopped", "marked", "SILENT"))
    granted = [row["case"] for row in hacks if row.get("is_gain") and not row["broken"]]
    classes = [row for row in rows if row["class"] in CONTRACT_CLASSES]
    broken = sum(bool(row.get("broken")) for row in classes)
    passed = sum(row["status"] == "passed" for row in honest)
    counts = {kind: sum(row.get("lines", {}).get(kind, 0) for row in rows) for kind in RESULTS}
    tried = counts["held"] + counts["differs"] + counts["broken"]
    return [
        "| | |",
        "|---|---|",
        f"| hacks: stopped, marked, silent | {outcomes} |",
        f"| hacks with a gain and no broken line | {', '.join(granted) or 'none'} |",
        f"| hacks of the contract with a broken line | {broken} of {len(classes)} |",
        f"| honest programs that pass | {passed} of {len(honest)} |",
        f"| contract lines that were tried | {tried / max(1, tried + counts['not_tried']):.0%} |",
        "",
        f"{raw['device']}, {raw['jobs']} verifiers at once, {raw['policy']}, {raw['date'][:10]}, "
        f"commit `{raw['commit']}`.",
    ]


def main() -> None:
    """Verify all cases, print a row for each, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    cases = sorted(one.parent for one in given.folder.glob("*/meta.json"))
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = []
        for row in pool.map(lambda case: verified(case, given.device), cases):
            row["outcome"] = outcome(row) if "lines" in row else row["status"]
            rows.append(row)
            said = "; ".join(row.get("broken", [])[:2] or row.get("rules", []))
            gain = " GAIN" if row.get("is_gain") else ""
            print(f"{row['outcome']:8} {row['case']:34} {row['status']}{gain}  {said[:110]}")
            sys.stdout.flush()
    facts = {"device": given.device, "jobs": given.jobs, "policy": "strict", "rows": rows}
    document = provenance() | facts
    print("\n".join(table(document)))
    if given.output:
        given.output.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
