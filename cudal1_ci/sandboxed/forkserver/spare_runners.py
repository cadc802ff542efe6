"""A runner that is begun before there is a program for it.

On a GPU most of what a runner costs is its context, which the driver makes for one process after
the other: here that is done while the runner before it is at work. It is forked and confined like
any other, knows no program, and is given to the next text that is loaded. Not to a program of a
checkout, since what a runner may read is settled when it is forked; nor to one that has built
something, since so is where it finds that; nor for a launch, whose processes are to be alike.
Programs that ask for torch.compile are forked from another process than all others, and have one of
their own from the first such program on.

No request is answered before the spare one is ready: whoever times next is not disturbed by it.
Who waits to time meanwhile is given way to, as by all runners.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..builds.folders import Held
from ..confinement import SandboxError
from ..wire.channel import ChannelClosed, ChannelTimeout

if TYPE_CHECKING:
    from .client import Source, Template
    from .handles import RunnerHandle

WAKE_S = 60.0
"""A context takes a tenth of a second, and the first one of a machine some seconds."""


@dataclass
class Spare:
    """A confined process with a device and no program."""

    runner: RunnerHandle
    folder: Held
    """Where it would build something, before there is a program."""
    settings: dict[str, Any]
    """Of the template, when it was forked."""
    is_awake: bool = False


class Spares:
    """Of a process that runners are forked from, one at a time."""

    def __init__(self, template: Template, source: Source):
        self.template = template
        self.source = source
        self.one: Spare | None = None
        self.lock = threading.Lock()

    def take(self, cache: Path | None, device: str) -> RunnerHandle | None:
        """One for the program whose folder this is, if it can have one; the next one is begun
        then."""
        if device != self.template.device or cache is None:
            return None
        with self.lock:
            if self.one is not None and not self.is_as_new(self.one):
                self.drop()
            spare = self.one
            if spare is not None:
                place = self.template.builds.move_in(cache, spare.folder)
                if place is None:
                    return None  # it is for one that has built nothing
                spare.runner.cache = place
            self.begin()
            return None if spare is None else spare.runner

    def is_as_new(self, spare: Spare) -> bool:
        """Whether it is ready, and what would be forked now."""
        return self.is_ready(spare) and spare.settings == self.template.settings()

    def begin(self) -> None:
        """Fork one and let it make its context; none where that fails, as whoever needs a runner
        hears of it."""
        folder = self.template.builds.fresh()
        runner = self.template.handle(folder.products, self.source)
        self.one = Spare(runner, folder, self.template.settings())
        try:
            runner.start([], WAKE_S).send({"op": "wake", "device": self.template.device})
        except (SandboxError, ChannelClosed):
            self.drop()

    def is_ready(self, spare: Spare) -> bool:
        """Wait for its context. False when it has none, or is gone."""
        runner = spare.runner
        if not spare.is_awake:
            try:
                with self.template.spent.over("wake"):
                    reply, _ = runner.receive(runner.start([], WAKE_S), WAKE_S)
            except (ChannelClosed, ChannelTimeout):
                return False
            spare.is_awake = "error" not in reply
        assert runner.process is not None
        return spare.is_awake and not runner.process.has_ended(0.0)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        with self.lock:
            if self.one is not None and not self.is_ready(self.one):
                self.drop()

    def renew(self) -> None:
        """Another one, as the template has changed."""
        with self.lock:
            if self.one is not None:
                self.drop()
                self.begin()

    def close(self) -> None:
        with self.lock:
            self.drop()

    def drop(self) -> None:
        """End the one that there is."""
        if self.one is not None:
            spare, self.one = self.one, None
            try:
                spare.runner.end()
            finally:
                self.template.builds.give_up(spare.folder)
