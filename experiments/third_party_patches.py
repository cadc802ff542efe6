"""Run the tests of other people's repositories before and after each proposed patch.

    python experiments/third_party_yield.py --python P --patches DIR CHECKOUT...
    python experiments/third_party_patches.py --python P --patches DIR --output FILE \
        CHECKOUT --only NAME tests/test_it.py
    python experiments/third_party_patches.py --show FILE            # the table

Patches are those whose file names contain NAME. Each is applied to a copy of the checkout by
itself, and taken back. Rows are added to those that FILE has. Without a test, the blocks of
READMEs and main blocks that use the patched module run on both trees, at most four a patch, and
what they give and print is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.discover.scripts import scripts_of
from cudal1_ci.optimize.own_programs import differences
from cudal1_ci.processes.harvest import Harvester, Limits

OPTIONS = ("-q", "-p", "no:cacheprovider", "--no-header", "-rf")
MOST_BLOCKS = 4
NOT_COPIED = (".git", ".cudal1-ci", "__pycache__")


def outcome(folder: Path, python: Path, tests: list[str]) -> tuple[str, set[str]]:
    """Return the last line of a run of tests, and the tests that fail."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    command = [str(python), "-m", "pytest", *OPTIONS, *tests]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    lines = run.stdout.strip().splitlines() or [f"exit code {run.returncode}"]
    failed = {one.partition(" - ")[0] for one in lines if one.startswith(("FAILED", "ERROR"))}
    return lines[-1].strip("= "), failed


def patched(folder: Path, file: Path, *options: str) -> None:
    command = ["patch", "-p1", "-s", *options, "-i", str(file.absolute())]
    subprocess.run(command, cwd=folder, check=True)


def blocks_of(folder: Path, file: Path) -> list[Any]:
    """Return blocks that use the module that a patch changes; else any that use its package."""
    found = [script for script in scripts_of(folder) if script.kind in ("readme", "main")]
    text = file.read_text(encoding="utf-8")
    (path,) = {line[6:].split("\t")[0] for line in text.splitlines() if line.startswith("+++ b/")}
    module = path.removesuffix(".py").replace("/", ".")
    for name in (module, module.partition(".")[0]):
        named = [
            one
            for one in found
            if (one.kind == "main" and one.path == path)
            or any(name in cell.text for cell in one.cells)
        ]
        if named:
            break
    return named[:MOST_BLOCKS]


def compared(checkout: Path, copy: Path, python: Path, file: Path) -> dict[str, Any]:
    """Return what blocks give on both trees; what differs is run on the first one again."""
    limits = Limits(cell_s=60.0, script_s=60.0)
    ran = same = 0
    failed = []
    with (
        Harvester(checkout, python=str(python)) as here,
        Harvester(copy, python=str(python)) as there,
    ):
        for script in blocks_of(checkout, file):
            before = here.run(script, limits=limits, compares=True)
            if not any(cell.outcome == "ran" for cell in before.cells):
                continue
            after = there.run(script, limits=limits, compares=True)
            found = {one.key: one.detail for one in differences(script, before, after)}
            if found:
                again = here.run(script, limits=limits, compares=True)
                chance = {one.key for one in differences(script, before, again)}
                found = {key: text for key, text in found.items() if key not in chance}
            ran += 1
            same += not found
            failed += [f"{script.place}: {text}" for text in found.values()]
    return {
        "tests": "blocks that use it",
        "before": f"{ran} ran",
        "after": f"{same} the same",
        "newly_failed": failed,
    }


def rows_of(
    checkout: Path, python: Path, files: list[Path], tests: list[str]
) -> list[dict[str, Any]]:
    """Return how tests end before and after each patch."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / checkout.name
        shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        before, failed_before = outcome(folder, python, tests) if tests else ("", set())
        for file in files:
            patched(folder, file)
            row: dict[str, Any] = {"repository": checkout.name, "patch": file.name}
            if tests:
                after, failed = outcome(folder, python, tests)
                row |= {
                    "tests": " ".join(tests),
                    "before": before,
                    "after": after,
                    "newly_failed": sorted(failed - failed_before),
                }
            else:
                row |= compared(checkout, folder, python, file)
            patched(folder, file, "-R")
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each patch."""
    lines = ["| repository | patch | tests | before | after |", "|---" * 5 + "|"]
    for row in document["rows"]:
        target, _, rules = row["patch"].removesuffix(".patch").rpartition("-")
        name = ".".join(target.rpartition("-")[0].split(".")[-2:])
        tests = row["tests"].replace("tests/", "")
        results = (row[key].partition(" in ")[0] for key in ("before", "after"))
        cells = [row["repository"], f"`{name}` by `{rules}`", f"`{tests}`", *results]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--patches", type=Path, default=Path())
    parser.add_argument("--only", default="", help="part of the names of patches")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=Path)
    given = parser.parse_args()
    document: dict[str, Any] = {**provenance(), "rows": []}
    known = given.show or given.output
    if known is not None and known.exists():
        document = json.loads(known.read_text(encoding="utf-8"))
    if given.checkout is not None:
        folder = given.patches / given.checkout.resolve().name
        files = sorted(one for one in folder.glob("*.patch") if given.only in one.name)
        python = given.python.absolute()
        document["rows"] += rows_of(given.checkout.resolve(), python, files, given.tests)
        if given.output is not None:
            given.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
