"""Find functions that make outputs, sources of returned values, and names of arguments."""

from __future__ import annotations

import ast
from functools import lru_cache

from cudal1_ci.verification.static_rules.python_text import (
    Function,
    PythonText,
    last,
    parameters,
    words,
)

NEVER = 1 << 60
"""A line that no text has."""
MOST_RETURNS = 60
"""Most returns of a function that are examined."""
_SAME = words("clone detach contiguous view reshape view_as squeeze unsqueeze to float")
_VIEWS = words(
    "view view_as t transpose permute squeeze unsqueeze detach expand contiguous reshape "
    "flatten data T mT movedim swapaxes"
)


def returns(text: PythonText, function: Function) -> list[ast.Return]:
    """Return the returns of a value, in the order of the text."""
    found = [n for n in text.within(function) if isinstance(n, ast.Return) and n.value is not None]
    return sorted(found, key=lambda node: node.lineno)[:MOST_RETURNS]


@lru_cache(maxsize=1)
def output_functions(text: PythonText) -> tuple[Function, ...]:
    """Return `forward`, the entry, and the functions whose results they return."""
    by_name = {f.name: f for f in text.functions() if f.name not in {"forward", "__init__"}}
    found = dict.fromkeys(text.forwards())
    pending = list(found)
    while pending:
        for leaving in returns(text, pending.pop()):
            for value in (leaving.value, *alternatives(leaving.value)):
                callee = by_name.get(last(value.func)) if isinstance(value, ast.Call) else None
                if callee is not None and callee not in found:
                    found[callee] = None
                    pending.append(callee)
    return tuple(found)


def alternatives(value: ast.expr | None) -> list[ast.expr]:
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else []


def origin(text: PythonText, value: ast.expr | None) -> ast.expr | None:
    """Return what a returned value is a copy or an element of."""
    for _ in range(20):
        match value:
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _SAME:
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="get")):
                return inner
            case ast.Subscript(value=inner):
                value = inner
            case ast.Tuple(elts=[inner, *_]):
                value = inner
            case ast.Name(id=name):
                stored = [
                    b
                    for b in text.bindings(value, name)
                    if isinstance(b, ast.Attribute | ast.Subscript)
                    or (isinstance(b, ast.Call) and last(b.func) == "get")
                ]
                if not stored:
                    return value
                value = stored[0]
            case _:
                return value
    return value


def aliases(text: PythonText, function: Function) -> dict[str, int]:
    """Return names that are a function's arguments or views of them, each with its last such
    line."""
    found = dict.fromkeys(parameters(function), NEVER)
    stored = sorted(
        (n for n in text.within(function) if isinstance(n, ast.Name) and is_stored(n)),
        key=lambda name: name.lineno,
    )
    for name in stored:
        parent = text.parents.get(name)
        value = parent.value if isinstance(parent, ast.Assign) else None
        if isinstance(parent, ast.AugAssign):
            continue
        if value is not None and is_view(value, {n for n, end in found.items() if end == NEVER}):
            found[name.id] = NEVER
        elif found.get(name.id) == NEVER:
            found[name.id] = name.lineno
    return found


def is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def is_view(value: ast.expr, names: set[str]) -> bool:
    """Return whether a value may share memory with one of some names."""
    for _ in range(20):
        match value:
            case ast.Name(id=name):
                return name in names
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _VIEWS:
                value = inner
            case ast.Attribute(value=inner, attr=attr) if attr in _VIEWS:
                value = inner
            case ast.IfExp(body=inner):
                value = inner
            case _:
                return False
    return False
