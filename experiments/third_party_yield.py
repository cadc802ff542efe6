"""Count what is proposed for targets of other people's repositories, source edits apart.

**Rule of choice, stated before anything was measured.** From each of the three lists below, in
order, the first two repositories that qualify: pure PyTorch, and a test suite of its own that runs
on a CPU without downloads or compiled extensions. Tests are all of its suite; where that takes
more than five minutes, its test files by name until five minutes are spent. No earlier result names
one of them, and no rule was written with one of them in view.

- like vit-pytorch: perceiver-pytorch, segmentation_models.pytorch, open_clip
- like transformers: titans-pytorch, native-sparse-attention-pytorch, alphafold2
- for diffusion: rectified-flow-pytorch, GenerativeModels, transfusion-pytorch

Each CHECKOUT has been traced: `cudal1-ci trace CHECKOUT --timeout 300 -- python -m pytest tests`.

**Second choice, stated before any of these was measured.** Of the lists above, other results name
all that is left but transfusion-pytorch. So again the first two that qualify of each list: pure
PyTorch, and a README, main blocks or tests that run on a CPU without downloads or compiled
extensions. No result, page or form names one of them, and no rule was written with one in view.

- like vit-pytorch: External-Attention-pytorch, TimeSformer-pytorch, CoCa-pytorch
- like transformers: performer-pytorch, reformer-pytorch, memorizing-transformers-pytorch
- for diffusion: transfusion-pytorch, imagen-pytorch, video-diffusion-pytorch

Each has been traced by what it has itself: `cudal1-ci trace CHECKOUT --timeout 240`.
imagen-pytorch reads a configuration from a network when it is imported, so it does not qualify.

Every target with a workload is recorded once, under its first workload, as `explain` does, and the
strategies are asked. Nothing is timed, so a proposal may still be refused or gain nothing.

    python experiments/third_party_yield.py --python ../venv/bin/python --output FILE CHECKOUT...
    python experiments/third_party_yield.py --show FILE            # the table
    python experiments/third_party_yield.py --patches DIR CHECKOUT... # also one file a proposal
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edits_outside import outside
from provenance import provenance
from recall import LAYOUTS, kind_of

from cudal1_ci.cli.execution import session_of
from cudal1_ci.cli.scan_options import plan_of
from cudal1_ci.cli.scope import Scope
from cudal1_ci.config import load_settings
from cudal1_ci.optimize.strategies import covering, default_strategies, noticed_by, proposed_by
from cudal1_ci.optimize.understanding import understanding_of
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.apply import operators_of
from cudal1_ci.records import Candidate, Problem, Target
from cudal1_ci.records.recording import Recording
from cudal1_ci.render.patch import patch, patch_name
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.verification import Session

MOST = 100
HOTTEST = 8
"""Expressions that are kept of a target for which no source edit is proposed."""


def counted(folder: Path, python: Path, patches: Path | None, only: str) -> dict[str, Any]:
    """Return what is proposed for every target of a traced checkout that has a workload."""
    settings = load_settings(folder, overrides={"device": "cpu", "python": str(python.absolute())})
    plan = plan_of(Scope(folder), settings, SilentProgress())
    posed = [(one.target, one.problem) for one in plan.targets if one.problem is not None]
    started_s = time.monotonic()
    with session_of(settings, folder.resolve()) as session:
        rows = [
            row_of(session, target, problem, patches)
            for target, problem in posed
            if only in target.address
        ]
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "repository": folder.resolve().name,
        "commit": head,
        "num_targets": len(plan.targets),
        "num_with_workload": len(rows),
        "spent_s": round(time.monotonic() - started_s, 1),
        "targets": rows,
    }


def row_of(
    session: Session, target: Target, problem: Problem, patches: Path | None
) -> dict[str, Any]:
    """Return what is proposed for a target, by kind; and what it does where no source edit is."""
    workload = problem.workloads[0]
    said = session.record(problem, workload)
    recording = None if isinstance(said, str) else said
    config = load_settings(Path(problem.reference.root)).playbook
    strategies = default_strategies(config, "cpu")
    after = proposed(strategies, problem, recording)
    row: dict[str, Any] = {
        "target": target.address,
        "mode": workload.mode,
        "after": [one for one in names(after) if kind_of(one.split("+")) == "source"],
        "wrappers": [one for one in names(after) if kind_of(one.split("+")) == "wrapper"],
    }
    if recording is None:
        row["not_recorded"] = str(said).splitlines()[0][:200]
    else:
        row["total_us"] = round(recording.total_us)
        row["failures"] = list(noticed_by(strategies, problem, recording, target.path).failures)
        edits = [one for one in after if kind_of(operators_of(one)) == "source"]
        row["outside"] = [place for one in edits for place in outside(problem, one, recording)]
        if not row["after"]:
            row["hottest"] = hottest(session, target, problem, recording)
    if patches is not None:
        patches.mkdir(exist_ok=True, parents=True)
        for number, one in enumerate(after):
            text = patch(one.program)
            if text and kind_of(operators_of(one)) == "source":
                operators = "+".join(operators_of(one))
                name = f"{patch_name(target).removesuffix('.patch')}-{number}-{operators}.patch"
                (patches / name[:200]).write_text(text, encoding="utf-8")
    print(f"{row['target']}: {', '.join(row['after']) or '-'}", file=sys.stderr, flush=True)
    return row


def proposed(
    strategies: Sequence[Strategy],
    problem: Problem,
    recording: Recording | None,
) -> list[Candidate]:
    """Return what strategies propose first, as `scan` hears them."""
    heard: list[Candidate] = []
    for strategy in strategies:
        found = proposed_by(strategy, problem, recording, (), MOST)
        heard += [one for one in found if covering(one, heard) is None]
    return heard


def names(candidates: Sequence[Candidate]) -> list[str]:
    """Return the edits of candidates, without those that change no formula."""
    found = ["+".join(operators_of(one)) for one in candidates]
    return [one for one in found if one not in LAYOUTS]


def hottest(session: Session, target: Target, problem: Problem, recording: Recording) -> list[str]:
    """Return the expressions that take most of a call, with their shares."""
    known = understanding_of(recording, problem, session.device(), target.path)
    return [
        f"{100 * (one.share or 0):.0f} % {one.path}:{one.line} {one.code or one.name}"
        for one in known.operations[:HOTTEST]
    ]


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each repository, and one for all. Of a run that was stopped,
    what it printed is left: not which targets were recorded."""
    every = [row for one in document["results"] for row in one["targets"]]
    kinds = [kind for kind in KINDS if any(kind in row for row in every)]
    heads = [KINDS[kind] for kind in kinds]
    lines = [
        f"| repository | commit | targets | with a workload | recorded | {' | '.join(heads)} |",
        "|---" * (5 + len(heads)) + "|",
    ]
    total: Counter[str] = Counter()
    for one in document["results"]:
        rows = one["targets"]
        counts: dict[str, int | str] = {
            "targets": one["num_targets"],
            "workload": len(rows),
            "recorded": sum("not_recorded" not in row for row in rows),
            **{kind: sum(bool(row[kind]) for row in rows) for kind in kinds},
        }
        total.update(counts)
        if one.get("stopped"):
            counts["recorded"] = "-"
        cells = [one["repository"], f"`{one['commit'][:7]}`", *map(str, counts.values())]
        lines.append(f"| {' | '.join(cells)} |")
    if any(one.get("stopped") for one in document["results"]):
        total["recorded"] = "-"
    cells = ["all", "", *map(str, total.values())]
    lines.append(f"| {' | '.join(cells)} |")
    shares = [f"{100 * total[kind] / max(total['workload'], 1):.0f}" for kind in kinds]
    lines.append(f"| per 100 with a workload | | | | | {' | '.join(shares)} |")
    rows = [row for row in every if "failures" in row]
    if rows:
        spent_s = sum(one["spent_s"] for one in document["results"])
        edits = sum(len(row["after"]) for row in rows)
        failures = sum(bool(row["failures"]) for row in rows)
        outside = sum(len(row["outside"]) for row in rows)
        lines += [
            "",
            f"Rules raised an error in {failures} of {len(rows)} recorded calls. Of {edits} edits, "
            f"{outside} change code that the call did not run. {spent_s / 60:.0f} minutes, "
            f"{spent_s / total['workload']:.1f} s for each target with a workload.",
        ]
    return lines


KINDS = {"before": "before", "after": "with recorded calls", "wrappers": "wrappers"}
"""Headings. `before` are rewrites of texts alone, which there are none of any more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", nargs="*", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--patches", type=Path)
    parser.add_argument("--only", default="", help="part of the names of targets")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=Path)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    document = {**provenance(), "results": results}
    if arguments.show is not None:
        document = json.loads(arguments.show.read_text(encoding="utf-8"))
    for folder in arguments.checkout:
        patches = None if arguments.patches is None else arguments.patches / folder.resolve().name
        results.append(counted(folder, arguments.python, patches, arguments.only))
        if arguments.output is not None:  # after each, so that a kill loses no finished one
            arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
