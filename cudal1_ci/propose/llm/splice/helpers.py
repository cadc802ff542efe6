"""Collect what a definition of an answer needs: functions, classes, kernels, constants.

Only what the definition reaches is included; an answer's demonstrations, tests and settings are
left out. If the file has a name for the same thing, the file's is used. If the file uses the name
for something else, the answer's is renamed, or the answer is refused.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.imports import OBVIOUS, Import, imports_in, obvious
from cudal1_ci.propose.llm.splice.names import (
    BUILTINS,
    binds,
    bound_names,
    code_of,
    dump,
    free_name,
    renamed,
    uses,
)
from cudal1_ci.propose.target_file import find

ALWAYS_LOADED = frozenset({"torch.nn", "torch.nn.functional", "torch.cuda", "torch.autograd"})
"""Submodules that `import torch` loads."""


@dataclass(frozen=True)
class Additions:
    """What is put into a file in addition to the definitions."""

    answer: cst.Module
    """The answer, with clashing names renamed."""
    statements: tuple[cst.BaseStatement, ...]
    imports: tuple[Import, ...]


@dataclass(frozen=True)
class FileNames:
    """Describe the names of a file."""

    names: frozenset[str]
    """Names bound at run time or for type checkers."""
    at_run_time: frozenset[str]
    imports: Mapping[str, str]
    """The meaning of names imported at run time."""
    imports_of_types: Mapping[str, str]
    """The meaning of names that only type checkers see."""
    submodules: frozenset[str]
    dumps: frozenset[str] = field(default_factory=frozenset)
    """The file's statements, to detect those that an answer repeats."""


@functools.lru_cache(maxsize=4)
def known_of(file: cst.Module) -> FileNames:
    body = ast.parse(file.code).body
    imports = list(imports_in(body))
    return FileNames(
        names=frozenset(bound_names(body)),
        at_run_time=frozenset(bound_names(body, type_checking=False)),
        imports={one.local: one.meaning for one in imports},
        imports_of_types={o.local: o.meaning for o in imports_in(body, type_checking=True)},
        submodules=frozenset(one.line for one in imports if one.is_submodule),
        dumps=frozenset(dump(item) for item in file.body),
    )


def packed(answer: cst.Module, file: cst.Module, entries: Collection[str]) -> Additions | Unusable:
    """Return all that the definitions `entries` of an answer need and the file does not have."""
    known = known_of(file)
    problem = star_import(answer)
    if problem is not None:
        return problem
    while True:
        needed = reached(answer, entries)
        clash = next(clashes(needed, known, entries), None)
        if clash is None:
            break
        changed = renamed(answer, clash, unused_name(clash, answer, known))
        if changed is None:
            return Unusable(
                kind="name_clash",
                message=f"`{clash}` of the answer is another thing in the file, and it is the name "
                "of a local too. Give it a name that the file does not have.",
            )
        answer = changed
    mixed = [item for item in needed if is_compound(item) and binds(item) & set(entries)]
    if mixed:
        names = ", ".join(sorted(binds(mixed[0]) - set(entries)))
        return Unusable(
            kind="unsupported",
            message=f"`{names}` and what is to be replaced stand behind one condition. Define "
            "them at the top level of the code.",
        )
    statements = [
        item
        for item in needed
        if not is_import(item) and dump(item) not in known.dumps and not is_known(item, known)
    ]
    definitions = [item for name in entries if (item := find(answer, name)) is not None]
    imports = missing_imports(answer, known, [*statements, *definitions])
    return Additions(answer, tuple(statements), tuple(imports))


def star_import(answer: cst.Module) -> Unusable | None:
    for one in imports_in(ast.parse(answer.code).body):
        if one.local == "*":
            return Unusable(
                kind="imports", message=f"`{one.line}` hides what is used. Import names one by one."
            )
    return None


# --- what is reached ----------------------------------------------------------------------------


def reached(answer: cst.Module, entries: Collection[str]) -> list[cst.BaseStatement]:
    """Return the statements of an answer that its entries need, in order, without the entries."""
    definitions = [found for name in entries if (found := find(answer, name)) is not None]
    others = [item for item in answer.body if item not in definitions]
    wanted = {name for definition in definitions for name in uses(definition)}
    chosen: set[cst.CSTNode] = set()
    has_grown = True
    while has_grown:
        has_grown = False
        held = {name for item in chosen if not is_import(item) for name in binds(item)}
        for item in others:
            if item in chosen:
                continue
            if (binds(item) - set(entries)) & wanted or touches(item) & (held | set(entries)):
                chosen.add(item)
                wanted |= uses(item)
                has_grown = True
    return [item for item in others if item in chosen]


