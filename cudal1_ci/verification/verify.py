"""Run one Trial: `cudal1-ci verify` as a function for other programs.

from cudal1_ci import verify

evaluation = verify("reference.py", "candidate.py")    # two files in KernelBench form
evaluation = verify(slow, fast, (torch.randn(8, 16),))    # two functions that can be imported
evaluation.verdict.status, evaluation.measurements
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.processes import Executor
from cudal1_ci.records import (
    Call,
    Candidate,
    Evaluation,
    Finding,
    Made,
    Problem,
    TextProgram,
    Workload,
)
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.pairs import Inputs, functions_pair

NO_ENTRY = "the text defines no `"
"""Part of a runner's message on a file without the class to load (runner/programs.py)."""
COPY = re.compile(
    r'(?<=File ")[^"\n]*/runners-[^/"\n]+/[^/"\n]+/program\.py'
    r"|[^\s\"']*/runners-[^/\s]+/[^/\s]+/program\.py"
    r"|(?<=\()program\.py(?=, line \d)"
)
"""Matches the path of a runner's copy of a file, in a traceback, a warning or a SyntaxError."""


def verify(
    reference: str | Path | Callable[..., Any],
    candidate: str | Path | Callable[..., Any],
    inputs: Inputs | None = None,
    *,
    mode: str = "infer",
    python: str = sys.executable,
    device: str = "auto",
    require_kernel: bool = False,
    config: TrialConfig | None = None,
    executor: Executor | None = None,
) -> Evaluation:
    """Verify a candidate against a reference: two files, or two functions with `inputs`. Both run
    in processes of their own.

    A function must be importable by its name. `inputs` is a list or tuple of arguments, or a dict
    of keyword arguments: tensors and plain values. New values are drawn for each check, of the same
    shapes, dtypes and ranges.

    A reference file defines `Model`, `get_inputs()` and, where Model takes arguments,
    `get_init_inputs()`. A candidate file defines `ModelNew` (or `Model`). `device` is `cpu`,
    `cuda`, `cuda:N` or `auto`, which is the GPU where there is one. With `require_kernel` a
    candidate must do its work in its own Triton or CUDA kernels. `executor`, such as a
    `cudal1_ci.processes.Container`, runs them instead of `python`. For many candidates use one
    `Session`.

    Raises:
        ConfigError: The reference does not state a problem, or a function cannot be sent by name.
        UnsupportedError: This machine does not have what is required.
        WorkerError: The verifier could not be started or died.
    """
    if isinstance(reference, str | Path) and isinstance(candidate, str | Path):
        problem = text_problem(Path(reference), mode)
        proposed = candidate_of(problem, Path(candidate))
    elif callable(reference) and callable(candidate) and inputs is not None:
        problem, proposed = functions_pair(reference, candidate, inputs, mode)
    else:
        raise ConfigError("verify: expected two files, or two functions and `inputs`")
    with Session(
        config or TrialConfig(),
        python=python,
        device=device,
        require_kernel=require_kernel,
        executor=executor,
    ) as session:
        evaluation = session.evaluate(problem, proposed)
        evaluation = session.examine_contract(problem, evaluation)
    if isinstance(reference, str | Path) and isinstance(candidate, str | Path):
        return with_own_names(evaluation, Path(reference), Path(candidate))
    return evaluation


def text_problem(path: Path, mode: str) -> Problem:
    """Return the Problem that a KernelBench-form file states.

    Raises:
        ConfigError: The file cannot be read, does not parse, or lacks `Model` or `get_inputs`.
    """
    return problem_of(text_of(path), str(path), mode)


