"""Choose where the verifier runs: the flags that say so, and the executor that settings select."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click
import msgspec
from click.shell_completion import CompletionItem

from cudal1_ci.cli.device import is_several, num_gpus
from cudal1_ci.config import Setting, Settings, load_settings
from cudal1_ci.config.model_keys import keep_model_keys_apart
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.processes import EXECUTORS, Executor, ExecutorName
from cudal1_ci.processes.interpreter import find_interpreter
from cudal1_ci.verification import Session
from cudal1_ci.verification.config import Precision

RAY = "ray"
Command = TypeVar("Command", bound=Callable[..., Any])

KEYS = {
    "device": "device",
    "require_sandbox": "require-sandbox",
    "python": "python",
    "threads": "trial.threads",
    "executor": "executor",
    "container_image": "container-image",
}
"""Flags of every verb that verifies, by the setting that they stand for."""
TREE_KEYS = {
    **KEYS,
    "include": "discover.include",
    "exclude": "discover.exclude",
    "seed": "trial.seed",
}
"""The same of every verb that looks at a tree."""


IMAGE_OPTION = click.option(
    "--container-image", metavar="IMAGE", help="Image on this machine; none is ever pulled."
)


def executor_options(command: Command) -> Command:
    """Add `--executor` and `--container-image` to a verb with one verifier."""
    executor = click.option(
        "--executor",
        type=click.Choice(tuple(EXECUTORS)),
        help="Run programs as local processes or in a container of docker or podman "
        "[default: local].",
    )
    return executor(IMAGE_OPTION(command))


def cluster_options(command: Command) -> Command:
    """Add the same to a verb that can use a cluster."""
    executor = click.option(
        "--executor",
        type=click.Choice([*EXECUTORS, RAY]),
        help="Run programs as local processes, in a container of docker or podman, or on a Ray "
        "cluster [default: local].",
    )
    return executor(IMAGE_OPTION(command))


def precision_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--precision` to a verb that verifies texts."""
    option = click.option(
        "--precision",
        type=click.Choice(get_args(Precision)),
        help="How much accuracy a candidate may lose: none, as much as TF32, or as much as "
        "KernelBench's tolerance of 1e-2 [default: strict].",
    )
    return option(command)


TEXT_KEYS = {**KEYS, "seed": "trial.seed", "precision": "trial.precision"}
"""Flags of every verb that verifies texts."""
PATH_OPTIONS = (
    click.option("--include", multiple=True, metavar="GLOB", help="Only these files (repeatable)."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files (repeatable)."),
)


def device_names(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a device: those of this machine."""
    try:
        found = [f"cuda:{index}" for index in range(num_gpus("cuda"))]
    except UnsupportedError:
        found = []
    names = ["auto", "cpu", *(["cuda", *found] if found else [])]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


DEVICES_OPTION = click.option(
    "--device",
    shell_complete=device_names,
    help="cpu, cuda, cuda:N, auto (a GPU where there is one); several as cuda:0,cuda:1 or "
    "cuda:all, with one verifier each [default: auto].",
)


def one_device(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse what names no device, in words that offer no more than one; several are refused where
    it is said which verbs take them (`refuse_several`)."""
    if value is None or is_several(value) or re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        return value
    raise click.BadParameter(f"expected auto, cpu, cuda or cuda:N, got {value!r}")


ONE_DEVICE_OPTION = click.option(
    "--device",
    shell_complete=device_names,
    callback=one_device,
    help="cpu, cuda, cuda:N, auto (a GPU where there is one) [default: auto].",
)
TWO_TREE_DEVICES_OPTION = click.option(
    "--device",
    shell_complete=device_names,
    help="cpu, cuda, cuda:N, auto (a GPU where there is one); several as cuda:0,cuda:1 or "
    "cuda:all, each timing both trees [default: auto].",
)
PYTHON_HELP = "Interpreter of the project [default: `doctor` shows it]."
SANDBOX_OPTION = click.option(
    "--require-sandbox",
    is_flag=True,
    default=None,
    help="Refuse to run programs where a layer of the sandbox is missing.",
)
MEASURING_OPTIONS = (
    click.option("--python", help=PYTHON_HELP),
    click.option(
        "--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1]."
    ),
    click.option("--seed", type=int, help="Seed of the inputs [default: 0]."),
    click.option("--fresh", is_flag=True, help="Measure again what the archive knows."),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
)


def settings_of(
    root: Path,
    flags: Mapping[str, Any],
    keys: Mapping[str, str],
    *,
    project: Path | None = None,
) -> Settings:
    """Return the settings of a tree under a verb's flags, by the keys that they set. Errors name
    the flag. `project` is where the interpreter is looked for, if not in that tree. A program that
    was given a model's key starts again here, without it.
    Raises: ConfigError.
    """
    given = {key: flags[flag] for flag, key in keys.items() if flags[flag] not in (None, ())}
    options = {key: f"--{flag.replace('_', '-')}" for flag, key in keys.items()}
    settings = load_settings(root, overrides=given, options=options)
    keep_model_keys_apart(settings)
    return with_interpreter(settings, project or root)


def with_interpreter(settings: Settings, project: Path) -> Settings:
    """Return the settings with the project's interpreter, where none is set and one of this machine
    is used."""
    if settings.python is not None or settings.executor != "local":
        return settings
    found = find_interpreter(project, os.environ)
    named = Setting(key="python", value=found.python, origin=found.origin)
    sources = tuple(named if one.key == "python" else one for one in settings.sources)
    return msgspec.structs.replace(settings, python=found.python, sources=sources)


def with_options(
    options: Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]], command: Command
) -> Command:
    """Add options to a command, in the order of its help."""
    for option in reversed(options):
        command = cast(Command, option(command))
    return command


