"""Hold every proposal for real repositories against their full test suites and README blocks.

Each CHECKOUT has its tests in `tests/`. Its README's blocks and its tests are traced, it is scanned
by default, and what the product says of each winner is kept. With `--rewrites N` nothing is timed:
of up to N targets the first edit of the source that a rule proposes is taken, faster or not. Then
each patch that is accepted is applied to a copy: the full suite runs there and on the checkout, and
so do all README blocks, whatever they import, without the product's limits. Last, the recorded
case: the patch of vit-pytorch's attention that its recorder's hook relies on. Fetch the checkouts,
and make an environment with their requirements, first:

    python experiments/acceptance.py --python ../venv/bin/python --budget 5m \\
        --output experiments/results/acceptance.json ../vit-pytorch ../auraloss
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.cli.scan_options import acceptor_of, context_without_memory, plan_of
from cudal1_ci.cli.scope import scope_of
from cudal1_ci.config import load_settings
from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.readers import Readers
from cudal1_ci.discover.scripts import scripts_of
from cudal1_ci.optimize.own_programs import differences
from cudal1_ci.optimize.ranking import is_source_edit
from cudal1_ci.optimize.target import TargetSearch
from cudal1_ci.processes.harvest import Harvester, Limits
from cudal1_ci.records import Acceptance, Evaluation, Verdict
from cudal1_ci.records.published import from_json
from cudal1_ci.render.patch import patch
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.render.wording import acceptance_text

STATE = ".cudal1-ci"
SUITE_S = 900.0
BLOCKS_S = float(os.environ.get("BLOCKS_S", "900"))
"""For the README blocks of one patch on both trees."""
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


def patched(folder: Path, diff: str, scratch: str) -> Path:
    """Return a copy of a checkout with a patch applied, as a maintainer would."""
    copy = Path(scratch) / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(STATE, "__pycache__"))
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], cwd=copy, input=diff, text=True, check=True
    )
    return copy


def blocks(folder: Path, copy: Path, python: Path) -> dict[str, Any]:
    """Run all README blocks on both trees; what differs is run on both once more."""
    limits = Limits(cell_s=90.0, script_s=180.0)
    found: dict[str, Any] = {"num_same": 0, "num_not_run": 0, "num_not_reached": 0, "differ": []}
    deadline_s = time.monotonic() + BLOCKS_S
    scripts = [script for script in scripts_of(folder) if script.kind == "readme"]
    with (
        Harvester(folder, python=str(python)) as here,
        Harvester(copy, python=str(python)) as there,
    ):
        for script in scripts:
            if time.monotonic() > deadline_s:
                found["num_not_reached"] += 1
                continue
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


def checked(folder: Path, python: Path, diff: str, before: dict[str, str]) -> dict[str, Any]:
    """Return what the full suite and the README say of a patch."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = patched(folder, diff, scratch)
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
                    "target": entry.target.address,
                    "proposer": one.candidate.proposer,
                    "speedups": [each.speedup for each in one.measurements],
                    **said_of(one.acceptance),
                    "is_proposal": is_proposal,
                    "checked": checked(folder, python, one.candidate.patch, before)
                    if is_proposal and one.candidate.patch
                    else None,
                }
            )
    return {
        **commit_of(folder),
        "scan_s": round(scan_s, 1),
        "ended": report.ended,
        "num_targets": report.totals.num_targets,
        "num_judged": report.totals.num_judged,
        "num_candidates": report.totals.num_candidates,
        "suite_passed": sum(outcome == "passed" for outcome in before.values()),
        "suite_failed": sum(outcome in ("failure", "error") for outcome in before.values()),
        "winners": winners,
    }


def rewritten(
    folder: Path, python: Path, most: int, trace_s: float, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Trace a checkout, and check the first edit of the source for targets that have one. What is
    known so far is kept after each."""
    shutil.rmtree(folder / STATE, ignore_errors=True)
    trace(folder, python, trace_s)
    settings = load_settings(folder, overrides={"python": str(python), "device": "cpu"})
    scope, progress = scope_of([folder]), SilentProgress()
    plan = plan_of(scope, settings, progress, change=None, retrace=False, only_reads=False)
    before = suite(folder, python)
    winners: list[dict[str, Any]] = []
    found_so_far = {
        **commit_of(folder),
        "suite_passed": sum(outcome == "passed" for outcome in before.values()),
        "suite_failed": sum(outcome in ("failure", "error") for outcome in before.values()),
        "winners": winners,
    }
    with (
        context_without_memory(plan, settings, progress) as context,
        contextlib.closing(acceptor_of(plan, settings, context.archive)) as acceptor,
    ):
        for planned in plan.targets:
            if len(winners) >= most:
                break
            if planned.problem is None:
                continue
            search = TargetSearch(planned.target, planned.problem, context.strategies, context)
            first, _ = search.look()
            edits = [one for one in search.in_order(first) if is_source_edit(one)]
            if not edits:
                continue
            candidate = edits[0]
            evaluation = Evaluation(candidate=candidate, verdict=Verdict(status="passed"))
            found = acceptor.accepted(evaluation, 480.0, planned.target.qualname).acceptance
            assert found is not None
            winners.append(
                {
                    "target": planned.target.address,
                    "proposer": candidate.proposer,
                    **said_of(found),
                    "checked": checked(folder, python, patch(candidate.program) or "", before)
                    if not found.broken
                    else None,
                }
            )
            keep(found_so_far)
    return found_so_far


def said_of(found: Acceptance) -> dict[str, Any]:
    """Return what the product says."""
    return {
        "said": acceptance_text(found),
        "accept_s": round(found.elapsed_s, 1),
        "num_tests": found.num_tests,
        "num_blocks": found.num_blocks,
        "lines": [f"{one.result}: {one.path} {one.detail}" for one in found.lines][:8],
    }


def commit_of(folder: Path) -> dict[str, str]:
    """Return the name and the commit of a checkout."""
    head = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    return {"repository": folder.name, "commit": commit}


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
    parser.add_argument("--rewrites", type=int, help="time nothing, and take this many edits")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    stated = provenance()
    document: dict[str, Any] = {
        "device": stated["processor"],
        "commit": stated["commit"],
        "command": stated["command"],
        "provenance": stated,
        "budget": arguments.budget,
        "results": [],
    }

    def keep(last: dict[str, Any]) -> None:
        known = [one for one in document["results"] if one["repository"] != last["repository"]]
        document["results"] = [*known, last]
        text = json.dumps(document, indent=1)
        arguments.output.write_text(text + "\n", encoding="utf-8")

    for checkout in arguments.checkouts:
        folder, python = checkout.resolve(), arguments.python.absolute()
        if arguments.rewrites:
            found = rewritten(folder, python, arguments.rewrites, arguments.trace_s, keep)
        else:
            found = measured(folder, python, arguments.budget, arguments.trace_s)
        if (folder / RECORDED).is_file():
            found["recorded_case"] = recorded_case(folder)
        keep(found)


if __name__ == "__main__":
    main()
