"""Seats at work: a thread for each, until there is nothing left.

What is in the archive for a device that is there is told and not judged again. The caller's thread
alone reads the tasks, as many as keep the seats busy, and takes the results: seats wait for one
that takes none.

A seat that is lost is opened again, and what it had is judged by another one or by the new one. A
candidate with which judges die `num_tries` times is a `harness_error`, which is never re-used; when
that happens with several in a row it is not the candidates, and is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.board import Board, Limits
from cudal1_ci.pool.seat import Broken, Seat, SeatLost, Seats
from cudal1_ci.pool.view import NoView, View
from cudal1_ci.pool.work import Judged, Task
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.archive import Archive


def evaluate_all(
    tasks: Iterable[Task],
    seats: Seats,
    archive: Archive,
    policy: str,
    *,
    limits: Limits | None = None,
    may_reuse: bool = True,
    is_over: Callable[[], bool] = lambda: False,
    view: View | None = None,
) -> Iterator[Judged]:
    """Every candidate of the tasks once, as they are judged.

    `policy` is the hash of the judges' settings (`TrialConfig.policy`). Once `is_over`, the
    candidate that each seat is at is finished and nothing else begun. Whoever closes the iterator
    ends what is under way.

    Raises:
        WorkerError: No seat is left, or judges die whatever they are given.
        UnsupportedError: A seat's machine does not have what is required.
        ArchiveError: A result could not be kept.
    """
    board = Board(archive, policy, limits or Limits(), is_over, seats.num_seats)
    pool = Pool(seats, board)
    with view or NoView() as shown:
        try:
            yield from pool.results(iter(tasks), shown, may_reuse=may_reuse)
        finally:
            pool.stop()


class Pool:
    """The threads of one run of `evaluate_all`."""

    def __init__(self, seats: Seats, board: Board):
        self.seats, self.board = seats, board
        self._seen: set[str] = set()
        self._open: dict[int, Seat] = {}
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"seat {number}", daemon=True)
            for number in range(seats.num_seats)
        ]

    def results(self, tasks: Iterator[Task], view: View, *, may_reuse: bool) -> Iterator[Judged]:
        """Feed the seats and hand out what they find."""
        board = self.board
        for thread in self._threads:
            thread.start()
        while True:
            is_end = not board.num_at_work
            if board.wants() and not board.is_over():
                several = self._added(tasks, view, may_reuse=may_reuse)
            else:
                found = board.taken()
                several = [] if found is None else [found]
                if found is None and is_end:
                    break
            for text in board.notices():
                view.notice(text)
            view.seats(*board.numbers())
            for judged in several:
                view.judged(judged)
                yield judged
        if board.error is not None:
            raise board.error
        if not board.is_done():
            raise WorkerError(f"no seat is left; the last one that was lost: {board.last_loss}")

    def stop(self) -> None:
        """End what is under way, and wait until it has ended."""
        self.board.stop()
        for seat in list(self._open.values()):
            seat.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _added(self, tasks: Iterator[Task], view: View, *, may_reuse: bool) -> list[Judged]:
        """Add the next task; what the archive knows of it."""
        task = next(tasks, None)
        if task is None:
            self.board.has_all()
            return []
        new = {one.id: one for one in task.candidates if one.id not in self._seen}
        self._seen.update(new)
        view.added(task, len(new))
        kind, known = None, dict[str, Evaluation]()
        for one in self.board.kinds() if may_reuse else []:
            of_kind = self._known(task.problem, new.values(), one)
            if len(of_kind) > len(known):
                kind, known = one, of_kind
        rest = [one for one in new.values() if one.id not in known]
        self.board.add(task.problem, rest, kind)
        return [Judged(evaluation=one, is_known=True) for one in known.values()]

    def _known(
        self, problem: Problem, candidates: Iterable[Candidate], kind: str
    ) -> dict[str, Evaluation]:
        """What the archive has of candidates on devices of that kind."""
        found = {}
        for one in candidates:
            known = self.board.archive.lookup(problem.id, one.id, kind, self.board.policy)
            if known is not None:
                found[one.id] = msgspec.structs.replace(known, candidate=one)
        return found

    def _work(self, number: int) -> None:
        """Hold a seat, as long as there is work and it can be had."""
        board, num_losses = self.board, 0
        try:
            while num_losses < board.limits.max_losses and not board.is_done():
                num_judged = self._sit(number)
                num_losses = 1 if num_judged else num_losses + 1
        except BaseException as error:  # noqa: BLE001 - raised by results(), to the caller
            board.failed(error)
        finally:
            board.left()

    def _sit(self, number: int) -> int:
        """Open a seat and serve until it is lost, or all is done; how many were judged."""
        sitting = Sitting(self.board, f"seat {number}")
        try:
            seat = self.seats.open(number, self.board.is_done)
        except SeatLost as error:
            if not self.board.is_done():
                self.board.lost(sitting.name, str(error))
            return 0
        self._open[number] = seat
        try:
            sitting.serve(seat)
        except SeatLost as error:
            self.board.lost(sitting.name, str(error))
        finally:
            del self._open[number]
            seat.close()
        return sitting.num_judged


class Sitting:
    """One seat from its opening to its end."""

    def __init__(self, board: Board, name: str):
        self.board, self.name = board, name
        self.num_judged = 0
        self._num_broken = 0
        """In a row."""

    def serve(self, seat: Seat) -> None:
        """Do what there is to do. Raises: SeatLost."""
        self.name = self.board.join(seat)
        while (batch := self.board.next(self.name)) is not None:
            problem, candidates = batch
            left = {one.id for one in candidates}
            for found in seat.judge(problem, candidates):
                left.discard(self._told(found))
                if left and self.board.is_over():
                    return
            if left:
                raise SeatLost(f"it said nothing of {len(left)} of {len(candidates)} candidates")

    def _told(self, found: Evaluation | Broken) -> str:
        """The id of the candidate."""
        if isinstance(found, Evaluation):
            self.board.judged(self.name, found)
            self.num_judged += 1
            self._num_broken = 0
            return found.candidate.id
        self.board.broken(self.name, found)
        self._num_broken += 1
        if self._num_broken >= self.board.limits.max_losses:
            raise SeatLost(f"its judge died {self._num_broken} times in a row: {found.message}")
        return found.candidate_id
