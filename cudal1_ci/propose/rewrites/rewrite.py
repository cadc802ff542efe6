"""Define rewrites, apply them to a target, and replace matched expressions.

A rewrite changes the text of one target and the imports that it needs, and nothing else. It keeps
the author's formatting and comments. It has a precondition, a family and the reason why it is
faster. Without a match it leaves the code alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.rewrites.comments import lost_comments, with_comments, without_lines
from cudal1_ci.propose.rewrites.layout import with_dot_of, without_parentheses_of
from cudal1_ci.propose.rewrites.patterns import (
    PRODUCTS,
    Bindings,
    fill,
    match,
    parenthesized,
    pattern,
)
from cudal1_ci.propose.rewrites.repeated_work import Line, lines_of, read_through
from cudal1_ci.propose.rewrites.steps import (
    calls_between,
    descendants,
    may_write,
    steps_between,
    writes_into_tensors,
)
from cudal1_ci.propose.rewrites.terms import Env, Names, Term, code, names_in
from cudal1_ci.propose.rewrites.walk import Occurrence, Walk, calls_in, without_dead
from cudal1_ci.propose.target_file import find
from cudal1_ci.records import Workload

NAMESPACES = {
    "torch": "torch",
    "F": "torch.nn.functional",
    "nn": "torch.nn",
    "math": "math",
}
"""Spellings of modules in templates, and their meaning."""


@dataclass(frozen=True)
class Site:
    """The place of a rewrite: one class or function of a file."""

    module: cst.Module
    qualname: str
    names: Names
    workloads: Sequence[Workload] = ()

    @property
    def definition(self) -> cst.ClassDef | cst.FunctionDef:
        found = find(self.module, self.qualname)
        if found is None:
            raise LookupError(self.qualname)
        return found

    @property
    def is_inference(self) -> bool:
        """Return whether all known calls are for inference."""
        return all(workload.mode == "infer" for workload in self.workloads)

    def methods(self) -> Sequence[cst.FunctionDef]:
        """Return functions that run when the target is called: `forward` and what it uses of self.
        If `forward` is inherited, return all but the constructor.
        """
        return methods_of(self.definition)

    def constructor(self) -> cst.FunctionDef | None:
        """Return `__init__`, if the class has its own."""
        definition = self.definition
        if isinstance(definition, cst.ClassDef):
            for item in definition.body.body:
                if isinstance(item, cst.FunctionDef) and item.name.value == "__init__":
                    return item
        return None


@functools.lru_cache(maxsize=64)
def methods_of(definition: cst.ClassDef | cst.FunctionDef) -> tuple[cst.FunctionDef, ...]:
    """Return what runs when a definition is called, in text order."""
    if isinstance(definition, cst.FunctionDef):
        return (definition,)
    own = {
        item.name.value: item
        for item in definition.body.body
        if isinstance(item, cst.FunctionDef) and item.name.value != "__init__"
    }
    if "forward" not in own:
        return tuple(own.values())
    reached = {"forward"}
    pending = ["forward"]
    while pending:
        used = attributes_of_self(own[pending.pop()]) & own.keys() - reached
        reached |= used
        pending += used
    return tuple(method for name, method in own.items() if name in reached)


def attributes_of_self(function: cst.FunctionDef) -> set[str]:
    """Return names that a method reads as `self.name`."""
    found: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_Attribute(self, node: cst.Attribute) -> None:  # noqa: N802
            if isinstance(node.value, cst.Name) and node.value.value == "self":
                found.add(node.attr.value)

    function.visit(Collect())
    return found


@dataclass(frozen=True)
class Vendored:
    """A name of the kernel library that a file needs; its module is added in the file's folder."""

    module: str
    """`cuda_graph`: a module of cudal1_ci/kernels."""
    name: str
    """`cuda_graphed`: the name that the file imports from the module."""


