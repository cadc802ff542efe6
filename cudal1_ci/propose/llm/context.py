"""Collect the context of a reference: what a model must see to rewrite one definition.

This module reads text and imports nothing. A text program is its source. For a tree program the
context is the top-level definition that holds the target, and what that definition uses. These are
imports, constants, base classes and helpers of its file, and small definitions of other files. For
a kernel the context also has the kernel, its CUDA file if any, and its launchers with grid and
block sizes. Names are followed by their spelling, not through `getattr`, a registry or `import *`.

    for part in context_of(problem):
        print(part.priority, part.title)

A budget drops whole parts, those with the highest priority number first, and never `ESSENTIAL`
ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.errors import PromptError
from cudal1_ci.propose.llm.modules import Unit, module_path, text_of, units_of
from cudal1_ci.propose.llm.quoting import named
from cudal1_ci.propose.target_file import locate, parsed
from cudal1_ci.records import Problem, Record, Target, TextProgram, TreeProgram

ESSENTIAL = 0
BASE = 1
CONSTANTS = 2
HELPER = 3
FAR_HELPER = 4
"""Priority of a helper's helper."""
OTHER_FILE = 5

MAX_FILE_CHARS = 24_000
"""The most that the target's file adds to the target: twice the longest module to rewrite."""
MAX_LENT_CHARS = 3_000
"""The most characters of a definition from another file; a longer one is a module of its own."""
MAX_LENT = 8
MAX_LAUNCHERS = 3
"""The most launchers of a kernel: they show how it is called, and one nearly suffices."""
MAX_HOPS = 4
"""The most files through which a re-export is followed."""


class Part(Record, frozen=True, kw_only=True):
    """A part of the reference's context, shown whole or not at all."""

    title: str
    """Markdown in one line, safe to show."""
    text: str
    priority: int
    """`ESSENTIAL` is always shown; the highest number is dropped first."""
    language: Literal["python", "cuda"] = "python"


def context_of(problem: Problem) -> tuple[Part, ...]:
    """Return what to show of a problem's reference, the most important part first.

    Raises:
        PromptError: The reference's text is not in the checkout, or is no Python.
    """
    program = problem.reference
    if isinstance(program, TextProgram):
        title = f"The reference, {named(program.entry)}"
        return (Part(title=title, text=program.source, priority=ESSENTIAL),)
    path, text, qualname = _located(problem, program)
    units = _units(text, path)
    head = qualname.partition(".")[0]
    core = [unit for unit in units if head in unit.names and unit.kind == "definition"]
    if not core:
        raise PromptError(
            f"{path}: expected a definition of {qualname} at module level, found none"
        )
    parts = [
        Part(
            title=f"The reference, {named(qualname)} of {named(path)}",
            text="\n\n\n".join(unit.text for unit in core),
            priority=ESSENTIAL,
        )
    ]
    kernel = _kernel(problem, program, path, units)
    core += kernel.units
    parts += kernel.parts
    used = _used(units, core)
    parts += _own_file(used, path)
    shown = [*core, *(one.unit for one in used)]
    known = {part.text for part in parts}
    parts += [part for part in _other_files(program, path, shown) if part.text not in known]
    return tuple(sorted(parts, key=lambda part: part.priority))


def _located(problem: Problem, program: TreeProgram) -> tuple[str, str, str]:
    """Return path, text and name of the reference."""
    found = locate(program)
    name = program.import_path.partition(":")[2]
    target = problem.target
    if found is not None:
        module = program.import_path.partition(":")[0]
        return module_path(program, module) or module, found[0], name
    if target is not None and target.kind in ("torch_module", "torch_function"):
        text = text_of(program, target.path)
        if text is not None:
            return target.path, text, target.qualname
    raise PromptError(
        f"{program.import_path}: expected its source below {program.import_root}, found no such "
        "file in UTF-8; a model cannot be shown it"
    )


def _units(text: str, path: str) -> tuple[Unit, ...]:
    """Return the units of a text.

    Raises:
        PromptError: The text is not Python.
    """
    module = parsed(text)
    if module is None:
        raise PromptError(f"{path}: expected Python, and it does not parse")
    return units_of(module)


@dataclass
class _Kernel:
    """The context that a kernel adds to the reference that launches it."""

    units: list[Unit]
    parts: list[Part]


def _kernel(problem: Problem, program: TreeProgram, path: str, units: Sequence[Unit]) -> _Kernel:
    """Return the problem's kernel and its launchers, without the reference itself."""
    target = problem.target
    if target is None or not target.is_kernel:
        return _Kernel([], [])
    title = f"The kernel, {named(target.qualname)} of {named(target.path)}"
    text = text_of(program, target.path)
    if text is None:
        raise PromptError(f"{target.path}: expected the text of a kernel, found none in UTF-8")
    if not target.path.endswith(".py"):
        part = Part(title=title, text=text, priority=ESSENTIAL, language="cuda")
        return _Kernel([], [part, *_native_launchers(program, target)])
    there = units if target.path == path else _units(text, target.path)
    head = target.qualname.partition(".")[0]
    found = [unit for unit in there if head in unit.names]
    # A kernel in a string has no Python name: the line finds the constant that holds it.
    line = text.splitlines()[target.first_line - 1 : target.first_line]
    found = found or [unit for unit in there if line and line[0].strip() in unit.text][:1]
    called = program.import_path.partition(":")[2].partition(".")[0]
    if (head == called and target.path == path) or not found:
        return _Kernel([], [])
    shown = "\n\n\n".join(unit.text for unit in found)
    known = _Kernel(
        found if target.path == path else [], [Part(title=title, text=shown, priority=ESSENTIAL)]
    )
    for where, name, unit in _launchers(program, target, path, units):
        if unit in found or (where == path and name == called):
            continue
        title = f"What launches it, {named(name)} of {named(where)}"
        known.parts.append(Part(title=title, text=unit.text, priority=ESSENTIAL))
        known.units += [unit] if where == path else []
    return known


