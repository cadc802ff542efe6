"""Find out whether a project compiles a root itself, to compare with what it has.

Reads text alone: `torch.compile(Model(...))`, a name that was bound to `Model(...)` and is compiled
in the same file, and `.compile(...)` of such a name. Arguments count where they are constants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

FORM = "torch.compile({arguments})"


def own_compilation(texts: Iterable[str], name: str) -> str | None:
    """Return the decorator that stands for how texts compile a class or function of that name,
    `torch.compile(mode="reduce-overhead")`; None where they do not."""
    for text in texts:
        if name not in text or "compile" not in text:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for call in compilations(tree, name):
            arguments = [
                f"{one.arg}={one.value.value!r}"
                for one in call.keywords
                if one.arg and isinstance(one.value, ast.Constant)
            ]
            return FORM.format(arguments=", ".join(arguments)) if arguments else "torch.compile"
    return None


def compilations(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the calls that compile what the name makes, or the function of that name."""
    bound = {name} | set(names_bound_to(tree, name))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func) in ("torch.compile", "compile") and node.args:
            if is_of(node.args[0], name, bound):
                yield node
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            value = node.func.value
            if isinstance(value, ast.Name) and value.id in bound - {name}:
                yield node


def names_bound_to(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the variables that an object of the class is bound to: `model = Model(...).cuda()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and makes(node.value, name):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def is_of(node: ast.expr, name: str, bound: set[str]) -> bool:
    """Return whether an expression is an object of the class, or the function itself."""
    if isinstance(node, ast.Name):
        return node.id in bound
    return makes(node, name)


def makes(node: ast.expr, name: str) -> bool:
    """Return whether an expression calls the class, and then perhaps methods: `.eval()`."""
    while isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id == name:
            return True
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr == name:
            return True
        node = function.value
    return False
