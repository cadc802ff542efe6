"""Rules about work that is put off until somebody looks, or given to somebody else.

Not covered: threads that C++ starts (`cuda_rules` names `std::thread`), and what a library defers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.flow import output_functions, returns
from cudal1_ci.verification.static_rules.python_text import (
    Function,
    PythonText,
    last,
    literal_text,
    words,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_TENSOR = re.compile(r"torch\.(Tensor|nn\.Parameter|nn\.parameter\.Parameter)")
_HOOKS = {"__torch_function__", "__torch_dispatch__"}
_THREADS = re.compile(
    r"threading\.(Thread|Timer)|_thread\.start_new_thread|asyncio\.(run_coroutine_threadsafe|create_task)"
    r"|(concurrent\.futures\.|concurrent\.futures\.thread\.)?(ThreadPoolExecutor|ProcessPoolExecutor)"
    r"|multiprocessing\.(Pool|Process|pool\.ThreadPool|dummy\.Pool)|torch\.multiprocessing\.\w+"
)
_TENSOR_METHODS = words(
    "cpu clone to numpy item tolist detach float double half cuda sum mean max min abs allclose "
    "equal isclose eq ne lt gt contiguous view reshape copy_ data_ptr isnan isfinite any all "
    "norm type __eq__ __sub__ __getitem__ __torch_function__ __array__"
)


def tensor_classes(text: PythonText) -> dict[str, ast.ClassDef]:
    """Classes of the text that are tensors."""
    found: dict[str, ast.ClassDef] = {}
    for defined in text.every(ast.ClassDef):
        for base in defined.bases:
            if _TENSOR.fullmatch(text.dotted(base) or "") or last(base) in found:
                found[defined.name] = defined
    return found


def is_hooked(defined: ast.ClassDef) -> bool:
    return any(isinstance(s, Function) and s.name in _HOOKS for s in defined.body)


def lazy_tensor(text: PythonText) -> Iterator[Sight]:
    for defined in tensor_classes(text).values():
        yield Sight(defined.lineno, f"`{defined.name}` is a tensor that decides when it computes")


def lazy_output(text: PythonText) -> Iterator[Sight]:
    hooked = {name for name, defined in tensor_classes(text).items() if is_hooked(defined)}
    if not hooked:
        return
    for function in output_functions(text):
        for leaving in returns(text, function):
            values: list[ast.AST | str | None] = [leaving.value]
            if isinstance(leaving.value, ast.Name):
                values.extend(text.bindings(leaving.value, leaving.value.id))
            if any(isinstance(v, ast.Call) and makes(v, hooked) for v in values):
                yield Sight(leaving.lineno, "returns a tensor that computes when it is looked at")


def makes(call: ast.Call, classes: set[str]) -> bool:
    """Whether a call makes an instance of one of some classes."""
    match call.func:
        case ast.Name(id=name):
            return name in classes
        case ast.Attribute(value=ast.Name(id=name)) if name in classes:
            return True
        case ast.Attribute(attr="as_subclass" | "_make_subclass" | "_make_wrapper_subclass"):
            return bool(call.args) and last(call.args[0]) in classes
    return False


def instance_method(text: PythonText) -> Iterator[Sight]:
    """`out.cpu = ...`: a method of one object, which outlives the call that made it."""
    for assign in text.every(ast.Assign):
        for target in assign.targets:
            if (
                isinstance(target, ast.Attribute)
                and target.attr in _TENSOR_METHODS
                and isinstance(target.value, ast.Name)
                and target.value.id != "self"
                and text.function(assign) is not None
                and not any(isinstance(b, str) for b in text.bindings(target, target.value.id))
            ):
                yield Sight(assign.lineno, f"gives one object its own `{target.attr}`")
    for call in text.every(ast.Call):
        if last(call.func) in {"setattr", "__setattr__"} and len(call.args) >= 2:
            owner, key = call.args[-3:-1] if len(call.args) >= 3 else call.args
            if not isinstance(owner, ast.Name) or owner.id == "self":
                continue
            imported = any(isinstance(b, str) for b in text.bindings(call, owner.id))
            if literal_text(key) in _TENSOR_METHODS and not imported:
                yield Sight(call.lineno, f"gives one object its own `{literal_text(key)}`")


def background_work(text: PythonText) -> Iterator[Sight]:
    for call, function in started(text):
        if not text.is_at_import(call) and not is_awaited(text, call, function):
            yield Sight(call.lineno, "starts work that may go on after the call")
    for call in text.every(ast.Call):
        function = text.function(call)
        if last(call.func) != "submit" or function is None or text.is_at_import(call):
            continue
        if not is_awaited(text, call, function):
            yield Sight(call.lineno, "gives work to others and does not wait for it")


def worker_pool(text: PythonText) -> Iterator[Sight]:
    for call, _ in started(text):
        if text.is_at_import(call):
            yield Sight(call.lineno, "keeps threads or processes ready before it is called")


def started(text: PythonText) -> Iterator[tuple[ast.Call, Function | None]]:
    for call in text.every(ast.Call):
        if _THREADS.fullmatch(text.dotted(call.func) or ""):
            yield call, text.function(call)


def is_awaited(text: PythonText, call: ast.Call, function: Function | None) -> bool:
    """Whether the function around waits: `join`, `result`, or a `with` that does."""
    if any(isinstance(a, ast.withitem) for a in text.above(call)):
        return True
    if function is None:
        return False
    waits = {"join", "result", "wait", "as_completed", "gather", "shutdown", "map"}
    for node in text.within(function):
        if isinstance(node, ast.Call) and last(node.func) in waits:
            is_text = isinstance(node.func, ast.Attribute) and isinstance(
                node.func.value, ast.Constant
            )
            is_path = (text.dotted(node.func) or "").startswith("os.")
            if not is_text and not is_path:  # ", ".join(...) waits for nobody
                return True
    return any(
        isinstance(a, ast.With)
        and any(
            isinstance(item.context_expr, ast.Call)
            and last(item.context_expr.func).endswith("Executor")
            for item in a.items
        )
        for a in text.above(call)
    )


CHECKS: tuple[Check[PythonText], ...] = (
    check("lazy_tensor", lazy_tensor, "a class derives from torch.Tensor"),
    check(
        "lazy_output",
        lazy_output,
        "an instance of a class with `__torch_function__` is returned",
        convicts=True,
    ),
    check(
        "instance_method",
        instance_method,
        "one tensor is given its own `cpu`, `clone`, `item`, ...",
    ),
    check(
        "background_work",
        background_work,
        "a thread or process is started in a call that does not wait for it",
    ),
    check("worker_pool", worker_pool, "threads or processes are made ready at construction"),
)
