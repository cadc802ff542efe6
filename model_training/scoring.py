"""Many answers judged: one judge a device, each in a thread of its own.

    with opened_judges(config) as judges:
        scorer = Scorer(judges, archive, policy, EnvironmentConfig())
        outcomes = scorer.outcomes(answered)

All answers to one task go to one judge, in their order, since a judge keeps the reference that it
has checked, and since whether a score is a jump depends on what is known of the task. A program
that several answers have is judged once, and what is in the archive is not judged again. A task
comes to the judge that had it before, unless that one has too much to do. A jump is measured again
on another device of the same kind where there is one, as in the paper.

Answers come when all of them have been sampled: what is timed has its device for itself, unless the
judges have other devices than the policy.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from cudal1_ci.archive import Archive
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimization import profile_key
from cudal1_ci.propose.answer import Unusable
from cudal1_ci.schema import Candidate, Device, Problem
from model_training.collection import Judge
from model_training.environment import Environment, EnvironmentConfig, Outcome, candidate_in
from model_training.judges import Builds, Shared
from model_training.stream import Prompt
from model_training.table import Sample
from model_training.tasks.record import Task

NUM_TRIES = 2
"""Of a candidate with which the judge itself dies: a machine has moods, a program has not."""
MAX_DEATHS = 5
"""Candidates in a row with which it dies: then it is not the candidates."""
PASSED, BROKEN = "passed", "harness_error"
REFERENCE = "reference-status"
"""Kind of a note: what the judge says of a task's own program."""
T = TypeVar("T")


Answered = tuple[Prompt, str, bool]
"""A prompt, an answer to it, and whether that was cut at the longest length."""


