"""Define rules over recordings, and write what they find into the program.

A rule reads operations and returns changes: expressions with the code that takes their place. What
only the old expressions read is removed. Everything else stays as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.apply import (
    described,
    imports_module,
    is_whole,
    place_of,
    with_definitions,
    with_imports,
    with_texts,
)
from cudal1_ci.propose.editing.comments import without_lines
from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.editing.unused_imports import without_unused
from cudal1_ci.propose.editing.walk import stored_names, without_dead
from cudal1_ci.propose.editing.width import within_width
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.purity import definition_of, pure_calls
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.target_file import file_of, with_file
from cudal1_ci.records import Candidate, Edit, Problem, TextProgram

TRITON = frozenset(("torch", "triton", "triton.language as tl"))
"""Imports of a file with kernels."""


@dataclass(frozen=True)
class Miss:
    """A place that a rule nearly matched, and the fact that was missing."""

    file: str
    node: cst.CSTNode
    statement: cst.CSTNode
    fact: str
    """For people: `the weights are read again at line 41`."""


@dataclass(frozen=True)
class Call:
    """One recorded call, as rules see it."""

    problem: Problem
    graph: Graph
    source: Source
    misses: list[Miss] = field(default_factory=list, compare=False)
    """What rules nearly matched, in the order in which they looked."""
    triton: bool = False
    """Whether kernels in Triton may be proposed."""

    @property
    def has_triton(self) -> bool:
        """Return whether kernels in Triton may be proposed, and the call ran on a GPU outside of
        autocast, under which the added kernels leave a call as it was."""
        if all(one.autocast is not None for one in self.problem.workloads):
            return False
        return self.triton and any(one.device == "cuda" for one in self.graph.recording.values)

    @property
    def is_inference(self) -> bool:
        """Return whether all known calls are for inference."""
        return all(one.mode == "infer" for one in self.problem.workloads)

    def is_own(self, change: Change) -> bool:
        """Return whether a change is the target's business. In a checkout a submodule that was
        called is a target of its own; functions that are no methods of modules are not."""
        file = self.source.file(change.file)
        if file is None:
            return False
        if is_whole(self.problem):
            return True
        functions = {
            one
            for node in change.new
            for one in (node, *file.above(node))
            if isinstance(one, cst.FunctionDef)
        }
        recording = self.graph.recording
        owners = {
            owner
            for operation in self.graph.operations
            if (number := operation.recorded.frame) is not None
            and recording.frames[number].file == change.file
            and definition_of(file, recording.frames[number]) in functions
            for owner in [self.source.scope(operation).get("self")]
        }
        return all(one is None or one.kind != "module" or one.text == "" for one in owners)

    def miss(self, operation: Operation, fact: str, loop: cst.CSTNode | None = None) -> None:
        """Remember that a rule nearly matched at an operation, or at the loop around it. Only for
        what matched in its core: a product with a softmax of a product, a loop of operations. Of a
        place that is changed nothing is shown. Without a fact nothing is remembered."""
        place = self.source.place(operation) if fact else None
        if place is not None:
            node, statement = loop or place.node, loop or place.statement
            self.misses.append(Miss(place.file, node, statement, fact))


@dataclass(frozen=True)
class Change:
    """New code for expressions of one file."""

    file: str
    """Path below the checkout; "" for the text of a task."""
    new: dict[cst.CSTNode, str]
    """Code by the expression or statement that it replaces; "" removes a statement. Several
    statements may replace one."""
    found: str
    """What was found, for people: `softmax(q @ k.T) @ v in Attention.forward`."""
    modules: frozenset[str] = frozenset()
    """Imports that the code needs: `torch`, or `torch.nn.functional as F`."""
    definitions: str = ""
    """Functions to add before the first definition of the file."""


@dataclass(frozen=True)
class RecordedRule:
    """Find a slower form in a recorded call, whatever its spelling."""

    name: str
    family: str
    why: str
    precondition: str
    find: Callable[[Call], Iterable[Change]]
    is_small: bool = False
    """Whether what nearly matches another rule is shown all the same where this one matches."""


def candidate_with(call: Call, found: Sequence[tuple[RecordedRule, Change]]) -> Candidate | None:
    """Return the program with these changes; None if nothing is left of them. Changes within
    others, and those of other files than the first one's, are left out."""
    if not found:
        return None
    name = found[0][1].file
    file = call.source.file(name)
    if file is None:
        return None
    chosen: list[tuple[RecordedRule, Change]] = []
    taken: set[cst.CSTNode] = set()
    for rule, change in found:
        nodes = {*change.new}
        around = {one for node in nodes for one in file.above(node)}
        inside = {one for node in taken for one in file.above(node)}
        if change.file == name and not nodes & taken and not around & taken and not nodes & inside:
            taken |= nodes
            chosen.append((rule, change))
    if not chosen:
        return None
    new = {node: code for _, change in chosen for node, code in change.new.items()}
    functions: dict[cst.FunctionDef, Unread] = {}
    for node in new:
        function = next((a for a in file.above(node) if isinstance(a, cst.FunctionDef)), None)
        if function is not None and function not in functions:
            pure = pure_calls(call.source, name, function)
            functions[function] = Unread(stored_names(function.body), pure)
    module = cst.ensure_type(file.module.visit(Write(new, functions, file.module)), cst.Module)
    needed = {one for _, change in chosen for one in change.modules}
    module = with_imports(module, sorted(n for n in needed if not imports_module(module, n)))
    definitions = "\n\n".join(dict.fromkeys(c.definitions for _, c in chosen if c.definitions))
    module = with_definitions(module, definitions) if definitions else module
    program = call.problem.reference
    if isinstance(program, TextProgram) or name == file_of(program):
        module = without_unused(file.module, module, *place_of(program))
    text = within_width(file.text, module.code, definitions)
    if text == file.text:
        return None
    edits: dict[str, Edit] = {}
    for rule, change in chosen:
        known = edits.get(rule.name)
        edits[rule.name] = Edit(
            operator=rule.name,
            technique=rule.family,
            found=(*(known.found if known else ()), change.found),
            why=rule.why,
            precondition=rule.precondition,
        )
    if isinstance(program, TextProgram):
        return described(
            call.problem, None, with_texts(program, file.text, text, {}), [*edits.values()]
        )
    changed = with_file(program, name, file.text, text)
    return described(call.problem, None, changed, [*edits.values()])


