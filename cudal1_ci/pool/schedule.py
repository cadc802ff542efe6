"""What is judged next, and where. Pure: no clock, no threads, no processes.

    schedule.add(problem_id, candidate_ids)
    schedule.join("host GPU 0", kind)
    batch = schedule.take("host GPU 0")
    schedule.done("host GPU 0", candidate_id)       or broken(...), or lost(...) with all of it

A seat goes on with the problem that it has, whose reference its judge has checked. Then come those
that are its own: each problem has a seat by its content hash, so that it comes to the machine where
earlier runs have left what it compiles. A seat that has none of its own takes one from whoever has
most waiting, and where every problem is begun, candidates of one, at the price of one more
check of its reference.

Times of different devices are not compared: a problem is judged on seats of one kind (`Device.key`)
as long as there is one.

Candidates are taken one at a time, as what a seat has can be taken from it by nobody, and asking
costs milliseconds of a trial's seconds. Those that compile something are taken together: the seat
builds them at once, and judges first what is ready. Such batches get smaller towards the end.
Source: Polychronopoulos & Kuck, Guided Self-Scheduling, IEEE ToC C-36 (1987): each takes a fixed
share of what is left; half of an even share, here.

A candidate with which a judge dies is tried again, elsewhere where there is another seat, and given
up after `num_tries`. Of a batch with which a seat is lost nobody knows which one it was: all of it
is then taken one by one, and that loss counts for none.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable

from cudal1_ci.pool.line import Batch, Item, Line, Place, weight


class Schedule:
    """Not for several threads at once."""

    def __init__(self, *, max_batch: int = 8, num_tries: int = 3):
        if max_batch < 1 or num_tries < 1:
            raise ValueError(f"expected 1 or more, got {max_batch=}, {num_tries=}")
        self.max_batch = max_batch
        self.num_tries = num_tries
        self.places: dict[str, Place] = {}
        self._lines: dict[str, Line] = {}
        self._active: dict[str, Line] = {}
        """Those in which something waits."""
        self._known: set[str] = set()
        """Ids of all candidates that were ever added."""
        self._open: set[str] = set()
        """Of those, the ones without an end."""
        self.num_waiting = 0

    # --- what comes ---

    def add(
        self,
        problem_id: str,
        candidate_ids: Iterable[str],
        kind: str | None = None,
        built: Collection[str] = (),
    ) -> None:
        """More candidates of a problem; those that are known are left out. `kind` is of the
        devices on which others of it were judged before, `built` are those that compile."""
        ids = dict.fromkeys(candidate_ids)
        new = [Item(one, is_built=one in built) for one in ids if one not in self._known]
        self._known.update(item.id for item in new)
        self._open.update(item.id for item in new)
        line = self._lines.setdefault(problem_id, Line(problem_id, kind, deque()))
        self._put(line, new)

    def join(self, seat: str, kind: str) -> None:
        """A seat is there, or there again."""
        if seat in self.places:
            raise ValueError(f"two seats are called {seat!r}")
        self.places[seat] = Place(kind)
        self._assign()

    # --- what goes ---

    def take(self, seat: str) -> Batch | None:
        """What the seat is to do next; None where there is nothing for it now."""
        place = self.places[seat]
        if place.batch:
            raise ValueError(f"{seat} has {len(place.batch)} candidates already")
        line = self._line_for(seat, place)
        if line is None:
            return None
        taken = self._taken(line, seat)
        self.num_waiting -= len(taken)
        if line.kind is None or not self._has_kind(line.kind):
            line.kind = place.kind
        if place.problem_id is not None and place.problem_id != line.problem_id:
            self._lines[place.problem_id].holders.discard(seat)
        line.holders.add(seat)
        place.problem_id = line.problem_id
        place.batch = {item.id: item for item in taken}
        return Batch(line.problem_id, tuple(place.batch))

    def done(self, seat: str, candidate_id: str) -> bool:
        """A verdict came; False where it is not the first."""
        self.places[seat].batch.pop(candidate_id, None)
        is_first = candidate_id in self._open
        self._open.discard(candidate_id)
        return is_first

    def broken(self, seat: str, candidate_id: str) -> bool:
        """The judge died with a candidate; True where it is given up."""
        place = self.places[seat]
        item = place.batch.pop(candidate_id)
        return not self._again(item, seat, place.problem_id)

    def lost(self, seat: str) -> list[str]:
        """A seat is gone with what it had; the candidates of that which are given up."""
        place = self.places.pop(seat)
        if place.problem_id is not None:
            self._lines[place.problem_id].holders.discard(seat)
        items = list(place.batch.values())
        given_up: list[str] = []
        if len(items) == 1:
            given_up = [one.id for one in items if not self._again(one, seat, place.problem_id)]
        elif place.problem_id is not None:
            for item in items:
                item.is_suspect = True
            self._put(self._lines[place.problem_id], items)
        self._assign()
        return given_up

    # --- how it stands ---

    @property
    def num_running(self) -> int:
        """Candidates that seats have."""
        return sum(len(place.batch) for place in self.places.values())

    @property
    def is_finished(self) -> bool:
        """Whether every candidate has an end."""
        return not self._open

    @property
    def kinds(self) -> list[str]:
        """Of the seats that are there, the most frequent first."""
        return [kind for kind, _ in Counter(p.kind for p in self.places.values()).most_common()]

    def wants(self) -> bool:
        """Whether there should be more to choose from."""
        return self.num_waiting < 2 * self.max_batch * max(1, len(self.places))

    # --- which line ---

    def _line_for(self, seat: str, place: Place) -> Line | None:
        possible = [one for one in self._active.values() if self._may_take(seat, place, one)]
        for line in possible:
            if line.problem_id == place.problem_id:
                return line
        begun = [one for one in possible if one.holders]
        free = [one for one in possible if not one.holders]
        own = [one for one in free if one.owner == seat]
        if own:
            return max(own, key=lambda one: len(one.waiting))
        if free:
            load: Counter[str | None] = Counter()
            for one in free:
                load[one.owner] += len(one.waiting)
            return max(free, key=lambda one: (load[one.owner], len(one.waiting)))
        # The last one of a problem is left to whoever has the reference, unless it may not.
        split = [one for one in begun if len(one.waiting) > 1 or not self._is_held_for(one)]
        return max(split, key=lambda one: len(one.waiting), default=None)

    def _may_take(self, seat: str, place: Place, line: Line) -> bool:
        """Whether anything that waits there is for this seat."""
        is_kind = line.kind in (None, place.kind) or not self._has_kind(line.kind)
        return is_kind and any(self._may(seat, item, line) for item in line.waiting)

    def _may(self, seat: str, item: Item, line: Line) -> bool:
        """Not where it failed, as long as there is a seat where it has not."""
        if seat not in item.failed_on:
            return True
        return not any(
            name not in item.failed_on and line.kind in (None, other.kind)
            for name, other in self.places.items()
        )

    def _is_held_for(self, line: Line) -> bool:
        """Whether a seat that has the reference may take the first that waits."""
        return any(self._may(holder, line.waiting[0], line) for holder in line.holders)

    def _has_kind(self, kind: str | None) -> bool:
        return any(place.kind == kind for place in self.places.values())

    def _taken(self, line: Line, seat: str) -> list[Item]:
        """The next of a line: a single one, or several that are built and not suspect."""
        possible = [item for item in line.waiting if self._may(seat, item, line)]
        taken = possible[:1]
        if taken[0].is_built and not taken[0].is_suspect:
            share = math.ceil(self.num_waiting / (2 * len(self.places)))
            alike = [item for item in possible if item.is_built and not item.is_suspect]
            taken = alike[: min(self.max_batch, share)]
        for item in taken:
            line.waiting.remove(item)
        if not line.waiting:
            del self._active[line.problem_id]
        return taken

    # --- bookkeeping ---

    def _put(self, line: Line, items: list[Item]) -> None:
        if not items:
            return
        line.waiting.extend(items)
        self.num_waiting += len(items)
        line.owner = self._owner(line)
        self._active[line.problem_id] = line

    def _again(self, item: Item, seat: str, problem_id: str | None) -> bool:
        """Whether a candidate with which a judge died waits for another try."""
        item.num_deaths += 1
        item.failed_on.add(seat)
        item.is_suspect = True
        if problem_id is None or item.num_deaths >= self.num_tries:
            self._open.discard(item.id)
            return False
        self._put(self._lines[problem_id], [item])
        return True

    def _assign(self) -> None:
        for line in self._active.values():
            line.owner = self._owner(line)

    def _owner(self, line: Line) -> str | None:
        """Rendezvous hashing: when a seat comes or goes, only its own problems move."""
        names = [name for name, one in self.places.items() if line.kind in (None, one.kind)]
        return max(names, key=lambda name: weight(line.problem_id, name), default=None)
