"""A program as a prompt shows it: the code in which it differs from the checkout.

A candidate in a checkout is an overlay of whole files, of which most is not the candidate's. What
is shown is the statements at the top of a file that the original does not have: the target itself,
helpers and kernels that came along, imports. Knows files and syntax, nothing of speedups.
"""

from __future__ import annotations

import ast
import re

import msgspec

from cudal1_ci.propose.target_file import file_text, locate
from cudal1_ci.schema import Problem, Program, Target, TextProgram, TreeProgram


def reference_text(problem: Problem) -> str:
    """The statement that defines the target (an outer class for what is nested); the whole source
    of a text, and of a file that is no Python. Empty where the checkout has no such file."""
    program, target = problem.reference, problem.target
    if isinstance(program, TextProgram):
        return program.source
    if target is not None and target.is_kernel:
        return kernel_text(program, target)
    located = locate(program)
    if located is None:
        return ""
    text, qualname = located
    name = qualname.partition(".")[0]
    for node, segment in statements(text):
        if getattr(node, "name", None) == name:
            return segment
    return text


def kernel_text(program: TreeProgram, kernel: Target) -> str:
    """The statement that holds a kernel; the whole file where it is no Python."""
    text = file_text(program, kernel.path) or ""
    for node, segment in statements(text):
        first = (node.end_lineno or node.lineno) - segment.count("\n")
        if first <= kernel.first_line <= (node.end_lineno or node.lineno):
            return segment
    return text


def variant_text(program: Program) -> str:
    """What a candidate changes, in the order of its files; its whole source for a text."""
    if isinstance(program, TextProgram):
        return program.source
    original = msgspec.structs.replace(program, overlay=())
    parts = [
        changes(file_text(original, file.path) or "", file.text)
        if file.path.endswith(".py")
        else file.text
        for file in program.overlay
    ]
    return "\n\n".join(part for part in parts if part)


def changes(original: str, text: str) -> str:
    """The top-level statements that the original does not have."""
    before = {segment for _, segment in statements(original)}
    return "\n\n".join(segment for _, segment in statements(text) if segment not in before)


def statements(text: str) -> list[tuple[ast.stmt, str]]:
    """Top-level statements with their source, decorators included; none of what is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = re.split(r"\r\n|\r|\n", text)  # as Python counts them: a form feed ends no line
    found = []
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        found.append((node, "\n".join(lines[first - 1 : node.end_lineno])))
    return found
