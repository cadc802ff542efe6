"""Keep the facts of a report card's run without its programs, which may be other people's.

    python experiments/run_facts.py run.json --output assets/results/report-card-h100.json.gz

A hash replaces each text, so that runs can still be compared, merged, and checked against fetched
programs. Numbers, verdicts and the verifier's remarks stay. A log keeps its last line alone,
because tracebacks quote the program. `--without COLUMN` drops a column that is to be measured
again, which report_card.py does with `--earlier` and `--solvers`.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Finding, content_hash
from cudal1_ci.report_card.card import carded
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.shape import ResultDocument, RunDocument, TaskDocument, TrialDocument

KEPT = "# not kept here; its hash: "
QUOTING = ("static.", "program.")
"""Rules whose evidence is lines of the program, or of what a compiler said of it."""
FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.-]+/)+(?=[\w.-]+\.py\b)")
"""In front of a file's name."""


def facts(run: RunDocument) -> RunDocument:
    return msgspec.structs.replace(run, tasks=tuple(of_task(task) for task in run.tasks))


def without(run: RunDocument, columns: Sequence[str]) -> RunDocument:
    """Return the run without these columns.

    Raises:
        ValueError: It has no such column.
    """
    if unknown := sorted(set(columns) - set(run.solvers)):
        raise ValueError(f"expected columns of the run ({', '.join(run.solvers)}), got {unknown}")
    tasks = tuple(
        msgspec.structs.replace(
            task, results=tuple(one for one in task.results if one.solver not in columns)
        )
        for task in run.tasks
    )
    solvers = tuple(one for one in run.solvers if one not in columns)
    return carded(msgspec.structs.replace(run, solvers=solvers, tasks=tasks))


def of_task(task: TaskDocument) -> TaskDocument:
    return msgspec.structs.replace(
        task,
        reference=hashed(task.reference),
        reason=task.reason and task.reason.partition("\n")[0],
        findings=without_evidence(task.findings),
        results=tuple(of_column(result) for result in task.results),
    )


def of_column(result: ResultDocument) -> ResultDocument:
    trials = tuple(of_trial(trial) for trial in result.trials)
    return msgspec.structs.replace(result, trials=trials)


def of_trial(trial: TrialDocument) -> TrialDocument:
    return msgspec.structs.replace(
        trial,
        code=hashed(trial.code),
        log=last_line(trial.log),
        findings=without_evidence(trial.findings),
    )


def without_evidence(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings without quoted evidence and without the folders of a machine."""
    return tuple(
        msgspec.structs.replace(
            one,
            message=FOLDERS.sub("", one.message),
            evidence=None if one.rule.startswith(QUOTING) else one.evidence,
        )
        for one in findings
    )


def hashed(text: str) -> str:
    """Replace a program's text by its hash; different texts have different hashes."""
    return text if text.startswith(KEPT) else f"{KEPT}{content_hash(text)}"


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="The facts of a run, without its programs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json", help="may be gzipped")
    parser.add_argument("--without", action="append", default=[], metavar="COLUMN")
    parser.add_argument("--output", type=Path, required=True, metavar="FACTS.json.gz")
    options = parser.parse_args()
    try:
        runs = [read_run(path) for path in options.runs]
        whole = merge(runs) if len(runs) > 1 else carded(runs[0])
        run = facts(without(whole, options.without))
    except (ReportError, ValueError) as error:
        parser.error(str(error))
    # The same facts are the same file: no name and no time of packing.
    options.output.write_bytes(gzip.compress(msgspec.json.encode(run), mtime=0))


if __name__ == "__main__":
    main()
