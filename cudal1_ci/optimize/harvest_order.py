"""Order the scripts of a harvest: those first that should call most that nothing called yet."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from cudal1_ci.discover import Discovery
from cudal1_ci.discover.scripts import Cell, Kind, Script
from cudal1_ci.records import Target

FIRST: tuple[Kind, ...] = ("docs", "docstring", "test", "main")
"""After the README. Other kinds mostly want data, downloads or arguments."""
CLASSES_AT_ONCE = 40
"""Classes of a file that are made in one process."""
NOTHING_NEW = "all that it imports is called by other scripts"


def in_order(
    scripts: Sequence[Script],
    discovery: Discovery,
    called: Set[str],
    leave: Callable[[Script, str], None],
) -> Iterator[Script]:
    """Yield scripts, each time the one that should call most that nothing called yet. Scripts that
    should call nothing new are left out, with that reason."""
    targets_in: dict[str, set[str]] = {}
    for target in discovery.targets:
        if not target.is_kernel:
            targets_in.setdefault(target.path, set()).add(target.address)
    # What is new of a script only becomes less, so only the first one is counted again.
    files = [files_of(script, discovery, targets_in) for script in scripts]
    num_tried: Counter[str] = Counter()

    def new_in(paths: Iterable[str]) -> float:
        """Count what nothing called yet, that of files which many scripts imported for less."""
        new = (len(targets_in[path] - called) / (1 + num_tried[path]) for path in paths)
        return sum(new)

    def rank(number: int) -> tuple[bool, int, float, float, int]:
        near, far = files[number]
        new = new_in(near)
        return new == 0, is_late(scripts[number]), -new, -new_in(far), number

    waiting = [rank(number) for number in range(len(scripts))]
    heapq.heapify(waiting)
    while waiting:
        known = heapq.heappop(waiting)
        script, current = scripts[known[-1]], rank(known[-1])
        if current[0] and current[3] == 0:
            leave(script, NOTHING_NEW)
        elif current != known and waiting and current > waiting[0]:
            heapq.heappush(waiting, current)
        else:
            yield script
            num_tried.update(files[known[-1]][0])


def is_late(script: Script) -> int:
    """Return the group of a script: a README shows the use best."""
    return 0 if script.kind == "readme" else 1 if script.kind in FIRST else 2


def files_of(
    script: Script, discovery: Discovery, targets_in: dict[str, set[str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files with targets that a script names, and those that these need."""
    modules = discovery.modules
    near = {script.path} if script.path in modules.places else set()
    for name in script.imports:
        dotted = modules.absolute(script.path, name) or name.lstrip(".")
        parts = dotted.split(".")
        for depth in range(len(parts), 0, -1):
            path = modules.module_path(script.path, ".".join(parts[:depth]))
            if path is not None:
                rest = ".".join(parts[depth:])
                found = modules.resolve(path, rest).path if rest else path
                near.add(found or path)
                break
    far = {needed for path in near for needed in discovery.imports.closure(path)}
    return frozenset(near & targets_in.keys()), frozenset(far & targets_in.keys())


def configurations(targets: Sequence[Target], called: set[str]) -> Iterator[Script]:
    """Yield, for each file, a script that makes the modules that nothing called, the longest
    first: it has the most inside."""
    by_path: dict[str, list[Target]] = {}
    for target in targets:
        if target.kind == "torch_module" and "<locals>" not in target.qualname:
            by_path.setdefault(target.path, []).append(target)
    files = sorted(by_path.items(), key=lambda item: -sum(map(num_lines, item[1])))
    for path, found in files:
        new = [one for one in found if one.address not in called]
        new.sort(key=lambda target: -num_lines(target))
        for first in range(0, len(new), CLASSES_AT_ONCE):
            cells = tuple(
                Cell(line=one.first_line, text=one.qualname)
                for one in new[first : first + CLASSES_AT_ONCE]
            )
            yield Script(kind="config", path=path, cells=cells)


def num_lines(target: Target) -> int:
    return target.last_line - target.first_line + 1


__all__ = ["NOTHING_NEW", "configurations", "in_order"]
