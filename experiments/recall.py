"""Count how many known fixes a scan finds by itself.

    python experiments/recall.py experiments/forms --propose-only
    python experiments/recall.py experiments/forms --only norms --traced --output FILE

FOLDER holds pairs: folders with `before.py` and `after.py`, or `NAME.py` next to `after/NAME.py`.
Only the slow half is scanned: as a declared file, or with --traced as a package whose only test
builds the model and calls it once. `verify` checks the known fix in the same run. A case counts if
the fix is proved faster. It is found if a proposal's low bound is above 1.05 and its estimate
reaches 70 % of the fix's gain, as logarithms. Source edits and wrappers are counted apart.
With --propose-only nothing is timed: it lists the candidates that `explain` names; of declared
files all in one process. With --width 60 ruff first writes every form in lines of 60 characters.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.cli.explain import proposals_of
from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.wrappers.table import COMPILED_REGION, WRAPPERS
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.session import Session
from cudal1_ci.verification.verify import text_problem

LOW = 1.05
SHARE = 0.7
KINDS = ("source", "wrapper")
NAMES_OF_WRAPPERS = frozenset((COMPILED_REGION, *(one.name for one in WRAPPERS)))
LAYOUTS = frozenset(("channels_last",))
"""Rewrites that change no formula: a table of found fixes leaves them out."""
INPUTS = ("get_inputs", "get_init_inputs")
TEST = """
import torch
from slow_form.form import SlowForm


{inputs}


def test_form():
    torch.manual_seed(0)
    form = SlowForm(*get_init_inputs()).eval()
    with torch.no_grad():
        form(*get_inputs())
"""


def pairs(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield name, slow form and known fix of every pair below a folder."""
    for after in sorted([*folder.rglob("after.py"), *folder.rglob("after/*.py")]):
        if after.name == "after.py":
            name, before = after.parent, after.with_name("before.py")
        else:
            before = after.parent.with_name(after.name)
            name = before.with_suffix("")
        yield name.relative_to(folder).as_posix(), before, after


def in_lines_of(width: int, folder: Path, into: Path) -> Path:
    """Copy a folder of pairs and write its programs in lines of at most `width` characters."""
    copy = Path(shutil.copytree(folder, into / folder.name))
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--quiet"]
    subprocess.run([*command, "--line-length", str(width), copy], check=True)
    return copy


def tool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of this package in a folder."""
    command = [sys.executable, "-m", "cudal1_ci", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def put_package(folder: Path, text: str) -> None:
    """Write a package whose only test builds the slow form, under another name, and calls it."""
    lines, inputs = text.splitlines(), []
    for one in ast.parse(text).body:
        if isinstance(one, ast.FunctionDef) and one.name in INPUTS:
            inputs.append(ast.unparse(one))
            rows = slice(one.lineno - 1, one.end_lineno)
            lines[rows] = [""] * len(lines[rows])
    module = "\n".join(lines).rstrip().replace("class Model(", "class SlowForm(") + "\n"
    for path, said in {
        "slow_form/__init__.py": "",
        "slow_form/form.py": module,
        "tests/test_form.py": TEST.format(inputs="\n\n\n".join(inputs)).lstrip(),
    }.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(said)


def kind_of(operators: Iterable[str]) -> str:
    """Return `wrapper` for a candidate with a wrapper in it, and `source` for edits alone."""
    return "wrapper" if NAMES_OF_WRAPPERS & set(operators) else "source"


def scanned(before: Path, *, is_traced: bool, is_timed: bool) -> dict[str, Any]:
    """Scan one slow form; return its candidates by kind, and their verdicts where it is timed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        if not is_traced:
            (folder / "form.py").write_text(before.read_text())
        else:
            put_package(folder, before.read_text())
            tests = ("-p", "no:cacheprovider", "-q", "tests")
            traced = tool(folder, "trace", "--", sys.executable, "-m", "pytest", *tests)
            if traced.returncode:
                return {"failed": traced.stderr[-300:]}
        target = "slow_form/form.py" if is_traced else "form.py"
        verb = ("scan", ".", "--no-model", "--quiet") if is_timed else ("explain", target)
        said = tool(folder, *verb, "--device", "cpu", "--json", "-")
        if said.returncode or not said.stdout.strip():
            return {"failed": said.stderr[-300:]}
        return judged(json.loads(said.stdout)) if is_timed else foretold(said.stdout)


def foretold(said: str) -> dict[str, Any]:
    """Return the candidates that `explain` names, by kind; one line is one target."""
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for line in said.splitlines():
        for kind, names in by_kind(json.loads(line)["proposals"]).items():
            found[kind] += names
    return found


