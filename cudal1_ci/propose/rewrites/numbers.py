"""Decide which expressions are certainly numbers, by the target's code and never by their names.

An attribute is what the constructor assigns to it, once: `self.scale = dim ** -0.5` is a number.
`self.scale = nn.Parameter(torch.ones(heads, 1, 1))` is a tensor with one value for all of the last
two axes. `self.scale = scale` is what the caller passed. A local is what is assigned to it, or a
size of a shape. A parameter is known by its annotation or its default. Nothing else is known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import libcst as cst

from cudal1_ci.propose.rewrites.elementwise import ARITHMETIC, SIZES
from cudal1_ci.propose.rewrites.nodes import in_order
from cudal1_ci.propose.rewrites.rewrite import Site, occurrences_in
from cudal1_ci.propose.rewrites.scales import number
from cudal1_ci.propose.rewrites.steps import descendants
from cudal1_ci.propose.rewrites.terms import Names, Reader, Term, code, is_self
from cudal1_ci.propose.rewrites.walk import stored_names

Kind = Literal["number", "given", "tensor"]
"""The kinds are: a Python number; a constructor argument as it came, usually a number; a tensor
of one value for all of its last two axes."""

ELEMENTWISE = ("sqrt", "rsqrt", "exp", "abs", "clamp", "reciprocal", "float", "to", "type_as")
CREATORS = ("ones", "zeros", "empty", "rand", "randn", "full")
CONVERSIONS = ("float", "int", "len", "round")
Kinds = Mapping[str, Kind | None]


@dataclass(frozen=True)
class Numbers:
    """What attributes of self and names hold; None or absent if unknown."""

    reader: Reader
    attributes: Kinds = field(default_factory=dict)
    names: Kinds = field(default_factory=dict)

    def kind(self, term: Term) -> Kind | None:
        """Return what a term is; None if it may be a tensor of any shape, or not a number."""
        if number(term) is not None or term.op in ("msqrt", "mlog", "mexp", *SIZES):
            return "number"
        if term.op == "name":
            return self.names.get(term.value[0])
        if term.op == "attr":
            (base,) = term.args
            if base.op == "name" and base.value[0] == "self":
                return self.attributes.get(term.value)
            return "given" if self.kind(base) == "given" else None
        if term.op in ARITHMETIC:
            return joined([self.kind(one) for one in term.args], "number")
        if term.op in ELEMENTWISE and term.args:
            return "tensor" if self.kind(term.args[0]) == "tensor" else None
        if term.op == "call":
            return self.called(term)
        if term.op == "tensor" and len(term.args) == 1:
            return "tensor" if self.kind(term.args[0]) in ("number", "given") else None
        if term.op in CREATORS and term.args:
            return "tensor" if is_of_one(term) else None
        return self.opaque(term)

    def called(self, term: Term) -> Kind | None:
        """Return the kind of `math.pow(d, 0.5)`, `float(d)`, `max(d, 1)`,
        `nn.Parameter(torch.ones(()))`.
        """
        name = str(term.value[0])
        if name.startswith("math.") or name in CONVERSIONS:
            return "number"
        if name in ("min", "max", "abs"):
            return joined([self.kind(one) for one in term.args], "number")
        is_parameter = name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
        if is_parameter and term.args and self.kind(term.args[0]) == "tensor":
            return "tensor"
        return None

    def opaque(self, term: Term) -> Kind | None:
        """Return the kind of `x.shape[-1]`, `scale or dim ** -0.5`, `dim ** -0.5 if scale is None
        else scale`.
        """
        node = term.node
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
            is_one = len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index)
            return "number" if is_one and node.value.attr.value == "shape" else None
        if isinstance(node, cst.BooleanOperation):
            pair = (node.left, node.right)
        elif isinstance(node, cst.IfExp):
            pair = (node.body, node.orelse)
        else:
            return None
        # The numeric one says what the other was passed as.
        kinds = [self.kind(self.reader.term(one, term.env or {})) for one in pair]
        return joined(kinds, "number" if "number" in kinds else "given")


def joined(kinds: list[Kind | None], otherwise: Kind) -> Kind | None:
    """Return the common kind of several: a tensor if one is a tensor, unknown if one is unknown."""
    if None in kinds or not kinds:
        return None
    return "tensor" if "tensor" in kinds else otherwise


def is_of_one(term: Term) -> bool:
    """Return whether a new tensor has no axes, or size 1 for its last two axes (or its only
    one).
    """
    first = term.args[0]
    if term.op == "full" and first.op != "tuple":
        return False
    sizes = first.args if first.op == "tuple" else term.args
    return all(number(one) == 1 for one in sizes[-2:])


def numbers_of(site: Site) -> Numbers:
    """Return what is known of the names and attributes that a target reads."""
    names = {**constants(site.module), **locals_of(site)}
    return Numbers(Reader(site.names), attributes_of(site), names)


def attributes_of(site: Site) -> dict[str, Kind | None]:
    """Return the kind of each attribute that the class assigns only in its body or constructor."""
    definition, constructor = site.definition, site.constructor()
    if not isinstance(definition, cst.ClassDef):
        return {}
    values = dict(read_in(constructor, site.names)) if constructor else {}
    given = Numbers(Reader(site.names), names=parameters(constructor, "given"))
    kinds: dict[str, list[Kind | None]] = defaultdict(list)
    known: dict[str, Kind | None] = {}
    for name, value in assigned_to_self(definition):
        # In text order: an attribute may depend on earlier ones.
        term = values.get(value) if value is not None else None
        kinds[name].append(None if term is None else given_with(given, known).kind(term))
        known[name] = joined(kinds[name], "number" if "number" in kinds[name] else "given")
    for name, value in assigned_in_body(definition):
        kind = given.kind(given.reader.term(value, {}))
        known[name] = kind if name not in known else joined([kind, known[name]], "number")
    return known


def given_with(numbers: Numbers, attributes: Kinds) -> Numbers:
    return Numbers(numbers.reader, attributes, numbers.names)


def read_in(method: cst.FunctionDef, names: Names) -> Iterator[tuple[cst.BaseExpression, Term]]:
    """Yield expressions of a method with their terms."""
    for one in occurrences_in(method, names):
        yield one.node, one.term


def assigned_to_self(
    definition: cst.ClassDef,
) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """Yield attributes of self with what a class assigns to them; None for an unpacking, a loop or
    `+=`.
    """
    methods = [one for one in definition.body.body if isinstance(one, cst.FunctionDef)]
    for node in (node for method in methods for node in in_order(method)):
        if isinstance(node, cst.Assign):
            targets, value = [one.target for one in node.targets], node.value
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, cst.AugAssign | cst.For):
            targets, value = [node.target], None
        else:
            continue
        for target in targets:
            if isinstance(target, cst.Attribute):
                if is_self(target.value):
                    yield target.attr.value, value
            else:
                for one in descendants(target):
                    if isinstance(one, cst.Attribute) and is_self(one.value):
                        yield one.attr.value, None


def assigned_in_body(
    definition: cst.ClassDef | cst.Module,
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield assignments like `scale = 0.5` in a class or a file."""
    body = definition.body.body if isinstance(definition, cst.ClassDef) else definition.body
    for line in body:
        for one in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(one, cst.Assign) and len(one.targets) == 1:
                target, value = one.targets[0].target, one.value
            elif isinstance(one, cst.AnnAssign) and one.value is not None:
                target, value = one.target, one.value
            else:
                continue
            if isinstance(target, cst.Name):
                yield target.value, value


