"""Rules about what is returned, and about what stands in for the work.

Not covered: outputs that look computed and are not; the judge compares all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.flow import Flow, aliases, output_functions, returns
from cudal1_ci.verification.static_rules.python_text import (
    METADATA,
    Function,
    PythonText,
    last,
    parameters,
    path_text,
    root,
)
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_EMPTIES = {"empty", "empty_like", "new_empty", "empty_strided"}
_HARMLESS = {"requires_grad_", "record_stream", "share_memory_", "pin_memory", "retain_grad"}
_COMPILES = re.compile(r"torch\.(compile|_dynamo\.optimize|jit\.(script|trace)|_inductor\.compile)")
_KERNELS = ("triton", "__global__", "load_inline", "RawKernel", "cpp_extension")
_REFERENCES = re.compile(
    r"\.*(reference|ref|ref_model|reference_model|original|baseline|solution)(\..*)?"
)
_MATERIAL = {"weight", "bias", "running_mean", "running_var", "in_proj_weight", "weight_ih_l0"}
_INITS = re.compile(r"torch\.nn\.init\..*")


def unwritten_output(text: PythonText) -> Iterator[Sight]:
    """A fresh `torch.empty` that nothing was done to before it is returned."""
    for function in output_functions(text):
        for leaving in returns(text, function):
            value = leaving.value
            if is_empty(value):
                yield Sight(leaving.lineno, "returns memory that nobody wrote")
            elif isinstance(value, ast.Name):
                bound = text.bindings(value, value.id)
                fresh = bound and all(map(is_empty, bound))
                if fresh and not is_touched(text, function, value):
                    yield Sight(leaving.lineno, "returns memory that nobody wrote")


def is_empty(value: object) -> bool:
    return isinstance(value, ast.Call) and last(value.func) in _EMPTIES


def is_touched(text: PythonText, function: Function, name: ast.Name) -> bool:
    """Whether a name is used for anything but its metadata and the return."""
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


def constant_output(text: PythonText) -> Iterator[Sight]:
    for function in text.forwards():
        leavings = returns(text, function)
        if not parameters(function) or not leavings:
            continue
        flow = Flow(text, function)
        tests = (
            n.test for n in text.within(function) if isinstance(n, ast.If | ast.While | ast.IfExp)
        )
        if any(flow.depends(leaving.value) for leaving in leavings) or any(
            map(flow.depends, tests)
        ):
            continue
        if not any(isinstance(n, ast.Yield | ast.YieldFrom) for n in text.within(function)):
            yield Sight(
                leavings[0].lineno, "what is returned does not depend on the values of any argument"
            )


def input_mutated(text: PythonText) -> Iterator[Sight]:
    for function in text.forwards():
        names = aliases(text, function)
        for node in text.within(function):
            name, line = written(node), getattr(node, "lineno", function.lineno)
            if name is not None and line < names.get(name, 0):
                yield Sight(line, f"writes to its argument `{name}`")


def written(node: ast.AST) -> str | None:
    """The name whose memory a node writes."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if (
            attr.endswith("_") and not attr.startswith("_") and attr not in _HARMLESS
        ):
            return name_of(owner)
        case ast.Call(keywords=keywords):
            for keyword in keywords:
                if keyword.arg == "out":
                    return name_of(keyword.value)
            inplace = any(
                k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value is True
                for k in keywords
            )
            return name_of(node.args[0]) if inplace and node.args else None
        case ast.Assign(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript):
                    return name_of(target)
        case ast.AugAssign(target=target):
            return name_of(target)
    return None


def name_of(node: ast.AST) -> str | None:
    """The name that an element, or a bare name, belongs to."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def reference_used(text: PythonText) -> Iterator[Sight]:
    for origin in text.every(ast.ImportFrom):
        if _REFERENCES.fullmatch(origin.module or ""):
            yield Sight(origin.lineno, f"imports from `{origin.module}`")
    for imported in text.every(ast.Import):
        for alias in imported.names:
            if _REFERENCES.fullmatch(alias.name):
                yield Sight(imported.lineno, f"imports `{alias.name}`")
    if text.entry in {"", "Model"}:
        return
    for name in text.every(ast.Name):
        if name.id == "Model" and isinstance(name.ctx, ast.Load):
            yield Sight(name.lineno, "uses the reference's class")


def silent_fallback(text: PythonText) -> Iterator[Sight]:
    """A handler for everything, in what is called, that computes or returns instead."""
    for block in suppressed(text):
        yield Sight(block.lineno, "whatever fails here is passed over, and nobody is told")
    for attempt in text.every(ast.Try):
        function = text.function(attempt)
        if function is None or function.name.startswith("get_"):
            continue
        for handler in attempt.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            broad = any(
                k is None or last(k) in {"Exception", "BaseException", "RuntimeError"}
                for k in kinds
            )
            if broad and stands_in(handler) and any(has_call(s) for s in attempt.body):
                yield Sight(
                    handler.lineno, "whatever fails, something else is done and nobody is told"
                )


def suppressed(text: PythonText) -> Iterator[ast.With]:
    """Blocks under `contextlib.suppress` that return or set something, in functions."""
    for block in text.every(ast.With):
        for item in block.items:
            made = item.context_expr
            path = text.dotted(made.func) if isinstance(made, ast.Call) else None
            decisive = (n for s in block.body for n in ast.walk(s))
            if path != "contextlib.suppress" or text.function(block) is None:
                continue
            if any(isinstance(n, ast.Return | ast.Assign) for n in decisive):
                yield block


def stands_in(handler: ast.ExceptHandler) -> bool:
    """Whether a handler computes something, and raises nothing."""
    nodes = [n for s in handler.body for n in ast.walk(s)]
    if any(isinstance(n, ast.Raise) for n in nodes):
        return False
    return any(isinstance(n, ast.Return | ast.Assign) for n in nodes) or not any(
        isinstance(n, ast.Call) for n in nodes
    )


def has_call(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) for n in ast.walk(statement))


def compile_only(text: PythonText) -> Iterator[Sight]:
    """torch.compile or TorchScript in a text without any kernel of its own."""
    if any(mark in line for line in text.lines for mark in _KERNELS):
        return
    for node in text.every(ast.Attribute, ast.Name):
        if isinstance(text.parents.get(node), ast.Attribute):
            continue
        path = text.dotted(node) or ""
        if _COMPILES.fullmatch(path) and not isinstance(node.ctx, ast.Store):
            yield Sight(node.lineno, f"`{path}` is the only kernel here")


def weights_baked(text: PythonText) -> Iterator[Sight]:
    """Values computed from parameters at construction: `load_state_dict` does not reach them."""
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
    """Whether a value is computed from a parameter's values, and is no parameter itself."""
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


CHECKS: tuple[Check[PythonText], ...] = (
    check(
        "unwritten_output", unwritten_output, "a `torch.empty` is returned that nothing wrote to"
    ),
    check(
        "constant_output",
        constant_output,
        "what `forward` returns does not depend on any argument's values",
    ),
    check("input_mutated", input_mutated, "an argument of `forward` is written to"),
    check("reference_used", reference_used, "the reference is imported, or its class used"),
    check(
        "silent_fallback",
        silent_fallback,
        "`except Exception` does something else and tells nobody",
    ),
    check("compile_only", compile_only, "torch.compile or TorchScript is all there is"),
    check("weights_baked", weights_baked, "values computed from weights at construction are kept"),
)
