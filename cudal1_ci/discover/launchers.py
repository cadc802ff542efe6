"""Find what can be called to run a kernel: the modules and functions that launch it.

A kernel cannot be called by itself. Its launchers can be called, and so can their callers. Names
are followed backwards through files, bindings and the calls that build an extension
(references.py). An extension's user counts only if it names a binding that reaches the kernel,
where any user does. The other users call other kernels of the extension.

    reach = reach_of(discovery, [kernel])[kernel]
    reach.launchers[0].qualname == "silu"
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci.discover.changed import unit_of
from cudal1_ci.discover.cuda_targets import builders_by_file_name, built_by, last_name
from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.discover.references import Key, References
from cudal1_ci.discover.syntax import (
    PARSE_ERRORS,
    definitions,
    first_line_of,
    last_line_of,
    parse,
)
from cudal1_ci.records import Change, Target

NUM_ROUNDS = 5
"""From a kernel to what calls it: a host function, the extension that has it, a function, a
torch.autograd.Function, a module. Callers farther away spend their time elsewhere."""


@dataclass(frozen=True)
class Reach:
    """Hold what leads to a kernel."""

    launchers: tuple[Target, ...] = ()
    """Modules and functions that can be imported and called, the nearest first."""
    is_installed: bool = False
    """Whether it is in a file that is built when the package is installed, and never when it is
    used: a changed one cannot be tried without installing it."""


def reach_of(discovery: Discovery, kernels: Sequence[Target]) -> dict[Target, Reach]:
    """Return what leads to each of these kernels."""
    if not kernels:
        return {}
    # The tree as it is, without changes.
    references = References(discovery, Change(repository="", base_sha="", head_sha=None, files=()))
    roots = {kernel: (kernel.path, unit_of(kernel, references)) for kernel in kernels}
    users: dict[Key, list[Key]] = defaultdict(list)
    for user, used in references.edges_to(roots.values(), NUM_ROUNDS).items():
        for one in used:
            users[one].append(user)
    callables = Callables(discovery, references)
    found = {}
    for kernel, root in roots.items():
        reached = nearest_first([root], users)
        names = {last_name(one.rpartition(":")[2]) for one in kernel.launchers if is_native(one)}
        if is_native(kernel.path) and names:
            reached = through_bindings(reached, users, names, references)
        found[kernel] = Reach(
            launchers=tuple(callables.among(reached, kernel)),
            is_installed=is_installed(discovery, reached, kernel),
        )
    return found


def functions_to_trace(discovery: Discovery) -> dict[str, list[str]]:
    """Return, by path, the functions whose calls are traced as workloads.

    They are the targets, and the functions through which a kernel is verified. Modules are found by
    their base class.
    """
    kernels = [one for one in discovery.targets if one.is_kernel and one.launchers]
    launchers = [one for reach in reach_of(discovery, kernels).values() for one in reach.launchers]
    found: dict[str, list[str]] = {}
    for target in dict.fromkeys((*discovery.targets, *launchers)):
        if target.kind == "torch_function" and "." not in target.qualname:
            found.setdefault(target.path, []).append(target.qualname)
    return found


def is_native(path: str) -> bool:
    """Return whether a path, or `path:qualname`, is of a file other than Python."""
    return not path.partition(":")[0].endswith(".py")


def nearest_first(starts: Iterable[Key], users: Mapping[Key, Sequence[Key]]) -> list[Key]:
    """Return the starts and all their users, round by round; each round by path and name."""
    found = dict.fromkeys(starts)
    ring = list(found)
    while ring:
        ring = sorted({user for one in ring for user in users.get(one, ()) if user not in found})
        found.update(dict.fromkeys(ring))
    return list(found)


def through_bindings(
    reached: Sequence[Key],
    users: Mapping[Key, Sequence[Key]],
    names: Iterable[str],
    references: References,
) -> list[Key]:
    """Return what is reached, without Python that never reads one of an extension's `names`."""
    pattern = re.compile(rb"\.(?:" + b"|".join(re.escape(n).encode() for n in names) + rb")\b")
    speaking = [
        key
        for key in reached
        if key[0].endswith(".py") and pattern.search(text_of(key, references)) is not None
    ]
    if not speaking:
        return list(reached)
    kept = set(nearest_first(speaking, users))
    return [key for key in reached if not key[0].endswith(".py") or key in kept]


def text_of(key: Key, references: References) -> bytes:
    """Return the lines of a unit."""
    path, qualname = key
    unit = references.units(path).get(qualname)
    lines = references.text(path).splitlines(keepends=True)
    return b"".join(
        b"".join(lines[first - 1 : last]) for first, last in (unit.lines if unit else ())
    )


def is_installed(discovery: Discovery, reached: Sequence[Key], kernel: Target) -> bool:
    """Return whether setup.py builds a file that leads to a kernel, and no code builds it later."""
    if not is_native(kernel.path):
        return False
    paths = {kernel.path} | {path for path, _ in reached if is_native(path)}
    every, at_use = (
        {where for path in paths for where in built_by(path, builders)}
        for builders in (
            builders_by_file_name(discovery.facts),
            builders_by_file_name(discovery.facts, at_use=True),
        )
    )
    return bool(every) and not at_use


class Callables:
    """Find the modules and functions of a tree by path and qualname."""

    def __init__(self, discovery: Discovery, references: References):
        self.references = references
        self.known = {
            (target.path, target.qualname): target
            for target in discovery.targets
            if not target.is_kernel
        }
        self.kernels = {
            (path, fact.qualname)
            for path, file in discovery.facts.items()
            for fact in file.triton_kernels
        }
        self.functions: dict[str, dict[str, Target]] = {}

    def among(self, reached: Iterable[Key], kernel: Target) -> Iterator[Target]:
        """Yield those among units: targets, and functions that pass tensors on to an extension.

        Discovery does not count such a function as computing.
        """
        for path, qualname in reached:
            if not path.endswith(".py") or (path, qualname) in self.kernels:
                continue
            found = self.known.get((path, qualname)) or self.functions_of(path).get(qualname)
            if found is not None and (path, qualname) != (kernel.path, kernel.qualname):
                yield found

    def functions_of(self, path: str) -> dict[str, Target]:
        """Return the functions at the top level of a file."""
        if path not in self.functions:
            try:
                tree = parse(self.references.text(path))
            except PARSE_ERRORS:
                tree = ast.Module(body=[], type_ignores=[])
            self.functions[path] = {
                qualname: Target(
                    path=path,
                    qualname=qualname,
                    kind="torch_function",
                    first_line=first_line_of(node),
                    last_line=last_line_of(node),
                )
                for qualname, node in definitions(tree.body)
                if isinstance(node, ast.FunctionDef) and "." not in qualname
            }
        return self.functions[path]
