"""Start a runner before there is a program for it.

On a GPU most of a runner's cost is its context, which the driver makes for one process after
another. Here that happens while the runner before it works. A spare runner is forked and confined
like any other and knows no program. It gets the next text that is loaded, with three exceptions. A
program of a checkout cannot use it, because what a runner may read is fixed at the fork. A program
that has built something cannot, because the place of its builds is fixed too. A repetition cannot,
because its processes must be equal.
Programs with torch.compile are forked from another process and have their own spare, from the first
such program on.

No request is answered before the spare is ready, so that it does not disturb the next timing. It
yields to processes that wait to time, as all runners do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..builds.folders import Held
from ..confinement import SandboxError
from ..wire.channel import ChannelClosed, ChannelTimeout
from ..wire.codec import Form, ProtocolError, decode
from ..wire.runner import Done, Wake
from ..wire.template import ForkSettings

if TYPE_CHECKING:
    from .client import Source, Template
    from .handles import RunnerHandle

WOKEN: Form[Done] = Form(Done)
WAKE_S = 60.0
"""A context takes a tenth of a second, and the first one of a machine some seconds."""


@dataclass
class Spare:
    """A confined process with a device and no program."""

    runner: RunnerHandle
    folder: Held
    """Where it would build something, before there is a program."""
    settings: ForkSettings
    """Settings of the template, when it was forked."""
    is_awake: bool = False


class Spares:
    """The spares of a process that runners are forked from, one at a time."""

    def __init__(self, template: Template, source: Source):
        self.template = template
        self.source = source
        self.one: Spare | None = None
        self.lock = threading.Lock()

    def take(self, cache: Path | None, device: str) -> RunnerHandle | None:
        """Take a spare for the program with this folder, if it can use one. The next one is then
        started."""
        if device != self.template.device or cache is None:
            return None
        with self.lock:
            if self.one is not None and not self.is_as_new(self.one):
                self.drop()
            spare = self.one
            if spare is not None:
                place = self.template.builds.move_in(cache, spare.folder)
                if place is None:
                    return None  # a spare is for a program that has built nothing
                spare.runner.cache = place
            self.begin()
            return None if spare is None else spare.runner

    def is_as_new(self, spare: Spare) -> bool:
        """Return whether it is ready, and equal to what would be forked now."""
        return self.is_ready(spare) and spare.settings == self.template.settings()

    def begin(self) -> None:
        """Fork a spare and let it make its context. A failure leaves no spare; the next caller
        that needs a runner gets the error."""
        folder = self.template.builds.fresh()
        runner = self.template.handle(folder.products, self.source)
        self.one = Spare(runner, folder, self.template.settings())
        try:
            channel = runner.start([], None, WAKE_S)
            channel.send(Wake(device=str(self.template.device)))
        except (SandboxError, ChannelClosed):
            self.drop()

    def is_ready(self, spare: Spare) -> bool:
        """Wait for its context. Return False when it has none, or is gone."""
        runner = spare.runner
        if not spare.is_awake:
            try:
                with self.template.spent.over("wake"):
                    body, _ = runner.receive(runner.start([], None, WAKE_S), WAKE_S)
                decode(WOKEN, body)
            except (ChannelClosed, ChannelTimeout, ProtocolError):
                return False
            spare.is_awake = True
        assert runner.process is not None
        return spare.is_awake and not runner.process.has_ended(0.0)

    def settle(self) -> None:
        """Wait until no start is in progress."""
        with self.lock:
            if self.one is not None and not self.is_ready(self.one):
                self.drop()

    def renew(self) -> None:
        """Replace the spare, as the template has changed."""
        with self.lock:
            if self.one is not None:
                self.drop()
                self.begin()

    def close(self) -> None:
        with self.lock:
            self.drop()

    def drop(self) -> None:
        """End the spare."""
        if self.one is not None:
            spare, self.one = self.one, None
            try:
                spare.runner.end()
            finally:
                self.template.builds.give_up(spare.folder)