def touches(item: cst.CSTNode) -> set[str]:
    """Return names whose values a statement changes: `table[0] = 1`, `ops.register(f)`,
    `@op.register`.
    """
    (statement, *_) = ast.parse(code_of(item)).body
    match statement:
        case ast.Assign(targets=targets):
            changed: list[ast.expr] = [t for t in targets if not isinstance(t, ast.Name)]
        case ast.AugAssign(target=target):
            changed = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            changed = [called]
        case ast.FunctionDef(decorator_list=decorators):
            changed = [d.func if isinstance(d, ast.Call) else d for d in decorators]
            changed = [d for d in changed if isinstance(d, ast.Attribute)]
        case _:
            changed = []
    return {root for expression in changed if (root := root_name(expression)) is not None}


def root_name(expression: ast.expr) -> str | None:
    while isinstance(expression, ast.Attribute | ast.Subscript | ast.Call):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def is_import(item: cst.CSTNode) -> bool:
    return isinstance(item, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Import | cst.ImportFrom) for small in item.body
    )


def is_compound(item: cst.CSTNode) -> bool:
    return isinstance(item, cst.BaseCompoundStatement) and not isinstance(
        item, cst.ClassDef | cst.FunctionDef
    )


# --- names that clash ---------------------------------------------------------------------------


def clashes(
    needed: Sequence[cst.BaseStatement], known: FileNames, entries: Collection[str]
) -> Iterator[str]:
    """Yield names of an answer that mean something else in the file."""
    for item in needed:
        if dump(item) in known.dumps:
            continue
        meanings = {one.local: one.meaning for one in imports_in(ast.parse(code_of(item)).body)}
        for name in sorted(binds(item) - set(entries)):
            here = known.imports.get(name, known.imports_of_types.get(name))
            if name in meanings and (here == meanings[name] or name not in known.names):
                continue
            if name in known.names or name in BUILTINS:
                yield name


def unused_name(name: str, answer: cst.Module, known: FileNames) -> str:
    """Return a new name for a name that clashes: the file's name of the same module, or a free
    name.
    """
    body = ast.parse(answer.code).body
    meaning = next((one.meaning for one in imports_in(body) if one.local == name), None)
    taken = {*known.names, *bound_names(body), *BUILTINS}
    for local, theirs in known.imports.items():
        if theirs == meaning and local not in bound_names(body):
            return local
    last = meaning.rpartition(".")[2] if meaning is not None else name
    return free_name(name, taken) if last in taken else last


def is_known(item: cst.CSTNode, known: FileNames) -> bool:
    """Return whether a statement only imports, conditionally, what the file has imported."""
    meanings = {one.local: one.meaning for one in imports_in(ast.parse(code_of(item)).body)}
    return bool(meanings) and all(known.imports.get(n) == meanings.get(n, "") for n in binds(item))


def missing_imports(
    answer: cst.Module, known: FileNames, needing: Sequence[cst.CSTNode]
) -> Iterator[Import]:
    """Yield the answer's imports, and obvious forgotten ones, that code needs in this file."""
    used = {name for item in needing for name in uses(item)}
    text = "\n".join(code_of(item) for item in needing)
    lines = [item for item in answer.body if is_import(item)]
    offered = [one for item in lines for one in imports_in(ast.parse(code_of(item)).body)]
    bound = {name for item in answer.body for name in binds(item)}
    for one in dict.fromkeys(offered):
        if one.local not in used:
            continue
        if one.is_submodule:
            dotted = one.line.removeprefix("import ")
            if dotted in ALWAYS_LOADED or dotted not in text:
                one = obvious_top(one)
            elif one.line in known.submodules:
                continue
        if one.is_submodule or known.imports.get(one.local) != one.meaning:
            yield one
    for name in OBVIOUS:
        if name in used and name not in bound and name not in known.at_run_time:
            yield obvious(name)


def obvious_top(one: Import) -> Import:
    """Return `import a` for `import a.b` if code uses only `a`."""
    return Import(one.local, one.meaning, f"import {one.local}")
