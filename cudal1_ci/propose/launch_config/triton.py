"""Find numbers in launches of a Triton kernel: block sizes, warps and stages.

A size counts if it is a literal power of two: in the launch, or in a name that is bound once.
Computed sizes and kernels with an autotuner are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudal1_ci.propose.launch_config.number import Growth, LaunchNumber, Place, merged
from cudal1_ci.propose.launch_config.python_places import PythonPlaces

SIZE = re.compile(r"block|tile|chunk|unroll|group", re.IGNORECASE)
"""Parameter names for the amount of work of one program."""
COUNT = re.compile(r"group|unroll", re.IGNORECASE)
"""Parameter names of sizes that may be one."""
SIZES = 16, 2**15
"""Possible sizes; products on tensor cores need at least 16."""
COUNTS = 1, 64
WARPS = 1, 32
STAGES = 1, 7
USUAL = {"num_warps": 4, "num_stages": 3}
"""Options of a launch without its own. Source: triton/backends/nvidia/compiler.py,
`CUDAOptions`."""


def triton_numbers(text: str, kernel: str, definition: str) -> tuple[LaunchNumber, ...]:
    """Return the numbers in a kernel's launches in a text. `definition` is the text of the file
    that defines the kernel.
    """
    try:
        tree = ast.parse(text)
        where = tree if definition == text else ast.parse(definition)
    except (SyntaxError, ValueError):
        return ()
    defined = function_named(where, kernel)
    if defined is None or any("autotune" in ast.unparse(d) for d in defined.decorator_list):
        return ()
    places = PythonPlaces(text)
    return merged(
        one
        for launch in launches_in(tree, kernel, (tree,))
        for one in numbers_of(launch, defined, places)
    )


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the last function of that name, as Python does at run time."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    return max(found, key=lambda one: one.lineno, default=None)


@dataclass(frozen=True)
class Launch:
    """A launch `kernel[grid](...)` and the scopes around it, the module first."""

    call: ast.Call
    grid: ast.expr
    scopes: tuple[ast.AST, ...]


def launches_in(node: ast.AST, kernel: str, scopes: tuple[ast.AST, ...]) -> Iterator[Launch]:
    for child in ast.iter_child_nodes(node):
        inner = scopes
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = (*scopes, child)
        match child:
            case ast.Call(func=ast.Subscript(value=launched, slice=grid)) if names(
                launched, kernel
            ):
                yield Launch(child, grid, scopes)
        yield from launches_in(child, kernel, inner)


def names(node: ast.expr, kernel: str) -> bool:
    """Return whether a node is `kernel`, `module.kernel`, or
    `torch.library.wrap_triton(kernel)`.
    """
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == kernel
        case ast.Call(args=[argument]):
            return names(argument, kernel)
    return False


def numbers_of(
    launch: Launch, kernel: ast.FunctionDef, places: PythonPlaces
) -> Iterator[LaunchNumber]:
    """Yield the numbers of a launch, sizes first because sizes matter more."""
    given = arguments_of(launch.call, kernel)
    compiled = {one.arg for one in parameters_of(kernel) if is_constant(one)}
    sizes = {name: node for name, node in given.items() if name in compiled and SIZE.search(name)}
    for name, node in sizes.items():
        others = [other for key, other in sizes.items() if key != name]
        least, most = COUNTS if COUNT.search(name) else SIZES
        found = size(node, others, launch, places)
        # A group size of 128 may belong to quantized weights.
        if found is not None and found[0] & (found[0] - 1) == 0 and least <= found[0] <= most:
            yield LaunchNumber(name, *found, "by doubling", least, most)
    options = {"num_warps": WARPS}
    if any(isinstance(node, ast.For | ast.While) for node in ast.walk(kernel)):
        options["num_stages"] = STAGES
    for name, (least, most) in options.items():
        found = option(name, given.get(name), launch, places)
        if found is not None and least <= found[0] <= most:
            grows: Growth = "by doubling" if name == "num_warps" else "by one"
            yield LaunchNumber(name, *found, grows, least, most)


def arguments_of(call: ast.Call, kernel: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return arguments by the kernel's parameter names, without those after a `*`."""
    found: dict[str, ast.expr] = {}
    for parameter, argument in zip(parameters_of(kernel), call.args, strict=False):
        if isinstance(argument, ast.Starred):
            break
        found[parameter.arg] = argument
    return found | {one.arg: one.value for one in call.keywords if one.arg is not None}


def parameters_of(kernel: ast.FunctionDef) -> list[ast.arg]:
    return [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]


def is_constant(parameter: ast.arg) -> bool:
    """Return whether the kernel is compiled for each value of the parameter."""
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


def size(
    node: ast.expr, others: Sequence[ast.expr], launch: Launch, places: PythonPlaces
) -> tuple[int, tuple[Place, ...]] | None:
    """Return a size's value and its places, including a repetition in the grid."""
    found = number(node, launch.scopes, places)
    if found is None or not isinstance(node, ast.Constant):
        return found
    value, own = found
    grid = [launch.grid, *bound_in(launch.grid, launch.scopes)]
    repeated = [place for part in grid for place in repetitions(part, value, places)]
    equal = [one for one in others if isinstance(one, ast.Constant) and one.value == value]
    if repeated and equal:  # it is unknown which of them the grid repeats
        return None
    return value, (*own, *repeated)


def number(
    node: ast.expr, scopes: Sequence[ast.AST], places: PythonPlaces
) -> tuple[int, tuple[Place, ...]] | None:
    """Return the value and places of a literal number, or of a name that is bound once."""
    for one in (node, *bound_in(node, scopes)):
        if isinstance(one, ast.Constant) and type(one.value) is int:
            return one.value, (places.of(one),)
    return None


def repetitions(node: ast.expr, value: int, places: PythonPlaces) -> tuple[Place, ...]:
    """Return where a grid repeats a block's size, and the number below that size next to it, as in
    `(n + 255) // 256`.
    """
    written = [one for one in ast.walk(node) if isinstance(one, ast.Constant)]
    if value < SIZES[0] or value not in [one.value for one in written]:
        return ()
    return tuple(
        places.of(one, less=value - one.value)
        for one in written
        if type(one.value) is int and one.value in (value, value - 1)
    )


def option(
    name: str, given: ast.expr | None, launch: Launch, places: PythonPlaces
) -> tuple[int, tuple[Place, ...]] | None:
    """Return the value of a compiler option and its place, or the place where to add it."""
    if given is not None:
        return number(given, launch.scopes, places)
    call = launch.call
    last = [*call.args, *(one.value for one in call.keywords)]
    if not last or any(one.arg is None for one in call.keywords):  # it may be in there
        return None
    return USUAL[name], (places.after(last, name),)


def bound_in(node: ast.expr, scopes: Sequence[ast.AST]) -> list[ast.expr]:
    """Return what the innermost scope binds a name to, if it does so once; otherwise nothing."""
    if not isinstance(node, ast.Name):
        return []
    for scope in reversed(scopes):
        bindings = list(bindings_of(node.id, scope))
        if bindings:
            return [one for one in bindings if one is not None] if len(bindings) == 1 else []
    return []


def bindings_of(name: str, scope: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the values that a scope gives a name; None for a parameter, a loop variable and the
    like.
    """
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        given = scope.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        if any(one is not None and one.arg == name for one in every):
            yield None
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
                continue
            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name:
                yield value
                continue
            case ast.Name(id=target, ctx=ast.Store()) if target == name:
                yield None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                continue
        pending += ast.iter_child_nodes(node)
