"""Find the names that Python code binds and takes from its module, and rename them.

This module knows scopes, by the standard library's symbol tables, but not what a name means.
"""

from __future__ import annotations

import ast
import builtins
import functools
import symtable
from collections.abc import Collection, Iterator
from typing import TypeGuard

import libcst as cst

BUILTINS = frozenset(dir(builtins))


@functools.lru_cache(maxsize=512)
def code_of(node: cst.CSTNode) -> str:
    """Return the text of a node, with the comments above it."""
    return cst.Module([]).code_for_node(node)


@functools.lru_cache(maxsize=512)
def uses(node: cst.CSTNode) -> frozenset[str]:
    """Return names that a statement takes from its module or from builtins."""
    return frozenset(global_names(symtable.symtable(code_of(node), "<code>", "exec")))


def global_names(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() if is_top else symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from global_names(child)


@functools.lru_cache(maxsize=512)
def binds(node: cst.CSTNode) -> frozenset[str]:
    """Return names that a statement binds in its own scope."""
    return frozenset(bound_names(ast.parse(code_of(node)).body))


def bound_names(body: Collection[ast.stmt], *, type_checking: bool = True) -> Iterator[str]:
    """Yield names that statements bind, including conditional ones. Without `type_checking` names
    for type checkers alone are left out.
    """
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif is_type_checking(statement) and not type_checking:
            yield from bound_names(statement.orelse, type_checking=False)
        else:
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.ExceptHandler):
                    yield from bound_names(child.body, type_checking=type_checking)
                elif isinstance(child, ast.stmt):
                    yield from bound_names([child], type_checking=type_checking)
                else:
                    yield from stored_names(child)


def stored_names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def is_type_checking(statement: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name like another that is not taken."""
    if name.isupper():
        base = f"{name}_FAST"
    elif name[:1].isupper():
        base = f"{name}Fast"
    else:
        base = f"{name}_fast"
    numbered = (base if i == 1 else f"{base}_{i}" for i in range(1, len(taken) + 3))
    return next(one for one in numbered if one not in taken)


def renamed(module: cst.Module, old: str, new: str) -> cst.Module | None:
    """Return a module with one global name replaced everywhere. None if a function or a class has a
    local of the old or the new name: they could not be distinguished.
    """
    if shadows(symtable.symtable(module.code, "<code>", "exec"), {old, new}):
        return None
    changed = module.visit(Rename(old, new))
    assert isinstance(changed, cst.Module)
    return changed


def shadows(table: symtable.SymbolTable, names: set[str]) -> bool:
    return any(
        any(symbol.get_name() in names and symbol.is_local() for symbol in child.get_symbols())
        or shadows(child, names)
        for child in table.get_children()
    )


class Rename(cst.CSTTransformer):
    """Rename a global name wherever it is read or bound."""

    def __init__(self, old: str, new: str):
        self.old = old
        self.new = new
        self.others: set[cst.CSTNode | None] = set()
        """Names of attributes, parameters and keyword arguments, which are not global names."""

    def visit_Attribute(self, node: cst.Attribute) -> None:  # noqa: N802
        self.others.add(node.attr)

    def visit_Arg(self, node: cst.Arg) -> None:  # noqa: N802
        self.others.add(node.keyword)

    def visit_Param(self, node: cst.Param) -> None:  # noqa: N802
        self.others.add(node.name)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:  # noqa: N802
        self.others.add(node.module)

    def visit_ImportAlias(self, node: cst.ImportAlias) -> bool:  # noqa: N802
        return node is None  # never: a module's own names are separate

    def leave_ImportAlias(  # noqa: N802
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        asname = original_node.asname
        local = asname.name if asname is not None else original_node.name
        if isinstance(local, cst.Name) and local.value == self.old:
            return updated_node.with_changes(asname=cst.AsName(cst.Name(self.new)))
        return updated_node

    def leave_Name(  # noqa: N802
        self, original_node: cst.Name, updated_node: cst.Name
    ) -> cst.Name:
        if original_node.value != self.old or original_node in self.others:
            return updated_node
        return updated_node.with_changes(value=self.new)


@functools.lru_cache(maxsize=512)
def dump(node: cst.CSTNode) -> str:
    """Return code without docstrings and comments, as a value to compare."""
    tree = ast.parse(code_of(node))
    for inner in ast.walk(tree):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(inner, clean=False) is not None
        ):
            inner.body = inner.body[1:]
    return ast.dump(tree)


def is_text(item: cst.CSTNode) -> bool:
    """Return whether a statement is a string: a docstring, or an attribute's description."""
    return (
        isinstance(item, cst.SimpleStatementLine)
        and isinstance(one := item.body[0], cst.Expr)
        and isinstance(one.value, cst.SimpleString | cst.ConcatenatedString)
    )
