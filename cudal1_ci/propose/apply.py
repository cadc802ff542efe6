"""Apply rewrites to a program and describe the candidate by what was applied.

    candidate = apply(problem, None, [SDPA, COMPILE])      # None where nothing changed

Each rewrite sees the result of the one before. The candidate's name, techniques, analysis and
design come from the edits that were made, so the candidate cannot claim any other edit. This module
knows how a file is put together, but not when a rewrite matches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import libcst as cst
import msgspec

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.propose.editing.rewrite import (
    Rewrite,
    Site,
    SourceEdit,
    defined_in,
    names_of,
)
from cudal1_ci.propose.editing.terms import code
from cudal1_ci.propose.editing.unused_imports import Line, without_unused
from cudal1_ci.propose.editing.width import within_width
from cudal1_ci.propose.target_file import file_of, file_text, find, locate, parsed, with_file
from cudal1_ci.records import (
    Candidate,
    Edit,
    Evaluation,
    Exemplar,
    Made,
    OverlayFile,
    Problem,
    Program,
    TextProgram,
)
from cudal1_ci.stats import speedups

PREFIX = "playbook:"
"""Prefix of the operators in the name of a candidate without a model."""
LIBRARY = Path(__file__).parents[1] / "kernels"


def apply(
    problem: Problem, base: Candidate | None, rewrites: Iterable[Rewrite]
) -> Candidate | None:
    """Apply rewrites to the reference, or to the program of another candidate.

    Returns:
        The candidate with the edits that were made, those of `base` first; None where no rewrite
        changed anything.
    """
    program = problem.reference if base is None else base.program
    located = locate(program)
    if located is None:
        return None
    text, qualname = located
    module = original = parsed(text)
    if module is None or original is None:
        return None
    edits: list[Edit] = []
    vendored: dict[str, list[str]] = {}
    definitions = ""
    for one in rewrites:
        found: list[str] = []
        for name in [qualname] if one.is_of_program else parts(problem, module, qualname):
            if find(module, name) is None:
                return None
            site = Site(module, name, names_of(module, name), problem.workloads)
            change = one.apply(site)
            if change is None:
                continue
            module = changed(module, change)
            definitions += change.definitions
            for item in change.vendored:
                names = vendored.setdefault(item.module, [])
                names += [item.name] if item.name not in names else []
            found += change.found
        if found:
            edits.append(
                Edit(
                    operator=one.name,
                    technique=one.family,
                    found=tuple(found),
                    why=one.why,
                    precondition=one.precondition,
                )
            )
    if not edits or module.code == text:
        return None
    folder = folder_of(program)
    added: dict[str, str] = {}
    for library, names in vendored.items():
        if folder is None:
            module = with_library(module, library)
            definitions += library_text(library)
            continue
        path = (folder / f"{library}.py").as_posix()
        if not isinstance(program, TextProgram):
            there = file_text(program, path)
            if there is not None and there != library_text(library):
                return None  # a file of the project's own has that name
            if there is None:
                added[path] = library_text(library)
        module = with_import(module, import_of(program, module, library, names))
    module = without_unused(original, module, *place_of(program))
    new = within_width(text, module.code, definitions)
    return described(problem, base, with_texts(program, text, new, added), edits)


def described(
    problem: Problem, base: Candidate | None, program: Program, edits: Sequence[Edit]
) -> Candidate:
    """Return the candidate of a program to which these edits were applied."""
    every = (*(base.edits if base else ()), *edits)
    operators = "+".join(one.operator for one in edits)
    if base is not None and not (base.edits and base.generation is None):
        return msgspec.structs.replace(
            base,
            program=program,
            edits=every,
            proposer=f"{base.proposer}+{operators}",
            techniques=tuple(dict.fromkeys((*base.techniques, *(e.technique for e in edits)))),
            exemplar_ids=(*base.exemplar_ids, base.id),
        )
    why = "\n".join(dict.fromkeys(f"- {one.why}" for one in every))
    listed = "\n".join(f"- {one.operator}: {line}" for one in every for line in one.found)
    return Candidate(
        problem_id=problem.id,
        program=program,
        proposer=PREFIX + "+".join(one.operator for one in every),
        analysis=f"{why}\n\nFound:\n{listed}",
        design="\n".join(f"- {one.operator}: {one.precondition}" for one in every),
        techniques=tuple(dict.fromkeys(one.technique for one in every)),
        edits=every,
    )


def operators_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the names of what was applied to the reference; empty if a model wrote it."""
    return () if candidate.generation else tuple(one.operator for one in candidate.edits)


