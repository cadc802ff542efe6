"""Check what callers rely on: a definition's signatures and the keys of its state.

The check compares the text of the user's definition with the model's, and finds what is certainly
missing. The verifier finds out whether the remaining state is the same.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.names import code_of

Function = ast.FunctionDef | ast.AsyncFunctionDef

_HOLDS_STATE = re.compile(
    r"(?:Parameter|Buffer|Linear|Bilinear|LazyLinear|Embedding|EmbeddingBag|\w*Conv\w*|\w*Norm\w*"
    r"|LSTM|GRU|RNN|\w+Cell|MultiheadAttention|Transformer\w*|PReLU)"
)
"""Classes of torch.nn whose instances have keys in a state_dict."""


def signature(function: ast.arguments) -> list[tuple[str, str, str | None]]:
    """Return kind, name and default of every parameter, without annotations."""
    positional = [*function.posonlyargs, *function.args]
    missing = len(positional) - len(function.defaults)
    found: list[tuple[str, str, str | None]] = []
    for i, one in enumerate(positional):
        default = function.defaults[i - missing] if i >= missing else None
        kind = "/" if i < len(function.posonlyargs) else ""
        found.append((kind, one.arg, default_text(default)))
    if function.vararg:
        found.append(("*", function.vararg.arg, None))
    found += [
        ("kw", one.arg, default_text(default))
        for one, default in zip(function.kwonlyargs, function.kw_defaults, strict=True)
    ]
    if function.kwarg:
        found.append(("**", function.kwarg.arg, None))
    return found


def default_text(default: ast.expr | None) -> str | None:
    """Return a default's text, independent of how its module was imported."""
    if isinstance(default, ast.Attribute):
        return default.attr
    return ast.unparse(default) if default is not None else None


def signature_problem(
    original: cst.FunctionDef, answer: cst.FunctionDef, where: str
) -> Unusable | None:
    """Return the error in the parameters of an answer's function, if any."""
    before, after = function_of(original), function_of(answer)
    if type(before) is type(after) and signature(before.args) == signature(after.args):
        return None
    return Unusable(
        kind="signature",
        message=f"`{where}` must keep its signature `{head(before)}`, and the answer has "
        f"`{head(after)}`. Others call it as it is: keep names, order and defaults of all "
        "parameters, and add none.",
    )


def function_of(node: cst.FunctionDef) -> Function:
    function = ast.parse(code_of(node)).body[0]
    assert isinstance(function, Function)
    return function


def head(function: Function) -> str:
    word = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    return f"{word} {function.name}({ast.unparse(function.args)})"


def missing_state(original: cst.ClassDef, merged: cst.ClassDef) -> Unusable | None:
    """Return the error of state_dict keys that the user's constructor makes and the new class never
    fills.
    """
    before, after = class_of(original), class_of(merged)
    named = {
        node.attr
        for node in ast.walk(after)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    named |= {
        node.value
        for node in ast.walk(after)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    missing = [key for key in state_keys(before) if key not in named]
    if not missing:
        return None
    listed = ", ".join(f"`self.{key}`" for key in missing)
    return Unusable(
        kind="state_keys",
        message=f"`{before.name}.__init__` must still make {listed}: saved models are loaded into "
        "it by these names. Keep every parameter, buffer and submodule under its name.",
    )


def class_of(node: cst.ClassDef) -> ast.ClassDef:
    definition = ast.parse(code_of(node)).body[0]
    assert isinstance(definition, ast.ClassDef)
    return definition


def state_keys(definition: ast.ClassDef) -> list[str]:
    """Return attributes that a constructor fills with parameters, buffers or modules that have
    some.
    """
    keys: list[str] = []
    constructors = [
        item for item in definition.body if isinstance(item, Function) and item.name == "__init__"
    ]
    for node in (inner for one in constructors for inner in ast.walk(one)):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=key)], value=ast.Call(func=f)
            ) if _HOLDS_STATE.fullmatch(ast.unparse(f).rpartition(".")[2]):
                keys.append(key)
            case ast.Call(
                func=ast.Attribute(attr="register_buffer" | "register_parameter"),
                args=[ast.Constant(value=str(key)), *_],
            ) if not any(keyword.arg == "persistent" for keyword in node.keywords):
                keys.append(key)
    return list(dict.fromkeys(keys))
