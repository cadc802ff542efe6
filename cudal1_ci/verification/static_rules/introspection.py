"""Rules about looking where a kernel has no business: frames, live objects, modules, hidden text.

Not covered: names that are put together when run; `dynamic_attribute` says where that happens.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from cudal1_ci.verification.static_rules.python_text import (
    Function,
    PythonText,
    last,
    literal_text,
    parameters,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_FRAMES = re.compile(
    r"sys\._getframe|sys\._current_frames|inspect\.(currentframe|stack|trace|getouterframes)"
    r"|traceback\.(walk_stack|extract_stack)"
)
_HOOKS = re.compile(r"(sys|threading)\.(settrace|setprofile|settrace_all_threads)")
_LATER = re.compile(
    r"atexit\.register|signal\.(signal|alarm|setitimer)|gc\.callbacks\.append|weakref\.finalize"
    r"|sys\.(addaudithook|monitoring\.\w+|setswitchinterval)|faulthandler\.register"
)
_NAMESPACES = {"f_locals", "f_globals", "f_builtins"}
_DECODERS = re.compile(
    r"(base64|binascii|zlib|lzma|bz2|gzip|codecs|marshal)\.\w+|builtins\.(bytes|bytearray)\.fromhex"
)
_EXECUTORS = {"builtins.exec", "builtins.eval", "builtins.compile", "builtins.__import__"}
_DYNAMIC = re.compile(r"(torch(\.[\w.]+)?|time|sys|gc|builtins|ctypes|os)")
_MOST_NODES = 400
"""Of an expression whose parts are looked through for a decoder."""


def frame_walk(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        if _FRAMES.fullmatch(text.dotted(call.func) or ""):
            yield Sight(call.lineno, "looks at the frames of its callers")
    for node in text.every(ast.Attribute):
        if node.attr in {"f_back", "tb_frame", "gi_frame"}:
            yield Sight(node.lineno, f"walks frames (`{node.attr}`)")


def caller_read(text: PythonText) -> Iterator[Sight]:
    """`f_locals` of a caller's frame. Its `f_globals["__name__"]` is what loggers ask for."""
    frames = {
        name.id
        for name in text.every(ast.Name)
        if isinstance(name.ctx, ast.Store) and is_bound_to_caller(text, name)
    }
    for node in text.every(ast.Attribute):
        if node.attr not in _NAMESPACES or asks_for_name(text, node):
            continue
        inner = list(ast.walk(node.value))
        walked = any(
            is_caller(text, n) or (isinstance(n, ast.Name) and n.id in frames) for n in inner
        )
        if walked:
            yield Sight(node.lineno, f"reads `{node.attr}` of its callers")


def is_caller(text: PythonText, node: ast.AST) -> bool:
    """Whether an expression leads to a frame other than its own function's."""
    if isinstance(node, ast.Name):
        function = text.function(node)
        return (
            function is not None
            and function in tracers(text)
            and node.id in parameters(function)[:1]
        )
    if isinstance(node, ast.Attribute):
        return node.attr in {"f_back", "tb_frame"}
    if not isinstance(node, ast.Call):
        return False
    path = text.dotted(node.func) or ""
    if path == "sys._getframe":
        depth = node.args[0] if node.args else ast.Constant(0)
        return not (isinstance(depth, ast.Constant) and depth.value == 0)
    return bool(_FRAMES.fullmatch(path)) and path != "inspect.currentframe"


@lru_cache(maxsize=1)
def tracers(text: PythonText) -> frozenset[Function]:
    """Functions that are given to `sys.settrace`, which hands them the frames of others."""
    given = {
        argument.id
        for call in text.every(ast.Call)
        if _HOOKS.fullmatch(text.dotted(call.func) or "")
        for argument in call.args
        if isinstance(argument, ast.Name)
    }
    return frozenset(function for function in text.functions() if function.name in given)


