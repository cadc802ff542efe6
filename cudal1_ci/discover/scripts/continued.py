"""Join the cells of a page that continue each other.

A cell continues the last one before it that binds a name which it reads and does not bind itself.
Cells that are so connected are one program; the others of the page run on their own, so that one
that hangs or takes all memory ends no other.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cudal1_ci.discover.scripts.script import Cell

BUILTIN = frozenset(dir(builtins)) | {"__name__", "__file__", "display"}


@dataclass
class Names:
    """Names that a cell reads from outside, those that it binds, and the modules it imports."""

    read: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)


def names_of(text: str) -> Names | None:
    """Return the names of a cell; None where it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = Names()
    for statement in tree.body:
        inner = bound_inside(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id not in found.bound and node.id not in inner:
                    found.read.add(node.id)
            elif isinstance(node, ast.Import):
                found.imports.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.imports.update(imported(node))
        found.bound.update(bound_by(statement))
    found.read -= BUILTIN
    return found


def imported(node: ast.ImportFrom) -> Iterator[str]:
    """Yield a module, and what may be modules in it: `from pkg import layers`."""
    module = "." * node.level + (node.module or "")
    if module.strip("."):
        yield module
    yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")


def bound_by(statement: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds, wherever in it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def bound_inside(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds before it reads them: arguments, loop variables,
    names of a body. An assignment reads first."""
    names = {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
    for node in ast.walk(statement):
        if isinstance(node, ast.comprehension):
            names.update(bound_by(node.target))
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
        names.update(bound_by(statement))
    return names


def continued(cells: Iterable[Cell]) -> Iterator[tuple[tuple[Cell, ...], frozenset[str]]]:
    """Yield the programs of a page, each with the modules that it imports. A cell that does not
    parse is one of its own."""
    binder: dict[str, int] = {}
    groups: dict[int, list[Cell]] = {}
    modules: dict[int, set[str]] = {}
    group_of: dict[int, int] = {}
    for number, cell in enumerate(cells):
        names = names_of(cell.text) or Names()
        before = {group_of[binder[name]] for name in names.read if name in binder}
        group = min(before, default=number)
        groups.setdefault(group, [])
        modules.setdefault(group, set()).update(names.imports)
        for other in before - {group}:
            groups[group] += groups.pop(other)
            modules[group] |= modules.pop(other)
            group_of = {key: group if value == other else value for key, value in group_of.items()}
        groups[group].append(cell)
        group_of[number] = group
        binder.update(dict.fromkeys(names.bound, number))
    for group, found in groups.items():
        yield tuple(sorted(found, key=lambda cell: cell.line)), frozenset(modules[group])
