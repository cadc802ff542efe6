"""The file that a target stands in: its text, its tree, the definition in it, and a new text laid
over it. Shared by all that write programs.
"""

from __future__ import annotations

import functools
from pathlib import Path

import libcst as cst

from cudal1_ci.schema import (
    OverlayFile,
    Problem,
    Program,
    TextProgram,
    TreeProgram,
    content_hash,
)


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> cst.Module | None:
    """A file's tree, read once for all rewrites of all of its targets; None when it is no Python
    that libcst knows."""
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        return None


def find(node: cst.CSTNode, qualname: str) -> cst.ClassDef | cst.FunctionDef | None:
    """The definition of a name, `Outer.Inner` inside of classes; the last one when it is defined
    several times, as at run time."""
    head, _, rest = qualname.partition(".")
    body = node.body.body if isinstance(node, cst.ClassDef) else getattr(node, "body", ())
    found = None
    for item in body:
        if isinstance(item, cst.ClassDef | cst.FunctionDef) and item.name.value == head:
            found = find(item, rest) if rest else item
    return found


def locate(program: Program) -> tuple[str, str] | None:
    """The text of the target's file and the target's name in it; None where there is no such file
    (a class re-exported from somewhere that is not the checkout)."""
    if isinstance(program, TextProgram):
        return program.source, program.entry
    path = file_of(program)
    if path is None:
        return None
    for overlaid in program.overlay:
        if overlaid.path == path:
            return overlaid.text, program.import_path.partition(":")[2]
    try:
        # newline="" keeps the author's line ends.
        with (Path(program.root) / path).open(encoding="utf-8", newline="") as file:
            return file.read(), program.import_path.partition(":")[2]
    except (OSError, UnicodeDecodeError):
        return None


def file_of(program: TreeProgram) -> str | None:
    """The checkout's path of the module that a tree program imports."""
    stem = program.import_path.partition(":")[0].replace(".", "/")
    for path in (f"{stem}.py", f"{stem}/__init__.py"):
        relative = Path(program.import_root) / path
        if (Path(program.root) / relative).is_file():
            return relative.as_posix()
    return None


def with_text(problem: Problem, original: str, text: str) -> Program:
    """The reference with its target's file replaced."""
    program = problem.reference
    if isinstance(program, TextProgram):
        return TextProgram(source=text, entry=program.entry)
    path = problem.target.path if problem.target else file_of(program)
    assert path is not None
    others = tuple(file for file in program.overlay if file.path != path)
    return TreeProgram(
        root=program.root,
        import_root=program.import_root,
        import_path=program.import_path,
        digest=program.digest,
        overlay=(*others, OverlayFile(path=path, text=text, base_digest=content_hash(original))),
    )
