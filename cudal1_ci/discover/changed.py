"""Select the targets that a change touches: changed targets, and those that use changed code.

Compares units (`units`), not lines. A comment, a docstring, a new layout or a new position is no
change. A renamed file is compared with its old version. Removed targets are returned separately:
they cannot be measured.

    selection = select_changed(discovery, change)
    selection.targets[0].selected_because == "calls src/ops.py:rotate"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cudal1_ci.discover.discovery import Discovery, targets_of
from cudal1_ci.discover.facts import FileFacts
from cudal1_ci.discover.files import PYTHON_SUFFIXES, SOURCE_SUFFIXES, Gate
from cudal1_ci.discover.imports import ModuleIndex
from cudal1_ci.discover.python_targets import ClassTable, launched_with
from cudal1_ci.discover.reading import facts_of
from cudal1_ci.discover.references import Key, References
from cudal1_ci.discover.syntax import MODULE_LEVEL, PARSE_ERRORS
from cudal1_ci.discover.units import Unit, changed_units, cuda_units, plain, python_units
from cudal1_ci.records import Change, FileChange, Target
from cudal1_ci.source.cuda import function_texts


@dataclass(frozen=True)
class Selection:
    """Hold the part of a tree that a change concerns."""

    targets: tuple[Target, ...]
    """Each with `selected_because`."""
    removed: tuple[Target, ...] = ()
    """Removed targets, at their place in the base."""


def select_changed(discovery: Discovery, change: Change) -> Selection:
    """Return the targets of `discovery` (the tree after the change) that the change concerns."""
    before = BaseTree.of(discovery, change)
    references = References(discovery, change)
    changed: set[Key] = set()
    for file in change.files:
        if file.path.endswith(tuple(SOURCE_SUFFIXES)):
            changed |= changed_in(file, before, references)
    origins = references.users_of(changed)
    handed = launched_with(discovery.facts, discovery.modules)
    targets = []
    for target in discovery.targets:
        reason = reason_for(target, changed, origins, before, references)
        reason = reason or launched_otherwise(target, changed)
        reason = reason or called_by_launch(target, handed, origins)
        if reason is not None:
            targets.append(msgspec.structs.replace(target, selected_because=reason))
    return Selection(tuple(targets), before.removed(discovery))


@dataclass
class BaseTree:
    """Read the files of the tree before the change that differ from the tree after the change."""

    files: dict[str, FileChange]
    """Changes by current path, or by the last one."""
    facts: dict[str, FileFacts]
    modules: ModuleIndex
    renamed: dict[str, str]
    """Old path to new."""

    @classmethod
    def of(cls, discovery: Discovery, change: Change) -> BaseTree:
        facts = dict(discovery.facts)
        gate = Gate.of(discovery.root, discovery.config)
        for file in change.files:
            facts.pop(file.path, None)
        for file in change.files:
            old_path = file.previous_path or file.path
            if file.before is not None and gate.lets_in(old_path):
                facts[old_path] = facts_of(old_path, file.before.encode())
        return cls(
            files={file.path: file for file in change.files},
            facts=facts,
            modules=ModuleIndex.of(discovery.root, facts),
            renamed={
                file.previous_path: file.path
                for file in change.files
                if file.previous_path is not None and file.after is not None
            },
        )

    def removed(self, discovery: Discovery) -> tuple[Target, ...]:
        """Return targets of changed files that the tree after the change does not have."""
        touched = {file.previous_path or file.path for file in self.files.values()}
        kept = {(target.path, target.qualname) for target in discovery.targets}
        table = ClassTable.of(self.facts, self.modules)
        return tuple(
            target
            for target in targets_of(self.facts, table)
            if target.path in touched
            and (self.renamed.get(target.path, target.path), target.qualname) not in kept
        )


def changed_in(file: FileChange, before: BaseTree, references: References) -> set[Key]:
    """Return the units of one file whose contents differ from before."""
    old_path = file.previous_path or file.path
    old = units_of(old_path, file.before)
    new = units_of(file.path, file.after)
    if file.path not in references.paths and old_path not in before.facts:
        return set()  # discovery excludes the file
    names = changed_units(old, new)
    if file.path.endswith(tuple(PYTHON_SUFFIXES)):
        names = {
            name
            for name in names
            if not is_same_import(name, old_path, before, file.path, references)
        }
    return {(file.path, name) for name in names}


def units_of(path: str, text: str | None) -> dict[str, Unit]:
    """Return the units of one version of a file; empty if the file is absent or does not parse."""
    if text is None:
        return {}
    if not path.endswith(".py"):
        return cuda_units(text.encode())
    try:
        return python_units(text.encode())
    except PARSE_ERRORS:
        return {}


def is_same_import(
    name: str, old_path: str, before: BaseTree, path: str, references: References
) -> bool:
    """Return whether a name is still imported from the same definition, even of a renamed file."""
    old = before.modules.imported_from(old_path, name)
    new = references.modules.imported_from(path, name)
    if not old or not new:
        return False
    moved = {
        dataclasses.replace(each, path=before.renamed.get(each.path, each.path))
        if each.path is not None
        else each
        for each in old
    }
    return moved == new


def reason_for(
    target: Target,
    changed: set[Key],
    origins: Mapping[Key, Key],
    before: BaseTree,
    references: References,
) -> str | None:
    """Return why a target is selected; None when the change does not concern the target."""
    qualname = unit_of(target, references)
    key = (target.path, qualname)
    origin = origins.get(key)
    if origin is None:
        return None
    if key in changed and not is_unchanged_kernel(target, before, references):
        return "changed"
    path, name = origin
    return f"calls {path}:{name}" if not name.startswith(MODULE_LEVEL) else f"calls {path}"


def launched_otherwise(target: Target, changed: set[Key]) -> str | None:
    """Return the changed function that launches an unchanged kernel.

    Another launch configuration makes the kernel another program.
    """
    for launcher in target.launchers:
        path, _, qualname = launcher.partition(":")
        if (path, qualname) in changed:
            return f"launched by {launcher}"
    return None


def called_by_launch(
    target: Target, handed: Mapping[Key, set[Key]], origins: Mapping[Key, Key]
) -> str | None:
    """Return the changed function that a kernel is launched with, or that this function uses."""
    for key in sorted(handed.get((target.path, target.qualname), ())):
        if key in origins:
            path, name = origins[key]
            return f"calls {path}:{name}"
    return None


def unit_of(target: Target, references: References) -> str:
    """Return the unit that contains a target that is in a function or a string."""
    units = references.units(target.path)
    if target.qualname in units and target.kind != "cuda_kernel":
        return target.qualname
    if target.path.endswith(".py"):
        for unit in units.values():
            if unit.holds(target.first_line) and unit.holds(target.last_line):
                return unit.qualname
    return target.qualname


def is_unchanged_kernel(target: Target, before: BaseTree, references: References) -> bool:
    """Return whether a kernel in a Python string is unchanged while its unit changed."""
    file = before.files.get(target.path)
    if target.kind != "cuda_kernel" or not target.path.endswith(".py") or file is None:
        return False
    old = before.facts.get(file.previous_path or file.path)
    if old is None or file.before is None:
        return False
    now = kernel_text(references.text(target.path), target.first_line, target.last_line)
    return any(
        kernel.qualname == target.qualname
        and kernel_text(file.before.encode(), kernel.first_line, kernel.last_line) == now
        for kernel in old.cuda_kernels
    )


def kernel_text(source: bytes, first_line: int, last_line: int) -> str:
    """Return the kernel's text in a range of lines, without comments and layout."""
    lines = b"\n".join(source.splitlines()[first_line - 1 : last_line])
    return " ".join(
        plain(lines[start:end].decode("utf-8", "replace"))
        for _, _, start, end in function_texts(lines)
    )
