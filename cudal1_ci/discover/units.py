"""Cut a file into units: the pieces that a change changes and that use one another.

In Python: functions, classes (methods belong to their class, nested classes are separate),
module-level names, imported names, and the rest of the module under `<module>`. In CUDA and C++:
functions, macros, and the rest. A unit's fingerprint covers its meaning: comments, docstrings,
blank lines and layout are excluded.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cudal1_ci.discover.cuda_source import COMMENT
from cudal1_ci.discover.facts import Binding
from cudal1_ci.discover.syntax import (
    MODULE_LEVEL,
    dotted_name,
    first_line_of,
    last_line_of,
    names_defined,
    parse,
    reachable,
    walk,
)
from cudal1_ci.source.cuda import function_texts


@dataclass
class Unit:
    """Hold a piece of a file, its meaning and its names. Pieces of one name are one unit."""

    qualname: str
    says: list[str] = field(default_factory=list)
    mentions: set[str] = field(default_factory=set)
    """Dotted names, as written; for CUDA identifiers."""
    imports: dict[str, Binding] = field(default_factory=dict)
    """What imports inside the unit bind."""
    lines: list[tuple[int, int]] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\0".join(sorted(self.says)).encode()).hexdigest()

    def holds(self, line: int) -> bool:
        return any(first <= line <= last for first, last in self.lines)


def python_units(source: bytes) -> dict[str, Unit]:
    """Return the units of a Python text. Raises: one of `syntax.PARSE_ERRORS`."""
    tree = parse(source)
    units: dict[str, Unit] = {}
    for node in ast.walk(tree):
        drop_docstring(node)
    for statement in reachable(tree.body):
        match statement:
            case ast.ClassDef():
                add_class(units, statement, "")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                add(units, statement.name, statement, first_line_of(statement))
            case ast.Import() | ast.ImportFrom():
                add_imports(units, statement)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if names_defined(statement):
                for name in names_defined(statement):
                    add(units, name, statement, statement.lineno)
            case _:
                for part in own_parts(statement):
                    add(units, MODULE_LEVEL, part, statement.lineno)
    return units


def drop_docstring(node: ast.AST) -> None:
    """Remove the docstring of a definition; `pass` replaces it, as one could write."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body[0] = ast.copy_location(ast.Pass(), first)
    if len(node.body) > 1:
        node.body[:] = [each for each in node.body if not isinstance(each, ast.Pass)] or [
            ast.Pass()
        ]


def own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a module-level statement's own parts: all of it, or the head of a block."""
    match statement:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
            yield head
        case ast.With(items=items):
            yield from items
        case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
            yield from (each.type for each in handlers if each.type is not None)
        case ast.Pass():
            return
        case _:
            yield statement


def add(units: dict[str, Unit], qualname: str, node: ast.AST, first_line: int) -> Unit:
    """Add a piece to the unit of that name."""
    unit = units.setdefault(qualname, Unit(qualname))
    unit.says.append(ast.dump(node))
    last_line = last_line_of(node) if isinstance(node, ast.stmt) else first_line
    unit.lines.append((first_line, last_line))
    for inner in walk(node):
        match inner:
            case ast.Name(id=name):
                unit.mentions.add(name)
            case ast.Attribute():
                dotted = dotted_name(inner)
                if dotted is not None:
                    unit.mentions.add(dotted)
            case ast.Import() | ast.ImportFrom():
                unit.imports.update(bindings_of(inner))
    return unit


def add_class(units: dict[str, Unit], node: ast.ClassDef, prefix: str) -> None:
    """Add a class without its nested classes, and those as units of their own."""
    qualname = f"{prefix}{node.name}"
    nested = [each for each in node.body if isinstance(each, ast.ClassDef)]
    first, last = first_line_of(node), last_line_of(node)
    node.body = [each for each in node.body if not isinstance(each, ast.ClassDef)] or [ast.Pass()]
    unit = add(units, qualname, node, first)
    unit.lines[-1] = (first, last)
    # The outer class uses a nested one as `self.Inner(...)` and `cls.Inner`.
    for each in nested:
        if any(name.rpartition(".")[2] == each.name for name in unit.mentions):
            unit.mentions.add(f"{qualname}.{each.name}")
        add_class(units, each, f"{qualname}.")


def add_imports(units: dict[str, Unit], statement: ast.Import | ast.ImportFrom) -> None:
    """Add each imported name as a unit that holds the name's origin."""
    for name, binding in bindings_of(statement).items():
        unit = units.setdefault(name, Unit(name))
        unit.says.append(f"import {binding.module} {binding.name}")
        unit.mentions.add(name)
        unit.lines.append((statement.lineno, last_line_of(statement)))


def bindings_of(statement: ast.Import | ast.ImportFrom) -> dict[str, Binding]:
    """Return the names that an import statement binds; `*` under its module's name."""
    if isinstance(statement, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: Binding(
                alias.name if alias.asname else alias.name.partition(".")[0], None
            )
            for alias in statement.names
        }
    module = "." * statement.level + (statement.module or "")
    return {
        alias.asname or (alias.name if alias.name != "*" else f"{module}.*"): Binding(
            module, alias.name
        )
        for alias in statement.names
    }


# --- CUDA and C++ ----------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z_]\w*")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)


def cuda_units(source: bytes) -> dict[str, Unit]:
    """Return the units of a CUDA or C++ text: functions, macros, and the rest line by line."""
    units: dict[str, Unit] = {}
    rest = bytearray(source)
    for qualname, first_line, start, end in function_texts(source):
        text = plain(source[start:end].decode("utf-8", "replace"))
        add_text(units, qualname, text, (first_line, first_line + source.count(b"\n", start, end)))
        rest[start:end] = re.sub(rb"[^\n]", b" ", source[start:end])
    remainder = COMMENT.sub(b" ", bytes(rest)).decode("utf-8", "replace")
    for match in _MACRO.finditer(remainder):
        line = remainder.count("\n", 0, match.start()) + 1
        add_text(units, match[1], plain(match[2]), (line, line))
    for number, text in enumerate(_MACRO.sub("", remainder).split("\n"), 1):
        # A constant, a struct's field, a type: every unit that mentions a name of the line uses it.
        words = _WORD.findall(text)
        if words and not text.lstrip().startswith("#include"):
            add_text(units, f"{MODULE_LEVEL}:{plain(text)}", plain(text), (number, number))
    return units


def plain(text: str) -> str:
    """Return C++ text without comments and layout."""
    return " ".join(COMMENT.sub(b" ", text.encode()).decode("utf-8", "replace").split())


def add_text(units: dict[str, Unit], qualname: str, text: str, lines: tuple[int, int]) -> None:
    unit = units.setdefault(qualname, Unit(qualname))
    unit.says.append(text)
    unit.mentions.update(_WORD.findall(text))
    unit.lines.append(lines)


# --- differences -----------------------------------------------------------------------------


def changed_units(before: Mapping[str, Unit], after: Mapping[str, Unit]) -> set[str]:
    """Return the qualnames of units that are changed, new, or gone."""
    return {
        name
        for name in before.keys() | after.keys()
        if name not in before
        or name not in after
        or before[name].fingerprint != after[name].fingerprint
    }
