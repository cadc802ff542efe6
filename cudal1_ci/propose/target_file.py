"""Read and replace the file of a target: its text, its tree, the definition in it. Shared by all
that write programs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import libcst as cst

from cudal1_ci.records import OverlayFile, Program, TextProgram, TreeProgram, content_hash


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> cst.Module | None:
    """Return a file's tree, read once for all rewrites of all its targets; None if libcst cannot
    parse it.
    """
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError:
        return None


def find(node: cst.CSTNode, qualname: str) -> cst.ClassDef | cst.FunctionDef | None:
    """Return the definition of a name, `Outer.Inner` inside classes, behind `if` and `try` too. The
    last one counts if it is defined several times, as at run time.
    """
    head, _, rest = qualname.partition(".")
    found = None
    for item in definitions_in(node):
        if item.name.value == head:
            is_scope = isinstance(item, cst.ClassDef)
            found = item if not rest else find(item, rest) if is_scope else None
    return found


def definitions_in(node: cst.CSTNode) -> Iterator[cst.ClassDef | cst.FunctionDef]:
    """Yield definitions of a module's or class's own scope, in order."""
    for item in statements_of(node):
        if isinstance(item, cst.ClassDef | cst.FunctionDef):
            yield item
        elif isinstance(item, cst.BaseCompoundStatement):
            for branch in branches_of(item):
                yield from definitions_in(branch)


def branches_of(statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a statement with what has a block of its own below it: `elif`, `else`, `except`, ..."""
    yield statement
    for child in statement.children:
        if isinstance(getattr(child, "body", None), cst.IndentedBlock):
            yield from branches_of(child)


def statements_of(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Return the statements directly inside a module or a block's owner."""
    if isinstance(node, cst.Module):
        return node.body
    block = getattr(node, "body", None)
    return block.body if isinstance(block, cst.IndentedBlock) else ()


def locate(program: Program) -> tuple[str, str] | None:
    """Return the text of the target's file and the target's name in it. None without such a file (a
    class re-exported from outside the checkout).
    """
    if isinstance(program, TextProgram):
        return program.source, program.entry
    path = file_of(program)
    text = file_text(program, path) if path is not None else None
    return None if text is None else (text, program.import_path.partition(":")[2])


def file_text(program: TreeProgram, path: str) -> str | None:
    """Return the text of a file as a program has it; None if it cannot be read."""
    for overlaid in program.overlay:
        if overlaid.path == path:
            return overlaid.text
    try:
        # newline="" keeps the author's line ends.
        with (Path(program.root) / path).open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def file_of(program: TreeProgram) -> str | None:
    """Return the checkout's path of the module that a tree program imports."""
    stem = program.import_path.partition(":")[0].replace(".", "/")
    for path in (f"{stem}.py", f"{stem}/__init__.py"):
        relative = Path(program.import_root) / path
        if (Path(program.root) / relative).is_file():
            return relative.as_posix()
    return None


def with_file(program: TreeProgram, path: str, original: str, text: str) -> TreeProgram:
    """Return a program with one file of its checkout replaced. Of a file that the program replaced
    before, the digest stays that of the checkout's text."""
    others = tuple(file for file in program.overlay if file.path != path)
    before = next((file for file in program.overlay if file.path == path), None)
    digest = content_hash(original) if before is None else before.base_digest
    return TreeProgram(
        root=program.root,
        import_root=program.import_root,
        import_path=program.import_path,
        digest=program.digest,
        overlay=(*others, OverlayFile(path=path, text=text, base_digest=digest)),
    )