def exemplars_of(evaluations: Sequence[Evaluation]) -> list[Exemplar]:
    """Return the candidates that passed with their scores, best first."""
    scored = [
        Exemplar(candidate=one.candidate, score=speedups.score(one))
        for one in evaluations
        if one.verdict.status == "passed"
    ]
    return sorted(scored, key=lambda one: -one.score)


def unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the first of the candidates with the same program."""
    return list({candidate.id: candidate for candidate in reversed(list(candidates))}.values())[
        ::-1
    ]


def is_whole(problem: Problem) -> bool:
    """Return whether a target's submodules are no targets of their own: in a task, and in a
    KernelBench-form file."""
    is_task = isinstance(problem.reference, TextProgram) and problem.target is None
    return is_task or any(
        isinstance(one.call, Made) and one.call.function.startswith("get_inputs")
        for one in problem.workloads
    )


def parts(problem: Problem, module: cst.Module, qualname: str) -> list[str]:
    """Return the definitions that a rewrite may change: the target, and in a KernelBench-form
    file the program's other modules. In a checkout each definition is its own target.
    """
    if not is_whole(problem):
        return [qualname]
    others = [
        item.name.value
        for item in module.body
        if isinstance(item, cst.ClassDef) and any("Module" in code(base) for base in item.bases)
    ]
    return list(dict.fromkeys([qualname, *others]))


# --- programs -----------------------------------------------------------------------------------


def with_texts(program: Program, original: str, text: str, added: dict[str, str]) -> Program:
    """Return the program with another text of its file, and with new files in the same folder."""
    if isinstance(program, TextProgram):
        return msgspec.structs.replace(program, source=text)
    path = file_of(program)
    assert path is not None, "its text was read"
    base = file_text(msgspec.structs.replace(program, overlay=()), path)
    changed_program = with_file(program, path, original if base is None else base, text)
    files = tuple(OverlayFile(path=one, text=new) for one, new in added.items())
    return msgspec.structs.replace(changed_program, overlay=(*changed_program.overlay, *files))


def folder_of(program: Program) -> PurePosixPath | None:
    """Return the folder of the target's file below the checkout; None for a text."""
    path = None if isinstance(program, TextProgram) else file_of(program)
    return None if path is None else PurePosixPath(path).parent


def place_of(program: Program) -> tuple[Path, Path] | tuple[None, None]:
    """Return the target's file and its checkout; None for a text."""
    path = None if isinstance(program, TextProgram) else file_of(program)
    if path is None or isinstance(program, TextProgram):
        return None, None
    return Path(program.root) / path, Path(program.root)


# --- the kernel library -------------------------------------------------------------------------


@functools.cache
def library_text(name: str) -> str:
    """Return the text of a module of the kernel library.

    Raises:
        CudaL1Error: The package was installed without it.
    """
    try:
        return (LIBRARY / f"{name}.py").read_text(encoding="utf-8")
    except OSError as error:
        raise CudaL1Error(f"{LIBRARY / name}.py: {error.strerror}; reinstall cudal1-ci") from error


def import_of(program: Program, module: cst.Module, library: str, names: Sequence[str]) -> str:
    """Return the import of vendored names in the style of the user's file: relative if the file
    imports its neighbors so, else from its package.
    """
    assert not isinstance(program, TextProgram)
    dotted = program.import_path.partition(":")[0]
    path = file_of(program)
    assert path is not None
    package = dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0]
    is_relative = any(
        isinstance(part, cst.ImportFrom) and part.relative
        for line in module.body
        if isinstance(line, cst.SimpleStatementLine)
        for part in line.body
    )
    if is_relative and package:
        return f"from .{library} import {', '.join(names)}"
    return f"from {package + '.' if package else ''}{library} import {', '.join(names)}"


def with_library(module: cst.Module, name: str) -> cst.Module:
    """Return a KernelBench-form file with a module of the kernel library in it."""
    imports, rest = library_statements(name)
    for statement in imports:
        module = with_import(module, statement)
    there = defined_in(module)
    rest = [one for one in rest if getattr(getattr(one, "name", None), "value", "") not in there]
    return inserted(module, rest)


