"""Say how a run goes while several of its targets are under way at once: a `Progress` whose every
line names its target, and whose events come from any thread.

Goes to stderr. `LiveParallelProgress` is for a terminal, `PlainParallelProgress` for logs; in
GitHub Actions without groups, as lines of several targets would be in one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cudal1_ci.records import (
    Candidate,
    ContractCheck,
    Evaluation,
    Measurement,
    ModelUse,
    Report,
    Target,
)
from cudal1_ci.render.progress import (
    Progress,
    SilentProgress,
    asked_text,
    closing_text,
    compared_text,
    cropped,
    opening_text,
    outcome_text,
    target_name,
)
from cudal1_ci.render.wording import (
    contract_text,
    count_text,
    duration_text,
    one_line,
    reason_text,
)
from cudal1_ci.render.workflow_log import workflow_command
from cudal1_ci.stats import speedups

NUM_BEST = 5


def parallel_progress_on(
    stream: TextIO, environment: Mapping[str, str], *, quiet: bool = False
) -> Progress:
    """Return the progress that suits a stream."""
    if quiet:
        return SilentProgress()
    is_action = environment.get("GITHUB_ACTIONS") == "true"
    if not is_action and stream.isatty() and environment.get("TERM") != "dumb":
        return LiveParallelProgress(Console(file=stream))
    return PlainParallelProgress(stream, has_warnings=is_action)


class ParallelTally:
    """Count what a run has done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.started_s = clock()
        self.num_targets = self.num_tried = self.num_failed = 0
        self.done: set[Target] = set()
        self.running: dict[Target, str] = {}
        """What is done about each."""
        self.best: dict[Target, tuple[float, str]] = {}

    def judged(self, target: Target, evaluation: Evaluation, text: str) -> None:
        self.num_tried += 1
        self.num_failed += evaluation.verdict.status != "passed"
        worth = speedups.score(evaluation)
        is_gain = any(speedups.is_gain(measurement) for measurement in evaluation.measurements)
        if is_gain and worth > self.best.get(target, (0.0, ""))[0]:
            self.best[target] = worth, text

    def ended(self, target: Target) -> None:
        self.running.pop(target, None)
        self.done.add(target)

    def left_s(self) -> float | None:
        """Return the seconds until the end, at the mean rate so far; None where it is unknown."""
        if not self.done:
            return None
        each_s = (self.clock() - self.started_s) / len(self.done)
        return max(0, self.num_targets - len(self.done)) * each_s

    def closing_line(self) -> str:
        """Return `14 of 40 begun, 96 candidates, 30 failed`."""
        num_begun = len(self.done | self.running.keys())
        tried = count_text(self.num_tried, "candidate")
        return f"{num_begun} of {self.num_targets} begun, {tried}, {self.num_failed} failed"

    def line(self) -> str:
        """Return `12 of 40 done, 2 running, 96 candidates, 30 failed, 6 min to go`."""
        left_s = self.left_s()
        return ", ".join(
            (
                f"{len(self.done)} of {self.num_targets} done",
                f"{len(self.running)} running",
                count_text(self.num_tried, "candidate"),
                f"{self.num_failed} failed",
                *([f"{duration_text(left_s)} to go"] if left_s else []),
            )
        )


class PlainParallelProgress:
    """Write a line for each verdict and each target that is through."""

    def __init__(
        self, stream: IO[str], *, has_warnings: bool = False, tally: ParallelTally | None = None
    ) -> None:
        self._stream, self._has_warnings = stream, has_warnings
        self._lock = threading.RLock()
        self.tally = tally or ParallelTally()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._say(self.tally.closing_line())

    def waiting(self, text: str) -> None:
        self._say(one_line(text))

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        with self._lock:
            self.tally.num_targets, self.tally.started_s = num_targets, self.tally.clock()
            self._say(opening_text(num_targets, num_left_out))

    def target_started(self, target: Target) -> None:
        with self._lock:
            self.tally.running[target] = "the reference"

    def target_skipped(self, target: Target, reason: str) -> None:
        with self._lock:
            self.tally.ended(target)
            self._write(target, f": skipped: {reason_text(reason)}")

    def target_ended(self, target: Target) -> None:
        with self._lock:
            if target in self.tally.done:  # it was skipped, which was said
                return
            self.tally.ended(target)
            self._write(target, ": done")

    def model_asked(self, target: Target, use: ModelUse, num_open: int) -> None:
        self._do(target, asked_text(use, num_open))
        self._write(target, f": {asked_text(use, num_open)}")

    def candidate_started(self, target: Target, candidate: Candidate) -> None:
        self._do(target, candidate.proposer)

    def candidate_judged(self, target: Target, evaluation: Evaluation, reused: bool) -> None:
        text = f", {evaluation.candidate.proposer}: {outcome_text(evaluation, reused)}"
        with self._lock:
            self.tally.judged(target, evaluation, target_name(target) + text)
            self._write(target, text)

    def compared(self, target: Target, measurement: Measurement) -> None:
        self._write(target, f": {compared_text(measurement)}")

    def contract_tried(self, target: Target, checks: Sequence[ContractCheck]) -> None:
        self._write(target, f": contract: {contract_text(checks)}")

    def notice(self, text: str) -> None:
        line = one_line(text)
        self._say(workflow_command("warning", line) if self._has_warnings else line)

    def finish(self, report: Report) -> None:
        self._say(closing_text(report))

    def _do(self, target: Target, what: str) -> None:
        with self._lock:
            self.tally.running[target] = what

    def _write(self, target: Target, text: str) -> None:
        # What a file is called must not become a workflow command: a line begins with a number.
        with self._lock:
            place = f"[{len(self.tally.done)}/{self.tally.num_targets}]"
            self._say(f"{place} {target_name(target)}{text}")

    def _say(self, line: str) -> None:
        with self._lock:
            self._stream.write(f"{line}\n")
            self._stream.flush()


class LiveParallelProgress(PlainParallelProgress):
    """Show the numbers, what is under way and the best so far, renewed in place."""

    def __init__(self, console: Console, tally: ParallelTally | None = None) -> None:
        super().__init__(console.file, tally=tally)
        self._console = console
        self._live = Live(
            console=console,
            get_renderable=self._renderable,
            refresh_per_second=4,
            transient=True,
        )

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._console.print(Text(self.tally.closing_line(), style="bold"))

    def waiting(self, text: str) -> None:
        self._console.print(Text(one_line(text), style="dim"))

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        super().start(num_targets, num_left_out)
        if num_left_out:
            self._console.print(Text(opening_text(num_targets, num_left_out)))
        self._live.start(refresh=True)

    def notice(self, text: str) -> None:
        self._console.print(Text(one_line(text), style="yellow"))

    def finish(self, report: Report) -> None:
        self._live.stop()
        self._console.print(Text(closing_text(report), style="bold"))

    def _say(self, line: str) -> None:
        """Write nothing: it is seen in the numbers."""

    def _renderable(self) -> RenderableType:
        with self._lock:
            rows = [cropped(self.tally.line(), "")]
            for target, what in self.tally.running.items():
                rows.append(cropped(f"trying {target_name(target)}: {what}", "cyan"))
            best = sorted(self.tally.best.values(), reverse=True)[:NUM_BEST]
        rows += [cropped(f"  {text}", "green") for _, text in best]
        return Group(*rows)