def tree_options(command: Command) -> Command:
    """Add the options of every verb that searches a tree, on one device or several."""
    return with_options(
        (*PATH_OPTIONS, DEVICES_OPTION, SANDBOX_OPTION, cluster_options, *MEASURING_OPTIONS),
        command,
    )


def two_tree_options(command: Command) -> Command:
    """Add the same for a verb that times two trees against each other."""
    return with_options(
        (
            *PATH_OPTIONS,
            TWO_TREE_DEVICES_OPTION,
            SANDBOX_OPTION,
            executor_options,
            *MEASURING_OPTIONS,
        ),
        command,
    )


def executor_of(settings: Settings, *checkouts: Path) -> Executor:
    """Return the configured executor; programs are read from `checkouts`.

    Raises:
        ConfigError: It is `ray`, or the device is several, for a verb with one verifier.
    """
    refuse_several(settings)
    name = cast(ExecutorName, settings.executor)
    return EXECUTORS[name](settings.container, settings.python or sys.executable, checkouts)


def session_of(settings: Settings, *checkouts: Path) -> Session:
    """Return one verifier on this machine; it is started at its first request.

    Raises:
        ConfigError: The settings ask for several.
    """
    return Session(
        settings.trial,
        device=settings.device,
        require_sandbox=settings.require_sandbox,
        builds=settings.builds,
        executor=executor_of(settings, *checkouts),
    )


def refuse_several(settings: Settings) -> None:
    """Refuse several verifiers where a verb uses one.

    Raises: ConfigError.
    """
    refuse_cluster(settings)
    if is_several(settings.device):
        origins = {key: origin for key, _, origin in settings.origins()}
        raise ConfigError(
            f'`device` = "{settings.device}" ({origins["device"]}): this verb uses one device; '
            "bench, scan, sweep and compare use several (docs/cluster.md). Try --device cuda:0"
        )


def refuse_cluster(settings: Settings) -> None:
    """Refuse a cluster.

    Raises: ConfigError.
    """
    if settings.executor == RAY:
        origins = {key: origin for key, _, origin in settings.origins()}
        raise ConfigError(
            f'`executor` = "ray" ({origins["executor"]}): this verb uses no cluster; bench, scan '
            "and sweep do (docs/cluster.md). Here: --executor local, or container"
        )
