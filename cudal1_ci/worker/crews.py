"""The processes of launches: those of several are started together, and a GPU's reference is kept.

To start one costs a GPU's driver a tenth of a second in which it does nothing else, and a quarter
more in which others may start; to end it a twentieth (benchmarks/results/process-start-h200.json).
In its first call libraries are initialized and kernels loaded. So those of several launches start
side by side, and beside a GPU the processes of the reference, the *regulars*, are used again for
the next candidate. Within the launches of one candidate none comes twice: launches stay independent
of each other. A candidate's process serves one launch.

Who has no turn is stopped. A reference that calls leave their traces in is not kept.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .cases import Case, Limits, size_of
from .failures import side_by_side
from .processes import RunnerFailure, RunnerHandle, Template

CANDIDATE = "candidate"
WAITING_SHARE = 4
"""A fourth of the device's memory is for those that wait."""
CONTEXT_BYTES = 512 * 2**20
"""What a process holds on a GPU before it has a tensor."""
CALL_MULTIPLE = 4
"""Of a call's inputs: themselves, its outputs, and what it needs meanwhile."""


@dataclass
class Member:
    """A runner, and what ends it."""

    runner: RunnerHandle
    stack: ExitStack
    is_regular: bool

    def end(self) -> None:
        self.stack.close()


@dataclass
class Crew:
    """The runners of a launch by their names: `reference`, `candidate`, `control`."""

    members: dict[str, Member] = field(default_factory=dict)

    @property
    def runners(self) -> dict[str, RunnerHandle]:
        return {name: member.runner for name, member in self.members.items()}


@dataclass
class Regulars:
    """Runners of one case's reference."""

    case: Case
    idle: list[Member] = field(default_factory=list)
    spent: list[Member] = field(default_factory=list)
    """They had a launch with the candidate at hand."""


@dataclass(frozen=True)
class Terms:
    """Under which processes are started."""

    limits: Limits
    number: int = 1
    """Launches that they are started for at a time,"""
    most: int = 1
    """and of which the memory holds those."""
    keeps: bool = False
    """Whether those of the reference are regulars."""