@dataclass(frozen=True)
class SourceEdit:
    """New functions for old ones, what was found, modules to import (`torch`, `triton.language as
    tl`), and needed definitions as text.
    """

    functions: Mapping[cst.FunctionDef, cst.FunctionDef]
    found: tuple[str, ...]
    modules: frozenset[str] = frozenset()
    definitions: str = ""
    methods: Mapping[cst.FunctionDef, tuple[cst.FunctionDef, ...]] = field(default_factory=dict)
    """Methods to add after an existing one."""
    vendored: tuple[Vendored, ...] = ()


def with_triton(edit: SourceEdit | None) -> SourceEdit | None:
    """Return the edit of a file that imports Triton, with kernels among its definitions."""
    if edit is None:
        return None
    return replace(edit, modules=edit.modules | {"triton", "triton.language as tl"})


@dataclass(frozen=True)
class Rewrite:
    """An entry of the playbook."""

    name: str
    family: str
    precondition: str
    why: str
    apply: Callable[[Site], SourceEdit | None]
    is_of_program: bool = False
    """Whether it applies once to the called program, and not to each of its classes."""


# --- replacing matched expressions --------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """A template and the values of its variables."""

    template: str
    bindings: Bindings
    definitions: tuple[str, ...] = ()
    """Functions that the template calls and the file needs, as texts; they may read `torch`."""
    uncopied: cst.CSTNode | None = None
    """Values that are now read directly instead of through a copy."""

    @property
    def is_built(self) -> bool:
        """Return whether the expression consists of nodes, not of a template; it then reads every
        binding.
        """
        return any(term.op == "written" for term in self.bindings.values())

    @property
    def is_alias(self) -> bool:
        """Return whether an existing tensor replaces a new one. Later writes are then visible, and
        autograd raises if it saved that tensor.
        """
        is_view = self.template == "X" or self.template.startswith("X.squeeze(")
        return is_view or self.uncopied is not None


Rule = Callable[[Term], Replacement | None]


def rule(
    wanted: str,
    template: str,
    where: Callable[[Bindings], bool] | None = None,
    definitions: tuple[str, ...] = (),
) -> Rule:
    """Return a rule that replaces what matches a pattern."""
    compiled = pattern(wanted)

    def applied(term: Term) -> Replacement | None:
        bound = match(compiled, term)
        if bound is None or (where is not None and not where(bound)):
            return None
        return Replacement(template, bound, definitions)

    return applied


def expressions(*rules: Rule) -> Callable[[Site], SourceEdit | None]:
    """Return a rewrite's `apply` that replaces every expression that a rule matches. It skips a
    file with another meaning for the name of a needed definition.
    """

    def apply(site: Site) -> SourceEdit | None:
        functions: dict[cst.FunctionDef, cst.FunctionDef] = {}
        gathered = Gathered()
        for method in site.methods():
            changed = replaced(method, site, rules, gathered)
            if changed is not None:
                functions[method] = changed
        definitions = "".join(gathered.definitions)
        if not functions or not may_define(site.module, definitions):
            return None
        return SourceEdit(
            functions, tuple(gathered.found), frozenset(gathered.modules), definitions
        )

    return apply


@dataclass
class Gathered:
    """Collect what the replacements of a target report and need, in order."""

    found: list[str] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    definitions: dict[str, None] = field(default_factory=dict)

    def add(self, other: Gathered) -> None:
        self.found += other.found
        self.modules |= other.modules
        self.definitions |= other.definitions


@dataclass
class Choice:
    """Matches of a function with their replacements."""

    new: dict[cst.CSTNode, cst.BaseExpression] = field(default_factory=dict)
    gone: set[cst.CSTNode] = field(default_factory=set)
    """Lines to remove with the matches."""
    covered: set[cst.CSTNode] = field(default_factory=set)
    suspects: set[str] = field(default_factory=set)
    """Names that may now be unread."""
    taken_over: dict[cst.CSTNode, set[Line]] = field(default_factory=dict)
    """Lines whose work the new expression does."""
    gathered: Gathered = field(default_factory=Gathered)


