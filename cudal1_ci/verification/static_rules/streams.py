"""The rule about work on a side stream that a function leaves without anyone waiting for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.python_text import Function, PythonText, last, path_text
from cudal1_ci.verification.static_rules.rule import Check, Sight, check
from cudal1_ci.verification.static_rules.stream_state import StreamState
from cudal1_ci.verification.static_rules.stream_walk import CURRENT, DEFAULT, TooIntricate, Walk


def side_stream(text: PythonText) -> Iterator[Sight]:
    """Lines that make a stream current whose work some path leaves behind."""
    makers = [
        call
        for call in text.every(ast.Call)
        if last(call.func) in {"stream", "set_stream", "StreamContext"}
    ]
    if not makers:
        return
    callables = touching(text)
    mains = set(main_attributes(text))
    lines: dict[int, None] = {}
    walk = Walk(text, callables, mains)
    for function in entries(text):
        try:
            for state in walk.run(function, StreamState()):
                lines.update((line, None) for _, line in state.pending)
        except TooIntricate:
            yield Sight(function.lineno, "uses streams on more paths than can be followed")
            break
    for line in sorted(lines):
        yield Sight(line, "work on a side stream that some path never waits for")


def touching(text: PythonText) -> dict[str, Function]:
    """Functions that do something to streams, themselves or through others; by name."""
    users: dict[str, set[Function]] = {}
    for call in text.every(ast.Call):
        function = text.function(call)
        if function is not None:
            users.setdefault(last(call.func), set()).add(function)
    pending = ["stream", "set_stream", "graph", "wait_stream", "wait_event", "wait", "synchronize"]
    found: dict[str, Function] = {}
    while pending:
        for function in users.get(pending.pop(), ()):
            if function.name not in found:
                found[function.name] = function
                pending.append(function.name)
    return {name: f for name, f in found.items() if name not in {"__init__", "forward"}}


def entries(text: PythonText) -> Iterator[Function]:
    """Functions that others call for a result: all but constructors and what the text calls."""
    called = {last(call.func) for call in text.every(ast.Call)}
    called.add("__init__")
    always = {"forward", "backward", "__call__", text.entry}
    for function in text.functions():
        if function.name in always or function.name not in called:
            yield function


def main_attributes(text: PythonText) -> Iterator[str]:
    """Attributes that hold the stream that was current outside of any side stream."""
    for assign in text.every(ast.Assign):
        path = text.dotted(assign.value.func) if isinstance(assign.value, ast.Call) else None
        within_a_context = any(isinstance(a, ast.With) for a in text.above(assign))
        is_main = CURRENT.fullmatch(path or "") or DEFAULT.fullmatch(path or "")
        if is_main and not within_a_context:
            yield from filter(None, map(path_text, assign.targets))


CHECKS: tuple[Check[PythonText], ...] = (
    check("side_stream", side_stream, "work on a side stream that some path never waits for"),
)
