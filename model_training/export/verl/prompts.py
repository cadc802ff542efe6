"""Prompts in verl's form: rows of a parquet file, and later ones as the archive has grown.

    rows = rows_of(tasks, prompts, "train")
    write_parquet(rows, Path("train.parquet"))

A row carries its task, as JSON, where verl has the ground truth: that is what the reward function
gets, and all that the judge needs. Source: docs/preparation/prepare_data.rst of verl.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.records import Device
from cudal1_ci.records.archive import Archive
from model_training.stream import Prompt, Stream, StreamConfig, StreamState
from model_training.tasks.record import Task

ABILITY = "code"
TRAINING = "train"
"""Value of `extra_info.split` whose prompts are made anew each time."""


class Prompts:
    """A prompt of a task, with exemplars of what was known when the batch began."""

    def __init__(
        self, archive: Archive, device: Device, config: StreamConfig, batch_size: int
    ) -> None:
        self._archive, self._device, self._config = archive, device, config
        self._batch_size = batch_size
        self._num_asked = 0
        self._published = 0.0

    def of(self, task: Task) -> Prompt:
        """The next prompt of the run, of this task."""
        if self._num_asked % self._batch_size == 0:
            self._published = time.time()
        state = StreamState(cursor=self._num_asked, published=self._published)
        self._num_asked += 1
        return Stream((task,), self._archive, self._device, self._config, state).next()


def rows_of(tasks: Iterable[Task], prompts: Prompts, split: str) -> list[dict[str, Any]]:
    """A row of each task."""
    return [row_of(prompts.of(task), split, number) for number, task in enumerate(tasks)]


def row_of(prompt: Prompt, split: str, number: int) -> dict[str, Any]:
    """The five fields that verl reads."""
    return {
        "data_source": f"cudal1-ci/{prompt.task.source}",
        "prompt": chat_of(prompt),
        "ability": ABILITY,
        "reward_model": {
            "style": "rule",
            "ground_truth": msgspec.json.encode(prompt.task).decode(),
        },
        "extra_info": {
            "split": split,
            "index": number,
            "task": prompt.task.name,
            "exemplar_ids": " ".join(prompt.exemplar_ids),
        },
    }


def chat_of(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": one.role, "content": one.content} for one in prompt.messages]


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from datasets import Dataset

    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(list(rows)).to_parquet(path)
