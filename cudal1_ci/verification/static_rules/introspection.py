"""Find access that a kernel never needs: callers, live objects, hidden code, memory, pip.

Not covered: names that are put together at run time.
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
_NAMESPACES = {"f_locals", "f_globals", "f_builtins"}
_DECODERS = re.compile(
    r"(base64|binascii|zlib|lzma|bz2|gzip|codecs|marshal)\.\w+|builtins\.(bytes|bytearray)\.fromhex"
)
_EXECUTORS = {"builtins.exec", "builtins.eval", "builtins.compile", "builtins.__import__"}
_MOST_NODES = 400
"""Most nodes of an expression that are searched for a decoder."""
_MEMORY_FILE = re.compile(r"/proc/(self|thread-self|\w+|X)(/task/\w+)?/mem")
_PROCESS = re.compile(
    r"os\.(fork|forkpty|system|popen|exec\w+|spawn\w+|posix_spawn\w*|kill|_exit)"
    r"|subprocess\.\w+|pty\.\w+|multiprocessing\.(Process|Pool|get_context)"
)
LONGEST_COMMAND = 1000
_PIP = re.compile(r"\bpip3?\b.*\binstall\b|\bconda\b.*\binstall\b|\buv\b.*\binstall\b", re.DOTALL)


def caller_read(text: PythonText) -> Iterator[Sight]:
    """Find reads of `f_locals` of a caller's frame. Loggers read its `f_globals["__name__"]`."""
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
    """Return whether an expression leads to a frame other than its own function's."""
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
    """Return functions that are given to `sys.settrace`, which passes them other functions'
    frames."""
    given = {
        argument.id
        for call in text.every(ast.Call)
        if _HOOKS.fullmatch(text.dotted(call.func) or "")
        for argument in call.args
        if isinstance(argument, ast.Name)
    }
    return frozenset(function for function in text.functions() if function.name in given)


def is_bound_to_caller(text: PythonText, name: ast.Name) -> bool:
    """Return whether a name is assigned, or loops over, what leads to a caller's frame."""
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


def decoded_code(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        if text.dotted(call.func) in _EXECUTORS and call.args and is_decoded(text, call.args[0]):
            yield Sight(call.lineno, "runs code that is hidden in an encoded text")


def is_decoded(text: PythonText, expression: ast.expr) -> bool:
    """Return whether a value goes through a decoder, directly or through names."""
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
    """Return whether a text is built from characters, as by `"".join(chr(c) ...)`."""
    if last(call.func) != "join" or not call.args:
        return False
    return any(isinstance(n, ast.Name) and n.id == "chr" for n in ast.walk(call.args[0]))


def calls(text: PythonText, pattern: re.Pattern[str]) -> Iterator[tuple[ast.Call, str]]:
    """Yield calls of what a pattern names."""
    for call in text.every(ast.Call):
        path = text.dotted(call.func)
        if path and pattern.fullmatch(path):
            yield call, path


def path_literals(text: PythonText) -> Iterator[tuple[int, str]]:
    """Yield string literals that are not prose."""
    for node in text.every(ast.Constant, ast.JoinedStr):
        if node not in text.docstrings:
            value = literal_text(node)
            if value is not None and len(value) < 200:
                yield node.lineno, value


def process_memory(text: PythonText) -> Iterator[Sight]:
    for line, value in path_literals(text):
        if _MEMORY_FILE.fullmatch(value):
            yield Sight(line, f"opens the memory of a process ({value})")
    for node in text.every(ast.Attribute):
        if node.attr in {"mprotect", "process_vm_writev", "ptrace"}:
            yield Sight(node.lineno, f"`{node.attr}`: makes code writable, or writes elsewhere")


def installs(call: ast.Call) -> bool:
    """Return whether the words of a call are an installer's."""
    words = [
        n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    return bool(_PIP.search(" ".join(words)[:LONGEST_COMMAND]))


def package_install(text: PythonText) -> Iterator[Sight]:
    for call, _ in calls(text, _PROCESS):
        if installs(call):
            yield Sight(call.lineno, "installs a package when loaded")
    for call, path in calls(text, re.compile(r"pip\.(main|_internal\.[\w.]*main)")):
        yield Sight(call.lineno, f"`{path}`: installs a package when loaded")


CHECKS: tuple[Check[PythonText], ...] = (
    check("caller_read", caller_read, "local or global names of a caller are read", convicts=True),
    check(
        "object_scan",
        object_scan,
        "all live objects are gone through (`gc.get_objects`, `gc.get_referrers`)",
        convicts=True,
    ),
    check(
        "decoded_code",
        decoded_code,
        "code from an encoded text is run (base64, zlib, hex, codecs)",
        convicts=True,
    ),
    check(
        "process_memory",
        process_memory,
        "`/proc/self/mem`, `mprotect`, `ptrace`: memory is written from behind",
        convicts=True,
    ),
    check(
        "package_install",
        package_install,
        "a package is installed when the text is loaded",
        convicts=True,
    ),
)
