"""Find names that hold one tensor in the recorded call and may hold others in another call.

`attend(x, x, x)` and `context = x if context is None else context` make names one tensor. Code that
reads one of them for the other is right in the recorded call alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.lifted import within
from cudal1_ci.propose.recorded.rule import Call, Change
from cudal1_ci.propose.recorded.source import File


def mistaken(call: Call, change: Change) -> tuple[str, str] | None:
    """Return a name that a change no longer reads and the one that it reads instead, where they
    are one tensor in the recorded call alone."""
    file = call.source.file(change.file)
    if file is None:
        return None
    old: dict[cst.FunctionDef, set[str]] = {}
    for node in change.new:
        function = next((one for one in file.above(node) if isinstance(one, cst.FunctionDef)), None)
        if function is not None:
            old.setdefault(function, set()).update(names_in(node))
    new = {name for code in change.new.values() for name in names_in(cst.parse_module(code))}
    for function, before in old.items():
        gone = before - new
        for lost, read in shared(call, file, change.file, function) if gone else ():
            if lost in gone and read in new and not follows(file, function, lost, read):
                return lost, read
    return None


def shared(
    call: Call, file: File, name: str, function: cst.FunctionDef
) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of a function that hold one tensor, each in both orders."""
    source, recording = call.source, call.graph.recording
    seen: set[int | None] = set()
    for operation in call.graph.operations:
        frame = source.frame(operation)
        if frame is None or operation.recorded.scope in seen or frame.file != name:
            continue
        seen.add(operation.recorded.scope)
        if file.functions.get(frame.first_line) is not function:
            continue
        by_value: dict[int, list[str]] = {}
        for one in recording.scopes[operation.recorded.scope or 0].locals:
            if one.argument.value is not None and not one.name.startswith("."):
                by_value.setdefault(one.argument.value, []).append(one.name)
        for names in by_value.values():
            yield from itertools.permutations(names, 2)


def follows(file: File, function: cst.FunctionDef, one: str, other: str) -> bool:
    """Return whether every call of a function makes one of two names from the other: by `y = x`
    or by a method of x, in no branch."""
    for node in within(function):
        if not isinstance(node, cst.Assign):
            continue
        if any(isinstance(above, cst.If | cst.Try) for above in file.above(node)):
            continue
        for targets, value in assigned(node):
            names = {target.value for target in targets if isinstance(target, cst.Name)}
            source = origin(value)
            if {one, other} <= names | {source} and source not in names and {one, other} & names:
                return True
    return False


def assigned(node: cst.Assign) -> Iterator[tuple[list[cst.BaseExpression], cst.BaseExpression]]:
    """Yield the targets of an assignment with their value: of `a, b = x, y` one for each."""
    targets: list[cst.BaseExpression] = [one.target for one in node.targets]
    yield targets, node.value
    for target in targets:
        if isinstance(target, cst.Tuple) and isinstance(node.value, cst.Tuple):
            for left, right in zip(target.elements, node.value.elements, strict=False):
                yield [left.value], right.value


def origin(value: cst.BaseExpression) -> str:
    """Return `x` for `x` and for `x.method()`; "" for other expressions."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return value.value if isinstance(value, cst.Name) and value.value != "self" else ""