def constants(module: cst.Module) -> dict[str, Kind | None]:
    """Return names that a file assigns a literal number, once."""
    found: dict[str, Kind | None] = {}
    reader = Reader(Names(imports={}, attributes={}))
    for name, value in assigned_in_body(module):
        is_number = number(reader.term(value, {})) is not None
        found[name] = "number" if is_number and name not in found else None
    return found


def locals_of(site: Site) -> dict[str, Kind | None]:
    """Return names that are sizes or numbers in every method that has them. Names that a method
    also assigns otherwise are excluded; the reader knows such a name at its place.
    """
    found: dict[str, Kind | None] = {}
    for method in site.methods():
        here = parameters(method, None)
        for node in descendants(method):
            if isinstance(node, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.For):
                kind: Kind | None = "number" if is_size(node) else None
                here |= {
                    name: joined([kind, here.get(name, kind)], "number")
                    for name in stored_names_of(node)
                }
        found |= {
            name: joined([kind, found.get(name, kind)], "number") for name, kind in here.items()
        }
    return found


def stored_names_of(node: cst.CSTNode) -> set[str]:
    """Return names that one statement assigns itself, without the statements of a loop's body."""
    if isinstance(node, cst.For):
        node = node.with_changes(body=cst.SimpleStatementSuite(body=[cst.Pass()]))
    return stored_names(node)


def is_size(node: cst.CSTNode) -> bool:
    """Return whether a node is `B, H, T, D = q.shape`, `B, T, D = q.size()`, `T = q.shape[1]` or `T
    = q.size(1)`.
    """
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return False
    one = r"\.(shape\[-?\d+\]|size\(-?\d+\))"
    several = r"\.(shape|size\(\))"
    form = several if isinstance(node.targets[0].target, cst.Tuple) else one
    return re.fullmatch(rf"[\w.]+{form}", code(node.value)) is not None


def parameters(method: cst.FunctionDef | None, otherwise: Kind | None) -> dict[str, Kind | None]:
    """Return the kind of each parameter: a number by its annotation or its default, or
    `otherwise`.
    """
    found: dict[str, Kind | None] = {}
    if method is None:
        return found
    all_of_them = method.params
    for one in (*all_of_them.posonly_params, *all_of_them.params, *all_of_them.kwonly_params):
        annotation = code(one.annotation.annotation) if one.annotation else ""
        has_number = isinstance(one.default, cst.Integer | cst.Float)
        is_number = annotation.strip("'\"") in ("int", "float") or (has_number and not annotation)
        found[one.name.value] = "number" if is_number else otherwise
    found.pop("self", None)
    return found
