"""Parse any Python file; find dotted names, and definitions with their lines."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeGuard

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
MODULE_LEVEL = "<module>"
"""Qualified name of code outside of any definition."""


def parse(source: bytes | str) -> ast.Module:
    """Return the syntax tree. Raises: one of PARSE_ERRORS."""
    with warnings.catch_warnings():
        # Another project's invalid escape sequences are not ours to report.
        warnings.simplefilter("ignore")
        return ast.parse(source)


def unparsable(source: bytes, error: BaseException) -> str:
    """Return a notice's text for a file that `parse` refused."""
    if b"\0" in source:
        return "holds null bytes: not Python source; exclude it"
    if isinstance(error, RecursionError | MemoryError):
        return "is nested too deeply to be parsed; exclude it"
    try:
        source.decode("utf-8-sig")
    except UnicodeDecodeError as undecodable:
        if b"coding" not in source[:200]:
            return (
                f"is not UTF-8 (byte {undecodable.start}) and declares no other encoding; "
                "convert it or add a coding line"
            )
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})" if error.lineno else ""
        return f"does not parse as Python {_VERSION}{where}: {error.msg}"
    return f"does not parse as Python {_VERSION}: {error}"


def dotted_name(expression: ast.expr | None) -> str | None:
    """Return `a.b.c` for a chain of attributes, None for anything else."""
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name):
        return None
    parts.append(expression.id)
    return ".".join(reversed(parts))


# Contexts, operators and plain values: leaves without use, and most of what `ast.walk` visits.
_LEAF_FIELDS = {"ctx", "op", "ops", "id", "arg", "attr", "name", "asname", "kind", "type_comment"}
_LEAF_FIELDS |= {"is_async", "simple", "conversion", "level", "module", "rest", "type_ignores"}
_LEAF_FIELDS |= {"kwd_attrs", "is_lazy"}
_BRANCHES: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Constant: (),
    ast.Global: (),
    ast.Nonlocal: (),
}


def branches(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a kind of node that can hold other nodes."""
    fields = _BRANCHES.get(kind)
    if fields is None:
        fields = tuple(name for name in kind._fields if name not in _LEAF_FIELDS)
        _BRANCHES[kind] = fields
    return fields


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below a node, in order, without contexts and operators."""
    found: list[ast.AST] = []
    for name in branches(type(node)):
        child = getattr(node, name, None)
        if isinstance(child, list):
            found.extend(filter(None, child))  # a Dict has None for `**`
        elif isinstance(child, ast.AST):
            found.append(child)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, as `ast.walk` but twice as fast; in no order to rely on."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))


def reachable(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, and those under its `if`, `try`, `with` and loops."""
    for statement in body:
        yield statement
        match statement:
            case ast.If() | ast.For() | ast.While():
                yield from reachable([*statement.body, *statement.orelse])
            case ast.With():
                yield from reachable(statement.body)
            case ast.Try() | ast.TryStar():
                yield from reachable(statement.body)
                for handler in statement.handlers:
                    yield from reachable(handler.body)
                yield from reachable([*statement.orelse, *statement.finalbody])


def of_a_script(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements under `if __name__ == "__main__"`: no import of the file has them."""
    for statement in body:
        match statement:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name("__name__"),
                    ops=[ast.Eq()],
                    comparators=[ast.Constant("__main__")],
                )
            ):
                yield from reachable(statement.body)


def definitions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield all functions and classes at any depth, with qualified names as Python writes them."""
    for statement in reachable(body):
        if isinstance(statement, ast.ClassDef):
            yield f"{prefix}{statement.name}", statement
            yield from definitions(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{statement.name}", statement
            yield from definitions(statement.body, f"{prefix}{statement.name}.<locals>.")


def names_defined(statement: ast.stmt) -> set[str]:
    """Return the names that a definition or an assignment makes; imports are excluded."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {node.id for target in targets for node in walk(target) if is_stored(node)}
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            return {node.id for node in walk(target) if is_stored(node)}
    return set()


def is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def first_line_of(node: Definition) -> int:
    """Return the line of the first decorator, or of the definition when it has none."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def last_line_of(node: ast.stmt) -> int:
    """Return the last line of a statement that came from a file."""
    return node.end_lineno or node.lineno
