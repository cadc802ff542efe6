"""Show the progress of a run: the run reports events, one of these classes shows them.

Progress goes to stderr, because stdout is the result. `RichProgress` for a terminal,
`PlainProgress` for logs (with groups and warnings where GitHub Actions reads them),
`SilentProgress` for `-q`.
Each is a context manager; leaving it restores the terminal whatever happened.

    with progress_on(sys.stderr, os.environ) as progress:
        review(plan, bench, progress)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichBar
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
from cudal1_ci.render.model_use import refused_words
from cudal1_ci.render.wording import (
    NOT_MEASURED,
    STATUS_WORDS,
    contract_text,
    count_text,
    device_text,
    duration_text,
    interval_text,
    one_line,
    reason_text,
)
from cudal1_ci.render.workflow_log import workflow_command
from cudal1_ci.stats import speedups
from cudal1_ci.stats.regression import slowdown

NUM_GAINS_SHOWN = 5
"""Gains listed below the bar: a handful fits on any terminal, the report has all."""


class Progress(Protocol):
    """The events of a run, in order. A target that was started may still be skipped."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def waiting(self, text: str) -> None:
        """Report what is waited for before the first target: `importing torch ...`."""
        ...

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        """Report how many targets are looked at, and how many others cannot be run."""
        ...

    def target_started(self, target: Target) -> None: ...
    def target_skipped(self, target: Target, reason: str) -> None: ...
    def target_ended(self, target: Target) -> None:
        """Report the end of a target where several are under way at once."""
        ...

    def model_asked(self, target: Target, use: ModelUse, num_open: int) -> None: ...
    def candidate_started(self, target: Target, candidate: Candidate) -> None: ...
    def candidate_judged(self, target: Target, evaluation: Evaluation, reused: bool) -> None: ...
    def compared(self, target: Target, measurement: Measurement) -> None: ...
    def contract_tried(self, target: Target, checks: Sequence[ContractCheck]) -> None: ...
    def notice(self, text: str) -> None: ...
    def finish(self, report: Report) -> None: ...


def progress_on(stream: TextIO, environment: Mapping[str, str], *, quiet: bool = False) -> Progress:
    """Return the progress that suits a stream: live on a terminal, lines elsewhere."""
    if quiet:
        return SilentProgress()
    if environment.get("GITHUB_ACTIONS") == "true":
        return PlainProgress(stream, has_groups=True)
    if stream.isatty() and environment.get("TERM") != "dumb":
        return RichProgress(Console(file=stream))
    return PlainProgress(stream)


