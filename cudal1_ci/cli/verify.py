"""`cudal1-ci verify`: one Trial of KernelBench-form files, answered as docs/report.md says."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci.cli.group import EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_NO, EXIT_UNSUPPORTED
from cudal1_ci.config import load_settings
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.report.document import verification
from cudal1_ci.report.shape import VerificationDocument
from cudal1_ci.report.text import print_verification
from cudal1_ci.schema import Call, Candidate, Made, Problem, TextProgram, Workload
from cudal1_ci.trial import Session

EPILOG = """\b
Examples:
  cudal1-ci verify model.py faster.py
  cudal1-ci verify model.py a.py b.py c.py --json -      one object a line
REFERENCE defines `Model`, `get_inputs()` and, if Model takes arguments, `get_init_inputs()`;
each CANDIDATE defines `ModelNew` (or `Model`) with the same constructor and state_dict keys.
"""


@click.command(epilog=EPILOG)
@click.argument("reference", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument(
    "candidates",
    metavar="CANDIDATE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--json", "json_path", metavar="FILE|-", help="Write the verdict as JSON.")
@click.option("--mode", type=click.Choice(["infer", "train"]), default="infer", show_default=True)
@click.option("--seed", type=int, help="Seed of the judge's inputs [default: 0].")
@click.option("--device", help="cpu, cuda or cuda:N [default: cpu].")
@click.option("--python", help="Interpreter that has torch [default: this one].")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1].")
@click.option("--timeout", help="Seconds that the calls of one request may take [default: 60s].")
def verify(
    reference: Path, candidates: tuple[Path, ...], json_path: str | None, mode: str, **flags: Any
) -> None:
    """Judge whether CANDIDATE computes the same as REFERENCE, and how much faster it is.

    Exit code 0 for passed, 3 for inconclusive, 1 for every other verdict, 4 when the judge itself
    could not run; of several candidates the worst counts.
    """
    given = {key: flags[flag] for flag, key in KEYS.items() if flags[flag] is not None}
    settings = load_settings(Path.cwd(), overrides=given)
    if settings.device not in ("auto", "cpu"):
        raise UnsupportedError(
            f"device {settings.device}: this version measures on the CPU only; use --device cpu"
        )
    problem = text_problem(reference, mode)
    documents: list[VerificationDocument] = []
    with Session(settings.trial, python=settings.python or sys.executable) as session:
        for path in candidates:
            documents.append(verification(session.evaluate(problem, candidate_of(problem, path))))
            if json_path is None:
                print_verification(documents[-1], title=path.name)
    if json_path is not None:
        write_lines(json_path, documents)
    sys.exit(max((exit_code(d.status) for d in documents), key=SEVERITY.index))


KEYS = {
    "device": "device",
    "python": "python",
    "threads": "trial.threads",
    "seed": "trial.seed",
    "timeout": "trial.call",
}
SEVERITY = [EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_NO, EXIT_UNSUPPORTED]


def exit_code(status: str) -> int:
    """The exit code that contracts.md gives a status."""
    by_status = {
        "passed": EXIT_DONE,
        "inconclusive": EXIT_INCONCLUSIVE,
        "harness_error": EXIT_UNSUPPORTED,
    }
    return by_status.get(status, EXIT_NO)


def text_problem(path: Path, mode: str) -> Problem:
    """The Problem that a KernelBench-form file states.

    Raises:
        ConfigError: The file does not parse, or lacks `Model` or `get_inputs`.
    """
    source = path.read_text(encoding="utf-8")
    names = top_level_names(path, source)
    for required in ("Model", "get_inputs"):
        if required not in names:
            raise ConfigError(
                f"{path}: expected a top-level `{required}` (KernelBench form), found "
                f"{', '.join(sorted(names)) or 'nothing'}; define it, or name the right file"
            )
    init: Made | Call = Made(function="get_init_inputs") if "get_init_inputs" in names else Call()
    workload = Workload(
        name="default",
        provenance="declared",
        source=f"{path.name}:get_inputs",
        init=init,
        call=Made(function="get_inputs"),
        mode="train" if mode == "train" else "infer",
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def candidate_of(problem: Problem, path: Path) -> Candidate:
    """The file as a candidate. One that cannot be decoded is the judge's to refuse."""
    source = path.read_text(encoding="utf-8", errors="replace")
    program = TextProgram(source=source, entry=entry_of(source))
    return Candidate(problem_id=problem.id, program=program, proposer="file")


def entry_of(source: str) -> str:
    """`ModelNew`, or `Model` where there is no `ModelNew`. A file that does not parse is the
    judge's to report: it is a verdict on the candidate, not a failure of the tool."""
    try:
        names = {getattr(node, "name", None) for node in ast.parse(source).body}
    except (SyntaxError, ValueError):
        return "ModelNew"
    return "Model" if "Model" in names and "ModelNew" not in names else "ModelNew"


def top_level_names(path: Path, source: str) -> set[str]:
    """Names of the functions and classes that a file defines, and of what it imports or assigns."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: does not parse as Python: {error}") from error
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def write_lines(target: str, documents: list[VerificationDocument]) -> None:
    """One JSON object a line, to a file or, for `-`, to stdout."""
    text = b"\n".join(msgspec.json.encode(document) for document in documents).decode() + "\n"
    if target == "-":
        click.echo(text, nl=False)
    else:
        Path(target).write_text(text, encoding="utf-8")
