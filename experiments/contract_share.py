"""Count which lines of contracts are held, broken and tried.

    python experiments/contract_share.py honest cases=FOLDER tree=examples/slowformer

`honest` are the programs of tests/honest; `cases=FOLDER` are folders with a reference.py and a
candidate.py; `tree=FOLDER` is what the playbook and the wrappers propose for a checkout. A line
that the reference refuses counts in no share.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudal1_ci.cli.execution import settings_of  # noqa: E402
from cudal1_ci.cli.scan_options import plan_of  # noqa: E402
from cudal1_ci.cli.scope import Scope  # noqa: E402
from cudal1_ci.errors import CudaL1Error  # noqa: E402
from cudal1_ci.optimize.strategies import default_strategies  # noqa: E402
from cudal1_ci.records import Candidate, Evaluation, Problem, TextProgram, Verdict  # noqa: E402
from cudal1_ci.render.progress import SilentProgress  # noqa: E402
from cudal1_ci.verification import Session, TrialConfig  # noqa: E402
from cudal1_ci.verification.verify import candidate_of, text_problem  # noqa: E402
from tests.test_attacks import by_reference, needs, problem_of, reference_of  # noqa: E402

Program = tuple[str, Problem, Candidate]


def honest(device: str) -> Iterator[Program]:
    """Yield the honest programs of the tests."""
    for path in by_reference("honest"):
        if needs(path) in (None, device):
            problem = problem_of(reference_of(path))
            program = TextProgram(source=path.read_text(), entry="ModelNew")
            yield (
                path.stem,
                problem,
                Candidate(problem_id=problem.id, program=program, proposer="honest"),
            )


def cases(folder: Path) -> Iterator[Program]:
    """Yield folders with a reference and a candidate."""
    for one in sorted(folder.iterdir()):
        if (one / "candidate.py").exists():
            problem = text_problem(one / "reference.py", "infer")
            yield one.name, problem, candidate_of(problem, one / "candidate.py")


def tree(folder: Path, kind: str) -> Iterator[Program]:
    """Yield what is proposed for a checkout."""
    settings = settings_of(folder, {}, {})
    with tempfile.TemporaryDirectory() as state:
        settings = msgspec.structs.replace(settings, state_dir=state)
        plan = plan_of(Scope(folder), settings, SilentProgress())
    for target in plan.targets:
        for strategy in default_strategies(settings.playbook, kind) if target.problem else ():
            assert target.problem is not None
            for one in strategy.propose(target.problem, (), settings.review.num_candidates):
                yield f"{target.target.qualname}: {one.proposer}", target.problem, one


def row_of(session: Session, name: str, problem: Problem, candidate: Candidate) -> dict[str, Any]:
    """Return what the contract of one candidate came to."""
    row: dict[str, Any] = {"name": name}
    verdict = session.examine(problem, candidate)
    row["status"] = verdict.status
    if verdict.status in ("invalid_reference", "degenerate"):
        return row
    started_s = time.monotonic()
    given = Evaluation(candidate=candidate, verdict=Verdict(status="passed"))
    checks = session.examine_contract(problem, given).contract or ()
    row["seconds"] = round(time.monotonic() - started_s, 2)
    row["counts"] = dict(Counter(one.result for one in checks))
    row["lines"] = [
        {"aspect": one.aspect, "result": one.result, "detail": one.detail}
        for one in checks
        if one.result in ("broken", "not_tried")
    ]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--contract-s", type=float, default=TrialConfig().contract_s)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    kind = given.device.partition(":")[0]
    config = TrialConfig(num_launches=1, contract_s=given.contract_s)
    found: dict[str, list[dict[str, Any]]] = {}
    with Session(config, device=given.device) as session:
        for corpus in given.corpora:
            what, _, folder = corpus.partition("=")
            programs = {
                "honest": lambda: honest(kind),
                "cases": lambda folder=folder: cases(Path(folder)),
                "tree": lambda folder=folder: tree(Path(folder), kind),
            }[what]()
            rows = found[what] = []
            for name, problem, candidate in programs:
                with contextlib.suppress(CudaL1Error):
                    rows.append(row_of(session, name, problem, candidate))
                    show(rows[-1])
    for corpus, rows in found.items():
        print(f"{corpus}: {share_text(rows)}")
    if given.json:
        load = os.getloadavg()
        said = {"command": " ".join(sys.argv), "load": load, "corpora": found}
        given.json.write_text(json.dumps(said, indent=1) + "\n")


def show(row: dict[str, Any]) -> None:
    counts = row.get("counts", "")
    print(f"{row['name']}: {row['status']} {counts} {row.get('seconds', '')}", flush=True)
    for one in row.get("lines", ()):
        if one["result"] == "broken":
            print(f"    broken: {one['aspect']}: {one['detail']}", flush=True)


def share_text(rows: list[dict[str, Any]]) -> str:
    """Format the share of lines that were tried, and the seconds of a candidate."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.get("counts", {}))
    tried = counts["held"] + counts["differs"] + counts["broken"]
    total = tried + counts["not_tried"]
    seconds = sorted(row["seconds"] for row in rows if "seconds" in row)
    middle = seconds[len(seconds) // 2] if seconds else 0.0
    num_broken = sum("broken" in row.get("counts", {}) for row in rows)
    return (
        f"{len(rows)} candidates, {tried} of {total} lines tried ({tried / max(total, 1):.1%}), "
        f"{counts['not_applicable']} refused by the reference, {num_broken} candidates with a "
        f"broken line, {middle:.1f} s a candidate in the median"
    )


if __name__ == "__main__":
    main()
