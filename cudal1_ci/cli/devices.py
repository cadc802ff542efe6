"""Choose the device slots of `bench`, `scan` and `sweep`: one device here, several, or a cluster of
Ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar, cast

import click
import msgspec

from cudal1_ci.cli.device import devices_of, is_several, measures_on_gpu, require
from cudal1_ci.cli.execution import RAY
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.pool import Backend, LocalBackend, RayBackend, SessionConfig
from cudal1_ci.processes import ExecutorName
from cudal1_ci.render.parallel_progress import parallel_progress_on
from cudal1_ci.render.progress import Progress, progress_on

Command = TypeVar("Command", bound=Callable[..., Any])

CORES_PER_VERIFIER = 4
KEYS = {"address": "address"}
"""Flags that stand for a setting, of these verbs alone."""


def address_option(command: Command) -> Command:
    """Add `--address`."""
    option = click.option(
        "--address",
        metavar="auto|HOST:PORT|local",
        help="Address of the Ray cluster for --executor ray [default: auto].",
    )
    return option(command)


class Placed(NamedTuple):
    """Settings whose device is known where it can be, and where slots are opened; None for a single
    device, whose verifier is a Session of the caller's own thread."""

    settings: Settings
    backend: Backend | None


def with_shared_gpu(settings: Settings, num_cores: int | None = None) -> Settings:
    """Return the settings with several verifiers on the GPU that is measured on, for a search: most
    of a verdict's time goes into compiling and starting processes, and only one verifier times at
    once. A GPU that is named (`cuda:0`) has as many as it is named."""
    model = settings.model
    is_given = settings.executor != "local" or settings.device not in ("auto", "cuda")
    is_used = model.model is not None and not has_own_device(settings)
    if is_given or is_used or not measures_on_gpu(settings.device):
        return settings
    cores = len(os.sched_getaffinity(0)) if num_cores is None else num_cores
    count = max(1, min(settings.verifiers_per_gpu, cores // CORES_PER_VERIFIER))
    return msgspec.structs.replace(settings, device=",".join([settings.device] * count))


@contextlib.contextmanager
def placed(settings: Settings, *checkouts: Path) -> Iterator[Placed]:
    """Connect to the cluster in this context, where one is configured.

    Raises:
        ConfigError: What is asked for does not go together.
        UnsupportedError: A device or a cluster is not there.
    """
    refuse_address_alone(settings)
    if settings.executor == RAY:
        config = session_config(settings, checkouts)
        with RayBackend(config, address=settings.address, device=settings.device) as backend:
            yield Placed(msgspec.structs.replace(settings, device=backend.device), backend)
        return
    devices = devices_of(settings.device)
    found = msgspec.structs.replace(settings, device=",".join(devices))
    require(found.device)
    if len(devices) == 1:
        yield Placed(found, None)
    else:
        yield Placed(found, LocalBackend(session_config(settings, checkouts), devices))


def unplaced(settings: Settings) -> Settings:
    """Return settings for one verifier on this machine, for commands that verify nothing."""
    if settings.executor == RAY:
        return msgspec.structs.replace(settings, executor="local", device="auto")
    if is_several(settings.device):
        return msgspec.structs.replace(settings, device="cuda")
    return settings


def session_config(settings: Settings, checkouts: tuple[Path, ...]) -> SessionConfig:
    """Return how each verifier is opened."""
    is_ray = settings.executor == RAY
    return SessionConfig(
        trial=settings.trial,
        builds=settings.builds,
        executor="local" if is_ray else cast(ExecutorName, settings.executor),
        container=settings.container,
        python=settings.python,
        checkouts=tuple(map(str, checkouts)),
        require_sandbox=settings.require_sandbox,
    )


def refuse_address_alone(settings: Settings) -> None:
    """Refuse `--address` where no cluster is used.

    Raises: ConfigError.
    """
    (origin,) = (origin for key, _, origin in settings.origins() if key == "address")
    if settings.executor != RAY and origin == "command line":
        raise ConfigError(
            f'--address {settings.address}: is of a cluster, and `executor` is "'
            f'{settings.executor}"; add --executor ray, or leave --address out'
        )


def progress_for(
    settings: Settings, stream: TextIO, environment: Mapping[str, str], *, quiet: bool
) -> Progress:
    """Return the progress to show on `stream`, for one target under way or several. Raises as
    `placed` does for devices.
    """
    is_spread = settings.executor == RAY or len(devices_of(settings.device)) > 1
    progress_of = parallel_progress_on if is_spread else progress_on
    return progress_of(stream, environment, quiet=quiet)


def has_own_device(settings: Settings) -> bool:
    """Return whether the model may write while something is timed. A URL counts as another machine.
    A model that is started here shares the processor or the GPU, unless it has its own GPU.
    """
    if settings.model.is_url:
        return True
    gpu = settings.model.gpu
    if not measures_on_gpu(settings.device):
        return gpu != "" and measures_on_gpu("auto")
    if settings.executor == RAY:  # which GPU is kept from the cluster is for its owner to know
        return gpu is not None
    timed = {one.partition(":")[2] or "0" for one in settings.device.split(",")}
    return gpu is not None and not timed & set(gpu.split(","))
