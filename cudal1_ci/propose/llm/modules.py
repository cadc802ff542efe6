"""Split a Python file into units that can be shown alone, and resolve its imports.

A unit is a statement at module level, with the comments above it. Each definition in an `if`, `try`
or `with` is also a unit. A unit knows the names that it binds and reads.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import libcst as cst

from cudal1_ci.propose.editing.terms import code
from cudal1_ci.records import TreeProgram

MAX_FILE_BYTES = 2**20
"""The most bytes of a Python file that a person wrote."""


class Unit:
    """A statement of a module. The names that it reads are computed on first use: most units of a
    large file never need them.
    """

    def __init__(self, module: cst.Module, node: cst.CSTNode, number: int):
        self.module = module
        self.node = node
        self.number = number
        inner = [node, *_deep(node)]
        self.names = frozenset(name for one in inner for name in _bound(one))
        """What it binds."""
        self.imports: dict[str, str] = {}
        """Of an import: what each local name means, relative ones with their dots."""
        for one in inner:
            if isinstance(one, cst.Import | cst.ImportFrom):
                self.imports.update(_imported(one))

    @property
    def kind(self) -> Literal["import", "constant", "definition"]:
        if isinstance(self.node, cst.FunctionDef | cst.ClassDef):
            return "definition"
        return "import" if self.imports else "constant"

    @functools.cached_property
    def text(self) -> str:
        """Return the text as in the file, without the common indentation."""
        return self.module.code_for_node(self.node).strip("\r\n")

    @property
    def uses(self) -> set[str]:
        """Return the names that the unit reads, including local ones."""
        return self._reads.names if self.kind != "import" else set()

    @property
    def attributes(self) -> set[str]:
        """Return the dotted names that the unit reads: `ops.rotate`."""
        return self._reads.dotted

    @property
    def bases(self) -> set[str]:
        """Return the names among the bases of a class."""
        heads = _Reads()
        for base in self.node.bases if isinstance(self.node, cst.ClassDef) else ():
            base.visit(heads)
        return heads.names

    @functools.cached_property
    def _reads(self) -> _Reads:
        reads = _Reads()
        self.node.visit(reads)
        return reads


@functools.lru_cache(maxsize=16)
def units_of(module: cst.Module) -> tuple[Unit, ...]:
    """Return the statements of a module that bind a name, in order."""
    units = (Unit(module, node, number) for number, node in enumerate(_statements(module.body)))
    return tuple(unit for unit in units if unit.names)


def _statements(body: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    for node in body:
        holds = any(isinstance(inner, cst.FunctionDef | cst.ClassDef) for inner in _deep(node))
        if holds and not isinstance(node, cst.FunctionDef | cst.ClassDef):
            yield from _statements(list(_blocks(node)))
        else:
            yield node


def _blocks(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the statements of all branches of a compound statement."""
    for child in node.children:
        if isinstance(child, cst.IndentedBlock):
            yield from child.body
        elif isinstance(child, cst.If | cst.Else | cst.ExceptHandler | cst.Finally):
            yield from _blocks(child)


def _deep(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what is below a statement, but not inside definitions and expressions."""
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.BaseExpression):
        return
    for child in node.children:
        yield child
        yield from _deep(child)


class _Reads(cst.CSTVisitor):
    """Collect names and dotted names; attributes and keywords are not names."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.dotted: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
        self.names.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        spelled = _dotted(node)
        if spelled is not None:
            self.dotted.add(spelled)
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
        node.value.visit(self)
        return False


def _dotted(node: cst.BaseExpression) -> str | None:
    """Return `a.b.c` if the node consists of names alone."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr.value}" if before is not None else None
    return None


def _bound(node: cst.CSTNode) -> set[str]:
    """Return the names that a node binds at module level."""
    match node:
        case cst.FunctionDef() | cst.ClassDef():
            return {node.name.value}
        case cst.Import() | cst.ImportFrom():
            return set(_imported(node))
        case cst.AssignTarget() | cst.AnnAssign() | cst.AugAssign():
            reads = _Reads()
            node.target.visit(reads)
            return reads.names
        case _:
            return set()


def _imported(statement: cst.Import | cst.ImportFrom) -> dict[str, str]:
    if isinstance(statement.names, cst.ImportStar):
        return {}
    package = ""
    if isinstance(statement, cst.ImportFrom):
        dots = "." * len(statement.relative)
        package = dots + (code(statement.module) if statement.module else "")
        package += "" if package.endswith(".") else "."
    meanings = {}
    for alias in statement.names:
        name = code(alias.name)
        local = code(alias.asname.name) if alias.asname else name
        if isinstance(statement, cst.Import) and not alias.asname:
            local = name = name.partition(".")[0]
        meanings[local] = package + name
    return meanings


# --- files -------------------------------------------------------------------------------------


def module_path(program: TreeProgram, module: str, importer: str = "") -> str | None:
    """Return the checkout's path of a module, absolute or relative to the file `importer`."""
    level = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    folder = Path(program.import_root)
    if level:
        above = Path(importer).parents
        if level > len(above):
            return None
        folder = above[level - 1]
    if not all(part.isidentifier() for part in parts):
        return None
    stem = folder.joinpath(*parts)
    for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py") if parts else None):
        if path is not None and text_of(program, path.as_posix()) is not None:
            return path.as_posix()
    return None


def text_of(program: TreeProgram, path: str) -> str | None:
    """Return the text of a file as the program has it. None if it is not UTF-8, too large, or
    reached by a link out of the checkout: prompts may go to an external server.
    """
    for overlaid in program.overlay:
        if overlaid.path == path:
            return overlaid.text
    root = Path(program.root).resolve()
    try:
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file():
            return None
        if file.stat().st_size > MAX_FILE_BYTES:
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None
