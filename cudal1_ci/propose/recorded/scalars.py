"""Tell what an expression is in every call: a Python number, or a tensor.

    number = is_number(file, place, node)   # `scale` in `def f(x, scale=0.5)`, `self.scale`

The recording shows what it was in one call. The text shows what else could be bound to the name.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.certainty import bindings
from cudal1_ci.propose.recorded.source import File, Place

Function = ast.FunctionDef | ast.AsyncFunctionDef
NUMBERS = frozenset(("float", "int"))
MOST_STEPS = 8


@dataclass(frozen=True)
class Within:
    """Where an expression stands."""

    module: ast.Module
    owner: ast.ClassDef | None
    function: Function | None


@functools.lru_cache(maxsize=8)
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def within(file: File, place: Place) -> Within:
    """Return the function and class around a place."""
    module = parsed(file.text)
    line = 0 if place.function is None else file.ranges[place.function.name].start.line
    owner: ast.ClassDef | None = None
    for one in ast.walk(module):
        if isinstance(one, ast.ClassDef) and one.lineno <= line <= (one.end_lineno or 0):
            owner = one  # the innermost one comes last
    functions = (one for one in ast.walk(module) if isinstance(one, Function))
    return Within(module, owner, next((one for one in functions if one.lineno == line), None))


def expression_of(file: File, node: cst.BaseExpression) -> ast.expr:
    return ast.parse(f"({file.code(node)})", mode="eval").body


def is_number(file: File, place: Place, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a Python number in every call, as the text tells it."""
    return number_in(within(file, place), expression_of(file, node), 0)


def is_tensor(file: File, place: Place, node: cst.BaseExpression) -> bool:
    """Return whether an expression that is a tensor in the recorded call is one in every call:
    no number is ever bound to its name."""
    return tensor_in(within(file, place), expression_of(file, node), 0)


def number_in(where: Within, tree: ast.expr, depth: int) -> bool:
    if depth > MOST_STEPS:
        return False
    match tree:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return number_in(where, one, depth + 1)
        case ast.BinOp(left=left, right=right):
            return all(number_in(where, one, depth + 1) for one in (left, right))
        case ast.Call(func=ast.Name(id="float" | "int" | "len")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"))):
            return True
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found = bound_to_self(where, name)
            return bool(found) and all(
                one is not None and number_in(other, one, depth + 1) for other, one in found
            )
        case ast.Name(id=name):
            return name_is_number(where, name, depth)
    return False


def name_is_number(where: Within, name: str, depth: int) -> bool:
    if where.function is not None:
        found = bindings(where.function, name)
        argument = parameter(where.function, name)
        if argument is not None or found:
            is_given = argument is None or is_number_parameter(where.function, argument)
            return is_given and all(
                one is not None and number_in(where, one, depth + 1) for one in found
            )
    found = bindings(where.module, name)
    return len(found) == 1 and found[0] is not None and number_in(where, found[0], depth + 1)


def is_number_parameter(function: Function, argument: ast.arg) -> bool:
    """Return whether a parameter is declared a number, or has one as its default."""
    if argument.annotation is not None:
        return ast.unparse(argument.annotation) in NUMBERS
    default = default_of(function, argument)
    value = default.value if isinstance(default, ast.Constant) else None
    return isinstance(value, int | float) and not isinstance(value, bool)


def tensor_in(where: Within, tree: ast.expr, depth: int) -> bool:
    if depth > MOST_STEPS:
        return False
    match tree:
        case ast.BinOp(left=left, right=right):
            return any(tensor_in(where, one, depth + 1) for one in (left, right))
        case ast.UnaryOp(operand=one):
            return tensor_in(where, one, depth + 1)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            bound = bound_to_self(where, name)
            return not any(one is None or may_be_number(o, one) for o, one in bound)
        case ast.Name(id=name):
            if where.function is None:
                return False
            argument = parameter(where.function, name)
            default = None if argument is None else default_of(where.function, argument)
            found = bindings(where.function, name)
            is_numeric = default is not None and may_be_number(where, default)
            return not is_numeric and not any(
                one is not None and may_be_number(where, one) for one in found
            )
        case ast.Call() | ast.Subscript() | ast.Attribute():
            return True
    return False


def may_be_number(where: Within, tree: ast.expr) -> bool:
    """Return whether an expression, or a branch of it, is a number."""
    if isinstance(tree, ast.IfExp):
        return may_be_number(where, tree.body) or may_be_number(where, tree.orelse)
    return number_in(where, tree, 0)


def bound_to_self(where: Within, name: str) -> list[tuple[Within, ast.expr | None]]:
    """Return what the class binds to `self.NAME`, and where; None for what is not plain."""
    found: list[tuple[Within, ast.expr | None]] = []
    functions = [] if where.owner is None else where.owner.body
    for function in (one for one in functions if isinstance(one, Function)):
        other = Within(where.module, where.owner, function)
        for one in ast.walk(function):
            targets: list[ast.expr] = []
            if isinstance(one, ast.Assign):
                targets = one.targets
            elif isinstance(one, ast.AnnAssign | ast.AugAssign):
                targets = [one.target]
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                for part in parts:
                    if ast.unparse(part) == f"self.{name}":
                        is_plain = part is target and isinstance(one, ast.Assign | ast.AnnAssign)
                        found.append((other, getattr(one, "value", None) if is_plain else None))
    return found


def parameter(function: Function, name: str) -> ast.arg | None:
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return next((one for one in given if one.arg == name), None)


def default_of(function: Function, argument: ast.arg) -> ast.expr | None:
    """Return the default of a parameter."""
    arguments = function.args
    if argument in arguments.kwonlyargs:
        return arguments.kw_defaults[arguments.kwonlyargs.index(argument)]
    given = [*arguments.posonlyargs, *arguments.args]
    position = given.index(argument) - len(given) + len(arguments.defaults)
    return arguments.defaults[position] if position >= 0 else None
