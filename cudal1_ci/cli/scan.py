"""`cudal1-ci scan`: discover, find workloads, propose, verify, report."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from cudal1_ci.cli.device import require
from cudal1_ci.cli.devices import Placed, placed, progress_for, unplaced, with_shared_gpu
from cudal1_ci.cli.execution import settings_of
from cudal1_ci.cli.group import GroupedCommand
from cudal1_ci.cli.outputs import (
    apply_best,
    output_options,
    refuse_unwritable_outputs,
    write_listing,
    write_report,
)
from cudal1_ci.cli.preflight import refuse_missing
from cudal1_ci.cli.scan_options import KEYS as SEARCH_KEYS
from cudal1_ci.cli.scan_options import (
    context_of,
    context_without_memory,
    exit_code,
    plan_of,
    refuse_uncallable,
    search_options,
    with_models,
)
from cudal1_ci.cli.scope import Scope, scope_of
from cudal1_ci.config import Settings
from cudal1_ci.discover.plan import Plan
from cudal1_ci.errors import ConfigError
from cudal1_ci.git import working_tree_change
from cudal1_ci.optimize.impact import kept_share, with_impact
from cudal1_ci.optimize.preview import preview
from cudal1_ci.optimize.run import review
from cudal1_ci.records import Report
from cudal1_ci.render.progress import Progress
from cudal1_ci.render.published import published

EPILOG = """\b
Examples:
  cudal1-ci scan .                              the whole folder; prints text
  cudal1-ci scan src/model.py:Attention         one target
  cudal1-ci scan --changed origin/main          what changed since the merge base
  cudal1-ci scan --list --json -                targets and workloads as JSON; runs nothing
  cudal1-ci scan . --html report.html --apply   write a page, and patch the working tree
  cudal1-ci scan . --budget 10m                 exit 6 when spent; run again to continue
"""

KEYS = {**SEARCH_KEYS, "budget": "budget"}
"""Flags that stand for a setting."""


@click.command(cls=GroupedCommand, epilog=EPILOG)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--changed", metavar="BASE", help="Only what changed since the merge base with BASE.")
@click.option("--list", "list_only", is_flag=True, help="List targets and workloads; run nothing.")
@click.option("--dry-run", is_flag=True, help="List what would be tried; measure nothing.")
@click.option("--why", is_flag=True, help="Also list near misses, and why nothing was proposed.")
@click.option("--budget", help="Stop after 90s, 10m, 1h30m; a later run continues.")
@click.option("--resume", is_flag=True, help="Resume the last unfinished scan of PATH.")
@click.option("--apply", "apply_them", is_flag=True, help="Apply the best proposals to the tree.")
@search_options
@output_options
def scan(paths: tuple[Path, ...], **flags: Any) -> None:
    """Find slow PyTorch code under PATH and prove a faster version.

    PATH is a folder, a file or `file.py:Name` [default: the working directory].

    Exit code 0 when done, 6 when the budget was spent, 130 when interrupted. Finished evaluations
    are kept; the next run reuses them.
    """
    scope = scope_of(paths or (Path(),))
    if flags["list_only"] and flags["retrace"]:
        raise ConfigError("--list runs nothing: leave --retrace out, or --list")
    settings = settings_of(scope.root, flags, KEYS)
    judges = not (flags["list_only"] or flags["dry_run"])
    refuse_unwritable_outputs(flags)
    refuse_missing(settings, with_model=not flags["no_model"], judges=judges)
    here = with_shared_gpu(settings) if judges else unplaced(settings)
    progress = progress_for(here, sys.stderr, os.environ, quiet=flags["quiet"])
    if not judges:
        foretell(scope, here, progress, flags)
        return
    with placed(here, scope.root.resolve()) as place:
        started_s = time.monotonic()
        plan = planned(scope, place.settings, progress, flags)
        place = place._replace(settings=without_spent(place.settings, started_s))
        report = run(scope, plan, place, progress, flags)
    shown = published(report, settings.report)
    write_report(shown, flags)
    if flags["apply_them"]:
        apply_best(shown, scope.root)
    refuse_uncallable(report)
    sys.exit(exit_code(report, settings.fail_on))


def without_spent(settings: Settings, started_s: float) -> Settings:
    """Return the settings with what is left of the budget: the trace is part of it."""
    budget_s = settings.review.budget_s
    if budget_s is None:
        return settings
    left_s = max(budget_s - (time.monotonic() - started_s), 1.0)
    return msgspec.structs.replace(
        settings, review=msgspec.structs.replace(settings.review, budget_s=left_s)
    )


def foretell(scope: Scope, settings: Settings, progress: Progress, flags: dict[str, Any]) -> None:
    """Write what exists, for any GPU, or what would be tried here; verify nothing."""
    if not flags["list_only"]:
        require(settings.device)
    plan = planned(scope, settings, progress, flags)
    if flags["list_only"]:
        write_listing(plan, flags)
        return
    with context_without_memory(plan, settings, progress) as context, progress:
        for line in preview(plan, context):
            click.echo(line)


def planned(scope: Scope, settings: Settings, progress: Progress, flags: dict[str, Any]) -> Plan:
    """Return what there is to verify."""
    return plan_of(
        scope,
        settings,
        progress,
        change=working_tree_change(scope.root, flags["changed"]) if flags["changed"] else None,
        retrace=flags["retrace"],
        only_reads=flags["list_only"],
    )


def run(
    scope: Scope, plan: Plan, place: Placed, progress: Progress, flags: dict[str, Any]
) -> Report:
    """Verify the plan's problems with the archive of this checkout as memory."""
    settings = place.settings
    arguments = {"path": str(plan.root.resolve()), "changed": flags["changed"]}
    if scope.places:
        arguments["places"] = " ".join(map(str, scope.places))
    with context_of(plan, place, progress, may_reuse=not flags["fresh"]) as context:
        archive = context.archive
        unfinished = archive.unfinished_run(arguments)
        if flags["resume"] and unfinished is None:
            raise ConfigError(
                f"{archive.path.parent}: there is no unfinished scan to resume; run without "
                "--resume (finished evaluations are re-used anyway)"
            )
        run_id = unfinished.id if unfinished else archive.start_run(arguments)
        since = archive.run_started_at(run_id)
        wanted = not flags["no_model"]
        with with_models(context, plan, settings, is_wanted=wanted, since=since) as full, progress:
            full = replace(full, impact_share=kept_share(plan, full.config))
            report = with_impact(review(plan, full), plan, full)
        if report.complete:
            archive.finish_run(run_id)
    return report
