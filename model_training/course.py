"""The course of stage 3, whoever trains: prompts of a step, what answers are worth, what is logged.

    prompts = course.prompts(step)
    judged = course.judged(prompts, completions)
    course.finish(step, judged, numbers)          # the exemplars of the next steps are known now

Engines differ in who samples and who moves the weights; what is asked, paid and written down is
here for all of them.
"""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cudal1_ci.records import Device, Evaluation
from cudal1_ci.records.archive import Archive
from cudal1_ci.stats import speedups
from model_training.asking import sample_lines
from model_training.bench import Answered
from model_training.contrastive_config import ContrastiveConfig, lag_of, run_name
from model_training.environment import Outcome
from model_training.measures import Judged, measures
from model_training.objective.reward import smoothed
from model_training.rollouts import Completion
from model_training.run import MAX_MINUTES
from model_training.stream import Prompt, StepPrompts, Stream, StreamState
from model_training.tasks.record import Task

STAGE = "contrastive"
RESERVE = 1.5
"""Of the longest step so far, what must be left of a run's time for another one to begin."""


class Scoring(Protocol):
    """What answers are worth, in their order; identical programs are judged once:
    `scoring.Scorer`."""

    @property
    def rehearse_s(self) -> float:
        """What the rehearsal of the last ones has taken."""
        ...

    def outcomes(self, answered: Sequence[Answered]) -> list[Outcome]: ...


class RunFolder(Protocol):
    """Where a run is written down: `run.Run`."""

    def log(self, stage: str, step: int, **numbers: float | int | None) -> None: ...

    def log_samples(self, stage: str, samples: Sequence[Mapping[str, Any]]) -> None: ...

    def save(
        self, stage: str, step: int, write: Callable[[Path], None], state: dict[str, Any]
    ) -> None: ...

    def must_stop(self, reserve_s: float = 0.0) -> str | None: ...


def ends_before(
    run: RunFolder, config: ContrastiveConfig, num_done: int, longest_s: float
) -> tuple[bool, str | None]:
    """Whether no further step is begun, and why where the stage is to be taken up again; None where
    it is over.

    Args:
        longest_s: Of a step so far.
    """
    needed_s, leaves_s = RESERVE * longest_s, 60 * config.leaves_minutes
    if num_done >= config.num_steps:
        return True, None
    if (reason := run.must_stop(needed_s)) is not None:
        return True, reason
    is_over = num_done > 0 and leaves_s > 0
    return is_over and run.must_stop(needed_s + leaves_s) == MAX_MINUTES, None


@dataclass
class Course:
    """A run's prompts and verdicts, step by step."""

    config: ContrastiveConfig
    tasks: Sequence[Task]
    archive: Archive
    device: Device
    scoring: Scoring
    run: RunFolder
    prompt_ids: Callable[[Sequence[Any]], list[int]]
    """The tokens of a prompt, as they are sampled after."""
    num_done: int = 0
    """Steps that the run has made before."""
    scoring_s: float = field(default=0.0, init=False)
    """What the last verdicts have taken."""

    def __post_init__(self) -> None:
        config, policy = self.config.stream, self.config.environment.proposer
        stream = Stream(self.tasks, self.archive, self.device, config, StreamState(), policy)
        self._steps = StepPrompts(
            stream=stream,
            archive=self.archive,
            name=run_name(self.config),
            per_step=self.config.prompts_per_step,
            lag=lag_of(self.config.engine),
        )
        self._best = {task.problem.id: 1.0 for task in self.tasks}
        self._found: dict[str, int] = {}
        """Of candidates that passed, the step in which they were found; 0 is before the run."""
        ends = self._steps.ends()
        for moment, evaluation in self.archive.recorded():
            # What a killed life has found since is found again.
            if (step := bisect.bisect_right(ends, moment)) <= self.num_done:
                self._note(evaluation, step)

    def prompts(self, step: int) -> list[Prompt]:
        """Of a step; steps count from 1."""
        return self._steps.of(step)

    def seed(self, step: int) -> int:
        """Of what is random in a step: the same whenever it is made."""
        return random.Random(f"{self.config.stream.seed} sample {step}").getrandbits(31)

    def judged(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
    ) -> list[Judged]:
        """What the answers are worth, all of them at once."""
        started_s = time.monotonic()
        asked = [
            (prompt, one.text, one.is_cut)
            for prompt, some in zip(prompts, completions, strict=True)
            for one in some
        ]
        outcomes = self.scoring.outcomes(asked)
        self.scoring_s = time.monotonic() - started_s
        rewards = [one.reward for one in outcomes]
        if self.config.environment.reward == "paper":
            rewards = smoothed(rewards, self.config.smoothing)
        found, place = [], 0
        for prompt, some in zip(prompts, completions, strict=True):
            own = slice(place, place := place + len(some))
            found.append(
                Judged(
                    prompt=prompt,
                    tokens=tuple(self.prompt_ids(prompt.messages)),
                    completions=some,
                    outcomes=outcomes[own],
                    rewards=rewards[own],
                )
            )
        return found

    def finish(
        self, step: int, judged: Sequence[Judged], numbers: Mapping[str, float | None]
    ) -> None:
        """A step is over: write it down, and let what it found be shown from here on."""
        ages = [
            step - self._found[name]
            for group in judged
            for name in group.prompt.exemplar_ids
            if name in self._found
        ]
        for outcome in (one for group in judged for one in group.outcomes):
            if outcome.evaluation is not None:
                self._note(outcome.evaluation, step)
        self._steps.end(step)
        measured = measures(judged, self._best, ages)
        measured["rehearse_s"] = self.scoring.rehearse_s
        self.run.log(STAGE, step, **{**measured, **numbers})
        self.run.log_samples(STAGE, sample_lines(STAGE, step, judged, self.seed(step)))

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint says of the stream after a step."""
        published = self._steps.end(step)
        cursor = step * self.config.prompts_per_step
        return {
            "stream": {"cursor": cursor, "published": published},
            "archive_published": published,
        }

    def _note(self, evaluation: Evaluation, step: int) -> None:
        if evaluation.verdict.status != "passed":
            return
        candidate = evaluation.candidate
        self._found.setdefault(candidate.id, step)
        if candidate.problem_id in self._best:
            before = self._best[candidate.problem_id]
            self._best[candidate.problem_id] = max(before, speedups.score(evaluation))
