"""Define what a verifier or a builder requests of the warm process that runners are forked from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .codec import Asks, Form


@dataclass(frozen=True, kw_only=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The first message: by layer of the sandbox True, the version of an interface, or why the
    kernel refused it."""

    sandbox: dict[str, bool | int | str]


@dataclass(frozen=True, kw_only=True)
class Forked:
    """A runner, with a descriptor of its process."""

    op: ClassVar[str] = "forked"
    number: int


@dataclass(frozen=True, kw_only=True)
class NotForked:
    """The reason why there is no runner."""

    op: ClassVar[str] = "not_forked"
    why: str


@dataclass(frozen=True, kw_only=True)
class SeenGpu:
    """Result of the test of whether a runner can have only one GPU."""

    seen: bool | str


@dataclass(frozen=True, kw_only=True)
class Warmed:
    """Number of imported modules."""

    num_imported: int


@dataclass(frozen=True, kw_only=True)
class Reaped:
    """A runner's end, as `wait` reports it."""

    status: int | None


@dataclass(frozen=True, kw_only=True)
class ForkSettings:
    """Settings of all runners that are forked at a time."""

    memory_bytes: int | None
    cores: tuple[int, ...] | None
    environment: dict[str, str]
    has_gpu: bool
    hidden: tuple[str, ...]
    """Devices that a runner may not open."""


@dataclass(frozen=True, kw_only=True)
class Fork(Asks[Forked | NotForked]):
    """Fork a runner, which talks over the descriptor that comes along."""

    op: ClassVar[str] = "fork"
    scratch: str
    log: str
    checkouts: tuple[str, ...]
    cache: str | None
    settings: ForkSettings


@dataclass(frozen=True, kw_only=True)
class Branch(Asks[Done]):
    """Start another process like this one, which answers over the descriptor that comes along."""

    op: ClassVar[str] = "branch"


@dataclass(frozen=True, kw_only=True)
class SeeGpu(Asks[SeenGpu]):
    """Try whether CUDA works where one GPU alone can be opened."""

    op: ClassVar[str] = "see_gpu"
    uuid: str
    hidden: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Warm(Asks[Warmed]):
    """Import modules, so that runners find it done."""

    op: ClassVar[str] = "warm"
    modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reap(Asks[Reaped]):
    """Kill a runner with all that it started."""

    op: ClassVar[str] = "reap"
    number: int


Request = Fork | Branch | SeeGpu | Warm | Reap
REQUEST: Form[Request] = Form(Request)
READY: Form[Ready] = Form(Ready)