def text_of(path: Path, errors: str = "strict") -> str:
    """Read a file as Python does, without a byte order mark. Raises: ConfigError, where the file
    cannot be read, or is not UTF-8 and must be."""
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected Python in UTF-8: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def problem_of(source: str, name: str, mode: str = "infer") -> Problem:
    """Return the Problem that a KernelBench-form text of that name states.

    Raises:
        ConfigError: It does not parse, or lacks `Model`, `get_inputs`, or the `get_init_inputs`
            that its constructor needs.
    """
    names = top_level_names(name, source)
    for required in ("Model", "get_inputs"):
        if required not in names:
            fix = "define it, or name the right file"
            if required == "Model" and "ModelNew" in names:
                fix = "`ModelNew` is a candidate's: the reference comes first"
            raise ConfigError(
                f"{name}: expected a top-level `{required}` in the reference (KernelBench form), "
                f"found {', '.join(sorted(names)) or 'nothing'}; {fix}"
            )
    needed = needed_by_constructor(source)
    if needed and "get_init_inputs" not in source:
        raise ConfigError(
            f"{name}: `Model` takes {', '.join(f'`{one}`' for one in needed)}; define a top-level "
            "`get_init_inputs()` in the reference that returns them as a list"
        )
    init: Made | Call = Made(function="get_init_inputs") if "get_init_inputs" in names else Call()
    workload = Workload(
        name="default",
        provenance="declared",
        source=f"{PurePath(name).name}:get_inputs",
        init=init,
        call=Made(function="get_inputs"),
        mode="train" if mode == "train" else "infer",
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def needed_by_constructor(source: str) -> list[str]:
    """Return the arguments without a default of a `Model` that writes its own plain `__init__`.
    Those of other classes are unknown before they run."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model" and not node.decorator_list:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return [] if item.decorator_list else _without_default(item.args)
    return []


def _without_default(arguments: ast.arguments) -> list[str]:
    """Return a method's arguments without a default, but for the first, which is the object."""
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = positional[1 : len(positional) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [one.arg for one in (*needed, *(one for one, default in named if default is None))]


def candidate_of(problem: Problem, path: Path) -> Candidate:
    """Return the file as a candidate. The verifier refuses one that cannot be decoded.

    Raises:
        ConfigError: It cannot be read.
    """
    source = text_of(path, errors="replace")
    program = TextProgram(source=source, entry=entry_of(source))
    return Candidate(problem_id=problem.id, program=program, proposer="file")


def entry_of(source: str) -> str:
    """Return `Model` where there is no `ModelNew`, else `ModelNew`. The verifier reports a file
    that does not parse: that is a verdict on the candidate, not a failure of the tool."""
    try:
        names = {getattr(node, "name", None) for node in ast.parse(source).body}
    except (SyntaxError, ValueError):
        return "ModelNew"
    return "Model" if "Model" in names and "ModelNew" not in names else "ModelNew"


def with_own_names(evaluation: Evaluation, reference: Path, candidate: Path) -> Evaluation:
    """Replace the paths of the copies that ran with the files' own names. For a candidate that
    does not parse, add its line and column."""
    verdict = evaluation.verdict
    first = verdict.findings[0] if verdict.findings else None
    is_of_reference = first is not None and first.rule.startswith("reference.")
    name = str(reference if is_of_reference else candidate)

    def named(text: str) -> str:
        return COPY.sub(lambda _: name, text)

    findings = [
        msgspec.structs.replace(
            finding,
            message=named(finding.message),
            evidence=None if finding.evidence is None else named(finding.evidence),
        )
        for finding in verdict.findings
    ]
    program, log = evaluation.candidate.program, named(verdict.log)
    if first is not None and first.rule == "program.import" and isinstance(program, TextProgram):
        findings[0] = _with_position(findings[0], name, program.source)
        if NO_ENTRY in first.message:
            findings[0], log = _without_entry(findings[0], name, program.source), ""
    verdict = msgspec.structs.replace(verdict, findings=tuple(findings), log=log)
    return msgspec.structs.replace(evaluation, verdict=verdict)


def _with_position(finding: Finding, name: str, source: str) -> Finding:
    """Add the line and column of a syntax error. A finding with another cause stays unchanged."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError) as error:
        message = not_parsed(name, error, "candidate")
        return msgspec.structs.replace(
            finding, message=message, line=getattr(error, "lineno", None)
        )
    return finding


def _without_entry(finding: Finding, name: str, source: str) -> Finding:
    """Return a finding without the loader's traceback, which would lead only into the loader."""
    found = ", ".join(sorted(top_level_names(name, source))) or "nothing"
    message = (
        f"{name}: expected a top-level `ModelNew` (or `Model`) in the candidate, found {found}; "
        "define it, or name the right file"
    )
    return msgspec.structs.replace(finding, message=message)


def not_parsed(name: str, error: SyntaxError | ValueError, role: str) -> str:
    """Return `faster.py:7:22: the candidate does not parse as Python: unmatched ')'`."""
    place, why = [name], str(error)
    if isinstance(error, SyntaxError):
        place += [str(number) for number in (error.lineno, error.offset) if number]
        why = error.msg
    return f"{':'.join(place)}: the {role} does not parse as Python: {why}"


def top_level_names(name: str, source: str) -> set[str]:
    """Return the names of functions and classes that a text defines, and of what it imports or
    assigns."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise ConfigError(not_parsed(name, error, "reference")) from error
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names