class SilentProgress:
    """Show nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def waiting(self, text: str) -> None:
        """Ignore the event."""

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        """Ignore the event."""

    def target_started(self, target: Target) -> None:
        """Ignore the event."""

    def target_skipped(self, target: Target, reason: str) -> None:
        """Ignore the event."""

    def target_ended(self, target: Target) -> None:
        """Ignore the event."""

    def model_asked(self, target: Target, use: ModelUse, num_open: int) -> None:
        """Ignore the event."""

    def candidate_started(self, target: Target, candidate: Candidate) -> None:
        """Ignore the event."""

    def candidate_judged(self, target: Target, evaluation: Evaluation, reused: bool) -> None:
        """Ignore the event."""

    def compared(self, target: Target, measurement: Measurement) -> None:
        """Ignore the event."""

    def contract_tried(self, target: Target, checks: Sequence[ContractCheck]) -> None:
        """Ignore the event."""

    def notice(self, text: str) -> None:
        """Ignore the event."""

    def finish(self, report: Report) -> None:
        """Ignore the event."""


class PlainProgress:
    """Print one line for each event. With groups, GitHub Actions folds the lines of each target."""

    def __init__(self, stream: TextIO, *, has_groups: bool = False) -> None:
        self._stream = stream
        self._has_groups = has_groups
        self._is_in_group = False
        self._num_targets = 0
        self._seen: list[Target] = []
        self._current: Target | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_group()

    def waiting(self, text: str) -> None:
        self._say(one_line(text))

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        self._num_targets = num_targets
        self._say(opening_text(num_targets, num_left_out))

    def target_started(self, target: Target) -> None:
        self._next(target)
        self._end_group()
        head = f"{self._place()} {target_name(target)}"
        if self._has_groups:
            self._say(workflow_command("group", one_line(head)))
            self._is_in_group = True
        else:
            self._say(head)

    def target_skipped(self, target: Target, reason: str) -> None:
        if self._current == target:
            self._say(f"  skipped: {reason_text(reason)}")
            return
        self._next(target)
        self._end_group()
        self._say(f"{self._place()} {target_name(target)}: skipped: {reason_text(reason)}")

    def target_ended(self, target: Target) -> None:
        """Print nothing: the next target's line shows the end."""

    def model_asked(self, target: Target, use: ModelUse, num_open: int) -> None:
        self._name(target)
        self._say(f"  {asked_text(use, num_open)}")

    def candidate_started(self, target: Target, candidate: Candidate) -> None:
        """Print nothing: the candidate's verdict is its line."""

    def candidate_judged(self, target: Target, evaluation: Evaluation, reused: bool) -> None:
        self._name(target)
        self._say(f"  {evaluation.candidate.proposer}: {outcome_text(evaluation, reused)}")

    def compared(self, target: Target, measurement: Measurement) -> None:
        self._name(target)
        self._say(f"  {compared_text(measurement)}")

    def contract_tried(self, target: Target, checks: Sequence[ContractCheck]) -> None:
        self._end_group()
        self._next(target)
        self._say(f"{self._place()} {target_name(target)}: contract: {contract_text(checks)}")

    def notice(self, text: str) -> None:
        line = one_line(text)
        self._say(workflow_command("warning", line) if self._has_groups else line)

    def finish(self, report: Report) -> None:
        self._end_group()
        self._say(closing_text(report))

    def _name(self, target: Target) -> None:
        """Print a target's line again where a run returns to it after another one."""
        if self._current != target:
            self.target_started(target)

    def _next(self, target: Target) -> None:
        self._current = target
        if target not in self._seen:
            self._seen.append(target)

    def _place(self) -> str:
        assert self._current is not None
        return f"[{self._seen.index(self._current) + 1}/{self._num_targets}]"

    def _end_group(self) -> None:
        if self._is_in_group:
            self._say("::endgroup::")
            self._is_in_group = False

    def _say(self, line: str) -> None:
        # What user code wrote must not become a workflow command: only our own lines begin with ::
        # and every line is one line.
        self._stream.write(f"{line}\n")
        self._stream.flush()


class RichProgress:
    """A bar, what is being tried, and what was found so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = RichBar(
            TextColumn("targets"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("targets", total=None)
        self._current: Target | None = None
        self._seen: set[Target] = set()
        self._doing = ""
        self._num_tried = 0
        self._gains: dict[tuple[str, str], tuple[float, str]] = {}
        self._live = Live(
            console=console,
            get_renderable=self._renderable,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def waiting(self, text: str) -> None:
        self._console.print(Text(one_line(text), style="dim"))

    def start(self, num_targets: int, num_left_out: int = 0) -> None:
        self._bar.update(self._task, total=num_targets)
        if num_left_out:
            self._console.print(Text(opening_text(num_targets, num_left_out)))
        self._live.start(refresh=True)

    def target_started(self, target: Target) -> None:
        self._end_current()
        self._current = target
        self._doing = f"{target_name(target)}: the reference"

    def target_skipped(self, target: Target, reason: str) -> None:
        del reason  # the report groups skipped targets by reason; here they would push gains away
        if self._current != target:
            self._end_current()
        self._current = target
        self._end_current()

    def target_ended(self, target: Target) -> None:
        """Print nothing: the next target's line shows the end."""

    def model_asked(self, target: Target, use: ModelUse, num_open: int) -> None:
        self._doing = f"{target_name(target)}: {asked_text(use, num_open)}"
        self._live.refresh()

    def candidate_started(self, target: Target, candidate: Candidate) -> None:
        self._doing = f"{target_name(target)}: {candidate.proposer}"
        self._live.refresh()

    def candidate_judged(self, target: Target, evaluation: Evaluation, reused: bool) -> None:
        del reused
        self._num_tried += 1
        if not any(speedups.is_gain(measurement) for measurement in evaluation.measurements):
            return
        key, worth = (target.path, target.qualname), speedups.score(evaluation)
        if worth > self._gains.get(key, (0.0, ""))[0]:
            text = f"{target.qualname} by {evaluation.candidate.proposer}: {_speedups(evaluation)}"
            self._gains[key] = (worth, text)

    def compared(self, target: Target, measurement: Measurement) -> None:
        self._doing = f"{target_name(target)}: {compared_text(measurement)}"
        self._live.refresh()

    def contract_tried(self, target: Target, checks: Sequence[ContractCheck]) -> None:
        self._doing = f"{target_name(target)}: contract: {contract_text(checks)}"
        self._live.refresh()

    def notice(self, text: str) -> None:
        self._console.print(Text(one_line(text), style="yellow"))

    def finish(self, report: Report) -> None:
        self._live.stop()
        self._console.print(Text(closing_text(report), style="bold"))

    def _end_current(self) -> None:
        if self._current is not None and self._current not in self._seen:
            self._bar.advance(self._task)
            self._seen.add(self._current)
        self._current = None
        self._doing = ""

    def _renderable(self) -> RenderableType:
        gains = sorted(self._gains.values(), reverse=True)
        lines: list[RenderableType] = [self._bar]
        if self._doing:
            lines.append(cropped(f"trying {self._doing}", "cyan"))
        found = count_text(len(gains), "faster version")
        lines.append(cropped(f"{found} of {count_text(self._num_tried, 'candidate')}", "dim"))
        lines += [cropped(f"  {text}", "green") for _, text in gains[:NUM_GAINS_SHOWN]]
        return Group(*lines)


