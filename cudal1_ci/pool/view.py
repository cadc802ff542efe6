"""What a pool shows while it works: done, running, failed, the best, and how long it will take.

Goes to stderr. `LiveView` for a terminal, `PlainView` for logs, one line a verdict.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cudal1_ci.pool.work import Judged, Task
from cudal1_ci.render.progress import outcome_text
from cudal1_ci.render.wording import count_text, device_text, duration_text, one_line
from cudal1_ci.stats.speedups import score

NUM_BEST = 5


class View(Protocol):
    """The events of a run; all come from one thread."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def added(self, task: Task, num_new: int) -> None: ...
    def judged(self, found: Judged) -> None: ...
    def seats(self, num_seats: int, num_running: int) -> None: ...
    def notice(self, text: str) -> None: ...


def view_on(
    stream: TextIO, environment: Mapping[str, str], num_candidates: int | None = None
) -> View:
    """The view that suits a stream. `num_candidates` of all tasks, where the caller knows it: then
    it is known how long the rest will take."""
    tally = Tally(num_candidates)
    if stream.isatty() and environment.get("TERM") != "dumb":
        return LiveView(Console(file=stream), tally)
    return PlainView(stream, tally)


class Tally:
    """The numbers of a run."""

    def __init__(
        self, num_candidates: int | None = None, clock: Callable[[], float] = time.monotonic
    ):
        self.num_candidates = num_candidates
        self.clock = clock
        self.started_s = clock()
        self.num_added = self.num_known = self.num_seats = self.num_running = 0
        self.num_by_status: Counter[str] = Counter()
        self.num_by_device: Counter[str] = Counter()
        self.best: dict[str, tuple[float, str]] = {}
        """Of each problem that has a gain, what it is worth and in words."""
        self._names: dict[str, str] = {}

    def added(self, task: Task, num_new: int) -> None:
        self.num_added += num_new
        self._names[task.problem.id] = task.name or task.problem.id

    def judged(self, found: Judged) -> str:
        """Count it; what it says in words."""
        evaluation = found.evaluation
        candidate = evaluation.candidate
        self.num_known += found.is_known
        self.num_by_status[evaluation.verdict.status] += 1
        if evaluation.device is not None and not found.is_known:
            self.num_by_device[device_text(evaluation.device)] += 1
        name = self._names[candidate.problem_id]
        text = f"{name}, {candidate.proposer}: {outcome_text(evaluation, found.is_known)}"
        worth = score(evaluation)
        if worth > max(1.0, self.best.get(candidate.problem_id, (0.0, ""))[0]):
            self.best[candidate.problem_id] = worth, text
        return text

    @property
    def num_done(self) -> int:
        return self.num_by_status.total()

    def left_s(self) -> float | None:
        """Seconds until the end, at the mean rate so far; None where nothing is known of it."""
        num_made = self.num_done - self.num_known
        if self.num_candidates is None or num_made == 0:
            return None
        each_s = (self.clock() - self.started_s) / num_made
        return max(0, self.num_candidates - self.num_done) * each_s

    def line(self) -> str:
        """`12 of 40 done (3 known), 4 running on 2 seats, 2 failed, 6 min to go`."""
        num_passed = self.num_by_status["passed"]
        whole = self.num_candidates or self.num_added
        known = f" ({self.num_known} known)" if self.num_known else ""
        left_s = self.left_s()
        return ", ".join(
            (
                f"{self.num_done} of {whole} done{known}",
                f"{self.num_running} running on {count_text(self.num_seats, 'seat')}",
                f"{self.num_done - num_passed} failed",
                *([f"{duration_text(left_s)} to go"] if left_s else []),
            )
        )

    def leaders(self) -> list[str]:
        """The best of the problems that gained most."""
        return [text for _, text in sorted(self.best.values(), reverse=True)[:NUM_BEST]]


class NoView:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def added(self, task: Task, num_new: int) -> None:
        """Nothing."""

    def judged(self, found: Judged) -> None:
        """Nothing."""

    def seats(self, num_seats: int, num_running: int) -> None:
        """Nothing."""

    def notice(self, text: str) -> None:
        """Nothing."""


class PlainView:
    """A line for each verdict, and one at the end."""

    def __init__(self, stream: TextIO, tally: Tally):
        self._stream, self._tally = stream, tally

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._say(self._tally.line())
        for device, number in self._tally.num_by_device.most_common():
            self._say(f"  {count_text(number, 'candidate')} on {device}")

    def added(self, task: Task, num_new: int) -> None:
        self._tally.added(task, num_new)

    def judged(self, found: Judged) -> None:
        text = self._tally.judged(found)
        self._say(f"[{self._tally.num_done}/{self._tally.num_added}] {text}")

    def seats(self, num_seats: int, num_running: int) -> None:
        self._tally.num_seats, self._tally.num_running = num_seats, num_running

    def notice(self, text: str) -> None:
        self._say(text)

    def _say(self, line: str) -> None:
        self._stream.write(f"{one_line(line)}\n")
        self._stream.flush()


class LiveView:
    """The line and the best so far, renewed in place."""

    def __init__(self, console: Console, tally: Tally):
        self._console, self._tally = console, tally
        self._live = Live(
            console=console,
            get_renderable=self._renderable,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._console.print(Text(self._tally.line(), style="bold"))
        for device, number in self._tally.num_by_device.most_common():
            self._console.print(Text(f"  {count_text(number, 'candidate')} on {device}"))

    def added(self, task: Task, num_new: int) -> None:
        self._tally.added(task, num_new)

    def judged(self, found: Judged) -> None:
        self._tally.judged(found)

    def seats(self, num_seats: int, num_running: int) -> None:
        self._tally.num_seats, self._tally.num_running = num_seats, num_running

    def notice(self, text: str) -> None:
        self._console.print(Text(one_line(text), style="yellow"))

    def _renderable(self) -> RenderableType:
        rows = [Text(self._tally.line(), no_wrap=True, overflow="ellipsis")]
        rows += [
            Text(f"  {one_line(text)}", style="green", no_wrap=True, overflow="ellipsis")
            for text in list(self._tally.leaders())
        ]
        return Group(*rows)
