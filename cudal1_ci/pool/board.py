"""What the threads of a pool share: the schedule, the texts of what it orders, and what was found.

Every method may be called by any thread. A result is in the archive before anybody can take it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.schedule import Schedule
from cudal1_ci.pool.seat import Broken, Seat
from cudal1_ci.pool.work import Judged
from cudal1_ci.records import Candidate, Device, Evaluation, Finding, Problem, Record, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.validation import at_least
from cudal1_ci.verification.prebuild import compiles

POLL_S = 0.5
"""Between looks at whether it is over, where nothing else happens."""


class Limits(Record, frozen=True, kw_only=True):
    """How much is given to a seat, and how often it is tried again."""

    max_batch: int = 8
    """Candidates that compile something, of one problem, that a seat has at once; of others it has
    one."""
    num_tries: int = 3
    """Of a candidate with which a judge dies."""
    max_losses: int = 5
    """Of one seat, one after the other with nothing judged between them; then it is left out. As
    many candidates in a row with which its judge dies are a loss too."""
    max_given_up: int = 5
    """Candidates in a row that are given up, over all seats; then nothing more is tried."""
    max_unread: int = 64
    """Results that the caller has not taken; then seats wait."""

    def __post_init__(self) -> None:
        at_least(self, "cluster", 1, *self.__struct_fields__)


class Board:
    """One for each run of a pool."""

    def __init__(
        self,
        archive: Archive,
        policy: str,
        limits: Limits,
        is_over: Callable[[], bool],
        num_at_work: int,
    ) -> None:
        self.archive, self.policy, self.limits = archive, policy, limits
        self.schedule = Schedule(max_batch=limits.max_batch, num_tries=limits.num_tries)
        self.error: BaseException | None = None
        self.last_loss = "none could be opened"
        self.num_at_work = num_at_work
        """Threads that hold seats, or try to."""
        self._is_over = is_over
        self._is_stopped = False
        self._has_all = False
        self._changed = threading.Condition()
        self._problems: dict[str, Problem] = {}
        self._candidates: dict[str, Candidate] = {}
        self._devices: dict[str, Device] = {}
        self._found: deque[Judged] = deque()
        self._notices: deque[str] = deque()
        self._num_given_up = 0

    # --- for whoever brings tasks and takes results ---

    def add(self, problem: Problem, candidates: Iterable[Candidate], kind: str | None) -> None:
        """More to judge; see `Schedule.add`."""
        with self._changed:
            self._problems[problem.id] = problem
            several = {one.id: one for one in candidates}
            self._candidates.update(several)
            built = {one.id for one in several.values() if compiles(one.program)}
            self.schedule.add(problem.id, several, kind, built)
            self._changed.notify_all()

    def has_all(self) -> None:
        """Nothing more will be added."""
        with self._changed:
            self._has_all = True
            self._changed.notify_all()

    def wants(self) -> bool:
        """Whether something should be added now: not before it is known what it is judged on."""
        with self._changed:
            has_seats = bool(self.schedule.places)
            return has_seats and not self._has_all and self.schedule.wants()

    def taken(self) -> Judged | None:
        """The next result; waits for a moment where there is none."""
        with self._changed:
            if not self._found and self.num_at_work:
                self._changed.wait(POLL_S)
            found = self._found.popleft() if self._found else None
            self._changed.notify_all()
            return found

    def notices(self) -> list[str]:
        """What happened to seats since it was last asked."""
        with self._changed:
            told = list(self._notices)
            self._notices.clear()
            return told

    def numbers(self) -> tuple[int, int]:
        """Seats that are there, and candidates that they have."""
        with self._changed:
            return len(self.schedule.places), self.schedule.num_running

    def kinds(self) -> list[str]:
        """Of the devices of the seats that are there."""
        with self._changed:
            return self.schedule.kinds

    def stop(self) -> None:
        """Nothing of what is under way is wanted any more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    # --- for seats ---

    def join(self, seat: Seat) -> str:
        """A seat is there; the name that it has here, which no other one has."""
        with self._changed:
            name, number = seat.name, 2
            while name in self.schedule.places:
                name, number = f"{seat.name} ({number})", number + 1
            self._devices[name] = seat.device
            if seat.remark is not None:
                self._notices.append(f"{name}: {seat.remark}")
            self.schedule.join(name, seat.device.key)
            self._changed.notify_all()
            return name

    def next(self, name: str) -> tuple[Problem, list[Candidate]] | None:
        """What a seat is to do; waits while there is nothing that it could do, as others may leave
        something. None when all is done, or over."""
        with self._changed:
            while not self.is_done():
                batch = self.schedule.take(name)
                if batch is not None:
                    candidates = [self._candidates[one] for one in batch.candidate_ids]
                    return self._problems[batch.problem_id], candidates
                self._changed.wait(POLL_S)
        return None

    def judged(self, name: str, evaluation: Evaluation) -> None:
        """A verdict came. Raises ArchiveError."""
        candidate_id = evaluation.candidate.id
        with self._changed:
            is_first = self.schedule.done(name, candidate_id)
            self._num_given_up = 0
        if is_first:
            self._keep(evaluation, name)

    def broken(self, name: str, found: Broken) -> None:
        """The judge died with a candidate. Raises: see `_give_up`."""
        with self._changed:
            is_given_up = self.schedule.broken(name, found.candidate_id)
            self._notices.append(f"{name}: the judge died: {found.message}")
            self._changed.notify_all()
        if is_given_up:
            self._give_up(found.candidate_id, name, found.message)

    def lost(self, name: str, message: str) -> None:
        """A seat is gone, or was never there. Raises: see `_give_up`."""
        with self._changed:
            self.last_loss = f"{name}: {message}"
            self._notices.append(f"lost {self.last_loss}")
            given_up = self.schedule.lost(name) if name in self.schedule.places else []
            self._changed.notify_all()
        for candidate_id in given_up:
            self._give_up(candidate_id, name, message)

    def failed(self, error: BaseException) -> None:
        """Something that no other try would mend; the first one counts."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def left(self) -> None:
        """A thread has ended."""
        with self._changed:
            self.num_at_work -= 1
            self._changed.notify_all()

    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._is_stopped or self.error is not None or self._is_over()

    def is_complete(self) -> bool:
        """Whether everything has its end."""
        return self._has_all and self.schedule.is_finished

    def is_done(self) -> bool:
        """Whether a seat may go."""
        return self.is_over() or self.is_complete()

    def _give_up(self, candidate_id: str, name: str, message: str) -> None:
        """Raises: WorkerError when it is not the candidates, ArchiveError."""
        tries = f"judges died with it {self.limits.num_tries} times"
        finding = Finding(rule="judge.died", message=f"{tries}: {message}"[:1000])
        with self._changed:
            self._num_given_up += 1
            num_given_up = self._num_given_up
        self._keep(
            Evaluation(
                candidate=self._candidates[candidate_id],
                verdict=Verdict(status="harness_error", findings=(finding,)),
                device=self._devices[name],
            ),
            name,
        )
        if num_given_up >= self.limits.max_given_up:
            raise WorkerError(f"with {num_given_up} candidates in a row {tries}: {message}")

    def _keep(self, evaluation: Evaluation, name: str) -> None:
        self.archive.record(evaluation, self.policy)
        with self._changed:
            self._candidates.pop(evaluation.candidate.id, None)
            while len(self._found) >= self.limits.max_unread and not self._is_stopped:
                self._changed.wait(POLL_S)
            self._found.append(Judged(evaluation=evaluation, is_known=False, seat=name))
            self._changed.notify_all()
