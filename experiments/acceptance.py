"""Hold every proposal for real repositories against their full test suites and README blocks.

Each CHECKOUT has its tests in `tests/`. Its README's blocks and its tests are traced, it is scanned
by default, and what the product says of each winner is kept. Then each proposal's patch is applied
to a copy: the full suite runs there and on the checkout, and so do all README blocks, whatever they
import, without the product's limits. Last, the recorded case: the patch of vit-pytorch's attention
that its recorder's hook relies on. Fetch the checkouts, and make an environment with their
requirements, first:

    python experiments/acceptance.py --python ../venv/bin/python --budget 5m \\
        --output experiments/results/acceptance.json ../vit-pytorch ../auraloss
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.readers import Readers
from cudal1_ci.discover.scripts import scripts_of
from cudal1_ci.optimize.own_programs import differences
from cudal1_ci.processes.harvest import Harvester, Limits
from cudal1_ci.records.published import from_json
from cudal1_ci.render.wording import acceptance_text

STATE = ".cudal1-ci"
SUITE_S = 900.0
RECORDED = "vit_pytorch/vit.py"
OLD = """\
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale

        attn = self.attend(dots)
        attn = self.dropout(attn)

        out = torch.matmul(attn, v)
"""
NEW = """\
        p = self.dropout.p if self.training else 0.0
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
"""
BLOCKS = """\
import sys
import torch
from cudal1_blocks import blocks
for text in blocks:
    try:
        exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        print(type(error).__name__, str(error)[:80], file=sys.stderr)
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests"]))
"""


def tool(*words: str) -> int:
    """Run a verb of this package and return its exit code."""
    return subprocess.run([sys.executable, "-m", "cudal1_ci", *words], check=False).returncode


def trace(folder: Path, python: Path, limit_s: float) -> None:
    """Trace the blocks of a README and the tests."""
    texts = [
        "\n".join(cell.text for cell in script.cells)
        for script in scripts_of(folder)
        if script.kind == "readme"
    ]
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "cudal1_blocks.py").write_text(f"blocks = {texts!r}\n", encoding="utf-8")
        program = Path(scratch, "run.py")
        program.write_text(BLOCKS, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join([scratch, str(folder)])
        try:
            tool(
                *("trace", str(folder), "--python", str(python), "--timeout", str(limit_s)),
                *("--", str(python), str(program)),
            )
        finally:
            del os.environ["PYTHONPATH"]


def suite(folder: Path, python: Path) -> dict[str, str]:
    """Return the outcome of each test of a checkout's full suite."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            subprocess.run(
                [*command, f"--junitxml={file.name}"],
                cwd=folder,
                env=environment,
                check=False,
                stdout=2,
                timeout=SUITE_S,
            )
            tree = ElementTree.parse(file.name)
        except (subprocess.TimeoutExpired, ElementTree.ParseError) as error:
            return {"the suite": f"was not finished: {type(error).__name__}"}
    found = {}
    for case in tree.iter("testcase"):
        bad = [one.tag for one in case if one.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}::{case.get('name')}"] = bad[0] if bad else "passed"
    return found


def patched(folder: Path, patch: str, scratch: str) -> Path:
    """Return a copy of a checkout with a patch applied, as a maintainer would."""
    copy = Path(scratch) / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(STATE, "__pycache__"))
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], cwd=copy, input=patch, text=True, check=True
    )
    return copy


def blocks(folder: Path, copy: Path, python: Path) -> dict[str, Any]:
    """Run all README blocks on both trees; what differs is run on both once more."""
    limits = Limits(cell_s=90.0, script_s=180.0)
    found: dict[str, Any] = {"num_same": 0, "num_not_run": 0, "differ": []}
    scripts = [script for script in scripts_of(folder) if script.kind == "readme"]
    with (
        Harvester(folder, python=str(python)) as here,
        Harvester(copy, python=str(python)) as there,
    ):
        for script in scripts:
            before = here.run(script, limits=limits, compares=True)
            if not any(cell.outcome == "ran" for cell in before.cells):
                found["num_not_run"] += 1
                continue
            after = there.run(script, limits=limits, compares=True)
            differ = {one.key: one.detail for one in differences(script, before, after)}
            if differ:
                again = here.run(script, limits=limits, compares=True)
                chance = {one.key for one in differences(script, before, again)}
                differ = {key: text for key, text in differ.items() if key not in chance}
            found["differ"] += [f"{script.place}: {text}" for text in differ.values()]
            found["num_same"] += sum(cell.outcome == "ran" for cell in before.cells) - len(differ)
    return found


