"""Find replaced objects: clocks, synchronization, comparisons, torch, code.

Covered: assignment, `setattr`, `__setattr__`, `__dict__`, `mock.patch`, `del`, through aliases of
the module. Not covered: names known only at run time (a loop over `dir(torch)`), and what C code
overwrites. Attributes that are meant to be set (`torch.backends`, `_dynamo.config`) are settings,
which `numerics` reads.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import lru_cache

from cudal1_ci.verification.static_rules.python_text import PythonText, last, literal_text
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_SETTERS = re.compile(r"builtins\.setattr|builtins\.delattr|(?:builtins\.)?\w+\.__setattr__")
_CLOCK = re.compile(
    r"time(\.[\w*]+)?|datetime\.datetime(\.\w+)?|timeit\.\w+|torch\.cuda\.Event(\.\w+)?"
    r"|torch\.Event(\.\w+)?|torch\.(utils\.benchmark|profiler|autograd\.profiler)\.\w[\w.]*"
    r"|triton\.testing\.\w+"
)
_SYNCHRONIZE = re.compile(
    r"torch\.(\w+\.)?synchronize|torch\.cuda\.(Stream|streams\.Stream|Event)\.(synchronize|wait\w*)"
    r"|torch\.(cuda\.)?(current_stream|default_stream)"
)
_COMPARISON = re.compile(
    r"torch\.(allclose|isclose|equal|eq|testing(\.\w+)*)"
    r"|torch\.Tensor\.(allclose|isclose|equal|eq|__eq__)|(numpy|math)\.(testing\.\w+|allclose|isclose)"
)
_SETTING = re.compile(
    r"torch\.backends\..+|torch(\.\w+)*\.(config|_config)\..+|torch\.\w*_config\..+"
)
_LIBRARIES = sys.stdlib_module_names | {"torch", "builtins", "triton", "numpy"}

Patch = tuple[ast.AST, str]


@lru_cache(maxsize=1)
def patches(text: PythonText) -> tuple[Patch, ...]:
    """Return each outside object whose attribute is set: the node and the dotted name."""
    return tuple(patches_in(text))


def patches_in(text: PythonText) -> Iterator[Patch]:
    for target in text.every(ast.Attribute):
        if not isinstance(target.ctx, ast.Load):
            path = text.dotted(target)
            if path:
                yield target, path
    for item in text.every(ast.Subscript):
        if not isinstance(item.ctx, ast.Load) and isinstance(item.value, ast.Attribute | ast.Call):
            path = text.dotted(item)
            if path and "." in path:
                yield item, path
    for call in text.every(ast.Call):
        path = patched_by(text, call)
        if path:
            yield call, path


def patched_by(text: PythonText, call: ast.Call) -> str | None:
    """Return the dotted name that a call sets."""
    func = text.dotted(call.func) or ""
    words = call.args
    if (
        last(call.func) == "__setattr__"
        and len(words) == 2
        and isinstance(call.func, ast.Attribute)
    ):
        words = [call.func.value, *words]  # torch.__setattr__("equal", f)
    elif "mock.patch" in func and func.endswith("patch"):
        return literal_text(words[0]) if words else None
    elif not (_SETTERS.fullmatch(func) or func.endswith("mock.patch.object")):
        return None
    if len(words) < 2:
        return None
    owner = text.dotted(words[0])
    return f"{owner}.{literal_text(words[1]) or '*'}" if owner else None


def owned(text: PythonText) -> Iterator[Patch]:
    """Yield patches of objects outside this text, without settings."""
    for node, path in patches(text):
        if path.partition(".")[0] in _LIBRARIES and "." in path and not _SETTING.fullmatch(path):
            yield node, path


def is_shim(text: PythonText, node: ast.AST) -> bool:
    """Return whether a patch is under `if not hasattr(...)` or in an `except`, so that it adds
    what is missing."""
    for around in text.above(node):
        if isinstance(around, ast.ExceptHandler) and last(around.type) in {
            "AttributeError",
            "ImportError",
        }:
            return True
        if isinstance(around, ast.If) and any(
            isinstance(n, ast.Name) and n.id == "hasattr" for n in ast.walk(around.test)
        ):
            return True
    return False


def clock_patched(text: PythonText) -> Iterator[Sight]:
    for node, path in patches(text):
        if _CLOCK.fullmatch(path) and not _SYNCHRONIZE.fullmatch(path):
            yield Sight(line_of(node), f"replaces the clock `{path}`")


def synchronize_patched(text: PythonText) -> Iterator[Sight]:
    for node, path in patches(text):
        if _SYNCHRONIZE.fullmatch(path):
            yield Sight(
                line_of(node), f"replaces `{path}`: work may be left undone when it returns"
            )


def comparison_patched(text: PythonText) -> Iterator[Sight]:
    for node, path in patches(text):
        if _COMPARISON.fullmatch(path):
            yield Sight(line_of(node), f"replaces the comparison `{path}`")


def library_patched(text: PythonText) -> Iterator[Sight]:
    for node, path in owned(text):
        if is_named_elsewhere(path) or is_shim(text, node):
            continue
        if path.startswith(("torch.", "builtins.")):
            yield Sight(line_of(node), f"replaces `{path}` for the whole process")


def is_named_elsewhere(path: str) -> bool:
    """Return whether another rule names the patch."""
    return any(p.fullmatch(path) for p in (_CLOCK, _SYNCHRONIZE, _COMPARISON)) or path.endswith(
        (".__code__", ".__call__")
    )


def code_replaced(text: PythonText) -> Iterator[Sight]:
    for node in set_attributes(text, "__code__"):
        yield Sight(line_of(node), "replaces the code of a function, whose identity stays")


def call_replaced(text: PythonText) -> Iterator[Sight]:
    for node in set_attributes(text, "__call__"):
        owner = node.value if isinstance(node, ast.Attribute) else node.args[0]
        is_class = last(owner) == "__class__" or (
            isinstance(owner, ast.Call) and text.is_named(owner.func, "builtins.type")
        )
        if is_class or (text.dotted(owner) or "").startswith("torch."):
            yield Sight(line_of(node), "replaces how modules are called")


def set_attributes(text: PythonText, name: str) -> Iterator[ast.Attribute | ast.Call]:
    """Yield nodes that set an attribute of that name, of any object."""
    for target in text.every(ast.Attribute):
        if target.attr == name and isinstance(target.ctx, ast.Store):
            yield target
    for call in text.every(ast.Call):
        sets = last(call.func) in {"setattr", "__setattr__"} and len(call.args) >= 2
        if sets and literal_text(call.args[1]) == name:
            yield call


def line_of(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


CHECKS: tuple[Check[PythonText], ...] = (
    check("clock_patched", clock_patched, "a clock or timer is replaced", convicts=True),
    check(
        "synchronize_patched",
        synchronize_patched,
        "`synchronize`, or what finds the current stream, is replaced",
        convicts=True,
    ),
    check(
        "comparison_patched",
        comparison_patched,
        "a function that compares results is replaced",
        convicts=True,
    ),
    check(
        "library_patched",
        library_patched,
        "an attribute of torch or builtins is replaced, and not where it lacks",
        convicts=True,
    ),
    check("code_replaced", code_replaced, "a function's `__code__` is replaced", convicts=True),
    check(
        "call_replaced", call_replaced, "`__call__` of a module's class is replaced", convicts=True
    ),
)
