"""Find work on a side stream that nothing waits for.

A function is read as one: any wait in it counts for all of its streams and paths. A wait on one
path only, or for another stream, is not seen here. The verifier's measurements see it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.python_text import Function, PythonText, last
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_MAKERS = {"stream", "set_stream", "StreamContext"}
_WAITS = {"wait_stream", "wait_event", "wait", "synchronize"}
MOST_WAITS = 50
_MAIN = {"current_stream", "default_stream"}


def side_stream(text: PythonText) -> Iterator[Sight]:
    """Find lines that make a stream current, where no function near waits for a stream. Near are
    the function around, its callers and the functions that it calls."""
    makers = [
        call for name in _MAKERS for call in text.calls_of(name) if call.args or call.keywords
    ]
    waits: dict[str, list[ast.Call]] = defaultdict(list)
    """Whether there is a wait in the function around, by its name, and by the names that it
    calls."""
    called: dict[Function | None, set[str]] = defaultdict(set)
    for call in text.every(ast.Call) if makers else ():
        function = text.function(call)
        if function is None or function.name != "__init__":
            called[function].add(last(call.func))
    for wait in (call for name in _WAITS for call in text.calls_of(name) if is_wait(text, call)):
        function = text.function(wait)
        places = {where(function), *(f"calls {name}" for name in called[function])}
        for place in places | ({function.name} if function else set()):
            waits[place].append(wait)
    for maker in makers:
        own = text.function(maker)
        near = [where(own), *(called[own]), *([f"calls {own.name}"] if own else ())]
        given = [*maker.args, *(keyword.value for keyword in maker.keywords)]
        if not is_main(text, given[0]) and not any(
            not waits_for_itself(text, wait, maker)
            for place in near
            for wait in waits[place][:MOST_WAITS]
        ):
            yield Sight(maker.lineno, "work on a side stream that nothing waits for")


def where(function: Function | None) -> str:
    return f"at {function.lineno if function else 0}"


def waits_for_itself(text: PythonText, wait: ast.Call, maker: ast.Call) -> bool:
    """Return whether a wait inside the maker's block is the side stream's own, or of one path
    only."""
    above = list(text.above(wait))
    block = next(
        (
            around
            for around in above
            if isinstance(around, ast.With) and any(i.context_expr is maker for i in around.items)
        ),
        None,
    )
    if block is None:
        return False
    owner = wait.func.value if isinstance(wait.func, ast.Attribute) else wait.func
    is_conditional = any(isinstance(a, ast.If) for a in above[: above.index(block)])
    return isinstance(owner, ast.Call) or last(wait.func) == "wait" or is_conditional


def is_wait(text: PythonText, call: ast.Call) -> bool:
    """Return whether the caller's stream, or the host, waits for another stream there."""
    match call.func:
        case ast.Attribute(attr="wait_stream"):  # a side stream that waits begins after the caller
            return not any(is_main(text, value) for value in call.args)
        case ast.Attribute(attr="synchronize", value=owner):
            return not is_main(text, owner)
    return True


def is_main(text: PythonText, value: ast.expr) -> bool:
    """Return whether a value is the caller's own stream, directly or by name."""
    if isinstance(value, ast.Name):
        bound = text.bindings(value, value.id)
        return any(isinstance(b, ast.Call) and last(b.func) in _MAIN for b in bound)
    return isinstance(value, ast.Call) and last(value.func) in _MAIN


CHECKS: tuple[Check[PythonText], ...] = (
    check("side_stream", side_stream, "work on a side stream, and nothing near it waits"),
)