def checked(folder: Path, python: Path, patch: str, before: dict[str, str]) -> dict[str, Any]:
    """Return what the full suite and the README say of a patch."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = patched(folder, patch, scratch)
        after = suite(copy, python)
        newly = sorted(
            name for name, outcome in before.items() if outcome == "passed" != after.get(name)
        )
        passed = sum(outcome == "passed" for outcome in after.values())
        return {
            "tests_passed": passed,
            "tests_newly_failing": newly,
            "blocks": blocks(folder, copy, python),
        }


def measured(folder: Path, python: Path, budget: str, trace_s: float) -> dict[str, Any]:
    """Trace and scan a checkout, and check each proposal."""
    shutil.rmtree(folder / STATE, ignore_errors=True)
    trace(folder, python, trace_s)
    file = folder / STATE / "report.json"
    began_s = time.monotonic()
    tool("scan", str(folder), "--python", str(python), "--budget", budget, "--json", str(file))
    scan_s = time.monotonic() - began_s
    report = from_json(file.read_bytes())
    before: dict[str, str] = {}
    winners = []
    for entry in report.entries:
        for number, one in enumerate(entry.evaluations):
            if one.acceptance is None:
                continue
            before = before or suite(folder, python)
            is_proposal = number == entry.best
            winners.append(
                {
                    "target": f"{entry.target.path}:{entry.target.qualname}",
                    "proposer": one.candidate.proposer,
                    "speedups": [each.speedup for each in one.measurements],
                    "said": acceptance_text(one.acceptance),
                    "accept_s": round(one.acceptance.elapsed_s, 1),
                    "num_tests": one.acceptance.num_tests,
                    "num_blocks": one.acceptance.num_blocks,
                    "lines": [f"{each.result}: {each.detail}" for each in one.acceptance.lines][:8],
                    "is_proposal": is_proposal,
                    "checked": checked(folder, python, one.candidate.patch, before)
                    if is_proposal and one.candidate.patch
                    else None,
                }
            )
    head = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return {
        "repository": folder.name,
        "commit": subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip(),
        "scan_s": round(scan_s, 1),
        "ended": report.ended,
        "num_targets": report.totals.num_targets,
        "num_judged": report.totals.num_judged,
        "num_candidates": report.totals.num_candidates,
        "suite_passed": sum(outcome == "passed" for outcome in before.values()),
        "suite_failed": sum(outcome in ("failure", "error") for outcome in before.values()),
        "winners": winners,
    }


def recorded_case(folder: Path) -> list[str]:
    """Return what the search says of the patch that breaks the recorder."""
    text = (folder / RECORDED).read_text(encoding="utf-8")
    assert OLD in text, "another version of the attention"
    readers = Readers(discover(folder, DiscoveryConfig(tests=True)))
    found = readers.of(RECORDED, text, text.replace(OLD, NEW))
    return [f"{one.path}:{one.line} {one.said}" for one in found if one.refuses]


def main() -> None:
    """Measure the checkouts, and write after each one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--trace-s", type=float, default=300.0)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    document = {"provenance": provenance(), "budget": arguments.budget, "results": []}
    for checkout in arguments.checkouts:
        folder, python = checkout.resolve(), arguments.python.absolute()
        found = measured(folder, python, arguments.budget, arguments.trace_s)
        if (folder / RECORDED).is_file():
            found["recorded_case"] = recorded_case(folder)
        document["results"].append(found)
        text = json.dumps(document, indent=1)
        arguments.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
