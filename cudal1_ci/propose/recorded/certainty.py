"""Tell whether recorded operations run in every call as they ran in this one.

An expression may replace others only if the code itself ties them together: no branch between
them, no number that another configuration would change, no cast that this call did not need.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import libcst as cst

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.formulas import ELEMENTWISE, Formula
from cudal1_ci.propose.recorded.graph import CASTS, Graph, Operation
from cudal1_ci.propose.recorded.purity import definition_of
from cudal1_ci.propose.recorded.source import File, Place, Source
from cudal1_ci.records.recording import Argument

CONDITIONS = (
    cst.If
    | cst.For
    | cst.While
    | cst.Try
    | cst.With
    | cst.IfExp
    | cst.BooleanOperation
    | cst.Lambda
    | cst.BaseComp
)
Written = tuple[str | int, cst.BaseExpression | None, Argument]
"""An argument: its name or position, its expression if it is written out, and what it was."""


def written_arguments(source: Source, operation: Operation) -> list[Written]:
    """Return the arguments of an operation with their expressions."""
    recorded = operation.recorded
    nodes: Sequence[cst.BaseExpression | None] = source.operands(operation)
    place = source.place(operation)
    if place is not None and isinstance(place.node, cst.Attribute) and len(recorded.args) == 1:
        nodes = [place.node.value]
    padded = [*nodes, *[None] * (len(recorded.args) - len(nodes))]
    named: dict[str, cst.BaseExpression] = {}
    if place is not None and isinstance(place.node, cst.Call):
        named = {a.keyword.value: a.value for a in place.node.args if a.keyword is not None}
        plain = [a.value for a in place.node.args if a.keyword is None and not a.star]
        if source.is_functional(place.node, place.file):
            others = [one.name for one in recorded.kwargs if one.name not in named]
            named |= dict(zip(others, plain[len(recorded.args) :], strict=False))
            given = {one.name for one in recorded.kwargs}
            by_name = [node for name, node in named.items() if name not in given]
            if padded.count(None) == len(by_name):  # F.unfold(x, kernel_size=3)
                padded = [node or by_name.pop(0) for node in padded]
    found: list[Written] = [
        (n, node, argument)
        for n, (node, argument) in enumerate(zip(padded, recorded.args, strict=True))
    ]
    found += [(one.name, named.get(one.name), one.argument) for one in recorded.kwargs]
    return found


def number_of(source: Source, place: Place, node: cst.BaseExpression) -> object:
    """Return the number, or the other literal, that an expression is in every call; None if the
    code does not say it."""
    file = source.file(place.file)
    if file is None:
        return None
    code = constant_code(file, place, node)
    if code is None:
        return None
    try:
        return eval(code, {"__builtins__": {}, "math": math})  # numbers and math alone
    except (ArithmeticError, ValueError, TypeError, NameError, AttributeError, SyntaxError):
        return None


def constant_code(file: File, place: Place, node: cst.BaseExpression) -> str | None:
    """Return an expression of numbers and `math` alone, with names of constants resolved."""
    code = file.code(node)
    tree = ast.parse(code.strip(), mode="eval").body if code.isascii() else None
    return None if tree is None else constant_text(file, place, tree, 0)


def constant_text(file: File, place: Place, tree: ast.expr, depth: int) -> str | None:
    if depth > 8:
        return None
    if isinstance(tree, ast.Constant):
        return repr(tree.value) if isinstance(tree.value, int | float | str) else None
    parts: list[str | None]
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = constant_text(file, place, operand, depth + 1)
            return None if inner is None else f"(-{inner})"
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op):
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}[type(op)]
            parts = [constant_text(file, place, one, depth + 1) for one in (tree.left, tree.right)]
            return None if None in parts else f"({parts[0]} {sign} {parts[1]})"
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5 | 2 | -0.5)):
            inner = constant_text(file, place, tree.left, depth + 1)
            return None if inner is None else f"({inner} ** {ast.unparse(tree.right)})"
        case ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr="pi" | "e" as name):
            return f"math.{name}"
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr="sqrt" | "log"),
            args=[one],
            keywords=[],
        ):
            inner = constant_text(file, place, one, depth + 1)
            name = tree.func.attr if isinstance(tree.func, ast.Attribute) else ""
            return None if inner is None else f"math.{name}({inner})"
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            parts = [constant_text(file, place, one, depth + 1) for one in elts]
            return None if None in parts else f"({', '.join(map(str, parts))},)"
        case ast.Name(id=name):
            value = only_value(file, place, name)
            return None if value is None else constant_text(file, place, value, depth + 1)
    return None


def only_value(file: File, place: Place, name: str) -> ast.expr | None:
    """Return the only expression that a name is ever bound to, in the function or its file."""
    module = ast.parse(file.text)
    function = place.function
    if function is not None:
        line = file.ranges[function.name].start.line
        own = next(
            (
                one
                for one in ast.walk(module)
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                and one.name == function.name.value
                and one.lineno == line
            ),
            None,
        )
        if own is None:
            return None
        given = [*own.args.posonlyargs, *own.args.args, *own.args.kwonlyargs]
        if any(one.arg == name for one in given):
            return None if bindings(own, name) else default_of(module, own, name)
        found = bindings(own, name)
        if found:
            return found[0] if len(found) == 1 else None
    found = bindings(module, name)
    return found[0] if len(found) == 1 else None


def default_of(
    module: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> ast.expr | None:
    """Return the default of a parameter that no call gives; None without calls in the file."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if name not in names or function.args.vararg or function.args.kwarg:
        return None
    position = names.index(name)
    calls = [
        one
        for one in ast.walk(module)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Name)
        and one.func.id == function.name
    ]
    uses = sum(isinstance(o, ast.Name) and o.id == function.name for o in ast.walk(module))
    is_left_out = all(
        len(one.args) <= position
        and all(keyword.arg not in (name, None) for keyword in one.keywords)
        and not any(isinstance(arg, ast.Starred) for arg in one.args)
        for one in calls
    )
    from_end = position - len(names)
    defaults = function.args.defaults
    is_known = calls and uses == len(calls) and is_left_out and -from_end <= len(defaults)
    return defaults[from_end] if is_known else None


