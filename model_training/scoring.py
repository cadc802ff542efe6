"""Score many answers: one verifier a device, each in a thread of its own.

    with opened_judges(config) as judges:
        outcomes = Scorer(judges, archive, policy, EnvironmentConfig()).outcomes(answered)

All answers to one task go to one verifier, in their order: it keeps the reference that it has
checked, and whether a score is a jump depends on what is known of the task. A program that several
answers have is verified once, and what is in the archive is not verified again. A task comes to the
verifier that had it before, unless that one has too much to do. A jump is measured again on
another device of the same kind where there is one, as in the paper. With a prefilter
(cpu_prefilter.py) a CPU tries what it may, and verifiers of a GPU begin with the tasks that are
through with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.llm_loop import profile_key
from cudal1_ci.records import Candidate, Device, Problem
from cudal1_ci.records.archive import Archive
from model_training.cpu_prefilter import CpuPrefilter, Found, Settled, may_try
from model_training.environment import Environment, EnvironmentConfig, Outcome, candidate_in
from model_training.examples import Verifier
from model_training.judges import Builds, Shared
from model_training.prompt_stream import Prompt
from model_training.table import Sample
from model_training.tasks.record import Task
from model_training.work_queue import Progress, WorkQueue, at_work

PASSED = "passed"
REFERENCE = "reference-status"
"""Kind of a note: what the verifier says of a task's own program."""
NUM_TRIES = 2
"""Of a candidate with which the verifier itself dies: a machine has moods, a program has not."""
MAX_DEATHS = 5
"""Candidates in a row with which it dies: then it is not the candidates."""
BROKEN = "harness_error"
Answered = tuple[Prompt, str, bool]
"""A prompt, an answer to it, and whether that was cut at the longest length."""
T = TypeVar("T")


