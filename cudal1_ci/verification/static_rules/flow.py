"""What in a function depends on the values of its arguments, and which functions make outputs.

Flow is read without order and generously: what is passed along with something that depends on an
argument depends on it too, since kernels write into what they are given. Shapes, types and devices
are not values.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from cudal1_ci.verification.static_rules.python_text import (
    METADATA,
    SHAPED_LIKE,
    Function,
    PythonText,
    last,
    parameters,
    path_text,
    root,
    words,
)

NEVER = 1 << 60
"""A line that no text has."""
MOST_ROUNDS = 6
MOST_RETURNS = 60
"""Of a function, that are looked at."""
_SAME = words("clone detach contiguous view reshape view_as squeeze unsqueeze to float")
_VIEWS = words(
    "view view_as t transpose permute squeeze unsqueeze detach expand contiguous reshape "
    "flatten data T mT movedim swapaxes"
)


def returns(text: PythonText, function: Function) -> list[ast.Return]:
    """Returns of a value, in the order of the text."""
    found = [n for n in text.within(function) if isinstance(n, ast.Return) and n.value is not None]
    return sorted(found, key=lambda node: node.lineno)[:MOST_RETURNS]


@lru_cache(maxsize=1)
def output_functions(text: PythonText) -> tuple[Function, ...]:
    """`forward`, the entry, and the functions of the text whose result they hand on."""
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
    """What a returned value is a copy or an element of."""
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
    """Names of a function that are its arguments, or views of them, and up to which line."""
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
    """Whether a value may be the memory of one of some names."""
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


class Flow:
    """Names and attributes of a function that depend on the values of its arguments."""

    def __init__(self, text: PythonText, function: Function):
        self.text = text
        self.methods = text.function_names
        self.known = set(parameters(function))
        self.nodes = list(ast.walk(function))
        for _ in range(MOST_ROUNDS):
            before = len(self.known)
            for node in self.nodes:
                self.spread(node)
            if len(self.known) == before:
                break

    def depends(self, expression: ast.AST | None) -> bool:
        """Whether a value depends on the values of the arguments."""
        pending: list[ast.AST] = [] if expression is None else [expression]
        while pending:
            node = pending.pop()
            match node:
                case ast.Attribute(attr=attr) if attr in METADATA:
                    continue
                case ast.Call(func=func) if last(func) in SHAPED_LIKE:
                    continue
                case ast.Name(id=name) if name in self.known:
                    return True
                case ast.Attribute() if path_text(node) in self.known:
                    return True
            pending.extend(ast.iter_child_nodes(node))
        return False

    def spread(self, node: ast.AST) -> None:
        """Take up what one node makes depend on the arguments."""
        match node:
            case ast.Assign(targets=targets, value=value) if self.depends(value):
                for target in targets:
                    self.mark(target)
            case ast.AugAssign(target=target, value=value) if self.depends(value):
                self.mark(target)
            case ast.AnnAssign(target=target, value=value) if self.depends(value):
                self.mark(target)
            case ast.NamedExpr(target=target, value=value) if self.depends(value):
                self.mark(target)
            case ast.For(target=target, iter=value) if self.depends(value):
                self.mark(target)
            case ast.comprehension(target=target, iter=value) if self.depends(value):
                self.mark(target)
            case ast.FunctionDef(name=name) if name not in self.known:
                if any(self.depends(s) for s in node.body):
                    self.known.add(name)
            case ast.Call():
                self.spread_call(node)

    def spread_call(self, call: ast.Call) -> None:
        """What a call may write to: everything that it is given beside an argument."""
        if last(call.func) == "replay":
            self.known.add("self")
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if last(call.func) in SHAPED_LIKE or not any(self.depends(value) for value in given):
            return
        for value in given:
            self.mark(value)
        if isinstance(call.func, ast.Attribute):
            own_method = last(call.func.value) == "self" and call.func.attr in self.methods
            self.mark(
                call.func.value if own_method or last(call.func.value) != "self" else call.func
            )

    def mark(self, target: ast.AST) -> None:
        """Everything that a target or an argument names."""
        pending: list[ast.AST] = [target]
        while pending:
            node = pending.pop()
            match node:
                case ast.Tuple(elts=parts) | ast.List(elts=parts):
                    pending.extend(parts)
                case ast.Starred(value=inner) | ast.Subscript(value=inner):
                    pending.append(inner)
                case ast.Call(func=ast.Attribute(value=inner)):
                    pending.append(inner)
                case ast.Attribute():
                    path = path_text(node)
                    if path is not None and not self.is_foreign(root(node)):
                        self.known.add(path)
                case ast.Name(id=name):
                    if not self.is_foreign(node):
                        self.known.add(name)

    def is_foreign(self, node: ast.AST) -> bool:
        """Whether a name is a module or a builtin, which no argument flows into."""
        if not isinstance(node, ast.Name):
            return False
        bound = self.text.bindings(node, node.id)
        return not bound or all(isinstance(b, str) for b in bound)
