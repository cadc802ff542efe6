"""Scan a repository for hours, and continue at the next run: `cudal1-ci sweep`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci import __version__
from cudal1_ci.cli.devices import Placed, placed, progress_for, with_shared_gpu
from cudal1_ci.cli.execution import settings_of
from cudal1_ci.cli.group import GroupedCommand
from cudal1_ci.cli.outputs import output_options, refuse_unwritable_outputs, write_report
from cudal1_ci.cli.preflight import refuse_missing
from cudal1_ci.cli.scan_options import KEYS as SEARCH_KEYS
from cudal1_ci.cli.scan_options import (
    context_of,
    exit_code,
    plan_of,
    search_options,
    with_models,
)
from cudal1_ci.cli.scope import scope_of
from cudal1_ci.config import Settings
from cudal1_ci.discover.plan import Plan
from cudal1_ci.optimize.impact import kept_share, with_impact
from cudal1_ci.optimize.sweep.loop import course_of, sweep
from cudal1_ci.propose.llm.servers.adapters import bundled_for
from cudal1_ci.records import Report, content_hash
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress
from cudal1_ci.render.published import published

EPILOG = """\b
Examples:
  cudal1-ci sweep . --budget 4h --json report.json   exit 6 when spent; the next one continues
  cudal1-ci publish --sweep report.json              the rolling issue (docs/sweep.md)

Targets that no sweep has finished come first, then those whose code, device or software changed,
then those that were inconclusive. Known, unchanged results are read from the archive.
"""

KEYS = {**SEARCH_KEYS, "budget": "sweep.budget"}
"""Flags that stand for a setting."""


@click.command(
    "sweep",
    cls=GroupedCommand,
    epilog=EPILOG,
    short_help="Scan within a budget, continuing where the last sweep ended.",
)
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--budget", help="Stop after 90m, 4h; the next sweep continues [default: 4h].")
@search_options
@output_options
def sweep_verb(path: Path, **flags: Any) -> None:
    """Scan PATH for as long as the budget lasts, and continue where the last sweep ended.

    Exit code 0 when every target has a result, 6 when the budget was spent first, 130 when
    interrupted. Finished work is kept.
    """
    scope = scope_of([path])
    settings = settings_of(scope.root, flags, KEYS)
    refuse_unwritable_outputs(flags)
    refuse_missing(settings, with_model=not flags["no_model"])
    settings = with_shared_gpu(settings)
    progress = progress_for(settings, sys.stderr, os.environ, quiet=flags["quiet"])
    with placed(settings, scope.root.resolve()) as place:
        plan = plan_of(scope, place.settings, progress, retrace=flags["retrace"])
        report = run(plan, place, progress, flags)
    write_report(published(report, settings.report), flags)
    sys.exit(exit_code(report, settings.fail_on))


def run(plan: Plan, place: Placed, progress: Progress, flags: dict[str, Any]) -> Report:
    """Run one sweep, with the archive of this checkout as memory."""
    settings = place.settings
    budget_s = settings.sweep.budget_s
    timed = msgspec.structs.replace(
        settings, review=msgspec.structs.replace(settings.review, budget_s=budget_s)
    )
    wanted = not flags["no_model"]
    with context_of(
        plan, place._replace(settings=timed), progress, may_reuse=not flags["fresh"]
    ) as context:
        course = course_of(plan, context, means_of(settings, with_model=wanted))
        run_id, since = begun(context.archive, plan.root)
        with (
            with_models(context, course.open, timed, is_wanted=wanted, since=since) as full,
            progress,
        ):
            full = replace(full, impact_share=kept_share(plan, full.config))
            report = with_impact(sweep(course, full), plan, full)
        if report.ended != "interrupted":
            context.archive.finish_run(run_id)
    return report


def begun(archive: Archive, root: Path) -> tuple[str, float]:
    """Return this run and when it began. A killed run is resumed: a model's earlier answers are
    reused only while prompts stay the same. A spent budget ends a run, because the next run shows
    what it found.
    """
    arguments = {"sweep": str(root.resolve())}
    unfinished = archive.unfinished_run(arguments)
    run_id = unfinished.id if unfinished else archive.start_run(arguments)
    return run_id, archive.run_started_at(run_id)


def means_of(settings: Settings, *, with_model: bool) -> str:
    """Hash what decides what is tried on a target, except the target itself."""
    model = settings.model
    bundled = bundled_for(model) if with_model else None
    files = bundled.record.files if bundled else None
    asked = (model.model, model.name, model.adapter, files, settings.optimizer, settings.contrast)
    review = settings.review
    return content_hash(
        [
            __version__,
            settings.trial.policy,
            settings.playbook,
            (review.num_rounds, review.num_candidates, review.min_share),
            (*asked, settings.opinion.model) if with_model and model.model else None,
        ]
    )
