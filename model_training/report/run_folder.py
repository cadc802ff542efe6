"""Reads the folder of a run: its metrics, judged samples and evaluations, each line once.

    RUN/config.json, environment.json    whatever the run has written there
    RUN/metrics.jsonl                    one object a line: stage, step, seconds, and numbers
    RUN/samples/STAGE.jsonl              one judged sample a line
    RUN/evaluations/NAME.json            samples of a policy on the tasks of evaluation
    RUN/tasks/evaluation.jsonl           these tasks, one a line

Files of lines may be compressed, as `.jsonl.gz`.

A run that was killed may have left half a line at the end of a file: that line is not there yet.
A line in the middle that cannot be read is an error. Of a step that was done twice, before and
after a kill, the later line counts. Fields that are not known here are passed over: the files are
written by other programs of the project, which may write more.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cudal1_ci.errors import ReportError
from model_training.table import Sample

Read = TypeVar("Read")
STAGES = ("base", "supervised", "self_supervised", "contrastive")
"""What is evaluated, in this order; all else is an ablation."""
COLLECT = "collect"
"""A stage without weights of its own."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is read from a run: unknown fields are passed over."""


class Said(Written, frozen=True, kw_only=True):
    """A message of a prompt."""

    role: str
    content: str


class Judged(Written, frozen=True, kw_only=True):
    """A sample of a stage, with its verdict. All of its texts are a model's: hostile."""

    stage: str
    step: int
    task: str
    completion: str
    status: str
    prompt_sha: str = ""
    exemplar_ids: tuple[str, ...] = ()
    speedup: float | None = None
    reward: float | None = None
    refused: str | None = None
    is_known: bool = False
    was_confirmed: bool | None = None
    was_rehearsed: bool = False
    findings: tuple[str, ...] = ()
    seed: int = 0
    messages: tuple[Said, ...] = ()
    """Of the first sample of a group alone; the others have the same `prompt_sha`."""


class Greedy(Written, frozen=True, kw_only=True):
    """The likeliest answer to each task, judged."""

    samples: tuple[Sample, ...]


class PolicyEvaluation(Written, frozen=True, kw_only=True):
    """Samples of one policy with one seed, judged."""

    name: str
    policy: str
    k: int
    temperature: float
    seed: int
    samples: tuple[Sample, ...]
    greedy: Greedy | None = None


class Metrics(Written, frozen=True, kw_only=True):
    """A line of the metrics: numbers of one step."""

    stage: str
    step: int
    seconds: float
    """Since the stage began, without what a kill has lost."""
    numbers: dict[str, float]


class Run(Written, frozen=True, kw_only=True):
    """A folder, without its samples: those are read when they are asked for (`samples_of`)."""

    folder: Path
    name: str
    config: dict[str, Any]
    environments: tuple[dict[str, Any], ...]
    """Of a run that was taken up again, one for each time."""
    metrics: tuple[Metrics, ...]
    evaluations: tuple[PolicyEvaluation, ...]


def place_of(name: str) -> tuple[int, str]:
    """For sorting: the stages in the order of the pipeline, then whatever else there is."""
    order = (STAGES[0], COLLECT, *STAGES[1:])
    return (order.index(name) if name in order else len(order), name)


def read_run(folder: Path) -> Run:
    """The run in a folder.

    Raises:
        ReportError: There is no run in it, or a file of it cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise ReportError(f"{folder}: expected the folder of a run, found no config.json in it")
    return Run(
        folder=folder,
        name=folder.resolve().name,
        config=read_json(folder / "config.json", dict[str, Any]),
        environments=environments_in(folder / "environment.json"),
        metrics=tuple(metrics_in(folder / "metrics.jsonl")),
        evaluations=tuple(
            read_json(path, PolicyEvaluation) for path in sorted(folder.glob("evaluations/*.json"))
        ),
    )


def environments_in(path: Path) -> tuple[dict[str, Any], ...]:
    """What the run was begun with, and what it was taken up again with; none without a file."""
    empty: dict[str, Any] = {}
    found = read_json(path, dict[str, Any], absent=empty)
    again = found.pop("resumed", [])
    return (found, *again) if found else ()


def metrics_in(path: Path) -> list[Metrics]:
    """The last line of each stage and step, in the order in which the steps were first done."""
    found: dict[tuple[str, int], Metrics] = {}
    for row in lines_of(path, dict[str, Any]):
        try:
            stage, step, seconds = row["stage"], row["step"], row["seconds"]
        except KeyError as error:
            raise ReportError(f"{path}: expected {error} in each line, got {row}") from error
        numbers = {
            key: float(value)
            for key, value in row.items()
            if key not in ("stage", "step", "seconds")
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        }
        found[stage, step] = Metrics(
            stage=stage, step=step, seconds=float(seconds), numbers=numbers
        )
    return list(found.values())


def samples_of(run: Run) -> Iterator[Judged]:
    """All judged samples, stage after stage."""
    stages = {path.name.partition(".")[0] for path in run.folder.glob("samples/*.jsonl*")}
    for stage in sorted(stages, key=place_of):
        yield from lines_of(run.folder / "samples" / f"{stage}.jsonl", Judged)


def lines_of(path: Path, kind: type[Read]) -> Iterator[Read]:
    """Each line of a JSON lines file, or of its compressed form; none where there is neither."""
    packed = path.with_name(f"{path.name}.gz")
    if not path.is_file() and not packed.is_file():
        return
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") if path.is_file() else gzip.open(packed) as opened:
        for number, line in enumerate(opened, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ReportError(f"{path}, line {number}: {error}") from error


def read_json(path: Path, kind: type[Read], absent: Read | None = None) -> Read:
    """The whole of a JSON file.

    Raises:
        ReportError: It cannot be read, or is of another form.
    """
    if absent is not None and not path.is_file():
        return absent
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: {error}") from error
