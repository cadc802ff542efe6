"""Where the judges of `bench`, `scan` and `sweep` are: here on one device, here on several, or on a
cluster of Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar, cast

import click
import msgspec

from cudal1_ci.cli.device import devices_of, is_several, require
from cudal1_ci.cli.execution import RAY
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.pool import LocalSeats, RaySeats, SessionConfig
from cudal1_ci.pool.seat import JudgeSeats
from cudal1_ci.pool.turns_view import turns_view_on
from cudal1_ci.processes import ExecutorName
from cudal1_ci.render.progress import Progress, progress_on

Command = TypeVar("Command", bound=Callable[..., Any])

KEYS = {"address": "address"}
"""Flags that stand for a setting, of these verbs alone."""


def address_option(command: Command) -> Command:
    """`--address`."""
    option = click.option(
        "--address",
        metavar="auto|HOST:PORT|local",
        help="Of the cluster for --executor ray [default: auto].",
    )
    return option(command)


class Placed(NamedTuple):
    """Settings whose device is known as far as it can be, and the seats; None for one judge, which
    is a Session of the caller's own thread."""

    settings: Settings
    seats: JudgeSeats | None


@contextlib.contextmanager
def placed(settings: Settings, *checkouts: Path) -> Iterator[Placed]:
    """Connects to the cluster while this lasts, where one is asked for.

    Raises:
        ConfigError: What is asked for does not go together.
        UnsupportedError: A device or a cluster is not there.
    """
    refuse_address_alone(settings)
    if settings.executor == RAY:
        config = session_config(settings, checkouts)
        with RaySeats(config, address=settings.address, device=settings.device) as seats:
            yield Placed(msgspec.structs.replace(settings, device=seats.device), seats)
        return
    devices = devices_of(settings.device)
    found = msgspec.structs.replace(settings, device=",".join(devices))
    require(found.device)
    several = LocalSeats(session_config(settings, checkouts), devices) if len(devices) > 1 else None
    yield Placed(found, several)


def unplaced(settings: Settings) -> Settings:
    """The settings of one judge on this machine, for what judges nothing."""
    if settings.executor == RAY:
        return msgspec.structs.replace(settings, executor="local", device="auto")
    if is_several(settings.device):
        return msgspec.structs.replace(settings, device="cuda")
    return settings


def session_config(settings: Settings, checkouts: tuple[Path, ...]) -> SessionConfig:
    """How each judge is opened."""
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
    """Raises: ConfigError, for --address where no cluster is used."""
    (origin,) = (origin for key, _, origin in settings.origins() if key == "address")
    if settings.executor != RAY and origin == "command line":
        raise ConfigError(
            f'--address {settings.address}: is of a cluster, and `executor` is "'
            f'{settings.executor}"; add --executor ray, or leave --address out'
        )


def progress_for(
    settings: Settings, stream: TextIO, environment: Mapping[str, str], *, quiet: bool
) -> Progress:
    """What says on `stream` how it goes, with one target under way or several. Raises as `placed`
    does for devices."""
    is_spread = settings.executor == RAY or len(devices_of(settings.device)) > 1
    told = turns_view_on if is_spread else progress_on
    return told(stream, environment, quiet=quiet)
