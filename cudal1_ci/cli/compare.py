"""`cudal1-ci compare`: the same workloads on two commits of a checkout."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci.cli.device import measures_on_gpu
from cudal1_ci.cli.devices import Placed, placed, progress_for, unplaced
from cudal1_ci.cli.execution import (
    TREE_KEYS,
    refuse_cluster,
    session_of,
    settings_of,
    two_tree_options,
)
from cudal1_ci.cli.group import EXIT_BUDGET, EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_NO, GroupedCommand
from cudal1_ci.cli.outputs import output_options, refuse_unwritable_outputs, write_report
from cudal1_ci.cli.preflight import refuse_missing
from cudal1_ci.cli.trace import Before, traces_for
from cudal1_ci.compare.agreements import agreed, agreements
from cudal1_ci.compare.bench import Bench
from cudal1_ci.compare.loop import compare
from cudal1_ci.compare.pairs import Pairs, pairs_of
from cudal1_ci.config import Settings, load_settings
from cudal1_ci.discover import discover
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import Plan, removal_notices, survey
from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import committed_change, folder_in_repository, is_clean
from cudal1_ci.github.files_of_commit import moved_submodules
from cudal1_ci.github.trees import Trees
from cudal1_ci.pool import Pool
from cudal1_ci.records import Acknowledgement, Change, Entry, Notice, Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress
from cudal1_ci.render.published import published
from cudal1_ci.verification.protocol import Verifier

EPILOG = """\b
Examples:
  cudal1-ci compare origin/main                  HEAD with its merge base
  cudal1-ci compare v1.2 v1.3 --json out.json    two releases
  cudal1-ci compare origin/main --fail-on regression

