"""Read the Python of pages, docstrings and notebooks as cells, each with its line.

A block is Python when its fence or directive says so. A fence or a literal block without a language
is when it parses and imports something. Of an interactive session the prompts and the answers are
left out, of a notebook the outputs and what only a notebook understands (`%magic`, `!command`).
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ci.discover.scripts.script import Cell

FENCE = re.compile(r"^(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
PYTHON = frozenset({"python", "py", "python3", "pycon", "ipython", "python-repl"})
DIRECTIVE = re.compile(
    r"^(?P<indent>[ \t]*)\.\.[ \t]+(?:code-block|code|sourcecode|testcode|doctest)::[ \t]*"
    r"(?P<info>\w*)[ \t]*$"
)
LITERAL = re.compile(r"^(?P<indent>[ \t]*)(?!\.\. ).*::[ \t]*$")
PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.)(?: |$)")
FIRST_PROMPT = re.compile(r"^[ \t]*>>>(?: |$)")
NOTEBOOK_ONLY = re.compile(r"^(?P<indent>[ \t]*)(?:[%!?]|[\w.]+\?{1,2}[ \t]*$)")
WHOLE_CELL = re.compile(r"^[ \t]*%%(?!time|capture|timeit\b)")


def blocks_of_markdown(text: str) -> Iterator[Cell]:
    """Yield the fenced blocks of a page, also of lists and quotes."""
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        first, indent, fence = number, opened["indent"], opened["fence"]
        while number < len(lines) and not closes(lines[number], fence):
            number += 1
        body = [line.removeprefix(indent) for line in lines[first:number]]
        number += 1
        words = opened["info"].strip().strip("{}").replace(",", " ").split()
        yield from cells_of("\n".join(body), first + 1, words[0] if words else "")


def closes(line: str, fence: str) -> bool:
    """Return whether a line ends a block that began with that fence."""
    line = line.strip(" \t>")
    return line.startswith(fence) and not line.strip(fence[0])


def blocks_of_rst(text: str) -> Iterator[Cell]:
    """Yield the code of directives, literal blocks and sessions of a page."""
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        opened = DIRECTIVE.match(line) or LITERAL.match(line)
        if opened is not None:
            info = opened.groupdict().get("info", "")
            first, number = indented_below(lines, number + 1, len(opened["indent"]))
            body = lines[first:number]
            while body and (re.match(r"\s*:\w[\w-]*:", body[0]) or not body[0].strip()):
                body, first = body[1:], first + 1
            yield from cells_of(textwrap.dedent("\n".join(body)), first + 1, info or "")
        elif FIRST_PROMPT.match(line):
            first = number
            while number < len(lines) and lines[number].strip():
                number += 1
            yield from cells_of("\n".join(lines[first:number]), first + 1, "pycon")
        else:
            number += 1


def indented_below(lines: list[str], number: int, indent: int) -> tuple[int, int]:
    """Return where the lines that are indented more begin and end."""
    first = number
    while number < len(lines):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        number += 1
    return first, number


def cells_of(text: str, line: int, language: str) -> Iterator[Cell]:
    """Yield a block as a cell, where it is Python."""
    language = language.lower()
    if language and language not in PYTHON:
        return
    if any(map(FIRST_PROMPT.match, text.split("\n"))):
        text = without_prompts(text)
    elif not language and not is_python(text):
        return
    text = without_magic(textwrap.dedent(text))
    if text.strip():
        yield Cell(line=line, text=text)


def without_prompts(text: str) -> str:
    """Return the inputs of a session on their lines, without its answers."""
    lines = [textwrap.dedent(line)[4:] if PROMPT.match(line) else "" for line in text.split("\n")]
    return "\n".join(lines)


def is_python(text: str) -> bool:
    """Return whether a text of no stated language is a program that imports something."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))


def without_magic(text: str) -> str:
    """Return a cell without the lines that only a notebook understands."""
    if WHOLE_CELL.match(text):
        return ""
    lines = []
    for line in text.split("\n"):
        found = NOTEBOOK_ONLY.match(line)
        lines.append(line if found is None else f"{found['indent']}pass")
    return "\n".join(lines)


def cells_of_notebook(text: str) -> Iterator[Cell]:
    """Yield the code cells of a notebook; each one's line is its number among the cells."""
    try:
        notebook: Any = json.loads(text)
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        for number, cell in enumerate(cells, start=1):
            if cell.get("cell_type") != "code":
                continue
            source = cell.get("source", cell.get("input", ""))
            source = "".join(source) if isinstance(source, list) else str(source)
            found = without_magic(source)
            if found.strip():
                yield Cell(line=number, text=found)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return


def docstring_cells(source: str) -> Iterator[tuple[Cell, ...]]:
    """Yield the examples of each docstring of a file; those of one docstring continue."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, kinds) or not node.body:
            continue
        first = node.body[0]
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            continue
        text = first.value.value
        if not isinstance(text, str) or not (">>>" in text or "```" in text or "::" in text):
            continue
        read = blocks_of_markdown if "```" in text else blocks_of_rst
        cells = tuple(
            Cell(line=first.lineno + cell.line - 1, text=cell.text) for cell in read(text)
        )
        if cells:
            yield cells


def read_text(path: Path) -> str:
    """Return a file's text; empty where it is not text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""
