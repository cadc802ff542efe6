"""verl's reward function: what the environment of training says an answer is worth.

    reward.custom_reward_function.path=pkg://model_training.export.verl.reward
    reward.num_workers=2
    +reward.custom_reward_function.reward_kwargs.archive=archive.sqlite
    +reward.custom_reward_function.reward_kwargs.devices=[cuda:6,cuda:7]

Each of verl's reward workers takes one of the devices for itself, which must not be those that
train or generate. The archive is one file for all of them, and for the dataset.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.archive import Archive
from cudal1_ci.errors import ConfigError
from cudal1_ci.trial import Session, TrialConfig
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
    devices: Sequence[str] = ("cuda:0",),
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
        outcome = environment_of(archive, tuple(devices), reward).outcome(prompt, solution_str)
    return {
        "score": outcome.reward,
        "is_correct": float(is_correct(outcome.sample)),
        "is_hack": float(outcome.sample.status in HACKS),
        "is_read": float(outcome.sample.status != "no_code"),
        "worth": worth(outcome.sample),
    }


@cache
def environment_of(archive: str, devices: tuple[str, ...], reward: RewardName) -> Environment:
    """Of this process: a judge on a device of its own, and the archive of all."""
    trial = TrialConfig()
    device = claimed(Path(archive), devices)
    judge = OPEN.enter_context(Session(trial, device=device))
    store = OPEN.enter_context(Archive.open(Path(archive)))
    return Environment(judge, store, trial.policy, EnvironmentConfig(reward=reward))


def claimed(archive: Path, devices: Sequence[str]) -> str:
    """A device that no other process has, for as long as this one lives.

    Raises:
        ConfigError: All are taken.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    for device in devices:
        name = f"{archive.name}.{device.replace(':', '-')}.lock"
        file = (archive.parent / name).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            OPEN.enter_context(file)
            return device
    raise ConfigError(
        f"devices: expected one for each reward worker, got {len(devices)} and all are taken; set "
        f"reward.num_workers to {len(devices)}"
    )