@dataclass(frozen=True)
class Unread:
    """What may be removed from a function once nothing reads it."""

    names: set[str]
    """Its local variables."""
    pure: frozenset[str]
    """Code of calls that only return a value."""


class Write(cst.CSTTransformer):
    """Replace expressions and statements by code, then remove what is no longer read."""

    def __init__(
        self,
        new: dict[cst.CSTNode, str],
        functions: dict[cst.FunctionDef, Unread],
        module: cst.Module,
    ):
        self.new, self.functions, self.module = new, functions, module
        self.classes: list[str] = []
        self.written: set[cst.CSTNode] = set()
        """New expressions: comments of removed lines go above them."""
        self.gone: set[cst.CSTNode] = set()
        self.depth = 0
        """How many of the changed functions a node is in."""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        self.depth += node in self.functions

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        self.classes.append(".".join([*self.classes[-1:], node.name.value]))

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        code = self.new.get(original_node)
        if code == "" and isinstance(updated_node, cst.SimpleStatementLine) and self.depth:
            self.gone.add(updated_node)
            return updated_node
        if code is not None:
            found = replacement(original_node, code, self.module)
            self.written |= {found} if isinstance(found, cst.BaseExpression) else set()
            return found
        if isinstance(original_node, cst.FunctionDef) and original_node in self.functions:
            function = cst.ensure_type(updated_node, cst.FunctionDef)
            names = names_of(self.module, self.classes[-1] if self.classes else "")
            unread = self.functions[original_node]
            self.depth -= 1
            names = replace(names, pure=unread.pure)
            function = without_lines(function, self.gone, self.written)
            return without_dead(function, {*unread.names}, names, self.written)
        if isinstance(original_node, cst.ClassDef):
            self.classes.pop()
        return self.with_brackets(original_node, updated_node)

    def with_brackets(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:
        """Put new expressions in brackets where the one around them binds more closely."""
        for name in HOLDS.get(type(original), ()):
            new = getattr(updated, name)
            if getattr(original, name) not in self.new or new.lpar:
                continue
            own, around = strength(new), strength(original)
            if own < around or (own == around < ATOM and (name != "left" or own == POWER)):
                closed = new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
                self.written |= {closed}
                updated = updated.with_changes(**{name: closed})
        return updated


HOLDS: Mapping[type[cst.CSTNode], tuple[str, ...]] = {
    cst.Attribute: ("value",),
    cst.Subscript: ("value",),
    cst.Call: ("func",),
    cst.UnaryOperation: ("expression",),
    cst.BinaryOperation: ("left", "right"),
    cst.Comparison: ("left",),
    cst.ComparisonTarget: ("comparator",),
}
"""Fields whose expression may need brackets."""
POWER, ATOM = 10, 11
OPERATORS: Mapping[type[cst.CSTNode], float] = {
    cst.Or: 1,
    cst.And: 2,
    cst.Not: 3,
    cst.BitOr: 5,
    cst.BitXor: 6,
    cst.BitAnd: 7,
    cst.LeftShift: 7.5,
    cst.RightShift: 7.5,
    cst.Add: 8,
    cst.Subtract: 8,
    cst.Power: POWER,
}
"""How closely operators bind; others of numbers do by 9."""


def strength(node: cst.CSTNode) -> float:
    """Return how closely what is outermost in an expression binds."""
    if isinstance(node, cst.IfExp | cst.Lambda | cst.NamedExpr | cst.Yield):
        return 0
    if isinstance(node, cst.Comparison | cst.ComparisonTarget):
        return 4
    if isinstance(node, cst.UnaryOperation):
        return OPERATORS.get(type(node.operator), 9.5)
    if isinstance(node, cst.BinaryOperation):
        return OPERATORS.get(type(node.operator), 9)
    if isinstance(node, cst.BooleanOperation):
        return OPERATORS[type(node.operator)]
    return ATOM


def replacement(node: cst.CSTNode, code: str, module: cst.Module) -> object:
    """Return what takes a node's place."""
    if isinstance(node, cst.BaseExpression):
        return cst.parse_expression(code, config=module.config_for_parsing)
    if not code:
        return cst.RemoveFromParent()
    lines = list(cst.parse_module(code, config=module.config_for_parsing).body)
    leading = getattr(node, "leading_lines", ())
    lines[0] = lines[0].with_changes(leading_lines=[*leading, *lines[0].leading_lines])
    return cst.FlattenSentinel(lines)


def shown(operation: Operation, source: Source) -> str:
    """Return an operation's expression on one line, cut to 80 characters."""
    place = source.place(operation)
    file = None if place is None else source.file(place.file)
    if place is None or file is None:
        return operation.name
    text = " ".join(file.code(place.node).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
