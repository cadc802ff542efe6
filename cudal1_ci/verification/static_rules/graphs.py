"""Find CUDA graphs that read a caller's tensors or return memory of a capture.

A graph reads the addresses that it captured. A graph that captured the caller's tensor is right
again only when the allocator gives the next input the same address.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.flow import aliases, output_functions, returns
from cudal1_ci.verification.static_rules.python_text import (
    METADATA,
    SHAPED_LIKE,
    Function,
    PythonText,
    last,
    path_text,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_GRAPH = re.compile(r"torch\.cuda\.(graph|graphs\.graph)")


def captures(text: PythonText) -> Iterator[tuple[ast.With, Function]]:
    """Yield the captured blocks, with their functions."""
    for block in text.every(ast.With):
        function = text.function(block)
        for item in block.items:
            made = item.context_expr
            path = text.dotted(made.func) if isinstance(made, ast.Call) else None
            if function is not None and _GRAPH.fullmatch(path or ""):
                yield block, function


def callers_names(text: PythonText, function: Function, depth: int = 0) -> dict[str, int]:
    """Return names of a function that hold the caller's tensors, each with its last such line."""
    own = aliases(text, function)
    if function.name in {"forward", "__call__", text.entry}:
        return own
    if depth > 3:
        return {}
    names = [a.arg for a in function.args.args if a.arg not in {"self", "cls"}]
    given: set[str] = set()
    for call in text.calls_of(function.name):
        caller = text.function(call)
        if caller is None or caller is function:
            continue
        theirs = callers_names(text, caller, depth + 1) if caller.name != "__init__" else {}
        for name, value in zip(names, call.args, strict=False):
            if isinstance(value, ast.Name) and call.lineno <= theirs.get(value.id, 0):
                given.add(name)
    # Views of arguments are the caller's too; `aliases` keeps names that stay views.
    return {
        name: line for name, line in own.items() if name in given or (given and name not in names)
    }


def graph_captures_argument(text: PythonText) -> Iterator[Sight]:
    for block, function in captures(text):
        names = callers_names(text, function)
        pending: list[ast.AST] = list(block.body)
        while pending:
            node = pending.pop()
            match node:
                case ast.Attribute(attr=attr) if attr in METADATA:
                    continue
                case ast.Call(func=func) if last(func) in SHAPED_LIKE:
                    continue
                case ast.Name(id=name, ctx=ast.Load()) if node.lineno <= names.get(name, 0):
                    yield Sight(
                        node.lineno, f"the graph reads the caller's own `{name}`, not a copy"
                    )
                    pending.clear()
                    continue
            pending.extend(ast.iter_child_nodes(node))


def graph_static_output(text: PythonText) -> Iterator[Sight]:
    for function in output_functions(text):
        replays = [
            node.lineno
            for node in text.within(function)
            if isinstance(node, ast.Call) and last(node.func) == "replay"
        ]
        if not replays:
            continue
        for leaving in returns(text, function):
            value = leaving.value
            if leaving.lineno >= min(replays) and is_kept(text, value):
                yield Sight(
                    leaving.lineno,
                    "hands out the graph's own output, which the next call overwrites",
                )


def is_kept(text: PythonText, value: ast.expr | None) -> bool:
    """Return whether a value is an attribute, or an element of one, and no copy."""
    match value:
        case ast.Attribute():
            return path_text(value) is not None
        case ast.Subscript(value=inner):
            return isinstance(inner, ast.Attribute | ast.Subscript) or is_kept(text, inner)
        case ast.IfExp(body=body, orelse=orelse):
            return isinstance(body, ast.Attribute) or isinstance(orelse, ast.Attribute)
        case ast.Name(id=name):
            bound = text.bindings(value, name)
            return any(isinstance(b, ast.Attribute | ast.Subscript) for b in bound)
    return False


CHECKS: tuple[Check[PythonText], ...] = (
    check(
        "graph_captures_argument",
        graph_captures_argument,
        "a CUDA graph captures the caller's tensor instead of a copy",
    ),
    check(
        "graph_static_output",
        graph_static_output,
        "after a replay the graph's own output is returned, not a clone",
    ),
)
