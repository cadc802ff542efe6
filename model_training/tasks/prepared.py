"""Make the tasks of a run once, probe them on the device that they are for, and keep them as files.

prepared(TaskSourceConfig(), run_folder / "tasks").training

FOLDER/training.jsonl, evaluation.jsonl      a task a line
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.checkpoints import write_text
from model_training.tasks.kernelbench import LEVELS, kernelbench
from model_training.tasks.record import Task
from model_training.tasks.splits import Split, TasksConfig, split

FILES = ("training.jsonl", "evaluation.jsonl")
MANY = 8
"""Tasks; at least one of them can be run, where any can. About 4 % of generated ones cannot."""
PROBE_S = 1800.0
"""For the probe of one batch of tasks: thousands take minutes."""


class TaskSourceConfig(Record, frozen=True, kw_only=True):
    """Configure where tasks come from."""

    kind: Literal["generated", "toy"] = "generated"
    """`toy` are those of the toy language, all for training and all for evaluation."""
    generated: TasksConfig = TasksConfig()
    num_contrastive: int = 200
    """Tasks for training that stage 3 asks about: the first, so that it meets them again."""
    kernelbench: str | None = None
    """A checkout of KernelBench, whose tasks are evaluated and never trained on (but in the split
    `paper`); None is without."""
    levels: tuple[int, ...] = LEVELS
    names: tuple[str, ...] = ()
    """Of KernelBench, `level1/12`; empty is all of these levels."""
    probe_device: str = "auto"
    """Where generated tasks are run, to see whether they are tasks: `cuda`, `cpu`."""

    def __post_init__(self) -> None:
        at_least(self, "tasks", 1, "num_contrastive")


def prepared(config: TaskSourceConfig, folder: Path) -> Split:
    """Make the tasks of a run, or read its files where they are there.

    Raises:
        ConfigError: There are none, or a task for training is one for evaluation.
    """
    paths = [folder / name for name in FILES]
    if not all(path.exists() for path in paths):
        made = make(config)
        folder.mkdir(parents=True, exist_ok=True)
        for path, tasks in zip(paths, (made.training, made.evaluation), strict=True):
            write_text(path, "".join(msgspec.json.encode(one).decode() + "\n" for one in tasks))
    training, evaluation = (read_tasks(path) for path in paths)
    return Split(training=training, evaluation=evaluation)


def make(config: TaskSourceConfig) -> Split:
    if config.kind == "toy":
        from model_training.toy import tasks  # here, as it is for tests

        return Split(training=tuple(tasks()), evaluation=tuple(tasks()))
    published: list[Task] = []
    if config.kernelbench is not None:
        published = kernelbench(Path(config.kernelbench).expanduser(), config.levels)
        known = {one.name for one in published}
        if missing := [name for name in config.names if name not in known]:
            raise ConfigError(
                f"tasks.names: {config.kernelbench} has no task {missing[0]!r} in levels "
                f"{list(config.levels)}; expected names such as {published[0].name!r}"
            )
        published = [one for one in published if not config.names or one.name in config.names]
    device = device_of(config.probe_device)
    return split(config.generated, published, lambda tasks: probed(tasks, device))


def probed(tasks: Sequence[Task], device: str) -> list[Mapping[str, Any]]:
    """Probe tasks in another process: it runs their texts.

    Raises:
        ConfigError: The probe did not come to its end.
    """
    lines = "".join(json.dumps({"name": one.name, "text": one.text}) + "\n" for one in tasks)
    command = [sys.executable, "-m", "model_training.tasks.probe", "--device", device]
    try:
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=True, timeout=PROBE_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or "").strip().splitlines()[-1:]
        raise ConfigError(
            f"tasks.probe-device: the probe of tasks on {device!r} failed: {error} "
            f"{' '.join(said)}; name a device that is there"
        ) from error
    found = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [one["problem"] for one in found if one["problem"] is not None]
    if len(problems) == len(tasks) >= MANY:
        raise ConfigError(
            f"tasks.probe-device: none of {len(tasks)} tasks can be run on {device!r}: "
            f"{problems[0]}; name a device that is there, or smaller tasks (tasks.generated.scale)"
        )
    return found


def device_of(name: str) -> str:
    """Return `cuda` where there is one, for `auto`."""
    if name != "auto":
        return name
    import torch  # here, as it takes seconds

    return "cuda" if torch.cuda.is_available() else "cpu"


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Read a task a line.

    Raises:
        ConfigError: The file is not there, has a line that is no task, or has none.
    """
    try:
        lines = path.read_bytes().splitlines()
        tasks = tuple(msgspec.json.decode(line, type=Task) for line in lines)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: expected a task a line as JSON ({error})") from error
    if not tasks:
        raise ConfigError(f"{path}: expected a task a line as JSON, the file is empty")
    return tasks