def opening_text(num_targets: int, num_left_out: int) -> str:
    """Format `12 targets to look at; 3 others cannot be run: ...`."""
    said = f"{count_text(num_targets, 'target')} to look at"
    if num_left_out:
        said += f"; {count_text(num_left_out, 'other')} cannot be run (see `scan --list`)"
    return said


def asked_text(use: ModelUse, num_open: int) -> str:
    """Format `asked small-coder: 5 answers, 3 to come, 41 tokens/s; 2 without code`."""
    words = [count_text(use.num_answers, "answer")]
    words += [f"{num_open} to come"] if num_open else []
    if use.generating_s > 0 and use.completion_tokens:
        words.append(f"{use.completion_tokens / use.generating_s:.0f} tokens/s")
    refused = "; ".join(refused_words(use.refused))
    return f"asked {use.model}: {', '.join(words)}" + (f"; {refused}" if refused else "")


def outcome_text(evaluation: Evaluation, reused: bool) -> str:
    """Format `passed, confirmed, 2.31x [2.20, 2.42] (base) on AMD EPYC 9B14, 1 thread`, or why it
    did not pass.
    """
    verdict = evaluation.verdict
    text = STATUS_WORDS[verdict.status]
    if evaluation.measurements:
        text += f", {evaluation.phase}" if evaluation.phase else ""
        text += f", {_speedups(evaluation)}"
    elif verdict.findings:
        text += f": {one_line(verdict.findings[0].message)}"
    return f"{text} (known from an earlier run)" if reused else text


def compared_text(measurement: Measurement) -> str:
    """Format `small: 1.08x as long as the base [1.05, 1.11] on AMD EPYC, 1 thread`."""
    found = slowdown(measurement)
    said = NOT_MEASURED
    if found:
        ratio, _, bounds = interval_text(found.estimate, found.low, found.high).partition(" ")
        said = f"{ratio} as long as the base {bounds}"
    return f"{measurement.workload}: {said} on {device_text(measurement.device)}"


def closing_text(report: Report) -> str:
    """Return what a finished run found, in one line."""
    num_faster = sum(entry.best is not None for entry in report.entries)
    ending = "" if report.complete else "; incomplete, run again to resume"
    return (
        f"{count_text(num_faster, 'faster version')} for "
        f"{count_text(len(report.entries), 'target')} in {duration_text(report.elapsed_s)}{ending}"
    )


def _speedups(evaluation: Evaluation) -> str:
    """Format the speedup of each workload, with its interval and the device."""
    texts = []
    for measurement in evaluation.measurements:
        found = speedups.speedup(measurement)
        said = interval_text(found.estimate, found.low, found.high) if found else NOT_MEASURED
        texts.append(f"{said} ({measurement.workload})")
    devices = dict.fromkeys(device_text(m.device) for m in evaluation.measurements)
    return f"{', '.join(texts)} on {' and '.join(devices)}"


def target_name(target: Target) -> str:
    """Return a target's name for a log, on one line whatever its file is called."""
    return one_line(target.address)


def cropped(text: str, style: str) -> Text:
    """Crop text to one line of the live display: a second line would make it jump."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")
