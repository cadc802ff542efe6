"""Find `@triton.jit` functions and the functions that launch them in one Python file.

Decorators may be stacked (`autotune`, `heuristics`), called (`@triton.jit(do_not_specialize=...)`)
and imported by any name. A launch is `kernel[grid](...)`, however the kernel is spelled. A function
that passes a kernel of its file on launches it too: `launch(kernel, grid, x)`, `chosen = kernel`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Set

from cudal1_ci.discover.facts import LaunchFact, TritonFact
from cudal1_ci.discover.syntax import (
    MODULE_LEVEL,
    children,
    definitions,
    dotted_name,
    first_line_of,
    last_line_of,
    walk,
)

_IMPORTS_TRITON = re.compile(rb"^[ \t]*(?:from|import)[ \t][^\n]*triton", re.MULTILINE)
_JIT = re.compile(rb"^[ \t]*@[\w.]*\bjit\b", re.MULTILINE)
_MAY_LAUNCH = re.compile(rb"\][ \t\n]*\(")


def may_matter(source: bytes) -> bool:
    """Return whether a file's bytes could define or launch a Triton kernel."""
    return (
        b"triton" in source
        and _IMPORTS_TRITON.search(source) is not None
        and (_JIT.search(source) is not None or _MAY_LAUNCH.search(source) is not None)
    )


def is_triton_kernel(decorator: ast.expr, canonical: Callable[[ast.expr], str | None]) -> bool:
    """Return whether a decorator is `triton.jit` or its experimental sibling `gluon.jit`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    dotted = canonical(called) or ""
    return dotted.endswith(".jit") and dotted.partition(".")[0] == "triton"


def triton_kernels_in(
    tree: ast.Module, canonical: Callable[[ast.expr], str | None]
) -> Iterator[TritonFact]:
    """Yield all jitted functions of a file, including device functions."""
    for qualname, node in definitions(tree.body):
        if isinstance(node, ast.ClassDef):
            continue
        if any(is_triton_kernel(decorator, canonical) for decorator in node.decorator_list):
            yield TritonFact(
                qualname, first_line_of(node), last_line_of(node), names_among(walk(node))
            )


def names_among(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Return `relu` and `ops.relu` for the nodes that are names."""
    kinds = ast.Name | ast.Attribute
    found = {dotted_name(node) for node in nodes if isinstance(node, kinds)}
    return tuple(sorted(name for name in found if name is not None))


def launches_in(
    body: list[ast.stmt],
    text: Callable[[ast.stmt], bytes],
    kernels: Set[str] = frozenset(),
    launcher: str = MODULE_LEVEL,
    prefix: str = "",
) -> Iterator[LaunchFact]:
    """Yield every `kernel[grid](...)`, and every place that passes one of the file's `kernels` on.

    A launch in a local function counts for the outer function. Jitted functions pass nothing on.
    """
    may_hand_on = kernels and launcher != MODULE_LEVEL and launcher not in kernels
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if launcher == MODULE_LEVEL:
                source = text(node)
                if _MAY_LAUNCH.search(source) or any(name.encode() in source for name in kernels):
                    yield from launches_in(node.body, text, kernels, f"{prefix}{node.name}")
                continue
            case ast.ClassDef() if launcher == MODULE_LEVEL:
                yield from launches_in(node.body, text, kernels, launcher, f"{prefix}{node.name}.")
                continue
            case ast.Call(func=ast.Subscript(value=kernel)):
                # `torch.library.wrap_triton(kernel)[grid](...)` launches its argument.
                wrapped = kernel.args[0] if isinstance(kernel, ast.Call) and kernel.args else kernel
                name = dotted_name(wrapped)
                if name is not None:
                    values = [*node.args, *(keyword.value for keyword in node.keywords)]
                    yield LaunchFact(launcher, name, names_among(values))
            case ast.Call() | ast.Assign() if may_hand_on:
                for name in handed_on(node):
                    if name in kernels:
                        yield LaunchFact(launcher, name)
        pending.extend(reversed(children(node)))


def handed_on(node: ast.Call | ast.Assign) -> Iterator[str]:
    """Yield names that are an argument by themselves, or all that is assigned, in either case."""
    if isinstance(node, ast.Assign):
        whole = node.value
        values = [whole.body, whole.orelse] if isinstance(whole, ast.IfExp) else [whole]
    else:
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
    yield from (value.id for value in values if isinstance(value, ast.Name))
