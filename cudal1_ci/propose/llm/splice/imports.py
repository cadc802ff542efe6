"""Analyse a file's imports, and add those that an answer needs.

Two imports are equal if the same name means the same thing (`import torch.nn as nn`, `from torch
import nn`). Imports for type checkers alone bind nothing. New lines go to their section of the
file's imports: standard library, other packages, the project's own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.llm.splice.names import code_of, is_text, is_type_checking

OBVIOUS = {
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "math": "import math",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "load_inline": "from torch.utils.cpp_extension import load_inline",
}
"""The usual meaning of a name that nothing binds."""


@dataclass(frozen=True)
class Import:
    """A name that an import binds."""

    local: str
    meaning: str
    """`torch.nn`; with leading dots if the import is relative."""
    line: str
    """The import of this name alone."""
    is_submodule: bool = False
    """True for `import a.b`, which binds `a` and loads `a.b`."""


def imports_in(
    body: Sequence[ast.stmt | ast.ExceptHandler], *, type_checking: bool = False
) -> Iterator[Import]:
    """Yield all imports of a scope, including conditional ones."""
    for statement in body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                line = ast.unparse(ast.Import([alias]))
                if alias.asname:
                    yield Import(alias.asname, alias.name, line)
                else:
                    yield Import(top, top, line, is_submodule=top != alias.name)
        elif isinstance(statement, ast.ImportFrom):
            package = "." * statement.level + (statement.module or "")
            for alias in statement.names:
                separator = "" if package.endswith(".") else "."
                line = ast.unparse(ast.ImportFrom(statement.module, [alias], statement.level))
                local = alias.asname or alias.name
                yield Import(local, f"{package}{separator}{alias.name}", line)
        elif isinstance(statement, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            is_hidden = isinstance(statement, ast.If) and is_type_checking(statement)
            if isinstance(statement, ast.If) and is_hidden and not type_checking:
                yield from imports_in(statement.orelse)
            else:
                children = ast.iter_child_nodes(statement)
                nested = [n for n in children if isinstance(n, ast.stmt | ast.ExceptHandler)]
                yield from imports_in(nested, type_checking=type_checking)


def obvious(name: str) -> Import:
    """Return the import that a name usually needs."""
    return next(imports_in(ast.parse(OBVIOUS[name]).body))


# --- where they go ------------------------------------------------------------------------------


def with_imports(module: cst.Module, new: Sequence[Import], own: str = "") -> cst.Module:
    """Return a module with new imports among its own. `own` is the module's package."""
    for one in sorted(new, key=lambda n: sort_key(n.line)):
        module = with_import(module, one.line, own)
    return module


def with_import(module: cst.Module, line: str, own: str) -> cst.Module:
    body = list(module.body)
    statement = cst.parse_statement(line, config=module.config_for_parsing)
    assert isinstance(statement, cst.SimpleStatementLine)
    present = [(i, import_text(item)) for i, item in leading_imports(body)]
    rank = section(line, own)
    same = [(i, text) for i, text in present if section(text, own) == rank]
    later = next((i for i, text in same if sort_key(text) > sort_key(line)), None)
    if later is not None:
        return inserted(module, later, statement, own)
    if same:
        return inserted(module, same[-1][0] + 1, statement, own)
    apart = statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    above = [i for i, text in present if section(text, own) < rank]
    if above:
        return inserted(module, above[-1] + 1, apart, own)
    if present:
        first = present[0][0]
        item = body[first]
        assert isinstance(item, cst.SimpleStatementLine)
        blank = [line for line in item.leading_lines if line.comment is None]
        comments = [line for line in item.leading_lines if line.comment is not None]
        body[first] = item.with_changes(leading_lines=[cst.EmptyLine(indent=False), *comments])
        return module.with_changes(
            body=[*body[:first], statement.with_changes(leading_lines=blank), *body[first:]]
        )
    return below_docstring(module, statement)


def inserted(
    module: cst.Module, at: int, statement: cst.SimpleStatementLine, own: str
) -> cst.Module:
    """Return a module with one more line; the empty lines above the next line remain above both."""
    body = list(module.body)
    following = body[at] if at < len(body) else None
    is_import = isinstance(following, cst.SimpleStatementLine) and is_import_line(following)
    if is_import and not statement.leading_lines and isinstance(following, cst.SimpleStatementLine):
        is_first = section(import_text(body[at - 1]), own) != section(import_text(statement), own)
        blank = [line for line in following.leading_lines if line.comment is None]
        if is_first or at == 0:
            comments = [line for line in following.leading_lines if line.comment is not None]
            body[at] = following.with_changes(leading_lines=comments)
            statement = statement.with_changes(leading_lines=blank)
    return module.with_changes(body=[*body[:at], statement, *body[at:]])


def below_docstring(module: cst.Module, statement: cst.SimpleStatementLine) -> cst.Module:
    """Return a module whose first import is below its docstring and its `from __future__`."""
    body = list(module.body)
    at = 0
    while at < len(body) and (is_text(body[at]) or is_future(body[at])):
        at += 1
    if at > 0:
        statement = statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    if at < len(body) and not any(
        line.comment is None for line in getattr(body[at], "leading_lines", ())
    ):
        lines = [cst.EmptyLine(indent=False), *getattr(body[at], "leading_lines", ())]
        body[at] = body[at].with_changes(leading_lines=lines)
    return module.with_changes(body=[*body[:at], statement, *body[at:]])


def leading_imports(body: Sequence[cst.CSTNode]) -> list[tuple[int, cst.SimpleStatementLine]]:
    """Return the imports at the head of a file, up to its first definition, without `from
    __future__`.
    """
    found = []
    for i, item in enumerate(body):
        if isinstance(item, cst.ClassDef | cst.FunctionDef):
            break
        if isinstance(item, cst.SimpleStatementLine) and is_import_line(item):
            found.append((i, item))
    return found


def import_text(item: cst.CSTNode) -> str:
    """Return an import without the comments above it."""
    bare = item.with_changes(leading_lines=[]) if hasattr(item, "leading_lines") else item
    return code_of(bare).strip()


def is_import_line(item: cst.SimpleStatementLine) -> bool:
    return isinstance(item.body[0], cst.Import | cst.ImportFrom) and not is_future(item)


def is_future(item: cst.CSTNode) -> bool:
    return code_of(item).lstrip().startswith("from __future__")


def section(line: str, own: str) -> int:
    """Return 0 for the standard library, 1 for other packages, 2 for the project's own."""
    words = line.split()
    top = words[1].partition(".")[0] if len(words) > 1 else ""
    if not top or top == own:
        return 2
    return 0 if top in sys.stdlib_module_names else 1


def sort_key(line: str) -> tuple[bool, str]:
    """Return a key that sorts `import x` before `from x import y`, each by name."""
    words = line.split()
    return words[0] == "from", words[1].lower() if len(words) > 1 else ""