def by_kind(proposals: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return the names of candidates by kind."""
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for one in (each for proposers in proposals.values() for each in proposers):
        names = one.partition(":")[2]
        found[kind_of(names.split("+"))].append(names)
    return found


def proposed(session: Session, before: Path) -> dict[str, Any]:
    """Return the candidates that `explain` would name for a declared file, by kind."""
    problem = text_problem(before, "infer")
    recording = session.record(problem, problem.workloads[0])
    if isinstance(recording, str):
        return {"failed": recording}
    strategies = default_strategies(PlaybookConfig(), "cpu")
    return by_kind(proposals_of(strategies, problem, recording))


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a scan proved of its candidates, by kind: name, status, low bound, estimate."""
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for entry in report["entries"]:
        for one in entry["evaluations"]:
            candidate = one["candidate"]
            row = [candidate["proposer"].partition(":")[2], one["status"], *gain_of(one)]
            found[kind_of(each["operator"] for each in candidate["edits"])].append(row)
    return found


def gain_of(evaluation: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return low bound and estimate of the slowest workload, None where it was not measured."""
    times = [one for one in evaluation["measurements"] if one["speedup"] is not None]
    if not times or evaluation["status"] != "passed":
        return None, None
    least = min(times, key=lambda one: one["speedup_low"])
    return round(least["speedup_low"], 3), round(least["speedup"], 3)


def is_found(rows: Iterable[list[Any]], fix: float) -> bool:
    """Return whether a candidate reaches its share of the fix's gain, and is proved to gain."""
    return any(
        low is not None and low > LOW and math.log(estimate) >= SHARE * math.log(fix)
        for *_, low, estimate in rows
    )


def fix_of(before: Path, after: Path) -> list[Any]:
    """Return status, low bound and estimate of the known fix."""
    words = ("verify", str(before.resolve()), str(after.resolve()), "--device", "cpu")
    said = tool(before.parent, *words, "--json", "-")
    if not said.stdout.strip():
        return ["no verdict", None, None]
    found = json.loads(said.stdout)
    return [found["status"], *gain_of(found)]


def counted(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines that state the recall, in total and for each folder."""
    lines = []
    for group in sorted({"", *(row["case"].rpartition("/")[0] for row in rows)}):
        some = [row for row in rows if row["case"].startswith(group) and row.get("counts", True)]
        hits = (f"{kind} {sum(row['found'][kind] for row in some)}" for kind in KINDS)
        lines.append(f"{group or 'all'}: {', '.join(hits)} of {len(some)}")
    return lines


def table(raw: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each set: cases, and those with a source edit before and now."""
    columns = raw.get("columns", ("before", "with recorded calls"))
    lines = [f"| set | cases | {' | '.join(columns)} |", "|---|---|---|---|"]
    for name, runs in raw["sets"].items():
        before, now = (
            {one["case"]: bool(set(one.get("source", ())) - LAYOUTS) for one in runs[when]["rows"]}
            for when in ("before", "now")
        )
        folders = sorted({case.partition("/")[0] for case in now if "/" in case}) or [""]
        for folder in folders:
            cases = [case for case in now if case.startswith(folder)]
            counts = (sum(found.get(one, False) for one in cases) for found in (before, now))
            said = " | ".join(map(str, (len(cases), *counts)))
            lines.append(f"| {name}{'/' if folder else ''}{folder} | {said} |")
    return lines


def main() -> None:
    """Scan the slow half of every pair, print a row for each and the recall, and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--traced", action="store_true", help="as packages, traced with pytest")
    parser.add_argument("--propose-only", action="store_true", help="time nothing")
    parser.add_argument("--only", nargs="+", default=[""], help="first letters of names")
    parser.add_argument("--width", type=int, help="characters of a line")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    is_timed = not given.propose_only
    form = {"is_traced": given.traced, "is_timed": is_timed}
    rows: list[dict[str, Any]] = []
    with (
        Session(TrialConfig(), device="cpu") as session,
        tempfile.TemporaryDirectory() as scratch,
    ):
        folder = given.folder
        if given.width:
            folder = in_lines_of(given.width, folder, Path(scratch))
        for name, before, after in pairs(folder):
            if not name.startswith(tuple(given.only)):
                continue
            is_direct = not (is_timed or given.traced)
            seen = proposed(session, before) if is_direct else scanned(before, **form)
            row: dict[str, Any] = {"case": name, **seen}
            if is_timed:
                row["fix"] = fix_of(before, after)
                low, fix = row["fix"][1:]
                row["counts"] = low is not None and low > 1
                row["found"] = {k: row["counts"] and is_found(row.get(k, ()), fix) for k in KINDS}
            else:
                row["found"] = {k: bool(row.get(k)) for k in KINDS}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if given.output:  # after each, so that a kill loses no finished one
                said = {**provenance(), **form, "rows": rows}
                given.output.write_text(json.dumps(said, separators=(",", ":")) + "\n")
    print("\n".join(counted(rows)))


if __name__ == "__main__":
    main()
