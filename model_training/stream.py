"""The prompts of stage 3: tasks in turn, each with exemplars of what is known by then.

    stream = Stream(tasks, archive, device, StreamConfig(), state)
    prompts = [stream.next() for _ in range(16)]
    ...                                           # sample, judge, record into the archive, train
    stream.publish()                              # what was recorded since is shown from here on

Exemplars and words are the product's own (`optimization.variants_of`, `contrast.select`,
`prompt.render`), and so is the store: the archive, in which a candidate that passed is an exemplar
of its task. What a prompt shows is a function of the archive as it was when the stream was last
published, of the seed and of the place in the stream, and of nothing else: a run that was killed
and goes on asks the same, and all completions of a group have one prompt.

The tasks of an epoch are in an order of their own. A published moment is in seconds since the
epoch, as the archive's rows are.

`StepPrompts` are a stream by steps. The moment at which a step ended is noted in the archive, and
what prompts show is known up to the end of the step before theirs, or of an earlier one (`lag`). A
run that is taken up again some steps back finds the moments of its former life there, and so asks
what it asked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from cudal1_ci.optimize.llm_loop import known_profile, remember, variants_of
from cudal1_ci.propose.llm.contrast import REFERENCE, ContrastConfig, select
from cudal1_ci.propose.llm.prompt import render
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Device, Record
from cudal1_ci.records.archive import Archive
from model_training.answers import form_of
from model_training.collection import question
from model_training.tasks.record import Task

POLICY = "policy"
"""What the weights that are trained are called in the archive."""


class StreamConfig(Record, frozen=True, kw_only=True):
    """Of a run."""

    contrast: ContrastConfig = ContrastConfig()
    """`sampler = "none"` is the paper's vanilla GRPO, `random` and `island` its ablations."""
    shows: Literal["all", "own"] = "all"
    """Which exemplars there are beside the reference: `own` are those that the policy wrote, so
    that a task is first asked about as the product asks; `all` whatever the archive has of it,
    stage 1's variants too, which may be as good as any that the policy will write."""
    prompt_tokens: int = 4000
    seed: int = 0


class StreamState(Record, frozen=True, kw_only=True):
    """All that a checkpoint keeps of a stream."""

    cursor: int = 0
    published: float = 0.0


class Prompt(Record, frozen=True, kw_only=True):
    """A question, and what it was made of."""

    task: Task
    messages: tuple[Message, ...]
    exemplar_ids: tuple[str, ...]
    cursor: int
    published: float
    """The moment up to which the archive was known."""
    exemplar_forms: tuple[str, ...] = ()
    """Of the exemplars' code, by `answers.form_of`; the reference has none."""


class Stream:
    """An endless sequence of prompts."""

    def __init__(
        self,
        tasks: Sequence[Task],
        archive: Archive,
        device: Device,
        config: StreamConfig,
        state: StreamState,
        policy: str = POLICY,
    ) -> None:
        """
        Args:
            policy: Name of the weights in the archive (`EnvironmentConfig.proposer`).
        """
        if not tasks:
            raise ValueError("expected tasks to ask about")
        self._own = {REFERENCE, policy}
        self._tasks, self._archive, self._device = tuple(tasks), archive, device
        self._config = config
        self.state = state

    def next(self) -> Prompt:
        """The next prompt; the cursor moves on."""
        found = self.at(self.state.cursor)
        self.state = msgspec.structs.replace(self.state, cursor=self.state.cursor + 1)
        return found

    def publish(self) -> None:
        """From here on prompts show what was recorded until now."""
        self.state = msgspec.structs.replace(self.state, published=time.time())

    def at(self, cursor: int) -> Prompt:
        """The prompt of a place, as the archive was when the stream was published."""
        task = self.task_at(cursor)
        remember(task.problem, self._archive)
        known = variants_of(
            task.problem, (), self._archive, self._device, since=self.state.published
        )
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
            published=self.state.published,
            exemplar_forms=tuple(filter(None, (form_of(task.problem, one.text) for one in shown))),
        )

    def task_at(self, cursor: int) -> Task:
        """Each task once in an epoch."""
        epoch, place = divmod(cursor, len(self._tasks))
        order = list(range(len(self._tasks)))
        random.Random(f"{self._config.seed} epoch {epoch}").shuffle(order)
        return self._tasks[order[place]]


ENDED = "training_step"
"""Of the archive's notes: when a step was over, in seconds since the epoch."""


@dataclass
class StepPrompts:
    """Prompts of each step of a run; steps count from 1."""

    stream: Stream
    archive: Archive
    name: str
    """Of the run, alike in all its lives and in no other run with this archive."""
    per_step: int
    lag: int = 0
    """Steps whose records are not shown yet, beside the one that asks."""

    def __post_init__(self) -> None:
        self.end(0)

    def of(self, step: int) -> list[Prompt]:
        """Raises: ValueError where the step is not to be asked yet, since an earlier one that its
        prompts show is not over."""
        shown = max(0, step - 1 - self.lag)
        published = self._ended(shown)
        if published is None:
            raise ValueError(
                f"the prompts of step {step} show what was known after step {shown}, which is not "
                "over: whoever asks reads ahead further than it should"
            )
        first = (step - 1) * self.per_step
        self.stream.state = StreamState(cursor=first, published=published)
        return [self.stream.next() for _ in range(self.per_step)]

    def end(self, step: int) -> float:
        """A step is over: what was recorded until now is known after it. The moment is that of its
        first end, should it have been over before."""
        known = self._ended(step)
        if known is None:
            self.stream.publish()
            known = self.stream.state.published
            self.archive.note(ENDED, self._key(step), known)
        return known

    def ends(self) -> list[float]:
        """Moments at which steps ended, that of step 0 first, as far as they are over."""
        found: list[float] = []
        while (moment := self._ended(len(found))) is not None:
            found.append(moment)
        return found

    def _ended(self, step: int) -> float | None:
        return self.archive.noted(ENDED, self._key(step), float)

    def _key(self, step: int) -> str:
        return f"{self.name}/{step}"
