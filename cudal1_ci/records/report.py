"""Gather the entries of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cudal1_ci.records.comparison import Comparison
from cudal1_ci.records.evaluation import Contradiction, Device, Evaluation
from cudal1_ci.records.record import Record
from cudal1_ci.records.target import Target
from cudal1_ci.records.workload import Workload


class ModelUse(Record, frozen=True, kw_only=True):
    """What a model was asked for one target, and what became of its answers."""

    model: str
    adapter: str | None = None
    """Hash of the adapter that was on its weights."""
    adapter_name: str | None = None
    num_answers: int = 0
    refused: dict[str, int] = {}
    """Answers of which no candidate came, by the kind of the failure: `no_code`, `truncated`,
    `rate_limit`, `duplicate`, `unchanged`."""
    num_repairs: int = 0
    """Of the answers, those to what was wrong with an earlier one."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    generating_s: float = 0.0
    """While at least one answer was under way."""
    waiting_s: float = 0.0
    """Of that, while the judge had nothing to do."""


class OpinionUse(Record, frozen=True, kw_only=True):
    """What another model was asked about the jumps of one target."""

    model: str
    num_asked: int = 0
    num_suspected: int = 0
    failed: dict[str, int] = {}
    """Questions without an opinion, by what happened: `timeout`, `unreadable`, `prompt`."""


class Entry(Record, frozen=True, kw_only=True):
    """A target with all that was tried on it, or the reason that nothing was."""

    target: Target
    skipped: str | None = None
    hint: str | None = None
    """For a skipped target: what would make it judgeable."""
    workloads: tuple[Workload, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    model_use: ModelUse | None = None
    opinion_use: OpinionUse | None = None
    contradictions: tuple[Contradiction, ...] = ()
    reused: tuple[str, ...] = ()
    """Ids of the candidates whose evaluation came from the archive."""
    best: int | None = None
    """Index into `evaluations` of the proposal worth showing; None when there is none."""
    comparison: Comparison | None = None
    """With its base, where that was asked for."""

    def __post_init__(self) -> None:
        if self.best is not None and self.evaluations[self.best].verdict.status != "passed":
            raise ValueError("the best evaluation of an entry must have passed")


class Notice(Record, frozen=True, kw_only=True):
    """A file or target that could not be looked at, and why."""

    path: str
    message: str


class Report(Record, frozen=True, kw_only=True):
    """What goes back to the person who asked."""

    repository: str
    folder: str = "."
    """What was looked at, below the top of the repository: paths begin there."""
    base_sha: str | None = None
    head_sha: str | None = None
    device: Device | None = None
    entries: tuple[Entry, ...] = ()
    warnings: tuple[Notice, ...] = ()
    elapsed_s: float = 0.0
    generated_at: datetime | None = None
    searched: bool = True
    """Whether faster versions were looked for; a comparison looks for none."""
    """When it was finished; None of what was measured in no run."""
    ended: Literal["done", "budget", "interrupted"] = "done"

    @property
    def complete(self) -> bool:
        """Whether every target had its turn."""
        return self.ended == "done"
