"""`cudal1-ci scan`: discover, find workloads, propose, judge, report."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from cudal1_ci.archive import Archive
from cudal1_ci.cli.device import measures_on_gpu, require
from cudal1_ci.cli.execution import KEYS as EXECUTION_KEYS
from cudal1_ci.cli.execution import executor_of, executor_options
from cudal1_ci.cli.group import (
    EXIT_BUDGET,
    EXIT_DONE,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NO,
)
from cudal1_ci.cli.model import model_for, opinion_of, optimizer_of, reviewer_of
from cudal1_ci.cli.outputs import apply_best, output_options, write_listing, write_report
from cudal1_ci.cli.trace import traces_for
from cudal1_ci.config import Settings, load_settings
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.forge.local import head_sha, repository_name, working_tree_change
from cudal1_ci.pipeline import Bench, review
from cudal1_ci.propose import Proposer
from cudal1_ci.propose.playbook import Playbook
from cudal1_ci.report.document import document
from cudal1_ci.report.progress import Progress, progress_on
from cudal1_ci.schema import Entry, Report
from cudal1_ci.survey import Plan, preview, survey
from cudal1_ci.trial import Session

EPILOG = """\b
Examples:
  cudal1-ci scan .                              everything, text to the terminal
  cudal1-ci scan --changed origin/main          what changed since the merge base
  cudal1-ci scan --list --json -                discovery only, as JSON
  cudal1-ci scan . --html report.html --apply   and change the working tree
  cudal1-ci scan . --budget 10m                 exit 6 when spent; run again to go on
