"""Where the judge runs: the flags that say so, and the executor that the settings mean."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cudal1_ci.config import Settings
from cudal1_ci.executor import EXECUTORS, Executor

KEYS = {
    "device": "device",
    "require_sandbox": "require-sandbox",
    "python": "python",
    "threads": "trial.threads",
    "executor": "executor",
    "container_image": "container-image",
}
"""Flags of every verb that judges, by the setting that they stand for."""


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--executor` and `--container-image`, for a verb that judges."""
    image = click.option(
        "--container-image", metavar="IMAGE", help="Image on this machine; none is ever pulled."
    )
    executor = click.option(
        "--executor",
        type=click.Choice(list(EXECUTORS)),
        help="container: judge in one of docker or podman [default: local].",
    )
    return executor(image(command))


def executor_of(settings: Settings, *checkouts: Path) -> Executor:
    """The executor that is configured; programs are read from `checkouts`."""
    python = settings.python or sys.executable
    return EXECUTORS[settings.executor](settings.container, python, checkouts)