def replaced(
    method: cst.FunctionDef,
    site: Site,
    rules: Sequence[Rule],
    gathered: Gathered,
) -> cst.FunctionDef | None:
    """Return one function with all matches replaced, except those that only duplicate work; None
    without a match.
    """
    refused: set[cst.CSTNode] = set()
    while True:
        choice = choose(method, site, rules, refused)
        if not choice.new:
            return None
        changed = with_choice(method, choice, site.names)
        before, after = lines_of(method), lines_of(changed)
        again = {
            node
            for node, lines in choice.taken_over.items()
            if any(after[line] >= before[line] for line in lines)
        }
        if not again:
            gathered.add(choice.gathered)
            return changed
        refused |= again


def choose(
    method: cst.FunctionDef, site: Site, rules: Sequence[Rule], refused: Set[cst.CSTNode]
) -> Choice:
    """Return the matches of a function, outer ones before inner ones."""
    choice = Choice()
    for occurrence in occurrences_in(method, site.names):
        node = occurrence.node
        if node in choice.covered or node in refused or isinstance(node, cst.Name):
            continue
        found_here = first_match(rules, occurrence, method, site.names)
        if found_here is None:
            continue
        replacement, lines = found_here
        if replacement.is_alias and is_written_into(method, site):
            continue
        if replacement.uncopied is not None and may_change(
            replacement.uncopied, node, method, site
        ):
            continue
        is_taken = any(one in choice.new for line in lines for one in descendants(line))
        if lines & choice.gone or is_taken:
            continue
        new = fill(replacement.template, replacement.bindings)
        for term in occurrence.term.walk():
            if term.node is not None:
                choice.suspects |= names_in(term.node)
        if code(new) == code(node):
            continue
        spelled, needed = spell(new, site.names)
        choice.new[node] = keep_parentheses(node, spelled, node in standing_alone(method))
        choice.gone |= lines
        choice.taken_over[node] = read_through(occurrence.term, replacement.bindings, new)
        choice.covered |= set(descendants(node))
        choice.gathered.modules |= needed
        if replacement.definitions:
            choice.gathered.modules.add("torch")
            choice.gathered.definitions |= dict.fromkeys(replacement.definitions)
        choice.gathered.found.append(f"`{short(code(node))}` -> `{short(code(spelled))}`")
    return choice


def with_choice(method: cst.FunctionDef, choice: Choice, names: Names) -> cst.FunctionDef:
    """Return the function with new expressions in place, without unread lines."""
    changed = method.visit(Swap(choice.new, choice.gone))
    assert isinstance(changed, cst.FunctionDef)
    anchors = set(choice.new.values())
    changed = with_comments(
        changed, {new: lost_comments(old, new) for old, new in choice.new.items()}
    )
    changed = without_lines(changed, choice.gone, anchors)
    return without_dead(changed, choice.suspects, names, anchors)


def is_written_into(method: cst.FunctionDef, site: Site) -> bool:
    """Return whether tensors may change in place, by the method or by a module of its class."""
    return writes_into_tensors(method) or "inplace=True" in code(site.definition)


def may_change(
    copied: cst.CSTNode, reader: cst.CSTNode, method: cst.FunctionDef, site: Site
) -> bool:
    """Return whether a tensor may change between its copy and its use, in a function that does not
    write into tensors itself.
    """
    if copied in descendants(reader):
        return any(may_write(call, site.names) for call in calls_in(reader))
    calls = calls_between(method, copied, reader)
    return calls is None or any(may_write(call, site.names) for call in calls)


@functools.lru_cache(maxsize=64)
def occurrences_in(method: cst.FunctionDef, names: Names) -> tuple[Occurrence, ...]:
    """Read a function once for all rewrites: reading takes far longer than matching."""
    return tuple(Walk(names).occurrences(method))