@functools.lru_cache(maxsize=16)
def library_statements(name: str) -> tuple[list[str], list[Line]]:
    """Return the imports of a module of the kernel library, and what follows them."""
    lines = cst.parse_module(library_text(name)).body
    imports = [code(line).strip() for line in lines if is_plain_import(line)]
    rest = [
        line
        for line in lines
        if not is_plain_import(line) and not is_docstring(line) and "__future__" not in code(line)
    ]
    return imports, rest


# --- files --------------------------------------------------------------------------------------


class Replace(cst.CSTTransformer):
    """Swap functions of one definition."""

    def __init__(self, change: SourceEdit):
        self.change = change

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        new = self.change.functions.get(original_node, updated_node)
        added = self.change.methods.get(original_node, ())
        return cst.FlattenSentinel([new, *added]) if added else new


def changed(module: cst.Module, change: SourceEdit) -> cst.Module:
    """Return the file with the new functions, and with the imports and definitions they need."""
    new = module.visit(Replace(change))
    missing = sorted(m for m in change.modules if not imports_module(new, m))
    return with_definitions(with_imports(new, missing), change.definitions)


def imports_module(module: cst.Module, wanted: str) -> bool:
    """Return whether a file has `torch`, or `triton.language as tl`, under that name."""
    dotted, _, name = wanted.partition(" as ")
    return names_of(module, "").imports.get(name or dotted) == dotted


def with_imports(module: cst.Module, missing: Sequence[str]) -> cst.Module:
    """Return the file with `import x` lines before its first import or definition."""
    if not missing:
        return module
    lines = [
        cst.ensure_type(cst.parse_statement(f"import {name}"), cst.SimpleStatementLine)
        for name in missing
    ]
    body = list(module.body)
    place = next((i for i, line in enumerate(body) if is_plain_import(line)), None)
    if place is None:
        place = 1 if body and is_docstring(body[0]) else 0
        while place < len(body) and code(body[place]).strip().startswith("from __future__"):
            place += 1
    first = body[place] if place < len(body) else None
    if first is not None and isinstance(first, cst.SimpleStatementLine):
        lines[0] = lines[0].with_changes(leading_lines=first.leading_lines)
        body[place] = first.with_changes(leading_lines=[])
    return module.with_changes(body=[*body[:place], *lines, *body[place:]])


def with_import(module: cst.Module, statement: str) -> cst.Module:
    """Return the file with an import after its last one, unless it has it."""
    if any(is_plain_import(line) and code(line).strip() == statement for line in module.body):
        return module
    body = list(module.body)
    places = [i for i, line in enumerate(body) if is_plain_import(line)]
    if not places:
        return (
            with_imports(module, [statement.removeprefix("import ")])
            if (statement.startswith("import "))
            else module.with_changes(body=[cst.parse_statement(statement), *body])
        )
    line = cst.parse_statement(statement)
    return module.with_changes(body=[*body[: places[-1] + 1], line, *body[places[-1] + 1 :]])


def with_definitions(module: cst.Module, text: str) -> cst.Module:
    """Return the file with definitions before its first one, except those that it has."""
    there = defined_in(module)
    new = cst.parse_module(text, config=module.config_for_parsing)
    made = [
        one for one in new.body if getattr(getattr(one, "name", None), "value", "") not in there
    ]
    return inserted(module, made)


def inserted(module: cst.Module, made: Sequence[Line]) -> cst.Module:
    """Return the file with statements before its first definition, two empty lines apart."""
    if not made:
        return module
    kinds = cst.ClassDef | cst.FunctionDef
    body = list(module.body)
    place = next((i for i, line in enumerate(body) if isinstance(line, kinds)), None)
    if place is None:  # they are under an `if`
        return module.with_changes(body=[*body, *made])
    apart = [cst.EmptyLine(indent=False)] * 2
    added = [made[0].with_changes(leading_lines=apart), *made[1:]]
    following = body[place]
    assert isinstance(following, kinds)
    lines = [line for line in following.leading_lines if line.comment is not None]
    body[place] = following.with_changes(leading_lines=[*apart, *lines])
    return module.with_changes(body=[*body[:place], *added, *body[place:]])


def is_plain_import(line: cst.CSTNode) -> bool:
    """Return whether a statement imports something other than from `__future__`."""
    if not isinstance(line, cst.SimpleStatementLine):
        return False
    text = code(line).strip()
    return text.startswith(("import ", "from ")) and not text.startswith("from __future__")


def is_docstring(line: cst.CSTNode) -> bool:
    """Return whether a statement is a string by itself."""
    return (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Expr)
        and isinstance(line.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )
