"""Find what an edit changes beyond the functions that the recorded call ran.

A rewrite may change functions of the recorded call, add definitions, and change imports. Anything
else is outside.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cudal1_ci.propose.target_file import file_text
from cudal1_ci.records import Candidate, Problem, TextProgram
from cudal1_ci.records.recording import Recording

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def outside(problem: Problem, candidate: Candidate, recording: Recording) -> list[str]:
    """Return places that a candidate's edit changes although the call did not run them. A file
    that is no Python any more is such a place."""
    program, reference = candidate.program, problem.reference
    if isinstance(program, TextProgram) or isinstance(reference, TextProgram):
        raise TypeError("an edit of a checkout is needed")
    found = []
    for overlaid in program.overlay:
        before = file_text(reference, overlaid.path)
        if before is None:
            continue
        ran = {one.first_line for one in recording.frames if one.file == overlaid.path}
        found += [f"{overlaid.path}: {place}" for place in changed(before, overlaid.text, ran)]
    return found


def changed(before: str, after: str, ran: set[int]) -> list[str]:
    """Return what differs between two texts, besides functions that begin at the lines `ran`."""
    try:
        new = dict(pieces(ast.parse(after), set()))
    except SyntaxError as error:
        return [f"not Python: {error}"]
    old = dict(pieces(ast.parse(before), ran))
    return [name for name, text in old.items() if new.get(name) != text]


def pieces(tree: ast.AST, ran: set[int], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return the names and contents of what must stay: functions that did not run, and statements
    of modules and classes other than imports."""
    counts: dict[str, int] = {}
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        name = prefix + (getattr(node, "name", "") or ast.unparse(node)[:60])
        counts[name] = counts.get(name, 0) + 1
        name += f" ({counts[name]})" if counts[name] > 1 else ""
        if isinstance(node, ast.ClassDef):
            yield from pieces(node, ran, f"{name}.")
        elif not isinstance(node, Definition) or not holds(node, ran):
            yield name, ast.dump(node)


def holds(node: Definition, ran: set[int]) -> bool:
    """Return whether a function or one within it ran."""
    return any(
        min([one.lineno, *(mark.lineno for mark in one.decorator_list)]) in ran
        for one in ast.walk(node)
        if isinstance(one, Definition)
    )