def first_match(
    rules: Sequence[Rule], occurrence: Occurrence, method: cst.FunctionDef, names: Names
) -> tuple[Replacement, set[cst.CSTNode]] | None:
    """Return the first rule's replacement whose captured expressions are valid at the match, and
    the earlier lines to remove for it.
    """
    for one in rules:
        replacement = one(occurrence.term)
        if replacement is None:
            continue
        moved = moved_names(replacement, occurrence.env)
        if moved is None:
            continue
        lines: set[cst.CSTNode] = set()
        for name, node in moved.items():
            between = steps_between(method, name, node, occurrence.node, names)
            if between is None:
                break
            lines |= between
        else:
            return replacement, lines
    return None


def moved_names(replacement: Replacement, env: Env) -> dict[str, cst.BaseExpression] | None:
    """Return locals that a captured expression reads and that are assigned before the match, with
    that expression. None if a captured expression cannot be written, or reads a local at two times.
    """
    read: dict[str, tuple[int, cst.BaseExpression]] = {}
    for variable, term in replacement.bindings.items():
        is_written = re.search(rf"\b{variable}\b", replacement.template)
        if not is_written and not replacement.is_built:
            continue
        if term.node is None:
            return None
        if term.op == "written":
            continue
        for name in names_in(term.node):
            version = version_of(name, term.env or {})
            if read.setdefault(name, (version, term.node))[0] != version:
                return None
    moved = {n: node for n, (version, node) in read.items() if version != version_of(n, env)}
    return None if moved and replacement.is_built else moved


def version_of(name: str, env: Env) -> int:
    """Return which assignment a local holds; 0 is the initial value."""
    local = env.get(name)
    return local.version if local else 0


class Swap(cst.CSTTransformer):
    """Replace old nodes by new ones; some nodes are unchanged."""

    def __init__(
        self,
        chosen: Mapping[cst.CSTNode, cst.BaseExpression],
        left: Set[cst.CSTNode] = frozenset(),
    ):
        self.chosen = chosen
        self.left = left

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self.chosen and node not in self.left

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        new = self.chosen.get(original_node)
        return updated_node if new is None else new  # type: ignore[return-value]


def keep_parentheses(
    old: cst.BaseExpression, new: cst.BaseExpression, is_alone: bool
) -> cst.BaseExpression:
    """Return the expression with the author's parentheses, unless a call needs none. An operation
    gets the parentheses that its new place needs: `f(x).split(n)` is not `g(x) + b.split(n)`.
    """
    if old.lpar and not new.lpar and not isinstance(new, cst.Call | cst.Name | cst.Attribute):
        return new.with_changes(lpar=old.lpar, rpar=old.rpar)
    if old.lpar and not new.lpar:
        outdented = without_parentheses_of(old, new)
        if not is_one_line(outdented):
            return with_dot_of(old, new).with_changes(lpar=old.lpar, rpar=old.rpar)
        new = outdented
    return new if is_alone or binds_alike(old, new) else parenthesized(new)


def is_one_line(node: cst.BaseExpression) -> bool:
    """Return whether all line ends of a node are within brackets, so that it needs no
    parentheses.
    """
    try:
        cst.parse_statement(code(node))
    except cst.ParserSyntaxError:
        return False
    return True


def binds_alike(old: cst.BaseExpression, new: cst.BaseExpression) -> bool:
    """Return whether one operation may replace the other without parentheses."""
    one, other = getattr(old, "operator", None), getattr(new, "operator", None)
    are_products = isinstance(one, PRODUCTS) and isinstance(other, PRODUCTS)
    return are_products or (one is not None and (type(old), type(one)) == (type(new), type(other)))


STATEMENTS = (cst.Arg, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Expr, cst.Return, cst.Element)


@functools.lru_cache(maxsize=64)
def standing_alone(method: cst.FunctionDef) -> set[cst.CSTNode]:
    """Return expressions that are a whole argument, a whole element or all that a statement
    evaluates.
    """
    found: set[cst.CSTNode] = set()

    class Collect(cst.CSTVisitor):
        def on_visit(self, node: cst.CSTNode) -> bool:
            if isinstance(node, STATEMENTS) and node.value is not None:
                found.add(node.value)
            return True

    method.visit(Collect())
    return found


