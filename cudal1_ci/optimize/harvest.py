"""Run a repository's own scripts within a budget, and keep what they call as traces.

Scripts that import what nothing has called yet come first, those that import most of it before the
others. What would call nothing new is left for the end. Then each module that nothing called is
made of its default configuration. Each script's trace, and what became of the script, lies in a
folder of the state; `read_traces` reads it like the trace of a command.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.discover import Discovery
from cudal1_ci.discover.launchers import functions_to_trace
from cudal1_ci.discover.scripts import KINDS, Cell, Kind, Script, scripts_of
from cudal1_ci.processes.harvest import Harvester, Limits, limits_for
from cudal1_ci.records import Target
from cudal1_ci.sandboxed.wire.harvest import ScriptRan

FOLDER = "harvest"
"""In the folder of the state."""
SUMMARY = "harvest.json"
FIRST: tuple[Kind, ...] = ("docs", "docstring", "test", "main")
"""After the README. Other kinds mostly want data, downloads or arguments."""
CLASSES_AT_ONCE = 40
"""Classes of a file that are made in one process."""
CONFIG_S = 60.0
CONFIG_SHARE = 0.35
"""Share of the budget that scripts leave for what none of them calls."""
MAX_THREADS = 8
SCRIPT_S = 8.0
"""Where the budget has less for each page and example, they run smaller at once."""
MAX_PACKAGES = 60
TOO_LARGE = ("out_of_time", "out_of_memory")
PROGRESS_S = 10.0
NO_TIME = "the budget was spent"
NOTHING_NEW = "all that it imports is called by other scripts"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A cell, a test or a script that did not run to its end, and why."""

    place: str
    kind: str
    outcome: str
    reason: str


