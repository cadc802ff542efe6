"""Find fallback code for a torch without a function; it must not call the function.

    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(q, k, v)
    else:
        y = ...                             # this

The evidence is a test of the function or of torch's version, and what is assigned or returned from
such a test (`self.flash = hasattr(...)`). A test of another attribute of self, or of a name of the
file, counts too if its other branch calls the function: the user turned the function off on
purpose.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from cudal1_ci.propose.rewrites.steps import descendants
from cudal1_ci.propose.rewrites.terms import code, is_self

VERSION = "torch.__version__"


@dataclass(frozen=True)
class Without:
    """Evaluate expressions for a torch that lacks the function."""

    function: str
    known: Mapping[str, bool]
    """Values by the text of a name, an attribute of self or a call."""
    switches: frozenset[str] = frozenset()
    """Texts with unknown values that count as tests of the function."""

    def value(self, node: cst.BaseExpression) -> bool | None:
        """Return True or False; None if it may be either."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            inner = self.value(node.expression)
            return None if inner is None else not inner
        if isinstance(node, cst.BooleanOperation):
            decides = isinstance(node.operator, cst.Or)
            values = [self.value(node.left), self.value(node.right)]
            if decides in values:
                return decides
            return None if None in values else not decides
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self.compared(node.left, node.comparisons[0])
        text = code(node)
        if isinstance(node, cst.Call) and node.args:
            name = code(node.func)
            if name == "bool":
                return self.value(node.args[0].value)
            if name in ("hasattr", "getattr"):
                return False if self.function in text else None
        if isinstance(node, cst.Name) and text in ("True", "False"):
            return text == "True"
        return self.known.get(text, False if text in self.switches else None)

    def compared(self, left: cst.BaseExpression, other: cst.ComparisonTarget) -> bool | None:
        """Evaluate `torch.__version__ >= "2.0"` or `getattr(F, "...", None) is None`."""
        if VERSION in code(left) and isinstance(
            other.operator, cst.GreaterThan | cst.GreaterThanEqual
        ):
            return False
        if VERSION in code(left) and isinstance(other.operator, cst.LessThan | cst.LessThanEqual):
            return True
        there = self.value(left) if code(other.comparator) == "None" else None
        if there is None or not isinstance(other.operator, cst.Is | cst.IsNot):
            return None
        return there if isinstance(other.operator, cst.IsNot) else not there


@functools.lru_cache(maxsize=16)
def fallbacks(module: cst.Module, function: str) -> frozenset[cst.CSTNode]:
    """Return all nodes of a file that run only if torch lacks a function, or if the function is
    turned off.
    """
    if function not in module.code:
        return frozenset()
    without = Without(function, known_without(module, function))
    of_file = names_of_file(module)
    found: set[cst.CSTNode] = set()
    for node in descendants(module):
        for one in run_without(node, without, of_file):
            found.update(descendants(one))
    while more := used_only_in(module, found):
        found |= more
    return frozenset(found)


def known_without(module: cst.Module, function: str) -> dict[str, bool]:
    """Return the values of names, attributes of self and calls of the file's functions if torch
    lacks the function. They follow from what is assigned or returned; uncertain ones are excluded.
    """
    given = list(assigned(module, function))
    known: dict[str, bool] = {}
    unclear: set[str] = set()
    while True:
        without = Without(function, known)
        values: dict[str, set[bool]] = defaultdict(set)
        for name, value in given:
            what = without.value(value)
            if what is not None and name not in unclear:
                values[name].add(what)
        more = {name for name, both in values.items() if len(both) > 1}
        new = {name: one for name, (one, *_) in values.items()}
        if more:
            unclear |= more
            new = {}
        elif new == known:
            return known
        known = new