class Scorer:
    """Judges that share an archive."""

    def __init__(
        self,
        judges: Sequence[Judge],
        archive: Archive,
        policy: str,
        config: EnvironmentConfig,
        go_on: Callable[[], None] = lambda: None,
        places: Sequence[str] = (),
    ) -> None:
        """
        Args:
            policy: Hash of the judges' settings.
            places: The device of each judge, `cuda:0`; those without one have one each.
            go_on: Called between answers; what it raises ends the judging (`Run.go_on`).
        """
        if not judges:
            raise ValueError("expected a judge")
        self.judges = [Shared(one) for one in judges]
        self.archive, self.policy, self.config, self.go_on = archive, policy, config, go_on
        self.places = places or [str(number) for number in range(len(judges))]

    def device(self) -> Device:
        """What is measured on; all judges have the same kind."""
        return self.judges[0].device()

    def usable(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks that can be judged, with the profile of each in the archive; asked once of a task.

        Raises:
            WorkerError: Judges die whatever they are given.
        """
        device = self.device()
        open_tasks = [one for one in tasks if self._known(one, device) is None]
        self.each(open_tasks, self.accepts, lambda task: task.id)
        return [one for one in tasks if self._known(one, device) == PASSED]

    def accepts(self, judge: Shared, task: Task) -> bool:
        """Whether a judge accepts the reference of a task; then its profile is in the archive."""
        self.go_on()
        device = self.device()
        status = self._known(task, device)
        if status is None:
            try:
                status = judge.prepare(task.problem, self.archive)
            except WorkerError:
                status = BROKEN
            self.archive.note(REFERENCE, self._key(task, device), status)
        return status == PASSED

    def _known(self, task: Task, device: Device) -> str | None:
        return self.archive.noted(REFERENCE, self._key(task, device), str)

    def _key(self, task: Task, device: Device) -> str:
        return f"{profile_key(task.problem, device)}/{self.policy}"

    def outcomes(self, answered: Sequence[Answered]) -> list[Outcome]:
        """What each answer is worth, in their order.

        Raises:
            WorkerError: Judges die whatever they are given.
        """
        found: dict[int, Outcome] = {}
        benches: dict[int, Bench] = {
            id(judge): Bench(self.environment(number), self.go_on)
            for number, judge in enumerate(self.judges)
        }

        def judge_all(judge: Shared, places: list[int]) -> None:
            said = benches[id(judge)].judge([answered[place] for place in places])
            found.update(zip(places, said, strict=True))

        self.each(by_task(answered), judge_all, lambda places: answered[places[0]][0].task.id)
        return [found[place] for place in range(len(answered))]

    def environment(self, number: int = 0) -> Environment:
        """That of a judge, with the next one on another device like its own to measure jumps
        again."""
        judge, numbers = self.judges[number], range(number + 1, number + len(self.judges))
        others = [one % len(self.judges) for one in numbers]
        key = judge.device().key
        second = next(
            (
                self.judges[one]
                for one in others
                if self.places[one] != self.places[number] and self.judges[one].device().key == key
            ),
            None,
        )
        return Environment(judge, self.archive, self.policy, self.config, second)

    def environment_of(self, judge: Shared, proposer: str) -> Environment:
        """That of a judge, for the answers of another model."""
        config = msgspec.structs.replace(self.config, proposer=proposer)
        return Environment(judge, self.archive, self.policy, config)

    def each(
        self, pieces: Iterable[T], work: Callable[[Shared, T], object], key: Callable[[T], str]
    ) -> None:
        """Work on each piece with the judge that those of its key are for, or with one that has
        nothing left; the first error ends it all."""
        left: list[deque[T]] = [deque() for _ in self.judges]
        for piece in pieces:
            left[zlib.crc32(key(piece).encode()) % len(left)].append(piece)
        errors: list[BaseException] = []
        lock = threading.Lock()

        def take(number: int) -> T | None:
            with lock:
                if left[number]:
                    return left[number].popleft()
                longest = max(left, key=len)
                return longest.pop() if longest else None

        def run(number: int) -> None:
            while not errors and (piece := take(number)) is not None:
                try:
                    work(self.judges[number], piece)
                except BaseException as error:  # noqa: BLE001 - raised below, for whoever asked
                    errors.append(error)

        threads = [
            threading.Thread(target=run, args=(number,), name="judge", daemon=True)
            for number in range(len(self.judges))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


@dataclass
class Bench:
    """Judges answers to one task after another, with one environment."""

    environment: Environment
    go_on: Callable[[], None]
    num_deaths: int = 0

    def judge(self, answered: Sequence[Answered]) -> list[Outcome]:
        """Of answers to one task."""
        found, known = [], dict[str, Outcome]()
        candidates = [self.candidate(one) for one in answered]
        self.build_ahead(answered[0][0].task.problem, candidates)
        for one, candidate in zip(answered, candidates, strict=True):
            self.go_on()
            if candidate is None:
                outcome = self.outcome(one)
            elif candidate.id in known:
                outcome = msgspec.structs.replace(known[candidate.id], is_known=True)
            else:
                outcome = known[candidate.id] = self.outcome(one)
            found.append(outcome)
        return found

    def candidate(self, one: Answered) -> Candidate | None:
        prompt, text, is_cut = one
        config = self.environment.config
        found = candidate_in(prompt.task.problem, text, prompt.exemplar_ids, config, is_cut=is_cut)
        return None if isinstance(found, Unusable) else found

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate | None]) -> None:
        """What is not known yet."""
        environment = self.environment
        key = environment.judge.device().key
        distinct = {one.id: one for one in candidates if one is not None}
        new = [
            one
            for one in distinct.values()
            if environment.archive.lookup(problem.id, one.id, key, environment.policy) is None
        ]
        if new and isinstance(environment.judge, Builds):
            environment.judge.build_ahead(problem, new)

    def outcome(self, one: Answered) -> Outcome:
        """Where the judge dies with it, again; then it is worth nothing."""
        prompt, text, is_cut = one
        for number in range(NUM_TRIES):
            try:
                found = self.environment.outcome(prompt, text, is_cut=is_cut)
            except WorkerError:
                if self.num_deaths >= MAX_DEATHS:
                    raise
                if number + 1 == NUM_TRIES:
                    self.num_deaths += 1
            else:
                self.num_deaths = 0
                return found
        return Outcome(sample=Sample(task=prompt.task.name, status=BROKEN), reward=0.0)


def by_task(answered: Sequence[Answered]) -> list[list[int]]:
    """Places of the answers to one task together, the task with most of them first."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, (prompt, _, _) in enumerate(answered):
        places[prompt.task.id].append(place)
    return sorted(places.values(), key=len, reverse=True)
