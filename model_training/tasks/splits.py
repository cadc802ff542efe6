"""Split tasks into those for training and those for evaluation.

    held-out    families of generated tasks that training never sees, and KernelBench tasks
    paper       train and evaluate on the same KernelBench tasks, as CUDA-L1 did: by this name alone

A split is a function of its configuration alone: the same seed and numbers, the same tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.tasks.contamination import hits, refuse_contamination
from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.tasks.record import Task

HELD_OUT = ("diagonal", "distance", "softmax")
"""Each has something to gain by algebra, by another form of the same sum, and by fusion."""
FIRST_EVALUATED = 10**6
"""Seeds of tasks for evaluation begin here, so that more tasks for training change none of them."""

Probe = Callable[[Sequence[Task]], Sequence[Mapping[str, Any]]]
"""What probe.py says of tasks, in their order."""


class TasksConfig(Record, frozen=True, kw_only=True):
    """Configure generated tasks and their split."""

    split: Literal["held-out", "paper"] = "held-out"
    num_training: int = 2000
    num_evaluated: int = 40
    """Generated tasks for evaluation; those of KernelBench come on top."""
    held_out: tuple[str, ...] = HELD_OUT
    scale: Scale = Scale()

    def __post_init__(self) -> None:
        at_least(self, "tasks", 1, "num_training")
        at_least(self, "tasks", 0, "num_evaluated")
        for family in self.held_out:
            if family not in FAMILIES:
                raise ConfigError(
                    f"tasks.held-out: expected families ({', '.join(FAMILIES)}), got {family!r}"
                )
        if set(self.held_out) >= set(FAMILIES):
            raise ConfigError("tasks.held-out: expected a family that is left for training")


class Split(Record, frozen=True, kw_only=True):
    """Hold the tasks of a run."""

    training: tuple[Task, ...]
    evaluation: tuple[Task, ...]


def split(config: TasksConfig, kernelbench: Sequence[Task], probe: Probe) -> Split:
    """Return the tasks of a configuration; `kernelbench` are those that are evaluated, in `paper`
    those that are trained on as well.

    Raises:
        ConfigError: A task for training is one for evaluation, there is none for evaluation, or
            `paper` has no tasks.
    """
    if config.split == "paper":
        if not kernelbench:
            raise ConfigError(
                "tasks.split: `paper` trains on KernelBench, and none of it was given"
            )
        return Split(training=tuple(kernelbench), evaluation=tuple(kernelbench))
    others = [family for family in FAMILIES if family not in config.held_out]
    evaluation = [
        *usable(list(config.held_out), config.num_evaluated, FIRST_EVALUATED, config, probe),
        *kernelbench,
    ]
    if not evaluation:
        raise ConfigError(
            "tasks.generated.num-evaluated: expected 1 or more, or a checkout of KernelBench to "
            "evaluate on (tasks.kernelbench), got 0"
        )
    training = usable(others, config.num_training, 0, config, probe, never=evaluation)
    refuse_contamination(training, evaluation)
    return Split(training=tuple(training), evaluation=tuple(evaluation))


def usable(
    families: list[str],
    num_tasks: int,
    start: int,
    config: TasksConfig,
    probe: Probe,
    never: Sequence[Task] = (),
) -> list[Task]:
    """Return the first that can be tasks and are not among `never`."""
    stream = distinct(families, config.scale, start)
    found: list[Task] = []
    while len(found) < num_tasks:
        batch = list(itertools.islice(stream, num_tasks - len(found)))
        taken = {hit.training for hit in hits(batch, never)}
        batch = [task for task in batch if task.name not in taken]
        found += without_problem(batch, probe(batch))
    return found


def without_problem(tasks: Iterable[Task], said: Iterable[Mapping[str, Any]]) -> list[Task]:
    return [task for task, one in zip(tasks, said, strict=True) if one["problem"] is None]