def assigned(module: cst.Module, function: str) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield names and attributes with what they are assigned, and functions with what they return.
    An assigned `True` or `False` counts only if importing the function failed.
    """
    for node in descendants(module):
        if isinstance(node, cst.Assign | cst.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, cst.Assign) else [node]
            if not is_constant(node.value):
                yield from ((code(one.target), node.value) for one in targets)
        elif isinstance(node, cst.FunctionDef):
            for line in descendants(node.body):
                if isinstance(line, cst.Return) and line.value is not None:
                    yield f"{node.name.value}()", line.value
                    yield f"self.{node.name.value}()", line.value
        elif isinstance(node, cst.Try) and function in code(node.body):
            for line in (one for handler in node.handlers for one in descendants(handler)):
                if isinstance(line, cst.Assign) and is_constant(line.value):
                    yield from ((code(one.target), line.value) for one in line.targets)


def is_constant(node: cst.BaseExpression) -> bool:
    return code(node) in ("True", "False")


def names_of_file(module: cst.Module) -> frozenset[str]:
    """Return names that are imported, assigned or defined outside functions and classes."""
    found: set[str] = set()
    pending: list[cst.CSTNode] = [module]
    while pending:
        for child in pending.pop().children:
            if isinstance(child, cst.FunctionDef | cst.ClassDef):
                found.add(child.name.value)
            elif isinstance(child, cst.AssignTarget):
                found.add(code(child.target))
            elif isinstance(child, cst.ImportAlias):
                found.add(code(child.asname.name if child.asname else child.name))
            elif not isinstance(child, cst.BaseExpression):
                pending.append(child)
    return frozenset(found)


def run_without(
    node: cst.CSTNode, without: Without, of_file: frozenset[str]
) -> Iterator[cst.CSTNode]:
    """Yield what runs if torch lacks the function: of a branch, or of a block after a branch that
    leaves it.
    """
    if isinstance(node, cst.If | cst.IfExp):
        value = decided(node, without, of_file)
        if value is True:
            yield node.body
        elif value is False and node.orelse is not None:
            yield node.orelse
    elif isinstance(node, cst.Try) and calls(node.body, without.function):
        yield from node.handlers
    elif isinstance(node, cst.Module | cst.IndentedBlock):
        lines: Sequence[cst.CSTNode] = node.body
        for place, line in enumerate(lines):
            if isinstance(line, cst.If):
                value = decided(line, without, of_file)
                other = line.body if value is False else line.orelse if value is True else None
                if other is not None and leaves(other):
                    yield from lines[place + 1 :]


def decided(node: cst.If | cst.IfExp, without: Without, of_file: frozenset[str]) -> bool | None:
    """Return the value of a branch's test without the function; None if it tests something else."""
    value = without.value(node.test)
    if value is not None:
        return value
    switches = frozenset(switches_in(node.test, of_file))
    value = replace(without, switches=switches).value(node.test)
    other = node.body if value is False else node.orelse if value is True else None
    return value if other is not None and calls(other, without.function) else None


def switches_in(test: cst.BaseExpression, of_file: frozenset[str]) -> Iterator[str]:
    """Yield the attributes of self, names of the file and calls of its functions in a test."""
    for node in descendants(test):
        if isinstance(node, cst.Attribute) and is_self(node.value):
            yield from () if node.attr.value == "training" else (code(node),)
        elif isinstance(node, cst.Name) and node.value in of_file:
            yield node.value
        elif isinstance(node, cst.Call) and code(node.func) in of_file and not node.args:
            yield code(node)


def calls(node: cst.CSTNode, function: str) -> bool:
    """Return whether a node calls a function, whatever its module is called."""
    return any(
        isinstance(one, cst.Call) and re.search(rf"\b{function}$", code(one.func)) is not None
        for one in descendants(node)
    )


def leaves(branch: cst.CSTNode) -> bool:
    """Return whether a block ends by leaving its function."""
    suite = branch.body if isinstance(branch, cst.Else) else branch
    if not isinstance(suite, cst.BaseSuite) or not suite.body:
        return False
    last = suite.body[-1]
    lines = last.body if isinstance(last, cst.SimpleStatementLine) else [last]
    return isinstance(lines[-1], cst.Return | cst.Raise)


def used_only_in(module: cst.Module, found: set[cst.CSTNode]) -> set[cst.CSTNode]:
    """Return the nodes of functions and classes that only the found nodes use. Those that torch and
    Python call are excluded.
    """
    named: dict[str, list[cst.CSTNode]] = defaultdict(list)
    definitions: list[cst.FunctionDef | cst.ClassDef] = []
    for node in descendants(module):
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            is_called_by_others = node.name.value == "forward" or node.name.value.startswith("__")
            definitions += [] if is_called_by_others else [node]
        elif isinstance(node, cst.Name):
            named[node.value].append(node)
    more: set[cst.CSTNode] = set()
    for one in definitions:
        inside = set(descendants(one))
        others = [node for node in named[one.name.value] if node not in inside]
        if one not in found and others and all(node in found for node in others):
            more |= inside
    return more
