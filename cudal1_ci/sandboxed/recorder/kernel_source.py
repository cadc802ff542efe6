"""Read in a Triton kernel's source which pointers it loads from and stores to.

A pointer may pass through names, sums, `tl.where` and block pointers on its way to `tl.store`. What
is loaded from it is no pointer. Where a kernel hands a pointer to a function that is not one of
Triton's, or makes pointers of loaded numbers, the source is said not to show what is written.

    accesses(source, {"x_ptr", "out_ptr"})
    # Accesses(reads={"x_ptr"}, writes={"out_ptr"}, is_sure=True)
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

LANGUAGE = frozenset(("tl", "triton", "libdevice", "gl"))
"""Usual names of Triton's modules."""
BUILTINS = frozenset(("range", "min", "max", "abs", "len", "float", "int", "print", "isinstance"))
BY_ADDRESS = frozenset(("pointer_type", "inline_asm_elementwise", "extern_elementwise"))
"""What may turn a number into a pointer, or write through one unseen."""
DESCRIBING = frozenset(("dtype", "type", "shape"))
"""Attributes of a pointer that are none."""


@dataclass
class Accesses:
    """Names of the parameters whose memory a kernel reads and writes."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    is_sure: bool = True


def accesses(source: str | None, pointers: set[str]) -> Accesses:
    """Return what a kernel does with the memory of its `pointers`."""
    kernel = function_of(source)
    if kernel is None or any(name_of(one) in BY_ADDRESS for one in ast.walk(kernel)):
        return Accesses({*pointers}, {*pointers}, is_sure=False)
    held = pointers_in_names(kernel, pointers)
    found = Accesses()
    for node in ast.walk(kernel):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        through = pointers_in(accessed(node), held)
        if is_load(name):
            found.reads |= through
        if is_store(name):
            found.writes |= through
        elif not is_load(name) and is_foreign(node, held):
            given = [*node.args, *(one.value for one in node.keywords)]
            passed = {pointer for one in given for pointer in pointers_in(one, held)}
            found.reads |= passed
            found.writes |= passed
            found.is_sure = found.is_sure and not passed
    return found


def is_load(name: str) -> bool:
    """Return whether a function reads memory, by its name."""
    return "load" in name or name.startswith("atomic_") or name == "gather"


def is_store(name: str) -> bool:
    """Return whether a function writes memory, by its name."""
    return "store" in name or name.startswith("atomic_") or name == "scatter"


def function_of(source: str | None) -> ast.FunctionDef | None:
    """Return the function of a source; None where that is no single function."""
    try:
        body = ast.parse(textwrap.dedent(source or "")).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef) else None


def pointers_in_names(kernel: ast.FunctionDef, pointers: set[str]) -> dict[str, set[str]]:
    """Return the pointers that each name of a kernel may hold, whatever the order of statements."""
    held = {name: {name} for name in pointers}
    bound = list(bindings(kernel))
    is_growing = True
    while is_growing:
        is_growing = False
        for name, value in bound:
            known = held.setdefault(name, set())
            found = pointers_in(value, held)
            is_growing = is_growing or not found <= known
            known |= found
    return held


def bindings(kernel: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    """Yield names with what they are bound to, a tuple's names to all of it."""
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case (
                ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
            ):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
            case _:
                continue
        for target in targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Name):
                    yield one.id, value


def pointers_in(node: ast.AST | None, held: dict[str, set[str]]) -> set[str]:
    """Return the pointers that an expression may be made of. What is loaded is none."""
    found: set[str] = set()
    waiting = [] if node is None else [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name):
            found |= held.get(one.id, set())
        is_access = isinstance(one, ast.Call) and is_load(name_of(one.func))
        if not is_access and name_of(one) not in DESCRIBING:
            waiting += ast.iter_child_nodes(one)
    return found


def accessed(call: ast.Call) -> ast.AST | None:
    """Return what holds the pointer of a load or store: the first argument, and the object of a
    method."""
    named = [one.value for one in call.keywords if one.arg in ("pointer", "ptr", "desc")]
    first = next(iter((*call.args, *named)), None)
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    return ast.Tuple(elts=[one for one in (first, own) if one is not None], ctx=ast.Load())


def is_foreign(call: ast.Call, held: Mapping[str, object]) -> bool:
    """Return whether a call is of a function of the user's: none of Triton's, of Python's, and no
    method of a value."""
    if isinstance(call.func, ast.Attribute):
        root = root_of(call.func)
        return bool(root) and root not in LANGUAGE and root not in held
    return name_of(call.func) not in BUILTINS


def root_of(node: ast.expr) -> str:
    """Return the first name of `tl.extra.cuda.libdevice`; "" of another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def name_of(node: ast.AST) -> str:
    """Return the last part of a dotted name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
