"""Turn the facts of all Python files into targets: Modules, tensor functions, Triton kernels.

A class is an nn.Module when one of its bases is, through any number of files, aliases and
re-exports. It is a target when it has code of its own that its callers would wait for:

- a `forward` of its own that is not abstract;
- or it inherits one from the tree and overrides a method that its ancestors call on `self`, or its
  `__init__` assembles other parts than theirs; other arguments alone are another workload;
- or it inherits one from a library (`nn.Sequential`, a timm model) and assembles its own parts, or
  overrides more than construction and bookkeeping.

Classes and functions that are made inside functions cannot be imported and are not targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cudal1_ci.discover.facts import ClassFact, FileFacts, TritonFact
from cudal1_ci.discover.imports import ModuleIndex, Symbol
from cudal1_ci.discover.torch_names import (
    CONTAINERS,
    MODULE,
    has_forward,
    is_module_class,
    may_hide_module,
)
from cudal1_ci.records import Target

_BOOKKEEPING = re.compile(
    r"__\w+__|_?reset_parameters|_?init_?\w*weights?|extra_repr|_?(?:load|save|from|get|set|freeze)_\w+"
    r"|train|eval|state_dict|load_state_dict|configure_\w+|on_\w+|\w+_dataloader|tie_weights"
)

Key = tuple[str, str]
"""Path and qualname of a class of the tree."""


@dataclass
class ClassTable:
    """Hold all classes of a tree and what their bases refer to."""

    modules: ModuleIndex
    classes: dict[Key, ClassFact]
    bases: dict[Key, tuple[Symbol, ...]] = field(default_factory=dict)
    are_modules: dict[Key, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, FileFacts], modules: ModuleIndex) -> ClassTable:
        classes = {
            (path, each.qualname): each for path, file in facts.items() for each in file.classes
        }
        table = cls(modules, classes)
        for (path, qualname), fact in classes.items():
            table.bases[path, qualname] = tuple(
                symbol for base in fact.bases for symbol in table.base(path, qualname, base)
            )
        return table

    def base(self, path: str, qualname: str, base: str) -> tuple[Symbol, ...]:
        """Return what a base refers to; a class nested in the same class precedes the module's."""
        outer = qualname.rpartition(".")[0]
        if outer and (path, f"{outer}.{base}") in self.classes:
            return (Symbol(path, f"{outer}.{base}"),)
        return tuple(
            symbol
            for symbol in self.modules.resolve_all(path, base)
            # `try: Base = fast.Base`, `except ImportError: class Base(...)`: never its own base.
            if (symbol.path, symbol.name) != (path, qualname)
        )

    def parents(self, key: Key) -> Iterator[Key]:
        """Yield the bases that are classes of the tree."""
        for symbol in self.bases.get(key, ()):
            if symbol.path is not None and (symbol.path, symbol.name) in self.classes:
                yield symbol.path, symbol.name

    def outside(self, key: Key) -> Iterator[str]:
        """Yield the dotted names of the bases that are not classes of the tree."""
        for symbol in self.bases.get(key, ()):
            if symbol.path is None:
                yield symbol.name

    def ancestors(self, key: Key) -> list[Key]:
        """Return all bases in the tree, nearest first, each once."""
        found: dict[Key, None] = {}
        pending = list(self.parents(key))
        while pending:
            parent = pending.pop(0)
            if parent not in found:
                found[parent] = None
                pending.extend(self.parents(parent))
        found.pop(key, None)
        return list(found)

    def is_module(self, key: Key) -> bool:
        """Return whether a class of the tree is an nn.Module."""
        known = self.are_modules.get(key)
        if known is not None:
            return known
        self.are_modules[key] = False  # the answer for a cycle of bases
        path, qualname = key
        fact = self.classes[key]
        place = self.modules.places.get(path)
        answer = (
            (place is not None and f"{place.module}.{qualname}" == MODULE)
            or any(is_module_class(name) for name in self.outside(key))
            or any(self.is_module(parent) for parent in self.parents(key))
            or (fact.acts_as_module and any(map(may_hide_module, self.outside(key))))
        )
        self.are_modules[key] = answer
        return answer

    def is_target(self, key: Key) -> bool:
        """Return whether a Module has code of its own to make faster (see the module)."""
        fact = self.classes[key]
        if fact.forward != "none":
            return fact.forward == "own"
        if not fact.methods:
            return not any(map(self.is_module, self.forwards_above(key)[:1])) and bool(
                self.forwards_above(key)
            )
        ancestors = self.ancestors(key)
        overridden = {name for name in fact.methods if not name.startswith("__")}
        if self.forwards_above(key):
            called = {name for each in ancestors for name in self.classes[each].calls_on_self}
            return fact.assembles or bool(overridden & called)
        libraries = [name for each in (key, *ancestors) for name in self.outside(each)]
        if not any(is_module_class(name) and has_forward(name) for name in libraries):
            return False
        own_parts = fact.assembles or (
            "__init__" in fact.methods and not CONTAINERS.isdisjoint(self.outside(key))
        )
        return own_parts or any(_BOOKKEEPING.fullmatch(name) is None for name in fact.methods)

    def forwards_above(self, key: Key) -> list[Key]:
        """Return the ancestors that define a forward."""
        return [each for each in self.ancestors(key) if self.classes[each].forward == "own"]


