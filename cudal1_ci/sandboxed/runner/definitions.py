"""Leave the work out of a script, so that what it defines can be imported.

A file that trains a model at its top level defines classes too. An import would run the training:
for hours, on data that is not there. So only imports, definitions, plain values and settings of
torch are left of it. Every other statement becomes empty lines, and line numbers stay. Other files
are imported as they are.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TRAINS = re.compile(r"^\s+.*\.backward\(", re.MULTILINE)
"""What a file that trains has somewhere: others are not parsed."""
PLAIN_CALLS = re.compile(
    r"bool|dict|float|frozenset|int|len|list|max|min|range|set|str|sum|tuple"
    r"|os\.environ\.get|os\.getenv|os\.path\.(abspath|basename|dirname|join)|(pathlib\.)?Path"
    r"|(collections\.)?namedtuple|(functools\.)?partial|(typing\.)?TypeVar|logging\.getLogger"
    r"|torch\.device|torch\.cuda\.is_available"
)
"""Functions that are called for a value alone."""
SETTINGS = re.compile(
    r"torch\.(set_float32_matmul_precision|set_default_dtype)|sys\.path\.(append|insert)"
)
"""Functions whose calls change how definitions run, or what can be imported."""
BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.If, ast.Try)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def definitions_of(text: str) -> str | None:
    """Return a file's text without what trains; None where it does not train at its top level, or
    where a line holds both."""
    left_out = work_of(text)
    if not left_out:
        return None
    empty = {line for one in left_out for line in lines_of(one)}
    lines = text.splitlines(keepends=True)
    return "".join("\n" if number in empty else line for number, line in enumerate(lines, start=1))


def added_work(before: str, after: str) -> str | None:
    """Return the first statement that is left out of one text and not of the one before. A patch
    may add none: it would run where the patch is merged, and has not run where it was verified."""
    known = Counter(map(ast.unparse, work_of(before)))
    return next(iter(Counter(map(ast.unparse, work_of(after))) - known), None)


def text_in(file: Path) -> str:
    """Return a file's text; nothing where it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8-sig")
    return ""


def work_of(text: str) -> list[ast.stmt]:
    """Return the statements that are left out of a file."""
    if TRAINS.search(text) is None:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    trainers = trainers_in(tree)
    if not any(trains(one, trainers) for one in tree.body):
        return []
    unknown: set[str] = set()
    found = [one for one in tree.body if not is_kept(one, unknown)]
    lines = {line for one in found for line in lines_of(one)}
    is_shared = any(not lines.isdisjoint(lines_of(one)) for one in tree.body if one not in found)
    return [] if is_shared else found


def lines_of(one: ast.stmt) -> range:
    """Return the numbers of a statement's lines, decorators included."""
    first = min([one.lineno, *(each.lineno for each in getattr(one, "decorator_list", ()))])
    return range(first, (one.end_lineno or one.lineno) + 1)


def trains(one: ast.stmt, trainers: set[str], in_loop: bool = False) -> bool:
    """Return whether a statement of the top level runs a backward pass in a loop, or calls one of
    the functions that do."""
    if isinstance(one, DEFINITIONS) or is_main(one):
        return False
    if not isinstance(one, BLOCKS):
        calls = [each for each in ast.walk(one) if isinstance(each, ast.Call)]
        return any((in_loop and is_backward(call)) or is_call_of(call, trainers) for call in calls)
    in_loop |= isinstance(one, (ast.For, ast.AsyncFor, ast.While))
    return any(trains(each, trainers, in_loop) for each in statements_in(one))


def trainers_in(tree: ast.Module) -> set[str]:
    """Return the functions of a file that run a backward pass, or call one that does."""
    calls = {
        one.name: [each for each in ast.walk(one) if isinstance(each, ast.Call)]
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
    }
    found = {name for name, some in calls.items() if any(map(is_backward, some))}
    while more := {
        name
        for name, some in calls.items()
        if name not in found and any(is_call_of(one, found) for one in some)
    }:
        found |= more
    return found


def is_call_of(call: ast.Call, names: set[str]) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in names


def is_main(one: ast.stmt) -> bool:
    """Return whether a statement asks whether the file is run."""
    return isinstance(one, ast.If) and "__name__" in names_read(one.test)


def is_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def statements_in(one: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements of a block, those of its other branches too."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(one, name, ())
    for handler in getattr(one, "handlers", ()):
        yield from handler.body


def is_kept(one: ast.stmt, unknown: set[str]) -> bool:
    """Return whether a statement is no work. What others bind is `unknown` from there on."""
    if isinstance(one, (ast.Import, ast.ImportFrom, ast.Pass, *DEFINITIONS)):
        return True
    if isinstance(one, ast.Expr):
        return isinstance(one.value, ast.Constant) or is_setting(one.value)
    kept = False
    if isinstance(one, ast.Try):
        kept = all(is_kept(each, unknown) for each in statements_in(one))
    elif isinstance(one, ast.If):
        kept = is_plain(one.test, unknown)
        kept = kept and all(is_kept(each, unknown) for each in statements_in(one))
    elif isinstance(one, (ast.Assign, ast.AnnAssign)):
        kept = one.value is None or is_plain(one.value, unknown)
    elif isinstance(one, ast.AugAssign):
        kept = is_plain(one.value, unknown) and unknown.isdisjoint(names_read(one.target))
    bound = set(bound_by(one))
    if kept:
        unknown -= bound
    else:
        unknown |= bound
    return kept


def is_setting(value: ast.expr) -> bool:
    """Return whether a call sets how definitions run."""
    return (
        isinstance(value, ast.Call)
        and SETTINGS.fullmatch(ast.unparse(value.func)) is not None
        and all(is_plain(one, set()) for one in value.args)
    )


def is_plain(value: ast.expr, unknown: set[str]) -> bool:
    """Return whether an expression computes a value alone, from values that are known."""
    calls = [one for one in ast.walk(value) if isinstance(one, ast.Call)]
    return unknown.isdisjoint(names_read(value)) and all(
        PLAIN_CALLS.fullmatch(ast.unparse(one.func)) is not None for one in calls
    )


def names_read(value: ast.AST) -> set[str]:
    """Return the names in an expression."""
    return {one.id for one in ast.walk(value) if isinstance(one, ast.Name)}


def bound_by(one: ast.stmt) -> Iterable[str]:
    """Yield the names that a statement binds outside of definitions."""
    pending: Sequence[ast.AST] = [one]
    while pending:
        yield from (
            each.id
            for each in pending
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )
        pending = [
            part
            for each in pending
            if not isinstance(each, (ast.Lambda, *DEFINITIONS))
            for part in ast.iter_child_nodes(each)
        ]