def bindings(tree: ast.AST, name: str) -> list[ast.expr | None]:
    """Return what a name is bound to below a node; None for what is no plain assignment."""
    found: list[ast.expr | None] = []
    plain: set[int] = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and len(one.targets) == 1:
            target = one.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                plain.add(id(target))
                found.append(one.value)
    for one in ast.walk(tree):
        is_stored = isinstance(one, ast.Name) and one.id == name and id(one) not in plain
        if is_stored and not isinstance(getattr(one, "ctx", None), ast.Load):
            found.append(None)
        if isinstance(one, ast.Global) and name in one.names:
            found.append(None)
    return found


def unstated(
    source: Source, operations: Sequence[Operation]
) -> Iterator[tuple[Operation, Written]]:
    """Yield the arguments that are numbers which the code does not state."""
    for operation in operations:
        place = source.place(operation)
        is_layer = is_stated(source, operation)
        for written in written_arguments(source, operation):
            name, node, argument = written
            if name == "inplace" and writes_own(source.graph, operation):
                continue
            if is_layer and node is None and name != "inplace":
                continue
            if argument.kind == "value" or (argument.kind == "literal" and argument.text == "None"):
                continue
            if place is None or node is None or name == "inplace":
                yield operation, written
            elif isinstance(node, cst.Name) and node.value in ("True", "False"):
                continue
            elif number_of(source, place, node) is None:
                yield operation, written


def writes_own(graph: Graph, operation: Operation) -> bool:
    """Return whether an operation with an argument `inplace` writes nothing that others read."""
    written = operation.value(0)
    if all((k.name, k.argument.text) != ("inplace", "True") for k in operation.recorded.kwargs):
        return True
    maker = graph.made_by(written, *ELEMENTWISE)
    is_new = maker is not None and maker.name not in CASTS
    return is_new and graph.sole_reader(written) == operation


def is_stated(source: Source, operation: Operation) -> bool:
    """Return whether an operation is a layer of torch whose class makes it with plain numbers
    alone: `self.act` of `self.act = nn.Hardtanh(0, 6)`."""
    place = source.place(operation)
    file = None if place is None else source.file(place.file)
    if operation.recorded.library_call is None or place is None or file is None:
        return False
    owner = next((one for one in file.above(place.node) if isinstance(one, cst.ClassDef)), None)
    if owner is None or not isinstance(place.node, cst.Call):
        return False
    name = file.code(place.node.func)
    if not name.startswith("self.") or not name.removeprefix("self.").isidentifier():
        return False
    tree = ast.parse(file.module.code_for_node(owner).strip())
    bound = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and [ast.unparse(target) for target in one.targets] == [name]
    ]
    made = bound[0] if len(bound) == 1 else None
    if not isinstance(made, ast.Call):
        return False
    dotted = names_of(file.module, "").dotted(cst.parse_expression(ast.unparse(made.func)))
    arguments = [*made.args, *(one.value for one in made.keywords if one.arg != "inplace")]
    is_plain = all(isinstance(one, ast.Constant) for one in arguments)
    only_in_place = dotted == "torch.nn.ReLU6"  # its one argument
    return (is_plain or only_in_place) and (dotted or "").startswith("torch.nn.")


