"""Define rewrites of one target's text: what they read, and what they change.

A rewrite changes the text of one target and the imports that it needs, and nothing else. It keeps
the author's formatting and comments. It has a precondition, a family and the reason why it is
faster. Without a match it leaves the code alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import Names, code
from cudal1_ci.propose.target_file import find
from cudal1_ci.records import Workload


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

    @property
    def has_inference(self) -> bool:
        """Return whether a known call is for inference, or no call is known."""
        modes = [workload.mode for workload in self.workloads]
        return not modes or "infer" in modes

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