def module_targets(table: ClassTable) -> Iterator[Target]:
    """Yield the targets among the classes."""
    for (path, qualname), fact in table.classes.items():
        if table.is_module((path, qualname)) and table.is_target((path, qualname)):
            yield Target(
                path=path,
                qualname=qualname,
                kind="torch_module",
                first_line=fact.first_line,
                last_line=fact.last_line,
            )


def function_targets(facts: Mapping[str, FileFacts]) -> Iterator[Target]:
    """Yield the targets among the free functions."""
    for path, file in facts.items():
        for fact in file.functions:
            yield Target(
                path=path,
                qualname=fact.qualname,
                kind="torch_function",
                first_line=fact.first_line,
                last_line=fact.last_line,
            )


def triton_targets(facts: Mapping[str, FileFacts], modules: ModuleIndex) -> Iterator[Target]:
    """Yield Triton kernels with the functions that launch them.

    Device functions are left out. Other kernels call them by name or receive them at launch.
    """
    kernels = triton_functions(facts)
    launchers: dict[Key, set[str]] = {key: set() for key in kernels}
    for path, file in facts.items():
        for launch in file.launches:
            for key in triton_keys(path, launch.kernel, kernels, modules):
                launchers[key].add(f"{path}:{launch.launcher}")
    device_functions = {
        key
        for (path, _), fact in kernels.items()
        for name in fact.calls
        for key in triton_keys(path, name, kernels, modules)
        if key != (path, fact.qualname)
    }
    device_functions |= {key for keys in launched_with(facts, modules).values() for key in keys}
    for key, fact in kernels.items():
        if launchers[key] or key not in device_functions:
            yield Target(
                path=key[0],
                qualname=fact.qualname,
                kind="triton_kernel",
                first_line=fact.first_line,
                last_line=fact.last_line,
                launchers=tuple(sorted(launchers[key])),
            )


def triton_functions(facts: Mapping[str, FileFacts]) -> dict[Key, TritonFact]:
    """Return all jitted functions of a tree."""
    return {
        (path, each.qualname): each for path, file in facts.items() for each in file.triton_kernels
    }


def launched_with(facts: Mapping[str, FileFacts], modules: ModuleIndex) -> dict[Key, set[Key]]:
    """Return the jitted functions that each kernel receives at launch: `ACTIVATION=relu`."""
    functions = triton_functions(facts)
    found: dict[Key, set[Key]] = {}
    for path, file in facts.items():
        for launch in file.launches:
            handed = {
                key
                for name in launch.arguments
                for key in triton_keys(path, name, functions, modules)
            }
            for kernel in triton_keys(path, launch.kernel, functions, modules) if handed else ():
                found.setdefault(kernel, set()).update(handed - {kernel})
    return found


def triton_keys(
    path: str, name: str, kernels: Mapping[Key, TritonFact], modules: ModuleIndex
) -> Iterator[Key]:
    """Yield the kernels that a dotted name in a file refers to."""
    local = [
        key for key in kernels if key[0] == path and key[1].rpartition(".<locals>.")[2] == name
    ]
    if local:
        yield from local
        return
    for symbol in modules.resolve_all(path, name):
        if symbol.path is not None and (symbol.path, symbol.name) in kernels:
            yield symbol.path, symbol.name