def is_straight(source: Source, operations: Sequence[Operation], final: Operation) -> bool:
    """Return whether these operations run whenever the last of them does, on the same values."""
    here = source.place(final)
    number = final.recorded.frame
    file = None if here is None else source.file(here.file)
    if here is None or number is None or file is None or here.function is None:
        return False
    around = conditions(file, here.node)
    first: int | None = None
    read: set[str] = set()
    frames = source.graph.recording.frames
    for one in operations:
        node: cst.CSTNode | None
        place = source.place(one)
        if place is None or one.recorded.frame is None:
            return False
        node, frame = place.node, one.recorded.frame
        while frame != number:  # in a helper: nothing there may depend on what it is given
            own = source.file(frames[frame].file)
            caller, call = frames[frame].caller, frames[frame].call
            if own is None or caller is None or call is None or caller == frame:
                return False
            function = definition_of(own, frames[frame])
            if function is None or node is None or conditions(own, node):
                return False
            if num_returns(function) > 1:
                return False
            other = source.file(frames[caller].file)
            node = None if other is None else other.node_at(call)
            frame = caller
        if node is None or not conditions(file, node) <= around:
            return False
        line = file.ranges[node].start.line
        first = line if first is None else min(first, line)
        read |= names_in(node)
    last = file.ranges[here.node].start.line
    return (
        first is not None and first <= last and not rebound(file, here, read, first, last, around)
    )


def rebound(
    file: File, here: Place, read: set[str], first: int, last: int, around: set[cst.CSTNode]
) -> bool:
    """Return whether a branch between two lines may bind one of these names again."""
    if here.function is None:
        return True
    for node in file.ranges:
        is_bound = isinstance(
            node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr
        )
        if not is_bound or not first <= file.ranges[node].start.line <= last:
            continue
        target = node.target  # type: ignore[attr-defined]
        above = conditions(file, node)
        if not above <= around and names_in(target) & read:
            return True
    return False


def conditions(file: File, node: cst.CSTNode) -> set[cst.CSTNode]:
    """Return the branches and loops of its function that a node is in."""
    found: set[cst.CSTNode] = set()
    for one in file.above(node):
        if isinstance(one, cst.FunctionDef):
            break
        if isinstance(one, CONDITIONS):
            found.add(one)
    return found


def num_returns(function: cst.FunctionDef) -> int:
    found: list[cst.Return] = []

    class Collect(cst.CSTVisitor):
        def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802
            return node is function

        def visit_Return(self, node: cst.Return) -> None:  # noqa: N802
            found.append(node)

    function.visit(Collect())
    return len(found)


def leaf_code(source: Source, formula: Formula, leaf: int, at: Operation) -> str | None:
    """Return how a formula's operations write a value that they read, if they all write it the
    same way and that means the same at a place; with a cast to float32 if one of them has one."""
    graph = source.graph
    spelled: dict[str, None] = {}
    casts = {
        place.node: one
        for one in graph.operations
        if one.name in CASTS and one.value(0) == leaf and (place := source.place(one)) is not None
    }
    cast_code: str | None = None
    for operation in formula.operations:
        if operation.recorded.frame != at.recorded.frame:
            continue
        for position, argument in enumerate(operation.recorded.args):
            if argument.value != leaf:
                continue
            nodes = source.operands(operation)
            node = nodes[position] if position < len(nodes) else None
            code = source.argument_code(operation, position, at)
            if node is None or code is None:
                return None
            if node in casts:
                if not is_float32(casts[node]):
                    return None
                cast_code = code
                inner = source.operands(casts[node])[:1]
                place = source.place(casts[node])
                file = None if place is None else source.file(place.file)
                if not inner or inner[0] is None or file is None:
                    return None
                spelled[file.code(inner[0])] = None
            else:
                spelled[code] = None
    if not spelled:
        return None if casts else source.expression(leaf, at)
    if len(spelled) > 1:
        return None
    return cast_code or next(iter(spelled))


def is_float32(cast: Operation) -> bool:
    """Return whether a cast is to float32 whatever it is given."""
    return cast.name == "float" or cast.literal(1, "dtype") in ("torch.float32", "torch.float")


def has_inner_casts(source: Source, formula: Formula) -> bool:
    """Return whether a value between the leaves and the result is cast, here or in calls with
    another dtype."""
    inner = {o for one in formula.operations for o in one.recorded.outputs} - {formula.result}
    if any(one.name in CASTS for one in formula.operations):
        return True
    last = max(one.index for one in formula.operations)
    return any(
        one.name in CASTS and one.value(0) in inner and one.index < last
        for one in source.graph.operations
    )
