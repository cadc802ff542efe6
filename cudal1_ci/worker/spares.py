"""A runner that is begun before there is a program for it.

On a GPU most of what a runner costs is its context, which the driver makes for one process after
the other (benchmarks/results/scoring-rate-h200.json): here that is done while the runner before it
is at work. It is forked and confined like any other, knows no program, and is given to the next
text that is loaded. Not to a program of a checkout, since what a runner may read is settled when it
is forked; nor to one that has built something, since so is where it finds that; nor for a launch,
whose processes are to be alike.

No request is answered before the spare one is ready: whoever times next is not disturbed by it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .builds import Held
from .channel import Channel, ChannelClosed, ChannelTimeout
from .sandbox import SandboxError

if TYPE_CHECKING:
    from .processes import Process, Template

WAKE_S = 60.0
"""A context takes a tenth of a second, and the first one of a machine some seconds."""


@dataclass
class Spare:
    """A confined process with a device and no program."""

    scratch: Path
    log_path: Path
    folder: Held
    """Where it would build something, before there is a program."""
    process: Process
    channel: Channel
    settings: dict[str, Any]
    """Of the template, when it was forked."""
    is_awake: bool = False
    cache: Path | None = None
    """Where its program finds what it builds."""


class Spares:
    """Of a template, one at a time; for no device until it is told of one."""

    def __init__(self, template: Template):
        self.template = template
        self.device: str | None = None
        """Where a process is slow to begin: `cuda`."""
        self.one: Spare | None = None
        self.lock = threading.Lock()

    def take(self, cache: Path | None, device: str) -> Spare | None:
        """One for the program whose folder this is, if it can have one; in any case the next one is
        begun."""
        if device != self.device or cache is None:
            return None
        with self.lock:
            if self.one is not None and not self.is_as_new(self.one):
                self.drop()
            spare = self.one
            if spare is not None:
                place = self.template.builds.move_in(cache, spare.folder)
                if place is None:
                    return None  # it is for one that has built nothing
                spare.cache = place
            self.begin()
            return spare

    def is_as_new(self, spare: Spare) -> bool:
        """Whether it is ready, and what would be forked now."""
        return self.is_ready(spare) and spare.settings == self.template.settings()

    def begin(self) -> None:
        """Fork one and let it make its context; none where that fails, as whoever needs a runner
        hears of it."""
        self.one = None
        template = self.template
        folder = template.builds.fresh()
        scratch = Path(tempfile.mkdtemp(prefix="r", dir=template.scratch))
        log_path = scratch.with_name(f"{scratch.name}.log")
        settings = template.settings()
        try:
            process, channel = template.fork(scratch, log_path, [], folder.products)
        except SandboxError:
            template.builds.give_up(folder)
            shutil.rmtree(scratch, ignore_errors=True)
            return
        self.one = Spare(scratch, log_path, folder, process, channel, settings)
        with contextlib.suppress(ChannelClosed):
            channel.send({"op": "wake", "device": self.device})

    def is_ready(self, spare: Spare) -> bool:
        """Wait for its context. False when it has none."""
        if not spare.is_awake:
            try:
                with self.template.spent.over("wake"):
                    reply, _ = spare.channel.receive(WAKE_S)
            except (ChannelClosed, ChannelTimeout):
                return False
            spare.is_awake = "error" not in reply
        return spare.is_awake and not spare.process.has_ended(0.0)

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
        if self.one is not None:
            spare, self.one = self.one, None
            self.end(spare)

    def end(self, spare: Spare) -> None:
        """With all that was made for it."""
        try:
            self.template.reap(spare.process)
        finally:
            spare.process.close()
            spare.channel.close()
            self.template.builds.give_up(spare.folder)
            spare.log_path.unlink(missing_ok=True)
            shutil.rmtree(spare.scratch, ignore_errors=True)