class Crews:
    """Those of the candidate at hand, and of the references of the problem."""

    def __init__(self, template: Template):
        self.template = template
        self.waiting: list[Crew] = []
        self.of: tuple[Case, dict[str, dict[str, Any]]] | None = None
        """What those that wait were started for."""
        self.regulars: dict[str, Regulars] = {}
        """By the name of their case."""
        self.open_s = 0.0
        """What it took to have the last one."""
        self.leaving: threading.Thread | None = None
        """It waits for regulars that are ending."""

    def take(
        self,
        case: Case,
        programs: dict[str, dict[str, Any]],
        terms: Terms,
        rng: random.Random,
    ) -> Crew:
        """A crew for the programs by name: one that waits, or else the first of those that are
        started now. Whoever takes it gives it to `finish`.

        Raises:
            RunnerFailure: A program could not be loaded. None waits then.
        """
        self.settle()
        started_s = time.monotonic()
        fresh = {
            name: program
            for name, program in programs.items()
            if name == CANDIDATE or not terms.keeps
        }
        if self.of is None or self.of[0] is not case or self.of[1] != fresh:
            self.dismiss()
            self.of = (case, fresh)
        regulars = self._regulars_of(case)
        new = [] if self.waiting else [Crew() for _ in range(terms.number)]
        names = [name for name in programs if name not in fresh]
        lacking = max(0, len(names) * len(self.waiting or new) - len(regulars.idle))
        try:
            self._start(case, fresh, new, lacking, terms, rng)
        except BaseException:
            end_all([member for crew in new for member in crew.members.values()])
            self.dismiss()
            raise
        self.waiting += new
        crew = self.waiting.pop()
        for name in names:
            crew.members[name] = regulars.idle.pop()
        self.open_s = time.monotonic() - started_s
        return crew

    def finish(self, crew: Crew, terms: Terms, *, is_sound: bool) -> None:
        """Its launch is over: regulars wait for another candidate where nothing went wrong."""
        kept = [m for m in crew.members.values() if m.is_regular and is_sound]
        gone = [m for m in crew.members.values() if not (m.is_regular and is_sound)]
        for member in gone:
            member.runner.kill()
        if kept and self.of is not None:
            waits = side_by_side(lambda member: is_released(member, terms.limits), kept)
            regulars = self._regulars_of(self.of[0])
            regulars.spent += [member for member, so in zip(kept, waits, strict=True) if so]
        for member in gone:
            member.end()

    @contextmanager
    def regular(self, case: Case, terms: Terms) -> Iterator[RunnerHandle]:
        """A runner of the reference that is alone."""
        self.settle()
        member = started(case, self.template, case.program, terms.limits, is_regular=True)
        try:
            yield member.runner
        except BaseException:
            member.end()
            raise
        if not terms.keeps:
            member.end()
        elif is_released(member, terms.limits):
            self._regulars_of(case).idle.append(member)

    def _regulars_of(self, case: Case) -> Regulars:
        found = self.regulars.get(case.name)
        if found is None or found.case is not case:
            if found is not None:
                end_all(found.idle + found.spent)
            found = self.regulars[case.name] = Regulars(case)
        return found

    def _start(
        self,
        case: Case,
        fresh: dict[str, dict[str, Any]],
        new: Sequence[Crew],
        lacking: int,
        terms: Terms,
        rng: random.Random,
    ) -> None:
        """The `fresh` programs for every new crew, and as many regulars as are lacking."""
        regulars = self._regulars_of(case)
        self._make_room(regulars, lacking, terms)
        is_primed = len(new) > 1 or terms.keeps

        def start(place: tuple[Crew | None, str]) -> None:
            crew, name = place
            program = case.program if crew is None else fresh[name]
            member = started(
                case,
                self.template,
                program,
                terms.limits,
                is_regular=crew is None,
                is_trusted=name != CANDIDATE,
                is_primed=is_primed,
            )
            if crew is None:
                regulars.idle.append(member)
            else:
                crew.members[name] = member

        places: list[tuple[Crew | None, str]] = [(crew, name) for crew in new for name in fresh]
        places += [(None, "reference")] * lacking
        # Which of equal processes is started first is seen in its times.
        rng.shuffle(places)
        if places:
            side_by_side(start, places)
        rng.shuffle(regulars.idle)

    def _make_room(self, regulars: Regulars, lacking: int, terms: Terms) -> None:
        """End regulars that the candidate at hand needs no more, where there would be too many:
        those of other cases first."""
        others = [one for one in self.regulars.values() if one is not regulars]
        places = [*(one.idle for one in others), *(one.spent for one in others), regulars.spent]
        over = sum(map(len, places)) + len(regulars.idle) + lacking - 2 * terms.most
        leaving: list[Member] = []
        for members in places:
            while members and over > len(leaving):
                leaving.append(members.pop())
        end_all(leaving)

    def dismiss(self) -> None:
        """End those that wait for launches of the candidate at hand."""
        self.of = None
        end_all([member for crew in self.waiting for member in crew.members.values()])
        self.waiting = []
        for one in self.regulars.values():
            one.idle += one.spent
            one.spent = []

    def leave(self) -> None:
        """End all. What takes a GPU's driver its time goes on until `settle`, as nothing is timed
        before."""
        self.settle()
        self.dismiss()
        members = [member for one in self.regulars.values() for member in one.idle]
        self.regulars = {}
        for member in members:
            member.runner.kill()
        self.leaving = threading.Thread(target=end_when_gone, args=(members,))
        self.leaving.start()

    def settle(self) -> None:
        """Wait until those that `leave` ended are gone."""
        if self.leaving is not None:
            self.leaving.join()
            self.leaving = None

    def close(self) -> None:
        """End all, and wait for it."""
        self.leave()
        self.settle()


def started(
    case: Case,
    template: Template,
    program: dict[str, Any],
    limits: Limits,
    *,
    is_regular: bool,
    is_trusted: bool = True,
    is_primed: bool = False,
) -> Member:
    """A runner of a program, stopped; `is_primed` by a first call. Raises RunnerFailure."""
    with ExitStack() as stack:
        opened = case.runner(template, program, limits, is_trusted=is_trusted)
        runner = stack.enter_context(opened)
        if is_primed:
            case.answer(runner, limits, sets=[case.trials[0][1]])
        runner.pause()
        return Member(runner, stack.pop_all(), is_regular)


def is_released(member: Member, limits: Limits) -> bool:
    """Whether it waits now without the tensors of its launch; otherwise it has ended."""
    try:
        member.runner.release(limits.call_s)
    except RunnerFailure:
        member.end()
        return False
    member.runner.pause()
    return True


def end_all(members: Sequence[Member]) -> None:
    """All of them, side by side."""
    for member in members:
        member.runner.kill()
    for member in members:
        member.end()


def end_when_gone(members: Sequence[Member]) -> None:
    """Of processes that were killed; others may be started meanwhile."""
    for member in members:
        member.runner.wait_for_end()
        member.end()


def most_crews(case: Case, num_lanes: int, memory_bytes: int) -> int:
    """That leave most of the memory free while they wait."""
    call_bytes = CALL_MULTIPLE * sum(tensor.nbytes for tensor in case.trials[0][1].tensors)
    crew_bytes = num_lanes * (CONTEXT_BYTES + size_of(case.state_slots) + call_bytes)
    return max(1, memory_bytes // WAITING_SHARE // crew_bytes)
