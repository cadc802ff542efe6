"""Many answers judged: one judge a device, each in a thread of its own.

    with opened_judges(config) as judges:
        scorer = Scorer(judges, archive, policy, EnvironmentConfig())
        outcomes = scorer.outcomes(answered)

All answers to one task go to one judge, in their order, since a judge keeps the reference that it
has checked, and since whether a score is a jump depends on what is known of the task. A program
that several answers have is judged once, and what is in the archive is not judged again. A task
comes to the judge that had it before, unless that one has too much to do: to learn a reference
takes longer than to judge most answers. A jump is measured again on another device of the same kind
where there is one, as in the paper. With a rehearsal (rehearsal.py) what a CPU may try is tried
there first, and judges of a GPU begin with the tasks that are through with it.

Answers come when all of them have been sampled: what is timed has its device for itself, unless the
judges have other devices than the policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.llm_loop import profile_key
from cudal1_ci.records import Candidate, Device
from cudal1_ci.records.archive import Archive
from model_training.bench import BROKEN, Answered, Bench
from model_training.collection import Judge
from model_training.cpu_form import cpu_form
from model_training.environment import Environment, EnvironmentConfig, Outcome
from model_training.judges import Shared
from model_training.pieces import Pieces, at_work
from model_training.progress import Progress
from model_training.rehearsal import Found, Rehearsal
from model_training.tasks.record import Task

PASSED = "passed"
REFERENCE = "reference-status"
"""Kind of a note: what the judge says of a task's own program."""
T = TypeVar("T")


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
        rehearsal: Rehearsal | None = None,
        homes: MutableMapping[str, int] | None = None,
    ) -> None:
        """
        Args:
            policy: Hash of the judges' settings.
            places: The device of each judge, `cuda:0`; those without one have one each.
            go_on: Called between answers; what it raises ends the judging (`Run.go_on`).
            rehearsal: Of programs before a judge sees them.
            homes: Which judge had each task the last time, for scorers that share judges.
        """
        if not judges:
            raise ValueError("expected a judge")
        self.judges = [Shared(one) for one in judges]
        self.archive, self.policy, self.config, self.go_on = archive, policy, config, go_on
        self.places = places or [str(number) for number in range(len(judges))]
        self.rehearsal = rehearsal
        self.homes = {} if homes is None else homes

    def device(self) -> Device:
        """What is measured on; all judges have the same kind."""
        return self.judges[0].device()

    def usable(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks that can be judged, with the profile of each in the archive; asked once of a task.
        What is rehearsed is learned meanwhile.

        Raises:
            WorkerError: Judges die whatever they are given.
        """
        device = self.device()
        open_tasks = [one for one in tasks if self._known(one, device) is None]
        with ThreadPoolExecutor(1, "rehearsal") as beside:
            learned = None
            if self.rehearsal is not None:
                learned = beside.submit(self.rehearsal.learn, [one.problem for one in open_tasks])
            progress = Progress("references learned", len(open_tasks))

            def accept(judge: Shared, task: Task) -> None:
                self.accepts(judge, task)
                progress.step()

            self.each(open_tasks, accept, lambda task: task.id)
            if learned is not None:
                learned.result()
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
        environments = [self.environment(number) for number in range(len(self.judges))]
        benches = {
            id(judge): Bench(environment, self.go_on)
            for judge, environment in zip(self.judges, environments, strict=True)
        }
        ready: Pieces[tuple[list[int], Found]] = Pieces(
            len(self.judges), lambda piece: answered[piece[0][0]][0].task.id, self.homes
        )

        def judge_all(judge: Shared, piece: tuple[list[int], Found]) -> None:
            places, settled = piece
            said = benches[id(judge)].judge([answered[place] for place in places], settled)
            found.update(zip(places, said, strict=True))
            progress.step(len(places))

        progress = Progress("answers judged", len(answered))

        def put(places: list[int], settled: Found) -> bool:
            ready.put((places, settled))
            return not ready.errors

        waiting = []
        for places in by_task(answered):
            tried = self.to_rehearse(benches[id(self.judges[0])], [answered[one] for one in places])
            if tried:
                waiting.append((places, answered[places[0]][0].task.problem, tried))
            else:
                ready.put((places, {}))
        with at_work(ready, self.judges, judge_all):
            if self.rehearsal is not None:
                self.rehearsal.each(waiting, put)
        return [found[place] for place in range(len(answered))]

    def to_rehearse(self, bench: Bench, answered: Sequence[Answered]) -> list[Candidate]:
        """Of the answers to a task, the different programs that a CPU may settle."""
        if self.rehearsal is None:
            return []
        candidates = [bench.candidate(one) for one in answered]
        distinct = {one.id: one for one in candidates if one is not None}
        return [
            one
            for one in distinct.values()
            if cpu_form(one.program) is not None and not bench.environment.knows(one)
        ]

    @property
    def rehearse_s(self) -> float:
        """What the rehearsal of the last answers has taken; judges were at work meanwhile."""
        return 0.0 if self.rehearsal is None else self.rehearsal.took_s

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
        left = Pieces(len(self.judges), key, self.homes)
        for piece in pieces:
            left.put(piece)
        with at_work(left, self.judges, work):
            pass


def by_task(answered: Sequence[Answered]) -> list[list[int]]:
    """Places of the answers to one task together, the task with most of them first."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, (prompt, _, _) in enumerate(answered):
        places[prompt.task.id].append(place)
    return sorted(places.values(), key=len, reverse=True)