The base's configuration counts, so that a change cannot loosen its own thresholds. `--config-from
head` takes the checkout's.
"""

KEYS = {
    **TREE_KEYS,
    "budget": "budget",
    "fail_on": "fail-on",
    "threshold": "compare.threshold",
}
"""Flags that stand for a setting."""


@click.command(
    "compare",
    cls=GroupedCommand,
    epilog=EPILOG,
    short_help="Time BASE and HEAD, and report what got slower.",
)
@click.argument("base")
@click.argument("head", default="HEAD")
@click.option(
    "--path",
    default=".",
    type=click.Path(path_type=Path),
    help="Folder of the checkout [default: the working directory].",
)
@click.option(
    "--config-from",
    type=click.Choice(["base", "head"]),
    default="base",
    show_default=True,
    help="Commit whose configuration is used.",
)
@two_tree_options
@click.option("--budget", help="Stop after 90s, 10m, 1h30m; the rest is listed as not measured.")
@click.option(
    "--threshold",
    type=float,
    help="Relative slowdown that counts [default: 0.05 on a CPU, 0.02 on a GPU].",
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "regression", "contract", "inconclusive"]),
    help="`regression`: exit 1 for a regression that was not acknowledged; `contract`: also when "
    "another use of a target worked in the base and fails in the head; `inconclusive`: also exit 3 "
    "when a verdict is inconclusive [default: never].",
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Traces of an earlier commit: only the tests near the change run again.",
)
@output_options
def compare_verb(base: str, head: str, path: Path, **flags: Any) -> None:
    """Measure what HEAD changed since its merge base with BASE, on both trees.

    Exit code 0 when done, 1 or 3 by --fail-on, 6 when the budget was spent.
    """
    started_s = time.monotonic()
    if not path.is_dir():
        raise DiscoveryError(f"{path}: expected a folder of a checkout")
    change = committed_change(path, base, head)
    assert change.head_sha is not None
    # Where trees lie must be known before there is one, and is not for a change to say either.
    with tempfile.TemporaryDirectory() as nowhere:
        state_dir = load_settings(Path(nowhere)).state_dir
    folder = path / state_dir / "trees"
    plain = Trees(path, folder).of(
        change.base_sha if flags["config_from"] == "base" else change.head_sha
    )
    settings = comparing(settings_of(plain, flags, KEYS, project=path))
    refuse_cluster(settings)
    refuse_missing(settings)
    refuse_unwritable_outputs(flags)
    told = settings.file.relative_to(plain).as_posix() if settings.file else "the configuration"
    known = agreements(settings.acks, told)
    trees = Trees(
        path,
        folder,
        setup=settings.compare.setup,
        setup_s=settings.review.budget_s,
        python=settings.python,
        commands=settings.commands,
    )
    progress = progress_for(settings, sys.stderr, os.environ, quiet=flags["quiet"])
    if head == "HEAD" and not is_clean(path):
        progress.notice("work that is not committed is not compared")
    before = Before(flags["traces"], change) if flags["traces"] else None
    with placed(settings, path.resolve()) as place:
        roots = trees.of(change.base_sha), trees.of(change.head_sha)
        evidence = Evidence(
            declared=declarations(settings.workloads, told),
            traces=traces_for(path, settings, progress, again=False, before=before),
        )
        plan = survey(
            roots[1],
            settings.discover,
            evidence=evidence,
            repository=change.repository,
            head_sha=change.head_sha,
            change=change,
            on_gpu=measures_on_gpu(settings.device),
        )
        moved = moved_submodules(trees.top, change.base_sha, change.head_sha)
        plan = dataclasses.replace(plan, notices=(*plan.notices, *trees.notices, *moved))
        pairs = pairs_of(plan, discover(roots[0], settings.discover), change)
        # Tests ran in between, and something may have while it was measured.
        with intact(trees, (change.base_sha, change.head_sha)):
            report = measured(pairs, plan, change, path, place, known, progress, flags, started_s)
    write_report(published(report, settings.report), flags)
    sys.exit(exit_code(report, settings.fail_on))


@contextlib.contextmanager
def intact(trees: Trees, commits: Sequence[str]) -> Iterator[None]:
    """Raise DiscoveryError where a tree is another one before or after what is measured."""
    for sha in commits:
        trees.check(sha)
    yield
    for sha in commits:
        trees.check(sha)


def comparing(settings: Settings) -> Settings:
    """Return settings whose trials compare times."""
    # Another state_dict is no reason not to compare times: both load what they share.
    kind = "cuda" if measures_on_gpu(settings.device) else "cpu"
    threshold = settings.compare.thresholds.relative_on(kind)
    trial = msgspec.structs.replace(
        settings.trial,
        weights="shared",
        settles="difference",
        # Tight enough to tell the threshold from nothing, and no tighter.
        half_width=max(settings.trial.half_width, threshold / 2),
        same_within=threshold,
    )
    return msgspec.structs.replace(settings, trial=trial)


def measured(
    pairs: Pairs,
    plan: Plan,
    change: Change,
    path: Path,
    place: Placed,
    known: Sequence[Acknowledgement],
    progress: Progress,
    flags: dict[str, Any],
    started_s: float,
) -> Report:
    """Return the report of a comparison, with the archive of this checkout as memory."""
    settings, backend = place
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(Archive.open(path / settings.state_dir / "archive.sqlite"))
        pool = None
        if backend is not None and pairs.pairs:
            pool = Pool(backend, notice=progress.notice, is_of_one_kind=True)
            stack.enter_context(pool)
        session: Verifier = (
            pool.first
            if pool
            else stack.enter_context(session_of(unplaced(settings), path.resolve()))
        )
        stack.enter_context(progress)
        bench = Bench(
            session=session,
            pool=pool,
            archive=archive,
            progress=progress,
            config=settings.compare,
            policy=settings.trial.policy,
            budget_s=settings.review.budget_s,
            may_reuse=not flags["fresh"],
            examines=settings.trial.contract_s > 0,
        )
        bench.started_s = started_s  # trees, their setup and the trace are part of the budget
        found, ended = compare(pairs, bench)
        entries, notices = covered(found, known)
        known_gone = removal_notices(plan.removed)  # they have entries of their own here
        told = [notice for notice in plan.notices if notice not in known_gone]
        return Report(
            repository=change.repository,
            folder=folder_in_repository(path),
            base_sha=change.base_sha,
            head_sha=change.head_sha,
            device=session.device() if any(e.skipped is None for e in entries) else None,
            entries=tuple(entries),
            warnings=(*told, *notices),
            ended=ended,
            elapsed_s=time.monotonic() - bench.started_s,
            generated_at=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
            searched=False,
        )


def covered(
    entries: Sequence[Entry], known: Sequence[Acknowledgement]
) -> tuple[list[Entry], list[Notice]]:
    """Add agreements that cover regressions; return notices for those that do not."""
    today = datetime.datetime.now(datetime.UTC).date()
    found, notices = [], []
    for entry in entries:
        if entry.comparison is not None:
            covering, why = agreed(entry.target, entry.comparison, known, today)
            comparison = msgspec.structs.replace(entry.comparison, acknowledged=covering)
            entry = msgspec.structs.replace(entry, comparison=comparison)
            if why is not None:
                notices.append(Notice(path=entry.target.path, message=why))
        found.append(entry)
    return found, notices


def exit_code(report: Report, fail_on: str) -> int:
    """Return the exit code of docs/exit-codes.md."""
    comparisons = [entry.comparison for entry in report.entries if entry.comparison is not None]
    is_slower = any(one.verdict == "regression" and one.acknowledged is None for one in comparisons)
    if is_slower and fail_on in ("regression", "contract", "inconclusive"):
        return EXIT_NO
    if fail_on == "contract" and any(one.broken for one in comparisons):
        return EXIT_NO
    if report.ended == "budget":
        return EXIT_BUDGET
    if fail_on == "inconclusive" and any(one.verdict == "inconclusive" for one in comparisons):
        return EXIT_INCONCLUSIVE
    return EXIT_DONE
