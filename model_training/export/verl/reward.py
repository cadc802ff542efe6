"""verl's reward function: what the environment of training says an answer is worth.

    reward.custom_reward_function.path=pkg://model_training.export.verl.reward
    reward.num_workers=2
    +reward.custom_reward_function.reward_kwargs.archive=archive.sqlite
    +reward.custom_reward_function.reward_kwargs.gpus=[6,7]

Each of verl's reward workers takes one of the GPUs for itself, by its number on the machine, which
must not be one of those that train or generate; an empty list is the processor. The archive is one
SQLite file for all of them and for the dataset, on a file system whose locks work.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import Session, TrialConfig
from model_training.environment import Environment, EnvironmentConfig
from model_training.objective.reward import RewardName
from model_training.stream import Prompt
from model_training.table import HACKS, is_correct, worth
from model_training.tasks.record import Task

LOCK = threading.Lock()
"""A judge answers one question at a time; verl asks from several threads."""
OPEN = contextlib.ExitStack()
atexit.register(OPEN.close)


def compute_score(
    data_source: str,  # noqa: ARG001 - verl passes it by name
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    archive: str,
    gpus: Sequence[int],
    reward: RewardName = "paper",
    **_: Any,
) -> dict[str, float]:
    """The reward as `score`, and numbers that verl averages: all must be numbers in each sample, so
    that what did not pass has the worth of the reference, 1."""
    shown = (extra_info or {}).get("exemplar_ids", "")
    prompt = Prompt(
        task=msgspec.json.decode(ground_truth, type=Task),
        messages=(),
        exemplar_ids=tuple(shown.split()),
        cursor=(extra_info or {}).get("index", 0),
        published=0.0,
    )
    with LOCK:
        outcome = environment_of(archive, tuple(gpus), reward).outcome(prompt, solution_str)
    return {
        "score": outcome.reward,
        "is_correct": float(is_correct(outcome.sample)),
        "is_hack": float(outcome.sample.status in HACKS),
        "is_read": float(outcome.sample.status != "no_code"),
        "worth": worth(outcome.sample),
    }


@cache
def environment_of(archive: str, gpus: tuple[int, ...], reward: RewardName) -> Environment:
    """Of this process: a judge on a GPU of its own, and the archive of all."""
    trial = TrialConfig()
    device = "cpu"
    if gpus:
        # This process uses no GPU itself; what verl has set is where others train.
        os.environ["CUDA_VISIBLE_DEVICES"] = str(claimed(gpus))
        device = "cuda:0"
    judge = OPEN.enter_context(Session(trial, device=device))
    store = OPEN.enter_context(Archive.open(Path(archive)))
    return Environment(judge, store, trial.policy, EnvironmentConfig(reward=reward))


def claimed(gpus: Sequence[int]) -> int:
    """A GPU of this machine that no other process has claimed, for as long as this one lives.

    Raises:
        ConfigError: All are taken.
    """
    folder = Path(tempfile.gettempdir()) / f"cudal1-ci-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for gpu in gpus:
        file = (folder / f"gpu-{gpu}.lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            OPEN.enter_context(file)
            return gpu
    raise ConfigError(
        f"gpus: expected one for each reward worker of a machine, got {len(gpus)} and all are "
        f"taken; set reward.num_workers to {len(gpus)}"
    )
