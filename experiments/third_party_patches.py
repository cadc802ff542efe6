"""Run the tests of other people's repositories before and after each proposed patch.

    python experiments/third_party_yield.py --python P --patches DIR CHECKOUT...
    python experiments/third_party_patches.py --python P --patches DIR --output FILE \
        CHECKOUT --only NAME tests/test_it.py
    python experiments/third_party_patches.py --show FILE            # the table

Patches are those whose file names contain NAME. Each is applied to a copy of the checkout by
itself, and taken back. Rows are added to those that FILE has.
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

OPTIONS = ("-q", "-p", "no:cacheprovider", "--no-header", "-rf")
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


def rows_of(
    checkout: Path, python: Path, files: list[Path], tests: list[str]
) -> list[dict[str, Any]]:
    """Return how tests end before and after each patch."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / checkout.name
        shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        before, failed_before = outcome(folder, python, tests)
        for file in files:
            patched(folder, file)
            after, failed = outcome(folder, python, tests)
            patched(folder, file, "-R")
            row = {
                "repository": checkout.name,
                "patch": file.name,
                "tests": " ".join(tests),
                "before": before,
                "after": after,
                "newly_failed": sorted(failed - failed_before),
            }
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
