"""Rules about what a process does besides computing: other processes, memory, network, files.

The sandbox refuses most of it when run; here it gets a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.python_text import PythonText, last, literal_text
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_MEMORY_FILE = re.compile(r"/proc/(self|thread-self|\w+|X)(/task/\w+)?/mem")
_PROC_FILE = re.compile(r"/proc/(self|thread-self|\d+|X)(/.*)?")
_LIBRARY = re.compile(
    r"ctypes\.(CDLL|PyDLL|cdll(\.\w+)*|pythonapi(\.\w+)*|util\.find_library)|cffi\.FFI"
)
_PROCESS = re.compile(
    r"os\.(fork|forkpty|system|popen|exec\w+|spawn\w+|posix_spawn\w*|kill|_exit)"
    r"|subprocess\.\w+|pty\.\w+|multiprocessing\.(Process|Pool|get_context)"
)
LONGEST_COMMAND = 1000
_PIP = re.compile(r"\bpip3?\b.*\binstall\b|\bconda\b.*\binstall\b|\buv\b.*\binstall\b", re.DOTALL)
_NETWORK = re.compile(
    r"(socket|ssl|http|urllib\.request|urllib3|requests|httpx|aiohttp|ftplib|smtplib|telnetlib"
    r"|xmlrpc|websocket|websockets|paramiko)(\..*)?"
)
_FILES = re.compile(
    r"builtins\.open|os\.(open|write|mkdir|makedirs|remove|rename)|io\.open|torch\.(load|save)"
    r"|(pickle|dill|joblib|shelve|marshal)\.(load|dump|open)|numpy\.(load|save|savez|fromfile|memmap)"
    r"|tempfile\.\w+|shutil\.\w+"
)
_FILE_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "tofile"}
_SAVERS = re.compile(r"torch\.save|(pickle|dill|joblib|marshal)\.dump|numpy\.savez?")
_LOADERS = re.compile(r"torch\.load|(pickle|dill|joblib|marshal)\.load|numpy\.(load|fromfile)")
_SETTINGS = re.compile(r"os\.(environ|getenv)(\.\w+)?|sys\.argv|sys\.orig_argv")


def calls(text: PythonText, pattern: re.Pattern[str]) -> Iterator[tuple[ast.Call, str]]:
    """Calls of what a pattern names."""
    for call in text.every(ast.Call):
        path = text.dotted(call.func)
        if path and pattern.fullmatch(path):
            yield call, path


def path_literals(text: PythonText) -> Iterator[tuple[int, str]]:
    """String literals that are not prose."""
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


def process_files(text: PythonText) -> Iterator[Sight]:
    for line, value in path_literals(text):
        if _PROC_FILE.fullmatch(value) and not _MEMORY_FILE.fullmatch(value):
            yield Sight(line, f"reads about processes ({value})")


def native_library(text: PythonText) -> Iterator[Sight]:
    for call, path in calls(text, _LIBRARY):
        yield Sight(call.lineno, f"`{path}`: reaches native functions beside torch")
    for call in text.every(ast.Call):
        path = text.dotted(call.func) or ""
        if path in {"ctypes.memmove", "ctypes.memset"} or path.endswith(".from_address"):
            yield Sight(call.lineno, f"`{path}`: writes or reads raw memory")


def other_process(text: PythonText) -> Iterator[Sight]:
    for call, path in calls(text, _PROCESS):
        if not installs(call):
            yield Sight(call.lineno, f"`{path}`: starts or ends processes")


def installs(call: ast.Call) -> bool:
    """Whether the words of a call are an installer's."""
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


def network(text: PythonText) -> Iterator[Sight]:
    for imported in text.every(ast.Import):
        for alias in imported.names:
            if _NETWORK.fullmatch(alias.name):
                yield Sight(imported.lineno, f"imports `{alias.name}`")
    for origin in text.every(ast.ImportFrom):
        module = origin.module or ""
        names = [f"{module}.{alias.name}" for alias in origin.names]
        if not origin.level and any(_NETWORK.fullmatch(name) for name in (module, *names)):
            yield Sight(origin.lineno, f"imports from `{module}`")
    for call, path in calls(text, re.compile(r"torch\.hub\.\w+|huggingface_hub\.\w+")):
        yield Sight(call.lineno, f"`{path}` asks the network")


def file_access(text: PythonText) -> Iterator[Sight]:
    for call, path in calls(text, _FILES):
        yield Sight(call.lineno, f"`{path}`: reads or writes files")
    for call in text.every(ast.Call):
        if last(call.func) in _FILE_METHODS:
            yield Sight(call.lineno, f"`{last(call.func)}`: reads or writes files")


def stored_results(text: PythonText) -> Iterator[Sight]:
    """Something is saved and loaded by the same text: an answer may outlive its call."""
    saved = [call for call, _ in calls(text, _SAVERS)]
    if saved:
        for call, path in calls(text, _LOADERS):
            yield Sight(call.lineno, f"`{path}` of what line {saved[0].lineno} saves")


def environment_branch(text: PythonText) -> Iterator[Sight]:
    for branch in text.every(ast.If, ast.IfExp, ast.While):
        for node in ast.walk(branch.test):
            if is_setting(text, node):
                yield Sight(branch.lineno, "does one thing or another by environment or arguments")
                break


def is_setting(text: PythonText, node: ast.AST) -> bool:
    """Whether an expression is, or is a name for, a variable of the environment."""
    if isinstance(node, ast.Name):
        bound = text.bindings(node, node.id)[:20]
        return any(isinstance(b, ast.AST) and has_setting(text, b) for b in bound)
    return has_setting(text, node)


def has_setting(text: PythonText, node: ast.AST) -> bool:
    """Whether a chain of attributes, subscripts and calls goes through the environment."""
    for _ in range(20):
        if isinstance(node, ast.Attribute | ast.Name) and _SETTINGS.fullmatch(
            text.dotted(node) or ""
        ):
            return True
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
                node = inner
            case _:
                return False
    return False


CHECKS: tuple[Check[PythonText], ...] = (
    check(
        "process_memory",
        process_memory,
        "`/proc/self/mem`, `mprotect`, `ptrace`: memory is written from behind",
        convicts=True,
    ),
    check(
        "process_files", process_files, "`/proc/self/maps` and other files about processes are read"
    ),
    check("native_library", native_library, "libraries are reached through ctypes or cffi"),
    check("other_process", other_process, "processes are started, forked or ended"),
    check(
        "package_install",
        package_install,
        "a package is installed when the text is loaded",
        convicts=True,
    ),
    check("network", network, "the network is asked"),
    check("file_access", file_access, "files are read or written"),
    check("stored_results", stored_results, "something is saved and loaded again"),
    check(
        "environment_branch",
        environment_branch,
        "what is done depends on environment variables or arguments",
    ),
)