def _launchers(
    program: TreeProgram, target: Target, path: str, units: Sequence[Unit]
) -> Iterator[tuple[str, str, Unit]]:
    """Yield path, name and unit of each direct launcher of a Python kernel; first the launchers in
    the kernel's file, which may change with it.
    """
    places = [one.partition(":") for one in target.launchers]
    places.sort(key=lambda one: one[0] != target.path)
    for where, _, qualname in places[:MAX_LAUNCHERS]:
        text = text_of(program, where)
        module = parsed(text) if text is not None else None
        there = units if where == path else units_of(module) if module is not None else ()
        name = qualname.partition(".")[0]
        for unit in there:
            if name in unit.names and unit.kind == "definition":
                yield where, name, unit


def _native_launchers(program: TreeProgram, target: Target) -> Iterator[Part]:
    """Yield other C++ and CUDA files that launch a header's kernel, or bind such a launcher."""
    paths = dict.fromkeys(one.partition(":")[0] for one in target.launchers)
    for path in list(paths)[:MAX_LAUNCHERS]:
        text = None if path == target.path or path.endswith(".py") else text_of(program, path)
        if text is not None:
            title = f"The file that launches it, {named(path)}"
            yield Part(title=title, text=text, priority=BASE, language="cuda")


@dataclass
class _Used:
    """A used unit, with the number of units between it and the target."""

    unit: Unit
    distance: int
    is_base: bool


def _used(units: Sequence[Unit], core: Sequence[Unit]) -> list[_Used]:
    """Return the units of its file that a definition uses, the nearest first, while there is
    room.
    """
    left = MAX_FILE_CHARS
    found: list[_Used] = []
    seen = {id(unit) for unit in core}
    ring: list[Unit] = list(core)
    distance = 0
    while ring:
        distance += 1
        wanted = set().union(*(unit.uses for unit in ring))
        bases = set().union(*(unit.bases for unit in ring))
        ring = []
        for unit in units:
            if id(unit) in seen or not unit.names & wanted or len(unit.text) > left:
                continue
            seen.add(id(unit))
            left -= len(unit.text)
            found.append(_Used(unit, distance, bool(unit.names & bases)))
            ring.append(unit)
    return found


def _own_file(used: Sequence[_Used], path: str) -> Iterator[Part]:
    """Yield imports, constants, bases and helpers of the target's file."""
    in_order = sorted(used, key=lambda one: one.unit.number)
    imports = [one.unit.text for one in in_order if one.unit.kind == "import"]
    constants = [one.unit.text for one in in_order if one.unit.kind == "constant"]
    if imports:
        title = f"Imports of {named(path)} that it uses"
        yield Part(title=title, text="\n".join(imports), priority=ESSENTIAL)
    if constants:
        title = f"Constants of {named(path)} that it uses"
        yield Part(title=title, text="\n".join(constants), priority=CONSTANTS)
    for one in used:
        if one.unit.kind != "definition":
            continue
        name = named(", ".join(sorted(one.unit.names)))
        if one.is_base:
            yield Part(title=f"Base class {name}", text=one.unit.text, priority=BASE)
        else:
            priority = HELPER if one.distance == 1 else FAR_HELPER
            yield Part(title=f"Helper {name}", text=one.unit.text, priority=priority)


# --- other files -------------------------------------------------------------------------------


def _other_files(program: TreeProgram, path: str, shown: Sequence[Unit]) -> list[Part]:
    """Return small definitions of other files that the shown code uses."""
    parts: dict[tuple[str, str], Part] = {}
    for unit in shown:
        for name, dotted in sorted(_lent_names(unit, shown)):
            found = _definition(program, path, dotted, MAX_HOPS)
            if found is None or len(parts) == MAX_LENT:
                continue
            where, text = found
            title = f"{named(name)}, from {named(where)}"
            parts.setdefault((where, dotted), Part(title=title, text=text, priority=OTHER_FILE))
    return list(parts.values())


def _lent_names(unit: Unit, shown: Sequence[Unit]) -> Iterator[tuple[str, str]]:
    """Yield names that an import binds, with their meaning. For a module yield the attributes that
    the units read: `ops.rotate` for `from . import ops`.
    """
    if unit.kind != "import":
        return
    read = set().union(*(one.attributes for one in shown)) | set().union(
        *(one.uses for one in shown if one.kind != "import")
    )
    for local, dotted in unit.imports.items():
        for name in sorted(read):
            if name == local or name.startswith(f"{local}."):
                yield name, dotted + name[len(local) :]


def _definition(
    program: TreeProgram, importer: str, dotted: str, hops: int
) -> tuple[str, str] | None:
    """Return path and text of a checkout's definition with its constants; None if it is large or
    from elsewhere.
    """
    dots = "." * (len(dotted) - len(dotted.lstrip(".")))
    module, _, name = dotted[len(dots) :].rpartition(".")
    path = module_path(program, dots + module, importer) if dots or module else None
    if path is None or hops == 0:
        return None
    text = text_of(program, path)
    tree = parsed(text) if text is not None else None
    if tree is None:
        return None
    units = units_of(tree)
    for unit in units:
        if name not in unit.names:
            continue
        if unit.kind == "import":
            return _definition(program, path, unit.imports.get(name, ""), hops - 1)
        constants = [
            other.text
            for other in units
            if other.kind == "constant" and other is not unit and other.names & unit.uses
        ]
        whole = "\n\n".join([*constants, unit.text])
        return (path, whole) if len(whole) <= MAX_LENT_CHARS else None
    return None
