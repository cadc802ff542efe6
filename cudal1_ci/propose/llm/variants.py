"""Show a program as a prompt does: the code in which it differs from the checkout.

A candidate in a checkout is an overlay of whole files, and most of their text is the original's. A
prompt shows the top-level statements that the original does not have: the target, new helpers and
kernels, imports. Of a CUDA file it shows functions and lines outside of them. This module knows
files and syntax, but no speedups.
"""

from __future__ import annotations

import ast
import re

import msgspec

from cudal1_ci.propose.target_file import file_text, locate
from cudal1_ci.records import OverlayFile, Problem, Program, Target, TextProgram, TreeProgram
from cudal1_ci.source.cuda import function_texts


def reference_text(problem: Problem) -> str:
    """Return the top-level statement that defines the target. For a text, or a file that is not
    Python, return the whole source. Empty if the checkout has no such file.
    """
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
    """Return the statement that holds a kernel; the whole file if it is not Python."""
    text = file_text(program, kernel.path) or ""
    for node, segment in statements(text):
        first = (node.end_lineno or node.lineno) - segment.count("\n")
        if first <= kernel.first_line <= (node.end_lineno or node.lineno):
            return segment
    return text


def variant_text(program: Program) -> str:
    """Return what a candidate changes, in the order of its files; for a text the whole source."""
    if isinstance(program, TextProgram):
        return program.source
    original = msgspec.structs.replace(program, overlay=())
    parts = [changes(file_text(original, file.path) or "", file) for file in program.overlay]
    return "\n\n".join(part for part in parts if part)


def changes(original: str, file: OverlayFile) -> str:
    """Return the pieces of a file that the original does not have."""
    pieces = python_pieces if file.path.endswith(".py") else native_pieces
    before = {*pieces(original)}
    return "\n\n".join(piece for piece in pieces(file.text) if piece not in before)


def python_pieces(text: str) -> list[str]:
    """Return the top-level statements of a file."""
    return [segment for _, segment in statements(text)]


def native_pieces(text: str) -> list[str]:
    """Return the functions of a CUDA or C++ file, and each line outside of them."""
    source, found, at = text.encode(), [], 0
    for _, _, first, end in (*function_texts(source), ("", 0, len(source), len(source))):
        if first >= at:  # a function in another one, of a class in it, is a part of it
            found += [line for line in source[at:first].splitlines() if line.strip()]
            found.append(source[first:end])
            at = end
    return [piece.decode("utf-8", "replace") for piece in found if piece]


def statements(text: str) -> list[tuple[ast.stmt, str]]:
    """Return top-level statements with their source and decorators; none for text that is not
    Python.
    """
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
