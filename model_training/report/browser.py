"""Judged samples in the form in which a page carries many of them: an index of what is filtered by,
and pieces with the texts, of which the page opens those that are looked at.

    browser = browser_of(runs)
    browser.index, browser.samples, browser.prompts

Each is JSON, compressed by gzip, in base64. A model's text has therefore no way to end the element
that it lies in, and the page makes text of it and never markup. A browser unpacks the index, and of
the others those pieces that hold what is looked at. A prompt is kept once for all of its samples.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cudal1_ci.records import Record
from model_training.report.run_folder import Judged, Run, samples_of

PER_PIECE = 100
"""Samples or prompts; the page computes with it."""


class Browser(Record, frozen=True, kw_only=True):
    """Packed; the number of a sample is its place in the index."""

    num_samples: int
    index: str
    """Names and a row of each sample: run, stage, step, task, status, speedup, reward, prompt."""
    samples: tuple[str, ...]
    """Texts and details of `PER_PIECE` samples each."""
    prompts: tuple[str, ...]


def browser_of(runs: Sequence[Run]) -> Browser:
    """All judged samples of the runs. A piece is packed as soon as it is full, so that the texts of
    a long run are never in memory all at once."""
    names: dict[str, dict[str, int]] = {key: {} for key in ("run", "stage", "task", "status")}
    places: dict[str, int] = {}
    rows: list[list[Any]] = []
    texts, prompts = Pieces(), Pieces()
    for run, sample in every_sample(runs):
        place = places.get(f"{run.name} {sample.prompt_sha}", -1)
        if sample.messages and place < 0:
            place = places[f"{run.name} {sample.prompt_sha}"] = prompts.num_added
            prompts.add([[one.role, one.content] for one in sample.messages])
        rows.append(
            [
                numbered(names["run"], run.name),
                numbered(names["stage"], sample.stage),
                sample.step,
                numbered(names["task"], sample.task),
                numbered(names["status"], sample.status),
                sample.speedup,
                sample.reward,
                place,
            ]
        )
        texts.add(details(sample))
    return Browser(
        num_samples=len(rows),
        index=packed({"names": {key: list(found) for key, found in names.items()}, "rows": rows}),
        samples=texts.finish(),
        prompts=prompts.finish(),
    )


def every_sample(runs: Sequence[Run]) -> Iterator[tuple[Run, Judged]]:
    for run in runs:
        for sample in samples_of(run):
            yield run, sample


def details(sample: Judged) -> dict[str, Any]:
    """What is shown of a sample beside its row."""
    return {
        "completion": sample.completion,
        "findings": sample.findings,
        "refused": sample.refused,
        "exemplars": sample.exemplar_ids,
        "is_known": sample.is_known,
        "was_confirmed": sample.was_confirmed,
        "was_rehearsed": sample.was_rehearsed,
        "seed": sample.seed,
    }


def numbered(names: dict[str, int], name: str) -> int:
    """Its number; a new name gets the next."""
    return names.setdefault(name, len(names))


class Pieces:
    """A list that is packed piece by piece."""

    def __init__(self) -> None:
        self.num_added = 0
        self._open: list[Any] = []
        self._packed: list[str] = []

    def add(self, item: Any) -> None:
        self._open.append(item)
        self.num_added += 1
        if len(self._open) == PER_PIECE:
            self._pack()

    def finish(self) -> tuple[str, ...]:
        """All pieces, the last of which may be shorter."""
        if self._open:
            self._pack()
        return tuple(self._packed)

    def _pack(self) -> None:
        self._packed.append(packed(self._open))
        self._open = []


def packed(value: Any) -> str:
    """JSON, gzip without a date, base64."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(value), mtime=0)).decode("ascii")
