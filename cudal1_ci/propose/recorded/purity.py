"""Find the calls of a function that do nothing but return a value, by what the recording shows.

A call of a helper or of a submodule can be left out if all operations below it are pure and no
function of the checkout below it writes to anything but its own local variables.
"""

from __future__ import annotations

import functools

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.source import IMPURE, File, Source
from cudal1_ci.records.recording import Frame, Span

WITH_STATE = frozenset(("batch_norm", "instance_norm", "setitem", "rnn", "lstm", "gru"))
"""Operations that may write to state."""


def pure_calls(source: Source, name: str, function: cst.FunctionDef) -> frozenset[str]:
    """Return the code of a function's calls that may be left out if nothing reads their values.

    Args:
        source: The program and its recording.
        name: File of the function.
        function: A definition of that file's tree.
    """
    file = source.file(name)
    graph = source.graph
    if file is None:
        return frozenset()
    numbers = [
        number
        for number, frame in enumerate(graph.recording.frames)
        if frame.file == name and definition_of(file, frame) is function
    ]
    found: set[str] = set()
    refused: set[str] = set()
    for node in calls_of(function):
        operations = [
            one
            for number in numbers
            for one in graph.in_frame.get(number, ())
            if is_within(one.recorded.span, file, node)
        ]
        below = [
            called
            for number in numbers
            for called in graph.called_by.get(number, ())
            if is_within(graph.recording.frames[called].call, file, node)
        ]
        is_known = bool(operations or below)
        is_good = all(map(is_pure, operations)) and all(is_pure_frame(source, n) for n in below)
        (found if is_known and is_good else refused).add(file.code(node))
    return frozenset(found - refused)


def calls_of(function: cst.FunctionDef) -> list[cst.Call]:
    found: list[cst.Call] = []

    class Collect(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
            found.append(node)

    function.body.visit(Collect())
    return found


def is_within(span: Span | None, file: File, node: cst.CSTNode) -> bool:
    """Return whether an expression is a node, or part of it."""
    if span is None or span.column is None or span.last_column is None:
        return False
    where = file.ranges[node]
    start = span.line, file.characters(span.line, span.column)
    end = span.last_line, file.characters(span.last_line, span.last_column)
    first, last = where.start, where.end
    return (first.line, first.column) <= start and end <= (last.line, last.column)


def is_pure(operation: Operation) -> bool:
    """Return whether an operation only returns a value."""
    name = operation.recorded.name
    is_augmented = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    writes = (name.endswith("_") and not name.endswith("__")) or is_augmented
    has_out = any(one.name == "out" for one in operation.recorded.kwargs)
    impure = {operation.name, name} & (IMPURE | WITH_STATE)
    launch = operation.recorded.launch
    return not (writes or has_out or impure or (launch is not None and launch.writes))


def is_pure_frame(source: Source, number: int) -> bool:
    """Return whether a call of a function of the checkout only returned a value."""
    graph = source.graph
    frame = graph.recording.frames[number]
    file = source.file(frame.file)
    function = None if file is None else definition_of(file, frame)
    if function is None or writes_outside(function):
        return False
    operations, below = graph.in_frame.get(number, ()), graph.called_by.get(number, ())
    return all(map(is_pure, operations)) and all(is_pure_frame(source, one) for one in below)


def definition_of(file: File, frame: Frame) -> cst.FunctionDef | None:
    """Return the definition of a frame's function."""
    return file.functions.get(frame.first_line)


@functools.lru_cache(maxsize=64)
def writes_outside(function: cst.FunctionDef) -> bool:
    """Return whether a function may change something other than its own variables: it assigns to
    an attribute or an item, or has a statement that is only a call."""
    found: list[cst.CSTNode] = []

    class Collect(cst.CSTVisitor):
        def visit_AssignTarget(self, node: cst.AssignTarget) -> None:  # noqa: N802
            found.extend([node] if isinstance(node.target, cst.Attribute | cst.Subscript) else [])

        def visit_AugAssign(self, node: cst.AugAssign) -> None:  # noqa: N802
            found.append(node)

        def visit_Global(self, node: cst.Global) -> None:  # noqa: N802
            found.append(node)

        def visit_Nonlocal(self, node: cst.Nonlocal) -> None:  # noqa: N802
            found.append(node)

        def visit_Del(self, node: cst.Del) -> None:  # noqa: N802
            found.append(node)

        def visit_Yield(self, node: cst.Yield) -> None:  # noqa: N802
            found.append(node)

        def visit_Expr(self, node: cst.Expr) -> None:  # noqa: N802
            found.extend([node] if isinstance(node.value, cst.Call) else [])

    function.body.visit(Collect())
    return bool(found)
