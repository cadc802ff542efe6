"""Screen a candidate's text before anything is run.

    findings = screen(candidate.program, problem.reference)
    convictions(findings)   # those that suffice for a verdict

The rules read the text of the candidate and of what it replaces. What the replaced text also does
is not a finding. Findings explain and sort. A text without findings is not proved honest: names can
be built at run time, and work can be hidden in libraries. A text that does not parse has no
findings; the verifier reports that it does not load. docs/rules.md lists the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from cudal1_ci.records import Finding, Program, TextProgram
from cudal1_ci.verification.static_rules import (
    cuda_rules,
    graphs,
    introspection,
    numerics,
    outputs,
    patches,
    replay,
    streams,
)
from cudal1_ci.verification.static_rules.base_text import base_text, reference_texts
from cudal1_ci.verification.static_rules.cuda_text import (
    SUFFIXES,
    CudaText,
    cuda_strings,
    cuda_text,
)
from cudal1_ci.verification.static_rules.python_text import PARSE_ERRORS, PythonText
from cudal1_ci.verification.static_rules.rule import Check, Rule, Sight, finding_of

__all__ = ["RULES", "convictions", "screen", "screened_text"]

PYTHON_CHECKS: tuple[Check[PythonText], ...] = (
    *patches.CHECKS,
    *introspection.CHECKS,
    *replay.CHECKS,
    *streams.CHECKS,
    *graphs.CHECKS,
    *outputs.CHECKS,
    *numerics.CHECKS,
)
CUDA_CHECKS: tuple[Check[CudaText], ...] = cuda_rules.CHECKS
RULES: dict[str, Rule] = {
    f"static.{rule.name}": rule
    for rule in (*(c.rule for c in PYTHON_CHECKS), *(c.rule for c in CUDA_CHECKS))
}
LONGEST_TEXT = 4_000_000
"""In characters. Longer texts are data and are not read."""


def screen(candidate: Program, reference: Program) -> list[Finding]:
    """Return the rules' findings on a candidate that its base text lacks, convictions first."""
    known = {
        marks(finding)
        for name, text in reference_texts(reference)
        for finding in screened_text(text, name, entry_of(reference))
    }
    found: list[Finding] = []
    if isinstance(candidate, TextProgram):
        found = list(screened_text(candidate.source, "candidate.py", candidate.entry))
    else:
        for file in candidate.overlay:
            base = screened_text(base_text(candidate, file), file.path, entry_of(candidate))
            known.update(marks(finding) for finding in base)
            found.extend(screened_text(file.text, file.path, entry_of(candidate)))
    new = [finding for finding in found if marks(finding) not in known]
    return sorted(new, key=lambda finding: not RULES[finding.rule].convicts)


def convictions(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of rules that suffice for a verdict."""
    return [f for f in findings if f.rule in RULES and RULES[f.rule].convicts]


def marks(finding: Finding) -> tuple[str, str]:
    """Return what identifies equal findings: the rule and the line's words."""
    return finding.rule, " ".join((finding.evidence or "").split())


def entry_of(program: Program) -> str:
    """Return the name of the class or function that is called."""
    if isinstance(program, TextProgram):
        return program.entry
    return program.import_path.rpartition(":")[2].rpartition(".")[2]


def screened_text(source: str, path: str, entry: str) -> Iterator[Finding]:
    """Yield the findings in one file, each line and rule once."""
    if len(source) > LONGEST_TEXT:
        return
    lines = source.splitlines()
    seen: set[tuple[str, int]] = set()
    for rule, sight in sights(source, path, entry):
        if (rule.name, sight.line) not in seen:
            seen.add((rule.name, sight.line))
            yield finding_of(rule, sight, lines)


def sights(source: str, path: str, entry: str) -> Iterator[tuple[Rule, Sight]]:
    """Yield all that the rules see in one file."""
    suffix = PurePosixPath(path).suffix
    native: Iterable[CudaText] = ()
    if suffix in SUFFIXES:
        native = (cuda_text(source),)
    elif suffix in {".py", ".pyi"}:
        try:
            text = PythonText(source, entry)
        except PARSE_ERRORS:
            return
        for python_check in PYTHON_CHECKS:
            for sight in python_check.look(text):
                yield python_check.rule, sight
        native = cuda_strings(text)
    for code in native:
        for native_check in CUDA_CHECKS:
            for sight in native_check.look(code):
                yield native_check.rule, sight
