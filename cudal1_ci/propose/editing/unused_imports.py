"""Remove names that a file imports from modules and no longer uses after a rewrite: `from torch
import einsum`. Imports of whole modules remain, as other files may use them.

A name is used if its word is anywhere outside the imports at the top of the file, including
comments and strings (`__all__`, an annotation). Names that were unused before the rewrite remain.
So do names that other files of the checkout may import: all of a package's `__init__.py`, and of
another module what any file takes from a module of that name.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import libcst as cst

from cudal1_ci.propose.editing.terms import code

_WORD = re.compile(r"\w+")
Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


_TAKEN = r"^\s*from\s+[.\w]*\b{stem}\s+import\s+(\([^)]*\)|(?:\\\n|[^\n#;])*)"
_READ = r"\b{stem}\.(\w+)"
_RENAMED = r"\b{stem}\s+as\s+\w"
EVERYTHING = "*"


def without_unused(
    before: cst.Module, after: cst.Module, file: Path | None = None, root: Path | None = None
) -> cst.Module:
    """Return the file after a rewrite without the imports that the rewrite made unused. `file` is
    its path in the checkout at `root`, if it is in one.
    """
    unused = imported_names(after)
    if unused:
        unused &= words_beside_imports(before) - words_beside_imports(after)
    if unused and file is not None and root is not None:
        taken = taken_by_others(root, file)
        unused = set() if EVERYTHING in taken else unused - taken
    if not unused:
        return after
    body: list[Line] = []
    above: list[cst.EmptyLine] = []
    for line in after.body:
        kept = without_names(line, unused)
        if kept is None:
            assert isinstance(line, cst.SimpleStatementLine)
            above += line.leading_lines
            continue
        if above and isinstance(kept, cst.SimpleStatementLine):
            is_apart = bool(kept.leading_lines)
            remarks = [one for one in above if one.comment is not None or not is_apart]
            kept = kept.with_changes(leading_lines=[*remarks, *kept.leading_lines])
        above = []
        body.append(kept)
    return after.with_changes(body=body)


def words_beside_imports(module: cst.Module) -> set[str]:
    """Return all words of a file except those of imports at its top."""
    others = module.with_changes(body=[line for line in module.body if imported(line) is None])
    return set(_WORD.findall(others.code))


def imported(line: cst.CSTNode) -> cst.Import | cst.ImportFrom | None:
    """Return the import that is all of a line."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    statement = line.body[0]
    return statement if isinstance(statement, cst.Import | cst.ImportFrom) else None


def names_from(line: cst.CSTNode) -> Sequence[cst.ImportAlias]:
    """Return what a line imports by name from a module other than `__future__`."""
    statement = imported(line)
    if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return ()
    is_future = statement.module is not None and code(statement.module) == "__future__"
    return () if is_future else statement.names


def imported_names(module: cst.Module) -> set[str]:
    """Return the names that the imports at the top of a file take from modules."""
    return {bound(alias) for line in module.body for alias in names_from(line)}


def bound(alias: cst.ImportAlias) -> str:
    """Return `fold` of `rearrange as fold`."""
    return code(alias.asname.name if alias.asname else alias.name)


def without_names(line: Line, names: Set[str]) -> Line | None:
    """Return a line that imports none of these names; None if nothing is left."""
    aliases = names_from(line)
    kept = [alias for alias in aliases if bound(alias) not in names]
    if len(kept) == len(aliases):
        return line
    if not kept:
        return None
    if kept[-1] is not aliases[-1]:
        kept[-1] = kept[-1].with_changes(comma=aliases[-1].comma)
    statement = imported(line)
    assert isinstance(line, cst.SimpleStatementLine)
    assert isinstance(statement, cst.ImportFrom)
    return line.with_changes(body=[statement.with_changes(names=kept)])


@functools.lru_cache(maxsize=64)
def taken_by_others(root: Path, file: Path) -> frozenset[str]:
    """Return what other Python files of a checkout import from a module of this name, `*` if that
    may be anything. Modules with the same name are not distinguished.
    """
    if file.name == "__init__.py":
        return frozenset({EVERYTHING})
    stem = re.escape(file.stem)
    by_import = re.compile(_TAKEN.format(stem=stem), re.MULTILINE)
    by_reading = re.compile(_READ.format(stem=stem))
    renamed = re.compile(_RENAMED.format(stem=stem))
    found: set[str] = set()
    for other in python_files(root):
        text = text_of(other) if other != file else ""
        if file.stem not in text:
            continue
        for match in by_import.finditer(text):
            said = match.group(1)
            found |= {EVERYTHING} if EVERYTHING in said else set(_WORD.findall(said))
        found |= {EVERYTHING} if renamed.search(text) else set(by_reading.findall(text))
    return frozenset(found)


def python_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of a checkout, without hidden folders and installed packages."""
    for folder, below, files in os.walk(root):
        below[:] = [one for one in below if not one.startswith(".") and one != "site-packages"]
        yield from (Path(folder) / one for one in files if one.endswith((".py", ".pyi")))


def text_of(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
