"""Match formulas over recorded operations, and fill the expressions that replace them.

A pattern is text: `div(exp(X), sum(exp(X), dim=K, keepdim=True))`. Upper-case names are variables:
`K...` stand for arguments that are no tensors, others for tensors. Lower-case calls are operations
with their arguments by position and by name. Products and sums match in both orders.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import libcst as cst

from cudal1_ci.propose.editing.rewrite import may_define
from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.algebra import in_one_block, in_place_of
from cudal1_ci.propose.recorded.certainty import (
    has_inner_casts,
    is_straight,
    leaf_code,
    unstated,
    written_arguments,
)
from cudal1_ci.propose.recorded.formulas import Formula
from cudal1_ci.propose.recorded.graph import Graph, Operation, literal
from cudal1_ci.propose.recorded.reads import assigned_to
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import ATOMS, Source, bare, bracketed
from cudal1_ci.records.recording import Argument

COMMUTATIVE = ("add", "mul")
REVERSED = {"rsub": "sub", "rdiv": "div"}
RENAMED = {
    "clip": "clamp",
    "clamp_min": "clamp",
    "clamp_max": "clamp",
    "absolute": "abs",
    "linalg_norm": "norm",
    "linalg_vector_norm": "norm",
    "swapaxes": "transpose",
}
REDUCED = ("input", "dim", "keepdim")
SIGNATURES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "logsumexp"), REDUCED),
    **dict.fromkeys(("argmax", "argmin"), REDUCED),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), ("input", "p", *REDUCED[1:])),
    **dict.fromkeys(("softmax", "log_softmax", "squeeze", "unsqueeze"), REDUCED[:2]),
    **dict.fromkeys(("transpose", "swapaxes"), ("input", "dim0", "dim1")),
    **dict.fromkeys(("clamp", "clip", "hardtanh"), ("input", "min", "max")),
    "clamp_min": ("input", "min"),
    "clamp_max": ("input", "max"),
    "gather": ("input", "dim", "index"),
    "lerp": ("input", "end", "weight"),
    "linear": ("input", "weight", "bias"),
}
"""Parameters in order, of operations whose arguments have other names than `input` and `other`."""
NAMES = {
    "axis": "dim",
    "ord": "p",
    "exponent": "other",
    "self": "input",
    "min_val": "min",
    "max_val": "max",
}
DEFAULTS = (("keepdim", "False"), ("p", "2"), ("p", "2.0"), ("p", "'fro'"), ("inplace", "False"))
Key = int | str
"""The position or the name of an argument."""


@dataclass(frozen=True)
class Leaf:
    """What a variable stands for: an argument, and where it was given."""

    argument: Argument
    operation: Operation
    key: Key


@dataclass(frozen=True)
class Match:
    """A part of a graph that has the form of a pattern."""

    graph: Graph
    operations: tuple[Operation, ...] = ()
    """Outer ones first."""
    leaves: dict[str, Leaf] = field(default_factory=dict)
    is_layer: bool = False
    """Whether the template calls the same layer, whatever its settings."""

    def value(self, name: str) -> int | None:
        """Return the tensor that a variable stands for."""
        return self.leaves[name].argument.value

    def literal(self, name: str) -> object:
        """Return the number that a variable stands for."""
        return literal(self.leaves[name].argument)

    def rank(self, name: str) -> int:
        """Return the number of dimensions of a tensor."""
        return self.graph.num_dims(self.value(name))

    def is_alike(self, *names: str) -> bool:
        """Return whether tensors have one dtype, of floating-point numbers."""
        dtypes = {known.dtype for n in names if (known := self.graph.of(self.value(n)))}
        return len(dtypes) == 1 and "float" in min(dtypes)


@dataclass(frozen=True)
class Form:
    """A pattern, and the expression that takes its place."""

    pattern: str
    template: str
    where: Callable[[Match], bool] | None = None


def is_float(found: Match) -> bool:
    """Return whether X holds floating-point numbers."""
    return found.is_alike("X")


@functools.cache
def parsed(pattern: str) -> ast.expr:
    return ast.parse(pattern, mode="eval").body


def given(operation: Operation) -> dict[str, tuple[Argument, Key]]:
    """Return the arguments of an operation by the names of its parameters, without those that
    have their default."""
    names = SIGNATURES.get(operation.name, ("input", "other"))
    recorded = operation.recorded
    found: dict[str, tuple[Argument, Key]] = {
        (names[n] if n < len(names) else str(n)): (one, n) for n, one in enumerate(recorded.args)
    }
    found |= {NAMES.get(one.name, one.name): (one.argument, one.name) for one in recorded.kwargs}
    if operation.name in REVERSED and len(recorded.args) == 2:
        found["input"], found["other"] = found["other"], found["input"]
    return {
        name: (argument, key)
        for name, (argument, key) in found.items()
        if argument.text != "None" and not name.startswith("_")
        if (name, argument.text) not in DEFAULTS
    }


def without_effect(operation: Operation) -> set[Key]:
    """Return the arguments of an operation that have their default."""
    keys = {key for _, key in given(operation).values()}
    recorded = operation.recorded
    return {*range(len(recorded.args)), *(one.name for one in recorded.kwargs)} - keys


def matches(wanted: ast.expr, argument: Argument, where: Leaf, so_far: Match) -> Iterator[Match]:
    """Yield the ways in which an argument has the form of a pattern."""
    if isinstance(wanted, ast.Name):
        is_tensor = argument.value is not None
        if is_tensor == wanted.id.startswith("K"):
            return
        known = so_far.leaves.get(wanted.id)
        if known is None:
            yield replace(so_far, leaves={**so_far.leaves, wanted.id: where})
        elif known.argument == argument:
            yield so_far
        return
    if not isinstance(wanted, ast.Call):
        if literal(argument) == ast.literal_eval(wanted) and argument.value is None:
            yield so_far
        return
    assert isinstance(wanted.func, ast.Name)
    maker = so_far.graph.made_by(argument.value)
    if maker is None or maker.output != argument.value:
        return
    name = REVERSED.get(maker.name, RENAMED.get(maker.name, maker.name))
    if name != wanted.func.id:
        return
    arguments = given(maker)
    parameters = SIGNATURES.get(maker.name, ("input", "other"))
    patterns = dict(zip(parameters, wanted.args, strict=False))
    patterns |= {one.arg or "": one.value for one in wanted.keywords}
    if patterns.keys() != arguments.keys():
        return
    found = replace(so_far, operations=(*so_far.operations, maker))
    yield from all_of(patterns, arguments, maker, found)
    if name in COMMUTATIVE and set(arguments) == {"input", "other"}:
        turned = {"input": arguments["other"], "other": arguments["input"]}
        yield from all_of(patterns, turned, maker, found)


def all_of(
    patterns: dict[str, ast.expr],
    arguments: dict[str, tuple[Argument, Key]],
    maker: Operation,
    so_far: Match,
) -> Iterator[Match]:
    """Yield the ways in which all arguments of an operation have their forms."""
    if not patterns:
        yield so_far
        return
    (name, first), *others = patterns.items()
    argument, key = arguments[name]
    for one in matches(first, argument, Leaf(argument, maker, key), so_far):
        yield from all_of(dict(others), arguments, maker, one)


def found_at(graph: Graph, operation: Operation, form: Form) -> Iterator[Match]:
    """Yield the matches of a form that end with an operation."""
    if operation.output is None:
        return
    whole = Argument(kind="value", value=operation.output)
    start = Leaf(whole, operation, 0)
    for one in matches(parsed(form.pattern), whole, start, Match(graph)):
        if form.where is None or form.where(one):
            yield one


def find_forms(call: Call, forms: Sequence[Form]) -> Iterator[Change]:
    """Find formulas that have one of these forms; of several the first one counts, and outer ones
    come before inner ones."""
    taken: set[int] = set()
    for operation in reversed(call.graph.operations):
        if operation.index in taken:
            continue
        for form in forms:
            found = next(found_at(call.graph, operation, form), None)
            change = None if found is None else written(call, found, form.template)
            if found is not None and change is not None:
                taken |= {one.index for one in found.operations}
                yield change
                break


def written(
    call: Call, found: Match, template: str, definitions: str = "", modules: Set[str] = frozenset()
) -> Change | None:
    """Return the change of a match to a template; None where the code does not guarantee it, or
    where it would compute something a second time."""
    source = call.source
    outer, *inner = found.operations
    place = source.place(outer)
    file = None if place is None else source.file(place.file)
    if place is None or file is None or not is_free(call, inner, found.operations):
        return None
    used = names_in(cst.parse_expression(template))
    written_again = {(o.operation.index, o.key) for n, o in found.leaves.items() if n in used}
    defaults = {(o.index, key) for o in found.operations for key in without_effect(o)}
    missing = {(one.index, key) for one, (key, _, _) in unstated(source, found.operations)}
    formula = formula_of(found)
    if found.is_layer:
        missing = set()
    if missing - written_again - defaults or not may_define(file.module, definitions):
        return None
    if has_inner_casts(source, formula) or not is_straight(source, formula.operations, outer):
        return None
    code, needed = code_at(source, found, template, outer)
    new: dict[cst.CSTNode, str] | None
    if code is None:
        new, needed = earlier(call, found, template)
    elif code == assigned_to(file, place):
        new = {place.statement: ""}
    elif isinstance(cst.parse_expression(code), ATOMS):
        new = {place.node: code}
    else:
        new = {place.node: in_place_of(call, place, code)}
    if new is None:
        return None
    return Change(place.file, new, shown(outer, source), needed | modules, definitions)


def code_at(
    source: Source, found: Match, template: str, at: Operation
) -> tuple[str | None, frozenset[str]]:
    """Return the code of a template where an operation is written, None if a variable has none
    there, and the imports that it needs."""
    formula, place = formula_of(found), source.place(at)
    used = names_in(cst.parse_expression(template))
    codes = {
        name: leaf_text(source, formula, leaf, at)
        for name, leaf in found.leaves.items()
        if name in used
    }
    known = {name: text for name, text in codes.items() if text is not None}
    if len(known) < len(codes):
        return None, frozenset()
    modules = frozenset({"torch", "math"} & used)
    if place is not None and "F" in used:
        known["F"], needed = source.functional(place.file)
        modules |= needed
    return filled(template, known), modules


def earlier(
    call: Call, found: Match, template: str
) -> tuple[dict[cst.CSTNode, str] | None, frozenset[str]]:
    """Return the change that puts a template where the first operation of a match is written:
    `x = fc(x)`, `x = x * 2`, `y = x.sum(-1)` binds x again, and only these lines read it."""
    source, (outer, *_) = call.source, found.operations
    places = {
        place.statement: (one, place)
        for one in formula_of(found).operations
        if (place := source.place(one)) is not None
    }
    (start, (first, here)), *others = places.items()
    file = source.file(here.file)
    last = source.place(outer)
    if file is None or last is None or not others or not in_one_block(call, [*found.operations]):
        return None, frozenset()
    inner = [
        (one, place) for one, place in places.values() if place.statement is not last.statement
    ]
    names = {assigned_to(file, place) for _, place in inner}
    name = assigned_to(file, here)
    body = getattr(file.parents.get(start), "body", ())
    if name is None or None in names or start not in body or last.statement not in body:
        return None, frozenset()
    between = body[body.index(start) + 1 : body.index(last.statement)]
    if any(names_in(one) & names for one in between if one not in places):
        return None, frozenset()
    code, modules = code_at(source, found, template, first)
    if code is None:
        return None, frozenset()
    new: dict[cst.CSTNode, str] = {one: "" for one in between if one in places}
    new[here.node] = code
    is_same = assigned_to(file, last) == name
    new |= {last.statement: ""} if is_same else {last.node: name}
    return new, modules


def formula_of(found: Match) -> Formula:
    """Return the operations of a match, in order."""
    ordered = tuple(
        sorted({one.index: one for one in found.operations}.values(), key=lambda o: o.index)
    )
    leaves = tuple(v for one in found.leaves.values() if (v := one.argument.value) is not None)
    return Formula(found.graph, found.operations[0].output or 0, ordered, leaves)


def is_free(call: Call, inner: Sequence[Operation], operations: Sequence[Operation]) -> bool:
    """Return whether nothing else reads what inner operations of a match give."""
    known = {one.index for one in operations}
    made = {value for one in inner for value in one.recorded.outputs}
    readers = (one for value in made for one in call.graph.readers.get(value, ()))
    return not made & {*call.graph.recording.outputs} and all(o.index in known for o in readers)


def leaf_text(source: Source, formula: Formula, leaf: Leaf, at: Operation) -> str | None:
    """Return the code of what a variable stands for."""
    value = leaf.argument.value
    known = source.graph.of(value)
    node = next((n for k, n, _ in written_arguments(source, leaf.operation) if k == leaf.key), None)
    if value is None:
        return None if node is None else source.repeated(node, leaf.operation, at)
    if known is not None and known.path:
        return source.expression(value, at)
    return leaf_code(source, formula, value, at) or module_input(source, leaf.operation, at)


def module_input(source: Source, operation: Operation, at: Operation) -> str | None:
    """Return the code of the only argument of `self.fc(x)`."""
    place = source.place(operation)
    if place is None or not isinstance(place.node, cst.Call) or len(place.node.args) != 1:
        return None
    (argument,) = place.node.args
    return None if argument.star else source.repeated(argument.value, operation, at)


def layer_match(call: Call, operation: Operation) -> tuple[str, Match] | None:
    """Return the layer that is called with one tensor, `self.norm` of `self.norm(x)`, and the
    match of its call, which need not state the layer's settings."""
    place, argument = call.source.place(operation), operation.argument(0)
    file = None if place is None else call.source.file(place.file)
    if place is None or file is None or argument is None or argument.value is None:
        return None
    node = place.node
    if operation.recorded.library_call is None or not isinstance(node, cst.Call):
        return None
    if not file.code(node.func).startswith("self.") or len(node.args) != 1:
        return None
    leaf = Leaf(argument, operation, 0)
    return file.code(node.func), Match(call.graph, (operation,), {"X": leaf}, is_layer=True)


def filled(template: str, codes: dict[str, str]) -> str:
    """Return a template with code for its variables, in brackets where they are needed."""

    class Fill(cst.CSTTransformer):
        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
            code = codes.get(original_node.value)
            return updated_node if code is None else cst.parse_expression(bracketed(code))

        def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
            value = original_node.value
            code = codes.get(value.value) if isinstance(value, cst.Name) else None
            return (
                updated_node
                if code is None
                else updated_node.with_changes(value=bare(code), keyword=original_node.keyword)
            )

    node = cst.parse_expression(template).visit(Fill())
    assert isinstance(node, cst.BaseExpression)
    return portable(node)


def rule(
    name: str, family: str, why: str, precondition: str, forms: Iterable[Form]
) -> RecordedRule:
    """Return a rule that replaces these forms."""
    find = partial(find_forms, forms=tuple(forms))
    return RecordedRule(name=name, family=family, why=why, precondition=precondition, find=find)