class Harvest(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the scripts of a tree."""

    num_scripts: dict[str, int] = {}
    """By kind: those that ran and called something of the tree."""
    num_cells: int = 0
    left: tuple[Left, ...] = ()
    notes: dict[str, tuple[str, ...]] = {}
    """By script: what was replaced or made smaller."""
    targets: dict[str, tuple[str, ...]] = {}
    """By script, as its place: `path:qualname` of what it called."""
    elapsed_s: float = 0.0
    is_complete: bool = True


@dataclass
class Harvesting:
    """The state of a harvest: what is called already, and what became of each script."""

    discovery: Discovery
    harvester: Harvester
    folder: Path
    deadline: float
    say: Callable[[str], None]
    called: set[str] = field(default_factory=set)
    num_scripts: Counter[str] = field(default_factory=Counter)
    num_cells: int = 0
    left: list[Left] = field(default_factory=list)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    said_s: float = 0.0
    is_short: bool = False
    """Whether the budget is too short for scripts as large as they are."""

    def run(self, script: Script) -> None:
        """Run a script, again and smaller where it is too large, and keep its trace."""
        left_s = self.deadline - time.monotonic()
        if left_s < 1:
            self.leave(script, NO_TIME)
            return
        is_smaller = self.is_short and script.kind != "config"
        ran = self.ran(script, left_s, is_smaller=is_smaller)
        if is_smaller:
            ran = named_smaller(ran)
            if not ran.trace and not is_too_large(ran) and ran.notes:
                # It depends on what was changed.
                ran = self.ran(script, self.deadline - time.monotonic(), is_smaller=False)
        elif is_too_large(ran) and not ran.trace and self.deadline - time.monotonic() > 1:
            again = self.ran(script, self.deadline - time.monotonic(), is_smaller=True)
            ran = named_smaller(again) if again.trace else ran
        self.keep(script, ran)
        now_s = time.monotonic()
        if now_s - self.said_s > PROGRESS_S:
            self.said_s = now_s
            self.say(
                f"harvest: {len(self.called)} of {len(self.discovery.targets)} targets are called, "
                f"{max(0, self.deadline - now_s):.0f} s left; {script.kind} {script.place}"
            )

    def ran(self, script: Script, left_s: float, *, is_smaller: bool) -> ScriptRan:
        base = self.harvester.limits
        script_s = CONFIG_S if script.kind == "config" else base.script_s
        limits = Limits(
            cell_s=max(0.5, min(base.cell_s, left_s)),
            script_s=max(0.5, min(script_s, left_s)),
            memory_bytes=base.memory_bytes,
        )
        return self.harvester.run(
            script, module=self.module_of(script), limits=limits, is_smaller=is_smaller
        )

    def module_of(self, script: Script) -> str:
        place = self.discovery.modules.places.get(script.path)
        return place.module if place is not None else ""

    def keep(self, script: Script, ran: ScriptRan) -> None:
        """Write the trace, and record what became of the script."""
        self.num_cells += len(ran.cells)
        for cell in ran.cells:
            if cell.outcome != "ran":
                place = f"{script.path}:{cell.line}" if cell.line else cell.name or script.path
                self.left.append(
                    Left(place=place, kind=script.kind, outcome=cell.outcome, reason=cell.reason)
                )
        if ran.ending:
            self.leave(script, ran.ending)
        targets = called_in(ran.trace)
        if not targets:
            return
        self.num_scripts[script.kind] += 1
        if script.place not in self.targets:
            self.targets[script.place] = ()
        self.targets[script.place] = tuple(sorted({*self.targets[script.place], *targets}))
        self.called |= targets
        if ran.notes:
            self.notes[script.place] = ran.notes
        name = f"trace-{sum(self.num_scripts.values()):05d}.jsonl"
        (self.folder / name).write_text(ran.trace, encoding="utf-8")

    def leave(self, script: Script, reason: str) -> None:
        self.left.append(
            Left(place=script.place, kind=script.kind, outcome="failed", reason=reason[:300])
        )

    def result(self, elapsed_s: float) -> Harvest:
        return Harvest(
            num_scripts=dict(self.num_scripts),
            num_cells=self.num_cells,
            left=tuple(self.left),
            notes=self.notes,
            targets=self.targets,
            elapsed_s=elapsed_s,
            is_complete=all(one.reason != NO_TIME for one in self.left),
        )


def named_smaller(ran: ScriptRan) -> ScriptRan:
    """Return what a script made smaller called, with what was changed in its source."""
    changes = ", ".join(note for note in ran.notes if " -> " in note)
    lines = []
    for line in ran.trace.splitlines():
        call = decoded(line)
        if call is not None:
            if changes and isinstance(call.get("source"), str):
                call["source"] = f"{call['source']} (smaller: {changes})"
            lines.append(msgspec.json.encode(call).decode())
    if not lines:
        return ran
    return dataclasses.replace(ran, trace="\n".join(lines) + "\n")


def decoded(line: str) -> dict[str, Any] | None:
    """Return a line of a trace; None for what is none."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def is_too_large(ran: ScriptRan) -> bool:
    """Return whether a script wants more time or memory than there is."""
    return bool(ran.ending) or any(cell.outcome in TOO_LARGE for cell in ran.cells)


def called_in(trace: str) -> set[str]:
    """Return `path:qualname` of what a trace can call again."""
    found = set()
    for line in trace.splitlines():
        call = decoded(line)
        if call is not None and isinstance(call.get("target"), str) and "call" in call:
            found.add(call["target"])
    return found


def harvest(
    discovery: Discovery,
    state: Path,
    *,
    python: str,
    budget_s: float,
    say: Callable[[str], None],
    limits: Limits | None = None,
    has_gpu: bool = False,
    num_threads: int = min(MAX_THREADS, os.cpu_count() or 1),
    kinds: Sequence[Kind] = KINDS,
) -> Harvest:
    """Run the scripts of a tree, and leave their traces in the folder `harvest` of its state.

    Raises:
        UnsupportedError: Nothing confines them here, or there is no torch.
    """
    began_s = time.monotonic()
    folder = state / FOLDER
    fresh = state / f"{FOLDER}-new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    places = discovery.modules.places.values()
    own = sorted({place.module.partition(".")[0] for place in places})
    with Harvester(
        discovery.root,
        python=python,
        import_roots=import_roots([place.import_root for place in places]),
        functions=functions_to_trace(discovery),
        packages=packages_of(discovery, frozenset(own)),
        own=own,
        limits=limits or limits_for(budget_s),
        num_threads=num_threads,
        has_gpu=has_gpu,
    ) as harvester:
        state_of = Harvesting(discovery, harvester, fresh, began_s + budget_s, say)
        scripts = [one for one in scripts_of(discovery.root, discovery.config) if one.kind in kinds]
        say(f"harvest: {len(scripts)} scripts, at most {budget_s:.0f} s")
        try:
            first_kinds = [one for one in scripts if one.kind != "test"]
            state_of.is_short = budget_s < SCRIPT_S * len(first_kinds)
            ordered = in_order(scripts, discovery, state_of)
            until_s = began_s + (1 - CONFIG_SHARE * ("config" in kinds)) * budget_s
            for script in takewhile_before(until_s, ordered):
                state_of.run(script)
            if "config" in kinds:
                for script in configurations(discovery.targets, state_of.called):
                    state_of.run(script)
            for script in ordered:
                state_of.run(script)
        finally:
            found = state_of.result(time.monotonic() - began_s)
            (fresh / SUMMARY).write_bytes(msgspec.json.encode(found))
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return found


def takewhile_before(deadline: float, scripts: Iterator[Script]) -> Iterator[Script]:
    """Yield scripts until a time; the next one stays."""
    while time.monotonic() < deadline:
        script = next(scripts, None)
        if script is None:
            return
        yield script


def read_harvest(state: Path) -> Harvest | None:
    """Return what became of the scripts when they last ran; None where they never did."""
    try:
        return msgspec.json.decode((state / FOLDER / SUMMARY).read_bytes(), type=Harvest)
    except (OSError, msgspec.ValidationError, msgspec.DecodeError):
        return None


def packages_of(discovery: Discovery, own: frozenset[str]) -> tuple[str, ...]:
    """Return the modules that the tree imports from elsewhere, the most used first."""
    counts: Counter[str] = Counter()
    for file in discovery.facts.values():
        modules = {one.module for found in file.bindings.values() for one in found}
        counts.update({*modules, *file.dotted_imports})
    known = own | sys.stdlib_module_names | {"torch", ""}
    names = (name for name, _ in counts.most_common() if name.partition(".")[0] not in known)
    return tuple(itertools.islice(names, MAX_PACKAGES))


def import_roots(found: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that modules are imported from, those of most modules first."""
    counts = Counter(found)
    return tuple(root for root, _ in counts.most_common(20))


def in_order(
    scripts: Sequence[Script], discovery: Discovery, harvesting: Harvesting
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
        new = (len(targets_in[path] - harvesting.called) / (1 + num_tried[path]) for path in paths)
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
            harvesting.leave(script, NOTHING_NEW)
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


def scripts_calling(scripts: Iterable[Script], found: Harvest, target: Target) -> list[Script]:
    """Return the scripts that called a target when they were harvested."""
    name = target.address
    places = {place for place, names in found.targets.items() if name in names}
    return [script for script in scripts if script.place in places]


__all__ = ["Harvest", "Left", "harvest", "read_harvest", "scripts_calling"]
