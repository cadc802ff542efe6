"""Find suspicious return values: unwritten memory, lazy tensors, values of replaced weights.

Not covered: outputs that only look computed. The verifier compares all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.flow import output_functions, returns
from cudal1_ci.verification.static_rules.python_text import (
    METADATA,
    Function,
    PythonText,
    last,
    path_text,
    root,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_EMPTIES = {"empty", "empty_like", "new_empty", "empty_strided"}
_MATERIAL = {"weight", "bias", "running_mean", "running_var", "in_proj_weight", "weight_ih_l0"}
_INITS = re.compile(r"torch\.nn\.init\..*")
_TENSOR = re.compile(r"torch\.(Tensor|nn\.Parameter|nn\.parameter\.Parameter)")
_HOOKS = {"__torch_function__", "__torch_dispatch__"}


def unwritten_output(text: PythonText) -> Iterator[Sight]:
    """Find a fresh `torch.empty` that is returned without any write to it."""
    for function in output_functions(text):
        for leaving in returns(text, function):
            value = leaving.value
            if is_empty(value):
                yield Sight(leaving.lineno, "returns memory that nothing wrote")
            elif isinstance(value, ast.Name):
                bound = text.bindings(value, value.id)
                fresh = bound and all(map(is_empty, bound))
                if fresh and not is_touched(text, function, value):
                    yield Sight(leaving.lineno, "returns memory that nothing wrote")


def is_empty(value: object) -> bool:
    return isinstance(value, ast.Call) and last(value.func) in _EMPTIES


def is_touched(text: PythonText, function: Function, name: ast.Name) -> bool:
    """Return whether a name is used for anything but its metadata and the return."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != name.id or node is name:
            continue
        parent = text.parents.get(node)
        if isinstance(parent, ast.Return) or isinstance(node.ctx, ast.Store):
            continue
        if isinstance(parent, ast.Attribute) and parent.attr in METADATA:
            continue
        return True
    return False


def weights_baked(text: PythonText) -> Iterator[Sight]:
    """Find values computed from parameters at construction. `load_state_dict` does not change
    them."""
    for assign in text.every(ast.Assign):
        function = text.function(assign)
        if function is None or function.name != "__init__":
            continue
        kept = any(isinstance(t, ast.Attribute) and last(root(t)) == "self" for t in assign.targets)
        if kept and is_derived(text, assign.value):
            yield Sight(assign.lineno, "keeps a value computed from the weights at construction")
    for call in text.every(ast.Call):
        function = text.function(call)
        if (
            last(call.func) == "register_buffer"
            and len(call.args) >= 2
            and (
                function is not None
                and function.name == "__init__"
                and is_derived(text, call.args[1])
            )
        ):
            yield Sight(call.lineno, "keeps a value computed from the weights at construction")


def is_derived(text: PythonText, value: ast.expr) -> bool:
    """Return whether a value is computed from a parameter's values and is no parameter itself."""
    if isinstance(value, ast.Call) and last(value.func) == "Parameter":
        return False
    if not isinstance(value, ast.Call | ast.BinOp):
        return False
    pending: list[ast.AST] = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Attribute) and node.attr in METADATA:
            continue
        if isinstance(node, ast.Call):
            if last(node.func) in {"bool", "isinstance", "hasattr", "len", "Parameter"}:
                continue
            if _INITS.fullmatch(text.dotted(node.func) or "") or last(node.func).endswith("_like"):
                continue
        if isinstance(node, ast.Attribute) and node.attr in _MATERIAL and path_text(node):
            return True
        pending.extend(ast.iter_child_nodes(node))
    return False


def tensor_classes(text: PythonText) -> dict[str, ast.ClassDef]:
    """Return classes of the text that are tensors."""
    found: dict[str, ast.ClassDef] = {}
    for defined in text.every(ast.ClassDef):
        for base in defined.bases:
            if _TENSOR.fullmatch(text.dotted(base) or "") or last(base) in found:
                found[defined.name] = defined
    return found


def is_hooked(defined: ast.ClassDef) -> bool:
    return any(isinstance(s, Function) and s.name in _HOOKS for s in defined.body)


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
    """Return whether a call makes an instance of one of some classes."""
    match call.func:
        case ast.Name(id=name):
            return name in classes
        case ast.Attribute(value=ast.Name(id=name)) if name in classes:
            return True
        case ast.Attribute(attr="as_subclass" | "_make_subclass" | "_make_wrapper_subclass"):
            return bool(call.args) and last(call.args[0]) in classes
    return False


CHECKS: tuple[Check[PythonText], ...] = (
    check(
        "unwritten_output", unwritten_output, "a `torch.empty` is returned that nothing wrote to"
    ),
    check("weights_baked", weights_baked, "values computed from weights at construction are kept"),
    check(
        "lazy_output",
        lazy_output,
        "an instance of a class with `__torch_function__` is returned",
        convicts=True,
    ),
)
