"""Keep a run's folder: configuration, machine, curves, checkpoints, and when to stop.

    with Run.open(folder, config, seed=0, weights=weights, max_minutes=25) as run:
        run.log("supervised", step, loss=0.7)
        if run.must_stop(): ...

    config.json          the configuration, and its hash
    environment.json     versions, machine, weights (machine.py); of a resumed run, each of them
    metrics.jsonl        a step a line
    tensorboard/         the same numbers, what the verifiers' time went into, and some answers
    samples/STAGE.jsonl  verified samples
    checkpoints/         checkpoints.py
    finished.json        stages that came to their end, each with what came of it

SIGTERM and SIGINT do not end a step: `must_stop` reports the signal from then on, and the trainer
writes a checkpoint and returns. A second signal ends the process as usual. A resumed run cuts from
its files the steps after the checkpoint, so that a curve is one curve.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from cudal1_ci.records import Record, content_hash
from model_training import checkpoints
from model_training.checkpoints import Checkpoint, write_text
from model_training.machine import environment
from model_training.run_files import (
    CONFIG,
    append,
    cut,
    lines_of,
    pretty,
    read_json,
    record_environment,
    refuse_another,
    whole,
)

ENVIRONMENT, METRICS = "environment.json", "metrics.jsonl"
FINISHED, SAMPLES, CHECKPOINTS = "finished.json", "samples", "checkpoints"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
NUM_SHOWN = 4
"""Answers of a step that TensorBoard shows."""
MAX_MINUTES = "max-minutes"
"""Why a run must stop whose time is over."""


class Stopped(Exception):
    """Say why work is left for when the run is resumed."""


@dataclass(kw_only=True)
class Run:
    """Hold an open run; a context manager, as its signals and its curves are given back at the
    end."""

    folder: Path
    deadline_s: float | None = None
    """Of time.monotonic()."""
    started_s: float = field(default_factory=time.monotonic)
    judges_spent: Callable[[], Mapping[str, Sequence[float]]] = dict
    """Times and seconds by what verifiers did since it was asked (`Session.spent`)."""
    _signal: str | None = None
    _offsets_s: dict[str, float] = field(default_factory=dict)
    _writers: dict[str, Any] = field(default_factory=dict)
    _handlers: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        folder: Path,
        config: Record,
        *,
        seed: int,
        weights: Path,
        is_resumed: bool = False,
        max_minutes: float | None = None,
        ignored: tuple[str, ...] = ("run",),
    ) -> Self:
        """Make the folder of a run, or take one up again.

        Args:
            ignored: Keys and tables that may differ when a run is taken up again.

        Raises:
            ConfigError: There is a run already and it is not to be resumed, or it has another
                configuration.
        """
        limit_s = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        run = cls(folder=folder, deadline_s=limit_s)
        if run.is_main:
            (folder / SAMPLES).mkdir(parents=True, exist_ok=True)
            settings = whole(config)
            refuse_another(folder, settings, ignored, is_resumed=is_resumed)
            if not (folder / CONFIG).exists():
                said = {"hash": content_hash(settings), "config": settings}
                write_text(folder / CONFIG, pretty(said))
            record_environment(folder / ENVIRONMENT, environment(weights, seed))
        return run

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, self._note_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    # --- when to stop ------------------------------------------------------------------------

    def _note_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signal = signal.Signals(number).name
        signal.signal(number, self._handlers[number])

    def must_stop(self, reserve_s: float = 0.0) -> str | None:
        """Return why no further step may begin: a signal's name, or `max-minutes` where less than
        the reserve is left; else None."""
        if self._signal is not None:
            return self._signal
        if self.deadline_s is not None and time.monotonic() + reserve_s >= self.deadline_s:
            return MAX_MINUTES
        return None

    def go_on(self) -> None:
        """Raise Stopped where no further step may begin."""
        reason = self.must_stop()
        if reason is not None:
            raise Stopped(reason)

    # --- curves ------------------------------------------------------------------------------

    @property
    def is_main(self) -> bool:
        """Return whether this process writes: of several that train together, the first."""
        return int(os.environ.get("RANK", "0")) == 0

    def seconds(self, stage: str) -> float:
        """Return how long a stage has been trained, without what a kill has lost."""
        if stage not in self._offsets_s:
            self._offsets_s[stage] = -time.monotonic()
        return self._offsets_s[stage] + time.monotonic()

    def log(self, stage: str, step: int, **numbers: float | int | None) -> None:
        """Write a step's numbers, to the file and to TensorBoard; None is left out of the
        latter."""
        if not self.is_main:
            return
        line = {"stage": stage, "step": step, "seconds": round(self.seconds(stage), 3), **numbers}
        append(self.folder / METRICS, [line])
        writer = self._writer(stage, step)
        for name, value in numbers.items():
            if value is not None:
                writer.add_scalar(f"{stage}/{name}", value, step)
        for name, (_, seconds) in self.judges_spent().items():
            writer.add_scalar(f"{stage}/judges_s/{name}", seconds, step)

    def log_samples(self, stage: str, samples: Sequence[Mapping[str, Any]]) -> None:
        """Write verified samples, a line each; TensorBoard shows the first few of a step."""
        if not self.is_main:
            return
        append(self.folder / SAMPLES / f"{stage}.jsonl", samples)
        for number, one in enumerate(samples[:NUM_SHOWN]):
            step, said = one["step"], f"{one['task']}: {one['status']}, reward {one['reward']:.3f}"
            text = f"{said}\n\n{one['completion']}"
            self._writer(stage, step).add_text(f"{stage}/answer {number}", text, step)

    def rewind(self, stage: str, step: int) -> None:
        """Forget what was written of a stage's steps after that one: they are made again."""
        if not self.is_main:
            return
        kept = cut(self.folder / METRICS, stage, step)
        cut(self.folder / SAMPLES / f"{stage}.jsonl", stage, step)
        before = [line["seconds"] for line in kept if line.get("stage") == stage]
        self._offsets_s[stage] = max(before, default=0.0) - time.monotonic()
        if writer := self._writers.pop(stage, None):
            writer.close()

    def last_step(self, stage: str) -> int:
        """Return the last step that the metrics have of a stage; 0 where they have none."""
        lines = lines_of(self.folder / METRICS)
        return max((one["step"] for one in lines if one["stage"] == stage), default=0)

    def _writer(self, stage: str, step: int) -> Any:
        """Open TensorBoard's writer of a stage: what it has of this step and later is forgotten."""
        if stage not in self._writers:
            from torch.utils.tensorboard import SummaryWriter  # here, as it takes a second

            folder = self.folder / "tensorboard" / stage
            self._writers[stage] = SummaryWriter(str(folder), purge_step=step)
        return self._writers[stage]

    # --- checkpoints and what is finished ----------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    def save(
        self, stage: str, step: int, write: Callable[[Path], None], state: dict[str, Any]
    ) -> None:
        """Write a checkpoint: `write` is given the folder to write weights and the rest into."""
        if self.is_main:
            with checkpoints.writing(self.checkpoints, stage, step, state) as folder:
                write(folder)

    def newest(self, stage: str) -> Checkpoint | None:
        """Return the newest checkpoint of a stage."""
        return checkpoints.newest(self.checkpoints, stage)

    def finished(self) -> dict[str, str]:
        """Return stages that came to their end, with the name of what came of it."""
        return read_json(self.folder / FINISHED)

    def finish(self, stage: str, result: str) -> None:
        """Note that a stage came to its end; `result` is a checkpoint's name, or a file's."""
        if self.is_main:
            write_text(self.folder / FINISHED, pretty({**self.finished(), stage: result}))
