"""Run a repository's own scripts within a budget, and keep what they call as traces.

Scripts that import what nothing has called yet come first, those that import most of it before the
others. What would call nothing new is left for the end. Then each module that nothing called is
made of its default configuration. On a machine with many cores several scripts run at the same
time. Each script's trace, and what became of the script, lies in a folder of the state;
`read_traces` reads it like the trace of a command.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from cudal1_ci.discover import Discovery
from cudal1_ci.discover.launchers import functions_to_trace
from cudal1_ci.discover.scripts import KINDS, Kind, Script, configurations_of, scripts_of
from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.optimize.harvest_order import NOTHING_NEW, configurations, in_order
from cudal1_ci.optimize.harvest_trace import called_in, is_too_large, named_smaller
from cudal1_ci.processes.harvest import Harvester, Limits, limits_for
from cudal1_ci.records import Target
from cudal1_ci.render.wording import count_text, duration_text
from cudal1_ci.sandboxed.wire.harvest import ScriptRan

FOLDER = "harvest"
"""In the folder of the state."""
SUMMARY = "harvest.json"
CONFIG_S = 60.0
CONFIG_SHARE = 0.35
"""Share of the budget that scripts leave for what none of them calls."""
MAX_THREADS = 8
MOST_WORKERS, CORES_EACH = 4, 4
"""Scripts that run at the same time, and the processor cores that each has then."""
SCRIPT_S = 8.0
"""Where the budget has less for each page and example, they run smaller at once."""
MAX_PACKAGES = 60
PROGRESS_S = 10.0
NO_TIME = "the budget was spent"


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
    done: tuple[str, ...] = ()
    """Places of the scripts that ran."""
    elapsed_s: float = 0.0
    is_complete: bool = True


@dataclass
class Harvesting:
    """The state of a harvest: what is called already, and what became of each script."""

    discovery: Discovery
    folder: Path
    deadline: float
    say: Callable[[str], None]
    called: set[str] = field(default_factory=set)
    num_scripts: Counter[str] = field(default_factory=Counter)
    num_cells: int = 0
    left: list[Left] = field(default_factory=list)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    said_s: float = 0.0
    is_short: bool = False
    """Whether the budget is too short for scripts as large as they are."""
    helpers: list[Harvester] = field(default_factory=list)
    """Workers of other threads."""
    is_ended: bool = False
    """Whether no further script is begun."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held by the thread that takes a script, or keeps what became of one."""

    def resume(self, before: Harvest) -> None:
        """Continue a harvest whose traces are in the folder."""
        self.called = {name for names in before.targets.values() for name in names}
        self.num_scripts.update(before.num_scripts)
        self.num_cells = before.num_cells
        self.left = [one for one in before.left if one.reason not in (NO_TIME, NOTHING_NEW)]
        self.notes, self.targets = dict(before.notes), dict(before.targets)
        self.done = [*before.done]

    def in_turn(
        self, scripts: Sequence[Script], until_s: float, has_config: bool
    ) -> Iterator[Script]:
        """Yield scripts until a time, then what makes the modules that nothing called, then the
        rest of the scripts."""
        ordered = in_order(scripts, self.discovery, self.called, self.leave)
        yield from takewhile_before(until_s, ordered)
        if has_config:
            for script in configurations(self.discovery.targets, self.called):
                if script.place not in self.done:
                    yield script
        yield from ordered

    def run_all(
        self, scripts: Iterator[Script], harvester: Harvester, others: Sequence[Harvester]
    ) -> None:
        """Run scripts by a worker of this thread, and by others that have a thread each."""
        with ThreadPoolExecutor(max(1, len(others))) as pool:
            helping = [pool.submit(self.help_out, scripts, one) for one in others]
            try:
                self.work(scripts, harvester)
            except BaseException:
                self.is_ended = True
                for one in self.helpers:
                    one.stop()
                raise
            for found in helping:
                found.result()

    def help_out(self, scripts: Iterator[Script], harvester: Harvester) -> None:
        """Run scripts by a worker that this thread starts, where it can be started: its processes
        end with the thread."""
        try:
            with harvester:
                self.helpers.append(harvester)
                self.work(scripts, harvester)
        except (WorkerError, UnsupportedError):
            return

    def work(self, scripts: Iterator[Script], harvester: Harvester) -> None:
        """Run scripts by one worker until none is left."""
        while True:
            with self.lock:
                script = None if self.is_ended else next(scripts, None)
            if script is None:
                return
            self.run(script, harvester)

    def run(self, script: Script, harvester: Harvester) -> None:
        """Run a script, again and smaller where it is too large, and keep its trace."""
        left_s = self.deadline - time.monotonic()
        if left_s < 1:
            self.leave(script, NO_TIME)
            return
        self.done.append(script.place)
        is_smaller = self.is_short and script.kind != "config"
        ran = self.ran(script, harvester, left_s, is_smaller=is_smaller)
        if is_smaller:
            ran = named_smaller(ran)
            if not ran.trace and not is_too_large(ran) and ran.notes:
                # It depends on what was changed.
                left_s = self.deadline - time.monotonic()
                ran = self.ran(script, harvester, left_s, is_smaller=False)
        elif is_too_large(ran) and not ran.trace and self.deadline - time.monotonic() > 1:
            left_s = self.deadline - time.monotonic()
            again = self.ran(script, harvester, left_s, is_smaller=True)
            ran = named_smaller(again) if again.trace else ran
        with self.lock:
            self.keep(script, ran)
            self.tell(script)

    def tell(self, script: Script) -> None:
        """Show progress, once in a while."""
        now_s = time.monotonic()
        if now_s - self.said_s > PROGRESS_S:
            self.said_s = now_s
            self.say(
                f"harvest: {len(self.called)} of {len(self.discovery.targets)} targets are called, "
                f"{duration_text(max(0, self.deadline - now_s))} left; now {script.place}"
            )

    def ran(
        self, script: Script, harvester: Harvester, left_s: float, *, is_smaller: bool
    ) -> ScriptRan:
        base = harvester.limits
        script_s = CONFIG_S if script.kind == "config" else base.script_s
        limits = Limits(
            cell_s=max(0.5, min(base.cell_s, left_s)),
            script_s=max(0.5, min(script_s, left_s)),
            memory_bytes=base.memory_bytes,
        )
        return harvester.run(
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
        if ran.notes:
            self.notes[script.place] = ran.notes
        targets = called_in(ran.trace)
        if not targets:
            return
        self.num_scripts[script.kind] += 1
        if script.place not in self.targets:
            self.targets[script.place] = ()
        self.targets[script.place] = tuple(sorted({*self.targets[script.place], *targets}))
        self.called |= targets
        name = f"trace-{sum(self.num_scripts.values()):05d}.jsonl"
        (self.folder / name).write_text(ran.trace, encoding="utf-8")

    def leave(self, script: Script, reason: str) -> None:
        one = Left(place=script.place, kind=script.kind, outcome="failed", reason=reason[:300])
        with self.lock:
            self.left.append(one)

    def result(self, elapsed_s: float) -> Harvest:
        return Harvest(
            num_scripts=dict(self.num_scripts),
            num_cells=self.num_cells,
            left=tuple(self.left),
            notes=self.notes,
            targets=self.targets,
            done=tuple(self.done),
            elapsed_s=elapsed_s,
            is_complete=all(one.reason != NO_TIME for one in self.left),
        )


def harvest(
    discovery: Discovery,
    state: Path,
    *,
    python: str,
    budget_s: float,
    say: Callable[[str], None],
    limits: Limits | None = None,
    has_gpu: bool = False,
    num_workers: int | None = None,
    kinds: Sequence[Kind] = KINDS,
    before: Harvest | None = None,
) -> Harvest:
    """Run the scripts of a tree, and leave their traces in the folder `harvest` of its state. What
    ran in a harvest before that had no time for all is kept. `num_workers` scripts run at the same
    time; None chooses by the machine.

    Raises:
        UnsupportedError: Nothing confines them here, or there is no torch.
    """
    began_s = time.monotonic()
    folder = state / FOLDER
    fresh = state / f"{FOLDER}-new"
    shutil.rmtree(fresh, ignore_errors=True)
    if before is None:
        fresh.mkdir(parents=True)
    else:
        shutil.copytree(folder, fresh)
    places = discovery.modules.places.values()
    own = sorted({place.module.partition(".")[0] for place in places})
    limits = limits or limits_for(budget_s)
    num_cores = len(os.sched_getaffinity(0))
    num_workers = num_workers or workers_for(num_cores, limits.memory_bytes)
    worker = partial(
        Harvester,
        discovery.root,
        python=python,
        import_roots=import_roots([place.import_root for place in places]),
        functions=functions_to_trace(discovery),
        packages=packages_of(discovery, frozenset(own)),
        own=own,
        configurations=configurations_of(discovery.root, discovery.config),
        limits=limits,
        num_threads=min(MAX_THREADS, max(1, num_cores // num_workers)),
        has_gpu=has_gpu,
    )
    with worker() as harvester:
        state_of = Harvesting(discovery, fresh, began_s + budget_s, say)
        if before is not None:
            state_of.resume(before)
        scripts = [
            one
            for one in scripts_of(discovery.root, discovery.config)
            if one.kind in kinds and one.place not in state_of.done
        ]
        say(f"harvest: {count_text(len(scripts), 'script')}, at most {duration_text(budget_s)}")
        try:
            first_kinds = [one for one in scripts if one.kind != "test"]
            state_of.is_short = budget_s * num_workers < SCRIPT_S * len(first_kinds)
            until_s = began_s + (1 - CONFIG_SHARE * ("config" in kinds)) * budget_s
            ordered = state_of.in_turn(scripts, until_s, "config" in kinds)
            state_of.run_all(ordered, harvester, [worker() for _ in range(num_workers - 1)])
        finally:
            found = state_of.result(time.monotonic() - began_s)
            (fresh / SUMMARY).write_bytes(msgspec.json.encode(found))
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return found


def workers_for(num_cores: int, memory_bytes: int) -> int:
    """Return how many scripts of that much memory may run at the same time on this machine."""
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fitting = min(num_cores // CORES_EACH, total_bytes // 2 // memory_bytes)
    return max(1, min(MOST_WORKERS, fitting))


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


def scripts_calling(scripts: Iterable[Script], found: Harvest, target: Target) -> list[Script]:
    """Return the scripts that called a target when they were harvested."""
    name = target.address
    places = {place for place, names in found.targets.items() if name in names}
    return [script for script in scripts if script.place in places]


__all__ = ["Harvest", "Left", "harvest", "read_harvest", "scripts_calling"]