# --- spelling -----------------------------------------------------------------------------------


class Spell(cst.CSTTransformer):
    """Write module names as the file imports them."""

    def __init__(self, names: Names):
        self.names = names
        self.needed: set[str] = set()

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        head = original_node.value
        if isinstance(head, cst.Name) and head.value in NAMESPACES:
            if self.names.imports.get(head.value) == NAMESPACES[head.value]:
                return updated_node
            spelled, needed = spelling(NAMESPACES[head.value], self.names)
            self.needed |= needed
            return updated_node.with_changes(value=cst.parse_expression(spelled))
        return updated_node


def spell(node: cst.BaseExpression, names: Names) -> tuple[cst.BaseExpression, set[str]]:
    """Return a template's expression in the file's spelling, and the modules to import first."""
    speller = Spell(names)
    spelled = node.visit(speller)
    assert isinstance(spelled, cst.BaseExpression)
    return spelled, speller.needed


def spelling(dotted: str, names: Names) -> tuple[str, set[str]]:
    """Return the shortest spelling of a module's name in a file, and modules to import."""
    for local, meaning in names.imports.items():
        if meaning == dotted:
            return local, set()
    for local, meaning in names.imports.items():
        if dotted.startswith(f"{meaning}."):
            return local + dotted[len(meaning) :], set()
    top = dotted.partition(".")[0]
    return dotted, {top}


# --- files --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def names_of(module: cst.Module, qualname: str) -> Names:
    """Return the imports of a file, and what a class's constructor puts on self."""
    imports: dict[str, str] = {}
    for line in module.body:
        if isinstance(line, cst.SimpleStatementLine):
            for statement in line.body:
                imports.update(imported(statement))
    attributes: dict[str, cst.Call] = {}
    definition = find(module, qualname)
    if isinstance(definition, cst.ClassDef):
        attributes = held_by(definition)
    return Names(imports=imports, attributes=attributes)


def imported(statement: cst.BaseSmallStatement) -> dict[str, str]:
    """Return the local names of an import, with their meaning."""
    if isinstance(statement, cst.Import):
        found = {}
        for alias in statement.names:
            dotted = code(alias.name)
            if alias.asname is not None:
                found[code(alias.asname.name)] = dotted
            else:
                found[dotted.partition(".")[0]] = dotted.partition(".")[0]
        return found
    if isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar):
        if statement.module is None or statement.relative:
            return {}
        package = code(statement.module)
        return {
            code(a.asname.name if a.asname else a.name): f"{package}.{code(a.name)}"
            for a in statement.names
        }
    return {}


def held_by(definition: cst.ClassDef) -> dict[str, cst.Call]:
    """Return `self.x = Something(...)` of the constructor, for attributes that are assigned
    once.
    """
    held: dict[str, cst.Call | None] = {}

    class Collect(cst.CSTVisitor):
        def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
            for target in node.targets:
                attribute = target.target
                if isinstance(attribute, cst.Attribute) and code(attribute.value) == "self":
                    name = attribute.attr.value
                    is_first = name not in held
                    call = node.value if isinstance(node.value, cst.Call) else None
                    held[name] = call if is_first else None

    definition.visit(Collect())
    return {name: call for name, call in held.items() if call is not None}


def defined_in(module: cst.Module) -> dict[str, str]:
    """Return the classes and functions of a file, with their texts."""
    kinds = cst.ClassDef | cst.FunctionDef
    return {
        item.name.value: code(item.with_changes(leading_lines=()))
        for item in module.body
        if isinstance(item, kinds)
    }


def may_define(module: cst.Module, definitions: str) -> bool:
    """Return whether a file has nothing else under the names of these definitions."""
    there = defined_in(module)
    wanted = defined_in(cst.parse_module(definitions))
    return all(there.get(name, text) == text for name, text in wanted.items())


def short(text: str, limit: int = 90) -> str:
    """Return one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
