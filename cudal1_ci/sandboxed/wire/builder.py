"""Define what the host requests of a builder, and what a builder answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .codec import Asks, Form
from .programs import Program
from .verdicts import Verdict
from .verifier import Store


@dataclass(frozen=True, kw_only=True)
class Done:
    """The request was carried out, or started."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Ready to build: whether the verifier can find the builds, and how many run at the same
    time."""

    is_kept: bool
    num_at_once: int


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A build that has ended. The verdict is the compiler's, on a text that does not compile."""

    number: int
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class Polled:
    """Builds that have ended."""

    ended: tuple[Ended, ...]


@dataclass(frozen=True, kw_only=True)
class Open(Asks[Opened]):
    """Get ready to build on these cores."""

    op: ClassVar[str] = "open"
    store: Store | None
    architecture: str | None
    cores: tuple[int, ...]
    num_at_once: int


@dataclass(frozen=True, kw_only=True)
class Begin(Asks[Done]):
    """Build a program when its turn comes."""

    op: ClassVar[str] = "begin"
    number: int
    program: Program
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class Cancel(Asks[Done]):
    """End a build. `Poll` reports when it has ended."""

    op: ClassVar[str] = "cancel"
    number: int


@dataclass(frozen=True, kw_only=True)
class Poll(Asks[Polled]):
    """Report which builds have ended, after a wait for the first."""

    op: ClassVar[str] = "poll"
    wait_s: float


Request = Open | Begin | Cancel | Poll
REQUEST: Form[Request] = Form(Request)