"""

KEYS = {
    **EXECUTION_KEYS,
    "include": "discover.include",
    "exclude": "discover.exclude",
    "seed": "trial.seed",
    "budget": "budget",
    "rounds": "review.num-rounds",
    "fail_on": "fail-on",
    "compile": "playbook.compile",
    "model": "model.model",
    "adapter": "model.adapter",
}
"""Flags that stand for a setting."""


@click.command(epilog=EPILOG)
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--changed", metavar="BASE", help="Only what changed since the merge base with BASE.")
@click.option("--list", "list_only", is_flag=True, help="Discovery only: judge nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be tried; judge nothing.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only these files (repeatable).")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files (repeatable).")
@click.option("--device", help="cpu, cuda, cuda:N, auto [default: auto].")
@click.option(
    "--require-sandbox", is_flag=True, default=None, help="Refuse to run where it is incomplete."
)
@executor_options
@click.option("--python", help="Interpreter of the project [default: this one].")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of torch [default: 1].")
@click.option("--budget", help="Stop after 90s, 10m, 1h30m; the rest is resumable.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of proposals [default: 2].")
@click.option("--seed", type=int, help="Seed of the judge's inputs [default: 0].")
@click.option("--compile", is_flag=True, default=None, help="Also propose torch.compile.")
@click.option(
    "--model", metavar="MODEL", help="Weights (a folder, a hub id) or the URL of a server."
)
@click.option("--adapter", metavar="FOLDER", help="LoRA adapter for the weights.")
@click.option("--no-model", is_flag=True, help="Rewrites of the playbook alone.")
@click.option("--resume", is_flag=True, help="Go on with the last unfinished scan of PATH.")
@click.option("--fresh", is_flag=True, help="Judge again what the archive already knows.")
@click.option("--retrace", is_flag=True, help="Run the configured `trace` command first.")
@click.option("--apply", "apply_them", is_flag=True, help="Apply the best proposals to the tree.")
@click.option(
    "--fail-on",
    type=click.Choice(["never", "proposal", "inconclusive"]),
    help="Exit 1 when there is a proposal, or 3 when a verdict is inconclusive [default: never].",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@output_options
def scan(path: Path, **flags: Any) -> None:
    """Find slow PyTorch code under PATH and prove a faster version.

    Exit code 0 when done, 6 when the budget was spent, 130 when interrupted: finished evaluations
    are kept and re-used by the next run.
    """
    if not path.is_dir():
        raise DiscoveryError(f"{path}: expected a directory to scan, found {kind_of(path)}")
    given = {key: flags[flag] for flag, key in KEYS.items() if flags[flag] not in (None, ())}
    settings = load_settings(path, overrides=given)
    require(settings.device)
    progress = progress_on(sys.stderr, os.environ, quiet=flags["quiet"])
    plan = plan_of(path, settings, flags, progress)
    proposers: list[Proposer] = [Playbook(settings.playbook)]
    if flags["list_only"]:
        write_listing(plan, flags)
    elif flags["dry_run"]:
        for line in preview(plan, proposers, settings.review.num_candidates):
            click.echo(line)
    else:
        report = run(plan, settings, proposers, progress, flags)
        shown = document(report, settings.report)
        write_report(shown, flags)
        if flags["apply_them"]:
            apply_best(shown, path)
        sys.exit(exit_code(report, settings.fail_on))


def kind_of(path: Path) -> str:
    return "a file" if path.exists() else "nothing"


def plan_of(path: Path, settings: Settings, flags: dict[str, Any], progress: Progress) -> Plan:
    """Discovery and workloads of a tree, or of what changed in it."""
    change = working_tree_change(path, flags["changed"]) if flags["changed"] else None
    # As the report names it: it goes to others, whom the folders of this machine tell nothing.
    file = settings.file.relative_to(path).as_posix() if settings.file else "the configuration"
    evidence = Evidence(
        declared=declarations(settings.workloads, file),
        traces=traces_for(path, settings, progress, again=flags["retrace"]),
    )
    return survey(
        path,
        settings.discover,
        evidence=evidence,
        repository=repository_name(path),
        head_sha=head_sha(path),
        change=change,
        with_problems=not flags["list_only"],
        on_gpu=measures_on_gpu(settings.device),
    )


def run(
    plan: Plan,
    settings: Settings,
    proposers: list[Proposer],
    progress: Progress,
    flags: dict[str, Any],
) -> Report:
    """Judge the plan's problems with the archive of this checkout as memory."""
    state = plan.root / settings.state_dir
    arguments = {"path": str(plan.root.resolve()), "changed": flags["changed"]}
    session = Session(
        settings.trial,
        device=settings.device,
        require_sandbox=settings.require_sandbox,
        builds=settings.builds,
        executor=executor_of(settings, plan.root.resolve()),
    )
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(Archive.open(state / "archive.sqlite"))
        stack.enter_context(session)
        model = stack.enter_context(
            model_for(plan, settings, progress, is_wanted=not flags["no_model"])
        )
        # Without a model that writes there is no jump to ask about.
        other = stack.enter_context(opinion_of(settings, progress)) if model else None
        unfinished = archive.unfinished_run(arguments)
        if flags["resume"] and unfinished is None:
            raise ConfigError(
                f"{state}: there is no unfinished scan to resume; run without --resume "
                "(finished evaluations are re-used anyway)"
            )
        run_id = unfinished.id if unfinished else archive.start_run(arguments)
        since = archive.run_started_at(run_id)
        bench = Bench(
            session=session,
            proposers=proposers,
            archive=archive,
            progress=progress,
            config=settings.review,
            policy=settings.trial.policy,
            may_reuse=not flags["fresh"],
            optimizer=optimizer_of(model, settings, since=since),
            reviewer=reviewer_of(other, settings, plan.root, archive, since=since),
        )
        with progress:
            report = review(plan, bench)
        if report.complete:
            archive.finish_run(run_id)
    return report


def exit_code(report: Report, fail_on: str) -> int:
    """The exit code of docs/exit-codes.md for a finished, cut short or interrupted scan."""
    if report.ended == "interrupted":
        return EXIT_INTERRUPTED
    if fail_on == "proposal" and any(is_evident(entry) for entry in report.entries):
        return EXIT_NO
    if report.ended == "budget":
        return EXIT_BUDGET
    statuses = {e.verdict.status for entry in report.entries for e in entry.evaluations}
    if fail_on == "inconclusive" and "inconclusive" in statuses:
        return EXIT_INCONCLUSIVE
    return EXIT_DONE


def is_evident(entry: Entry) -> bool:
    """Whether there is a proposal that rests on more than a guess of how the target is called."""
    return entry.best is not None and any(w.provenance != "synthetic" for w in entry.workloads)
