"""Make the prompts of stage 3: tasks in turn, each with exemplars of what is known by then.

    prompts = StepPrompts(Stream(tasks, archive, device, config), archive, name, per_step=16)
    prompts.of(1)
    ...                # sample, verify, record into the archive, train
    prompts.end(1)     # step 2 shows what was recorded until now

Exemplars and words are the product's own (`optimization.variants_of`, `contrast.select`,
`prompt.render`), and so is the store: the archive, in which a candidate that passed is an exemplar
of its task. A prompt is a function of the archive at the moment when the step before ended, of the
seed and of the place in the stream. These moments are noted in the archive, so that a run that was
killed asks the same when it resumes. The tasks of an epoch are in an order of their own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.optimize.llm_loop import known_profile, remember, variants_of
from cudal1_ci.propose.llm.config import ContrastConfig
from cudal1_ci.propose.llm.contrast import REFERENCE, select
from cudal1_ci.propose.llm.prompt import render
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Device, Record
from cudal1_ci.records.archive import Archive
from model_training.answers import form_of
from model_training.examples import question
from model_training.tasks.record import Task

POLICY = "policy"
"""What the weights that are trained are called in the archive."""


class StreamConfig(Record, frozen=True, kw_only=True):
    """Configure what prompts show."""

    contrast: ContrastConfig = ContrastConfig()
    """`sampler = "none"` is the paper's vanilla GRPO, `random` and `island` its ablations."""
    shows: Literal["all", "own"] = "all"
    """The exemplars besides the reference: `own` are those that the policy wrote, so
    that a task is first asked about as the product asks; `all` whatever the archive has of it,
    stage 1's variants too, which may be as good as any that the policy will write."""
    prompt_tokens: int = 4000
    seed: int = 0


class Prompt(Record, frozen=True, kw_only=True):
    """Hold a question, and what it was made of."""

    task: Task
    messages: tuple[Message, ...]
    exemplar_ids: tuple[str, ...]
    cursor: int
    published: float
    """The moment up to which the archive was known."""
    exemplar_forms: tuple[str, ...] = ()
    """Of the exemplars' code, by `answers.form_of`; the reference has none."""


class Stream:
    """Make an endless sequence of prompts."""

    def __init__(
        self,
        tasks: Sequence[Task],
        archive: Archive,
        device: Device,
        config: StreamConfig,
        policy: str = POLICY,
    ) -> None:
        """Name the `policy` as the archive does (`EnvironmentConfig.proposer`)."""
        if not tasks:
            raise ValueError("expected tasks to ask about")
        self._own = {REFERENCE, policy}
        self._tasks, self._archive, self._device = tuple(tasks), archive, device
        self._config = config

    def at(self, cursor: int, published: float) -> Prompt:
        """Return the prompt of a place, with what the archive knew at a moment."""
        task = self.task_at(cursor)
        remember(task.problem, self._archive)
        known = variants_of(task.problem, (), self._archive, self._device, since=published)
        if self._config.shows == "own":
            known = [one for one in known if one.exemplar.candidate.proposer in self._own]
        rng = random.Random(f"{self._config.seed} {cursor}")
        shown = select(known, self._config.contrast, rng)
        profile = known_profile(task.problem, self._archive, self._device)
        asked = question(task.problem, self._device, profile, shown)
        return Prompt(
            task=task,
            messages=tuple(render(asked, self._config.prompt_tokens)),
            exemplar_ids=tuple(one.exemplar.candidate.id for one in shown),
            cursor=cursor,
            published=published,
            exemplar_forms=tuple(filter(None, (form_of(task.problem, one.text) for one in shown))),
        )

    def task_at(self, cursor: int) -> Task:
        """Return the task of a place: each once in an epoch."""
        epoch, place = divmod(cursor, len(self._tasks))
        order = list(range(len(self._tasks)))
        random.Random(f"{self._config.seed} epoch {epoch}").shuffle(order)
        return self._tasks[order[place]]


ENDED = "training_step"
"""Of the archive's notes: when a step was over, in seconds since the epoch."""


@dataclass
class StepPrompts:
    """Make the prompts of each step of a run; steps count from 1."""

    stream: Stream
    archive: Archive
    name: str
    """Of the run: the same after each resume, and in no other run with this archive."""
    per_step: int

    def __post_init__(self) -> None:
        self.end(0)

    def of(self, step: int) -> list[Prompt]:
        """Return the prompts of a step. Raises: ValueError where the step before is not over."""
        published = self._ended(step - 1)
        if published is None:
            raise ValueError(
                f"the prompts of step {step} show what was known after the step before, which is "
                "not over"
            )
        first = (step - 1) * self.per_step
        return [self.stream.at(first + place, published) for place in range(self.per_step)]

    def end(self, step: int) -> float:
        """Let later prompts show what was recorded until now. Returns the moment, which is that of
        the step's first end where it was over before."""
        known = self._ended(step)
        if known is None:
            known = time.time()
            self.archive.note(ENDED, self._key(step), known)
        return known

    def ends(self) -> list[float]:
        """Return the moments at which steps ended, that of step 0 first."""
        found: list[float] = []
        while (moment := self._ended(len(found))) is not None:
            found.append(moment)
        return found

    def _ended(self, step: int) -> float | None:
        return self.archive.noted(ENDED, self._key(step), float)

    def _key(self, step: int) -> str:
        return f"{self.name}/{step}"
