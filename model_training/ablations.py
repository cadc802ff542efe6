"""Runs that are compared with one another: each goes through its stages in a folder of its own, and
one jury judges them all.

    ablations(variants, load, Path("runs/ablations"), is_resumed=False, tell=print)

A judge starts once, and knows in each run the references that it has learned in those before, on
which a short run would spend minutes. A run is handed the tasks of the one before it, and what is
known of references; of answers the verdicts on tasks of evaluation alone, which no prompt shows, so
that no run has another's exemplars.

Source: CUDA-L1 (arXiv 2507.14111), table 5, compares the stages and the baselines of stage 3.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import PROFILE
from cudal1_ci.records import Record
from cudal1_ci.records.archive import Archive
from model_training import evaluate, pipeline, rehearsal, scoring
from model_training.config import TrainingConfig
from model_training.judges import opened_jury
from model_training.run import MAX_MINUTES, Stopped
from model_training.run_files import CONFIG, copy_archive
from model_training.workplace import ARCHIVE, TASKS, opened

NAME = re.compile(r"\w[\w.-]*")
OF_REFERENCES = (scoring.REFERENCE, rehearsal.REFERENCE, PROFILE)
"""Kinds of notes that say nothing of any answer."""


class Variant(Record, frozen=True, kw_only=True):
    """A run by what is another in it."""

    name: str
    """Of its folder."""
    changes: tuple[str, ...] = ()
    """`KEY=VALUE`, as `--set` takes them."""


def ablations(
    variants: Sequence[Variant],
    load: Callable[[Variant], TrainingConfig],
    folder: Path,
    *,
    is_resumed: bool,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """All of them, one after another; those that are finished are skipped when it is taken up
    again. `run.max_minutes` is for all together.

    Raises:
        ConfigError: Two have one name, or other judges.
        Stopped: A run must stop; it and those after it are left.
    """
    configs = {one.name: load(one) for one in variants}
    refuse(variants, configs)
    began_s, before = time.monotonic(), None
    with opened_jury(configs[variants[0].name].judge) as jury:
        for name, config in configs.items():
            own = folder / name
            if before is not None:
                hand_on(before, own, with_tasks=configs[before.name].tasks == config.tasks)
            placed = in_folder(config, own, time.monotonic() - began_s)
            goes_on = is_resumed and (own / CONFIG).exists()
            tell(f"{name}: {'goes on' if goes_on else 'begins'}")
            with opened(placed, is_resumed=goes_on, jury=jury) as place:
                pipeline.pipeline(place, of(name, tell))
            before = own


def of(name: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: tell(f"{name}: {text}")


def refuse(variants: Sequence[Variant], configs: dict[str, TrainingConfig]) -> None:
    if not variants:
        raise ConfigError("--variant: expected one or more, such as `--variant bucket ''`")
    if len(configs) < len(variants):
        raise ConfigError("--variant: expected different names, each has a folder of its own")
    first = variants[0].name
    for name, config in configs.items():
        if not NAME.fullmatch(name):
            raise ConfigError(f"--variant: expected the name of a folder, got {name!r}")
        if config.judge != configs[first].judge:
            raise ConfigError(
                f"--variant {name}: expected the judges of {first}, as one jury judges all; set "
                "judge.* with --set, for all of them"
            )


def in_folder(config: TrainingConfig, folder: Path, spent_s: float) -> TrainingConfig:
    """The configuration of a run, with what is left of the time.

    Raises:
        Stopped: Nothing is.
    """
    minutes = config.run.max_minutes
    if minutes is not None:
        minutes -= spent_s / 60
        if minutes <= 0:
            raise Stopped(MAX_MINUTES)
    run = msgspec.structs.replace(config.run, folder=str(folder), max_minutes=minutes)
    return msgspec.structs.replace(config, run=run)


def hand_on(before: Path, to: Path, *, with_tasks: bool) -> None:
    """What a run may know of the one before; nothing that it knows already is changed."""
    to.mkdir(parents=True, exist_ok=True)
    if with_tasks and not (to / TASKS).exists():
        unfinished = to / f".{TASKS}"  # a run that is killed here has none
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(before / TASKS, unfinished)
        unfinished.rename(to / TASKS)
    if not (to / evaluate.ARCHIVE).exists():
        copy_archive(before / evaluate.ARCHIVE, to / evaluate.ARCHIVE)
    if (before / ARCHIVE).exists() and not (to / ARCHIVE).exists():
        with Archive.open(before / ARCHIVE) as known, Archive.open(to / ARCHIVE) as own:
            for kind in OF_REFERENCES:
                for key, value in known.all_noted(kind, object).items():
                    own.note(kind, key, value)
