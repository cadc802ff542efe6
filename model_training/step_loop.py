"""Run the steps of stage 3 but for the update of the weights: ask, score, log, save.

    loop = StepLoop(config=config, policy=policy, rollouts=rollouts, scorer=scorer, ...)
    asked = loop.roll_out(step)
    loop.finish(step, asked, rewards, numbers)    # what was found is shown from the next step on

All that a step draws is a function of the seed and its number, and its prompts show the archive up
to a noted moment: a run that was killed makes the same steps again, if the verifier and the device
say the same again.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from cudal1_ci.records import Evaluation, content_hash
from cudal1_ci.stats import speedups
from model_training.asking import Asked, RolloutGroup, ask, sample_lines
from model_training.measures import measures
from model_training.objective.reward import smoothed
from model_training.policy import Policy
from model_training.prompt_stream import StepPrompts, Stream
from model_training.rollouts import Rollouts
from model_training.scoring import Scorer
from model_training.tasks.record import Task

if TYPE_CHECKING:
    from model_training.contrastive import ContrastiveConfig

STAGE = "contrastive"
RESERVE = 1.5
"""Of the longest step so far, what must be left of a run's time for another one to begin."""


class RunFolder(Protocol):
    """Name what is needed of `run.Run`."""

    def log(self, stage: str, step: int, **numbers: float | int | None) -> None: ...

    def log_samples(self, stage: str, samples: Sequence[Mapping[str, Any]]) -> None: ...

    def save(
        self, stage: str, step: int, write: Callable[[Path], None], state: dict[str, Any]
    ) -> None: ...

    def must_stop(self, reserve_s: float = 0.0) -> str | None: ...


@dataclass
class StepLoop:
    """Hold what the stage is made of, and what its steps have found."""

    config: ContrastiveConfig
    policy: Policy
    """With the weights that the stage begins with, when it resumes from a checkpoint too."""
    rollouts: Rollouts
    scorer: Scorer
    tasks: Sequence[Task]
    run: RunFolder
    num_done: int = 0
    """Steps that the run has made before."""

    def __post_init__(self) -> None:
        archive, config = self.scorer.archive, self.config
        proposer, device = config.environment.proposer, self.scorer.device()
        stream = Stream(self.tasks, archive, device, config.stream, proposer)
        name = run_name(config)
        self._prompts = StepPrompts(stream, archive, name, config.prompts_per_step)
        self._best = {task.problem.id: 1.0 for task in self.tasks}
        self._found: dict[str, int] = {}
        """The step in which each passed candidate was found; 0 is before the run."""
        ends = self._prompts.ends()
        for moment, evaluation in archive.recorded():
            # What a killed process has found since is found again.
            if (step := bisect.bisect_right(ends, moment)) <= self.num_done:
                self._note(evaluation, step)

    def seed(self, step: int) -> int:
        """Return the seed of what is random in a step."""
        return random.Random(f"{self.config.stream.seed} sample {step}").getrandbits(31)

    def roll_out(self, step: int) -> Asked:
        """Sample and score the completions of a step; steps count from 1."""
        config, prompts = self.config, self._prompts.of(step)
        size, sampling = config.group_size, config.sampling
        return ask(prompts, self.rollouts, self.scorer, size, sampling, self.seed(step))

    def rewards(self, groups: Sequence[RolloutGroup]) -> list[list[float]]:
        """Return what each completion is paid, by group, smoothed over the batch."""
        raw = [one.reward for group in groups for one in group.outcomes]
        paid = smoothed(raw, self.config.smoothing)
        size = self.config.group_size
        return [paid[first : first + size] for first in range(0, len(paid), size)]

    def finish(
        self,
        step: int,
        asked: Asked,
        rewards: Sequence[Sequence[float]],
        numbers: Mapping[str, float | None],
    ) -> None:
        """Write a step down, and let later steps show what it found."""
        groups = asked.groups
        ages = [
            step - self._found[name]
            for group in groups
            for name in group.prompt.exemplar_ids
            if name in self._found
        ]
        for outcome in (one for group in groups for one in group.outcomes):
            if outcome.evaluation is not None:
                self._note(outcome.evaluation, step)
        self._prompts.end(step)
        measured = measures(groups, rewards, self._best, ages)
        self.run.log(STAGE, step, **{**measured, **asked.numbers, **numbers})
        self.run.log_samples(STAGE, sample_lines(STAGE, step, groups, self.seed(step)))

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Write a checkpoint after a step."""
        published = self._prompts.end(step)
        cursor = step * self.config.prompts_per_step
        state = {
            "stream": {"cursor": cursor, "published": published},
            "archive_published": published,
        }
        self.run.save(STAGE, step, write, state)

    def must_end(self, num_done: int, longest_s: float) -> tuple[bool, str | None]:
        """Return whether no further step begins, and why where the stage is to be resumed.

        Args:
            longest_s: The longest step so far.
        """
        if num_done >= self.config.num_steps:
            return True, None
        reason = self.run.must_stop(RESERVE * longest_s)
        return reason is not None, reason

    def _note(self, evaluation: Evaluation, step: int) -> None:
        if evaluation.verdict.status != "passed":
            return
        candidate = evaluation.candidate
        self._found.setdefault(candidate.id, step)
        if candidate.problem_id in self._best:
            before = self._best[candidate.problem_id]
            self._best[candidate.problem_id] = max(before, speedups.score(evaluation))


def run_name(config: ContrastiveConfig) -> str:
    """Return the hash of all settings but those that may change when a run is resumed."""
    changed = msgspec.structs.replace(config, num_steps=1, checkpoint_every=1)
    return content_hash(changed)