def uncalled_code(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        path = text.dotted(call.func) or ""
        if _HOOKS.fullmatch(path) or _LATER.fullmatch(path):
            yield Sight(call.lineno, f"`{path}`: code runs that nobody calls")
        elif last(call.func) == "__enter__":
            yield Sight(call.lineno, "enters a context that nothing leaves")
    for function in text.functions():
        if function.name == "__del__" and any(isinstance(n, ast.Call) for n in ast.walk(function)):
            yield Sight(function.lineno, "runs code when an object is collected")


def is_bound_to_caller(text: PythonText, name: ast.Name) -> bool:
    """Whether a name is assigned, or loops over, what leads to a caller's frame."""
    match text.parents.get(name):
        case ast.Assign(value=value) | ast.NamedExpr(value=value) | ast.For(iter=value):
            return any(is_caller(text, n) for n in ast.walk(value))
    return False


def asks_for_name(text: PythonText, node: ast.Attribute) -> bool:
    match text.parents.get(node):
        case ast.Subscript(slice=key):
            return literal_text(key) in {"__name__", "__file__"}
        case ast.Attribute(attr="get") as get:
            call = text.parents.get(get)
            keys = call.args[:1] if isinstance(call, ast.Call) else []
            return bool(keys) and literal_text(keys[0]) in {"__name__", "__file__"}
    return False


def object_scan(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        path = text.dotted(call.func)
        if path in {"gc.get_objects", "gc.get_referrers"}:
            yield Sight(call.lineno, f"`{path}`: goes through the live objects of the process")


def modules_changed(text: PythonText) -> Iterator[Sight]:
    for item in text.every(ast.Subscript):
        if isinstance(item.ctx, ast.Load) or not text.is_named(item.value, "sys.modules"):
            continue
        if not (isinstance(item.slice, ast.Name) and item.slice.id == "__name__"):
            yield Sight(item.lineno, "changes which module a name leads to")
    for call in text.every(ast.Call):
        changes = last(call.func) in {"update", "pop", "clear", "setdefault", "__setitem__"}
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call
        if changes and text.is_named(owner, "sys.modules"):
            yield Sight(call.lineno, "changes which module a name leads to")


def main_read(text: PythonText) -> Iterator[Sight]:
    for item in text.every(ast.Subscript):
        if literal_text(item.slice) == "__main__" and text.is_named(item.value, "sys.modules"):
            yield Sight(item.lineno, "looks into the program that runs it")
    for call in text.every(ast.Call):
        first = literal_text(call.args[0]) if call.args else None
        if last(call.func) in {"get", "import_module", "__import__"} and first == "__main__":
            yield Sight(call.lineno, "looks into the program that runs it")
    for imported in text.every(ast.Import):
        if any(alias.name == "__main__" for alias in imported.names):
            yield Sight(imported.lineno, "looks into the program that runs it")
    for origin in text.every(ast.ImportFrom):
        if origin.module == "__main__":
            yield Sight(origin.lineno, "looks into the program that runs it")


def decoded_code(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        if text.dotted(call.func) in _EXECUTORS and call.args and is_decoded(text, call.args[0]):
            yield Sight(call.lineno, "runs code that is hidden in an encoded text")


def is_decoded(text: PythonText, expression: ast.expr) -> bool:
    """Whether a value goes through a decoder, directly or through names."""
    pending: list[ast.AST] = [expression]
    seen: set[ast.AST] = set()
    while pending and len(seen) < _MOST_NODES:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.Call):
            if _DECODERS.fullmatch(text.dotted(node.func) or "") or is_spelled_out(node):
                return True
        elif isinstance(node, ast.Name):
            pending.extend(b for b in text.bindings(node, node.id) if isinstance(b, ast.AST))
        pending.extend(ast.iter_child_nodes(node))
    return False


def is_spelled_out(call: ast.Call) -> bool:
    """`"".join(chr(c) ...)` and the like."""
    if last(call.func) != "join" or not call.args:
        return False
    return any(isinstance(n, ast.Name) and n.id == "chr" for n in ast.walk(call.args[0]))


def dynamic_code(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        if text.dotted(call.func) in {"builtins.exec", "builtins.eval"}:
            yield Sight(call.lineno, "runs code from a string")


def dynamic_attribute(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        if text.dotted(call.func) not in {"builtins.getattr", "builtins.__import__"}:
            continue
        if last(call.func) == "__import__":
            if call.args and literal_text(call.args[0]) is None:
                yield Sight(call.lineno, "imports a module whose name is computed")
        elif len(call.args) >= 2 and not isinstance(call.args[1], ast.Constant):
            path = text.dotted(call.args[0]) or ""
            if _DYNAMIC.fullmatch(path):
                yield Sight(call.lineno, f"takes an attribute of `{path}` whose name is computed")


CHECKS: tuple[Check[PythonText], ...] = (
    check("frame_walk", frame_walk, "frames of the callers are looked at"),
    check("caller_read", caller_read, "local or global names of a caller are read", convicts=True),
    check(
        "uncalled_code",
        uncalled_code,
        "code is left for tracing, signals, exit or collection to run",
    ),
    check(
        "object_scan",
        object_scan,
        "all live objects are gone through (`gc.get_objects`, `gc.get_referrers`)",
        convicts=True,
    ),
    check(
        "modules_changed",
        modules_changed,
        "`sys.modules` is changed, other than under its own name",
    ),
    check("main_read", main_read, "`__main__` is looked into"),
    check(
        "decoded_code",
        decoded_code,
        "code from an encoded text is run (base64, zlib, hex, codecs)",
        convicts=True,
    ),
    check("dynamic_code", dynamic_code, "`exec` or `eval` of a string"),
    check(
        "dynamic_attribute",
        dynamic_attribute,
        "`getattr` with a computed name on torch, time, sys, os, ctypes",
    ),
)