class Scorer:
    """Share an archive between verifiers."""

    def __init__(
        self,
        judges: Sequence[Verifier],
        archive: Archive,
        policy: str,
        config: EnvironmentConfig,
        go_on: Callable[[], None] = lambda: None,
        places: Sequence[str] = (),
        prefilter: CpuPrefilter | None = None,
        homes: MutableMapping[str, int] | None = None,
    ) -> None:
        """Store the arguments.

        Args:
            policy: Hash of the verifiers' settings.
            places: The device of each verifier, `cuda:0`; those without one have one each.
            go_on: Called between answers; what it raises ends verification (`Run.go_on`).
            prefilter: Of programs before a verifier sees them.
            homes: Which verifier had each task the last time, for scorers that share verifiers.
        """
        if not judges:
            raise ValueError("expected a judge")
        self.judges = [Shared(one) for one in judges]
        self.archive, self.policy, self.config, self.go_on = archive, policy, config, go_on
        self.places = places or [str(number) for number in range(len(judges))]
        self.prefilter = prefilter
        self.homes = {} if homes is None else homes

    def device(self) -> Device:
        """Return the device that measures; all verifiers have the same kind."""
        return self.judges[0].device()

    def usable(self, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks that can be verified, with the profile of each in the archive; asked once
        of a task. What is prefiltered is learned meanwhile.

        Raises:
            WorkerError: Verifiers die whatever they are given.
        """
        device = self.device()
        open_tasks = [one for one in tasks if self._known(one, device) is None]
        with ThreadPoolExecutor(1, "prefilter") as beside:
            learned = None
            if self.prefilter is not None:
                learned = beside.submit(self.prefilter.learn, [one.problem for one in open_tasks])
            progress = Progress("references learned", len(open_tasks))

            def accept(judge: Shared, task: Task) -> None:
                self.accepts(judge, task)
                progress.step()

            self.each(open_tasks, accept, lambda task: task.id)
            if learned is not None:
                learned.result()
        return [one for one in tasks if self._known(one, device) == PASSED]

    def accepts(self, judge: Shared, task: Task) -> bool:
        """Return whether a verifier accepts the reference of a task; then its profile is in the
        archive."""
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
        """Return what each answer is worth, in their order.

        Raises:
            WorkerError: Verifiers die whatever they are given.
        """
        found: dict[int, Outcome] = {}
        environments = [self.environment(number) for number in range(len(self.judges))]
        benches = {
            id(judge): TaskScorer(environment, self.go_on)
            for judge, environment in zip(self.judges, environments, strict=True)
        }
        ready: WorkQueue[tuple[list[int], Found]] = WorkQueue(
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
            tried = self.to_prefilter(
                benches[id(self.judges[0])], [answered[one] for one in places]
            )
            if tried:
                waiting.append((places, answered[places[0]][0].task.problem, tried))
            else:
                ready.put((places, {}))
        with at_work(ready, self.judges, judge_all):
            if self.prefilter is not None:
                self.prefilter.each(waiting, put)
        return [found[place] for place in range(len(answered))]

    def to_prefilter(self, bench: TaskScorer, answered: Sequence[Answered]) -> list[Candidate]:
        """Return the different programs among the answers to a task that a CPU may settle."""
        if self.prefilter is None:
            return []
        candidates = [bench.candidate(one) for one in answered]
        distinct = {one.id: one for one in candidates if one is not None}
        return [
            one
            for one in distinct.values()
            if may_try(one.program) and not bench.environment.knows(one)
        ]

    @property
    def prefilter_s(self) -> float:
        """Return what the prefilter of the last answers has taken; verifiers were at work
        meanwhile."""
        return 0.0 if self.prefilter is None else self.prefilter.took_s

    def environment(self, number: int = 0) -> Environment:
        """Return a verifier's environment, with the next one on another device to measure jumps."""
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
        """Return the environment of a verifier for the answers of another model."""
        config = msgspec.structs.replace(self.config, proposer=proposer)
        return Environment(judge, self.archive, self.policy, config)

    def each(
        self, pieces: Iterable[T], work: Callable[[Shared, T], object], key: Callable[[T], str]
    ) -> None:
        """Work on each piece with the verifier that those of its key are for, or with one that has
        nothing left; the first error ends it all."""
        left = WorkQueue(len(self.judges), key, self.homes)
        for piece in pieces:
            left.put(piece)
        with at_work(left, self.judges, work):
            pass


def by_task(answered: Sequence[Answered]) -> list[list[int]]:
    """Return places of the answers to one task together, the task with most of them first."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, (prompt, _, _) in enumerate(answered):
        places[prompt.task.id].append(place)
    return sorted(places.values(), key=len, reverse=True)


@dataclass
class TaskScorer:
    """Verify answers to one task after another, with one environment. Of programs that several
    answers have one is verified. A candidate that kills the verifier is worth nothing; a verifier
    that dies of candidate after candidate is an error."""

    environment: Environment
    go_on: Callable[[], None]
    num_deaths: int = 0

    def judge(self, answered: Sequence[Answered], settled: Found) -> list[Outcome]:
        """Verify answers to one task; what is `settled` no verifier need see."""
        found, known = [], dict[str, Outcome]()
        candidates = [self.candidate(one) for one in answered]
        self.build_ahead(answered[0][0].task.problem, candidates)
        for one, candidate in zip(answered, candidates, strict=True):
            self.go_on()
            if candidate is None:
                outcome = self.outcome(one)
            elif candidate.id in known:
                outcome = msgspec.structs.replace(known[candidate.id], is_known=True)
            elif candidate.id in settled:
                outcome = known[candidate.id] = settled_outcome(one[0].task, settled[candidate.id])
            else:
                outcome = known[candidate.id] = self.outcome(one)
            found.append(outcome)
        return found

    def candidate(self, one: Answered) -> Candidate | None:
        prompt, text, is_cut = one
        config = self.environment.config
        found = candidate_in(prompt, text, config, is_cut=is_cut)
        return None if isinstance(found, str) else found

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate | None]) -> None:
        """Build programs that are not known yet."""
        environment = self.environment
        distinct = {one.id: one for one in candidates if one is not None}
        new = [one for one in distinct.values() if not environment.knows(one)]
        if new and isinstance(environment.judge, Builds):
            environment.judge.build_ahead(problem, new)

    def outcome(self, one: Answered) -> Outcome:
        """Try again where the verifier dies with an answer; then it is worth nothing."""
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


def settled_outcome(task: Task, settled: Settled) -> Outcome:
    """Return what an answer is worth that fails on any device."""
    return Outcome(
        sample=Sample(task=task.name, status=settled.evaluation.verdict.status),
        reward=0.0,
        evaluation=settled.evaluation,
        is_known=settled.is_known,
        was_prefiltered=True,
    )
