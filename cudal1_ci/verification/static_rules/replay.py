"""Find returned answers of earlier calls, stored under an address, an identity or another key.

The rules read functions that make outputs: `forward`, the entry, and functions whose results these
return. An output is stored where one branch stores it and a path without any work returns it.
Packed weights, tables by shape and scratch buffers are not returned, so the rules do not see them.
Not covered: caches in other functions' closures, and in compiled code (see `cuda_rules`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cudal1_ci.verification.static_rules.flow import origin, output_functions, returns
from cudal1_ci.verification.static_rules.python_text import (
    METADATA,
    Function,
    PythonText,
    last,
    parameters,
    path_text,
    root,
    words,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_NO_WORK = METADATA | words(
    "data_ptr id clone detach get tuple hash str int float bool len is_available current_device "
    "move_to_end contiguous isinstance hasattr getattr print append popitem untyped_storage "
    "storage pop clear keys list type is_grad_enabled"
)


@dataclass(frozen=True)
class Replay:
    """A return of a stored value: where, under which tests, and the key, if any."""

    leaving: ast.Return
    tests: tuple[ast.expr, ...]
    keys: tuple[ast.expr, ...]
    function: Function


@lru_cache(maxsize=1)
def replays(text: PythonText) -> tuple[Replay, ...]:
    """Return returns of stored outputs on paths that do no work."""
    found: list[Replay] = []
    for function in output_functions(text):
        stores = stored_places(text, function)
        for leaving in returns(text, function):
            value = leaving.value
            place = path_text(origin(text, value) or ast.Constant(None))
            if place is None or place not in stores or place in plain_parameters(function):
                continue
            for store, keys in stores[place][:5]:
                tests = tuple(guards(text, store, leaving))
                if tests and not works(text, function, store, leaving):
                    found.append(Replay(leaving, tests, keys, function))
                    break
    return tuple(found)


def stored_places(
    text: PythonText, function: Function
) -> dict[str, list[tuple[ast.stmt, tuple[ast.expr, ...]]]]:
    """Return attributes and global names that a function sets, or sets an item of."""
    found: dict[str, list[tuple[ast.stmt, tuple[ast.expr, ...]]]] = {}
    own = {
        n.id
        for n in text.within(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    shared = {
        name
        for n in text.within(function)
        if isinstance(n, ast.Global | ast.Nonlocal)
        for name in n.names
    }
    for node in text.within(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                keys = (part.slice,) if isinstance(part, ast.Subscript) else ()
                place = path_text(part.value if isinstance(part, ast.Subscript) else part)
                if place is None or ("." not in place and place in own - shared):
                    continue
                if "." in place or keys or place in shared:
                    found.setdefault(place, []).append((node, keys))
    return found


def plain_parameters(function: Function) -> set[str]:
    """Return parameters that are new in every call. A default list or dict lasts between calls."""
    spec = function.args
    named = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    defaults = dict(zip(reversed(named), reversed(spec.defaults), strict=False))
    keyword = zip((a.arg for a in spec.kwonlyargs), spec.kw_defaults, strict=True)
    defaults.update((name, value) for name, value in keyword if value is not None)
    kept = {
        n for n, v in defaults.items() if isinstance(v, ast.Dict | ast.List | ast.Set | ast.Call)
    }
    return set(parameters(function)) - kept


def guards(text: PythonText, store: ast.stmt, leaving: ast.Return) -> Iterator[ast.expr]:
    """Yield tests that decide whether an output is stored, or a stored one is returned."""
    around_store, around_return = (
        [a for a in text.above(node) if isinstance(a, ast.If)] for node in (store, leaving)
    )
    for branch in around_store:
        if branch not in around_return or branch_of(text, branch, store) != branch_of(
            text, branch, leaving
        ):
            yield branch.test
    for branch in around_return:
        if branch not in around_store:
            yield branch.test


def branch_of(text: PythonText, branch: ast.If, node: ast.AST) -> bool:
    """Return whether a node is in the first part of an `if`."""
    inner = {node, *text.above(node)}
    return any(statement in inner for statement in branch.body)


def works(text: PythonText, function: Function, store: ast.stmt, leaving: ast.Return) -> bool:
    """Return whether the path that returns a stored output computes anything."""
    storing = {store, *text.above(store)}
    for node in passed(text, function, leaving, storing):
        if isinstance(node, ast.Call) and last(node.func) not in _NO_WORK:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
    return False


def passed(
    text: PythonText, function: Function, leaving: ast.Return, storing: set[ast.AST]
) -> Iterator[ast.AST]:
    """Yield nodes evaluated before a return, without branches that store or leave."""
    pending: list[ast.AST] = [leaving]
    node: ast.AST = leaving
    while node is not function:
        parent = text.parents[node]
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and node in block:
                pending.extend(block[: block.index(node)])
        if isinstance(parent, ast.If | ast.While):
            pending.append(parent.test)
        node = parent
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(part, ast.If) and part in storing:
            pending.append(part.test)
            other = part.orelse if any(s in storing for s in part.body) else part.body
            pending.extend(other)
            continue
        if isinstance(part, ast.If) and any(
            isinstance(s, ast.Return | ast.Raise) for s in part.body
        ):
            pending.extend([part.test, *part.orelse])
            continue
        pending.extend(ast.iter_child_nodes(part))


def identifies(text: PythonText, expression: ast.AST, function: Function) -> bool:
    """Return whether a value identifies an argument's tensor by its address or identity."""
    pending: list[ast.AST] = [expression]
    seen: set[ast.AST] = set()
    while pending and len(seen) < 300:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="data_ptr", value=owner)):
                if is_argument(text, owner, function):
                    return True
            case ast.Call(func=ast.Name(id="id"), args=[owner]):
                if is_argument(text, owner, function):
                    return True
            case ast.Name(id=name):
                pending.extend(b for b in text.bindings(node, name) if isinstance(b, ast.AST))
        pending.extend(ast.iter_child_nodes(node))
    return False


def is_argument(text: PythonText, owner: ast.expr, function: Function) -> bool:
    """Return whether an expression begins with an argument, or loops over one."""
    start = root(owner)
    if not isinstance(start, ast.Name):
        return False
    if start.id in parameters(function):
        return True
    parent = next(
        (
            text.parents[n]
            for n in text.within(function)
            if isinstance(n, ast.Name) and n.id == start.id and isinstance(n.ctx, ast.Store)
        ),
        None,
    )
    source = parent.iter if isinstance(parent, ast.comprehension | ast.For) else None
    value = parent.value if isinstance(parent, ast.Assign) else source
    return isinstance(value, ast.Name | ast.Attribute | ast.Call) and last(
        root(value)
    ) in parameters(function)


def by_identity(text: PythonText, replay: Replay) -> bool:
    """Return whether a stored output is found by the address or identity of an argument."""
    return any(identifies(text, e, replay.function) for e in (*replay.keys, *replay.tests))


def pointer_cache(text: PythonText) -> Iterator[Sight]:
    for replay in replays(text):
        if by_identity(text, replay):
            yield Sight(
                replay.leaving.lineno,
                "returns an earlier output, found by the address or identity of a tensor",
            )


def result_cache(text: PythonText) -> Iterator[Sight]:
    for replay in replays(text):
        if not by_identity(text, replay):
            yield Sight(replay.leaving.lineno, "returns what an earlier call stored")
    for call in text.every(ast.Call):
        maker = call.func.func if isinstance(call.func, ast.Call) else call.func
        wraps = [a for a in call.args if isinstance(a, ast.Lambda | ast.Attribute)]
        if wraps and text.dotted(maker) in {"functools.cache", "functools.lru_cache"}:
            yield Sight(
                call.lineno, "keeps what a function returned by the identity of its arguments"
            )
    for function in output_functions(text):
        for decorator in function.decorator_list:
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if text.dotted(made) in {"functools.cache", "functools.lru_cache"}:
                yield Sight(function.lineno, "keeps its outputs by the identity of its arguments")


CHECKS: tuple[Check[PythonText], ...] = (
    check(
        "pointer_cache",
        pointer_cache,
        "an output is returned again for the same address or `id` of an argument",
        convicts=True,
    ),
    check(
        "result_cache", result_cache, "a stored output is returned on a path that computes nothing"
    ),
)
