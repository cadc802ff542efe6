"""Set up a search of a tree for `scan` and `sweep`: its options, its plan, its context, its end."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cudal1_ci.cli.device import measures_on_gpu
from cudal1_ci.cli.devices import KEYS as DEVICE_KEYS
from cudal1_ci.cli.devices import Placed, address_option, unplaced
from cudal1_ci.cli.execution import (
    TREE_KEYS,
    Command,
    session_of,
    tree_options,
    with_options,
)
from cudal1_ci.cli.group import (
    EXIT_BUDGET,
    EXIT_DONE,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NO,
)
from cudal1_ci.cli.model import (
    model_for,
    opinion_of,
    optimizer_of,
    refuse_a_model_that_disturbs,
    reviewer_of,
)
from cudal1_ci.cli.scope import Scope, is_project
from cudal1_ci.cli.trace import kept_traces, traces_for
from cudal1_ci.config import Settings
from cudal1_ci.discover import discover
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import Plan, refuse_unmatched, survey
from cudal1_ci.errors import ConfigError
from cudal1_ci.git import folder_in_repository, head_sha, repository_name
from cudal1_ci.optimize.accept import Acceptor
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.ranking import ranking_of
from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.optimize.trials import INVALID
from cudal1_ci.pool import Pool
from cudal1_ci.processes.harvest import Harvester
from cudal1_ci.records import Change, Entry, Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import Progress
from cudal1_ci.verification import Session
from cudal1_ci.verification.protocol import Verifier

"""How the reason begins where a call of the reference raised."""
KEYS = {
    **TREE_KEYS,
    **DEVICE_KEYS,
    "rounds": "review.num-rounds",
    "fail_on": "fail-on",
    "harvest": "harvest",
    "compile": "playbook.compile",
    "cuda_graph": "playbook.cuda-graph",
    "triton": "playbook.triton",
    "model": "model.model",
    "adapter": "model.adapter",
}
"""Flags of both that stand for a setting."""

OPTIONS = (
    tree_options,
    address_option,
    click.option("--rounds", type=click.IntRange(min=1), help="Rounds of proposals [default: 4]."),
    click.option(
        "--compile/--no-compile",
        default=None,
        help="Propose torch.compile, which compiles at each start [default: on a GPU, and on a CPU "
        "with a C++ compiler].",
    ),
    click.option(
        "--cuda-graph/--no-cuda-graph",
        default=None,
        help="Propose CUDA graphs [default: on a GPU].",
    ),
    click.option(
        "--triton/--no-triton",
        default=None,
        help="Propose kernels in Triton [default: on a GPU].",
    ),
    click.option(
        "--model", metavar="MODEL", help="Weights (a folder, a hub id) or the URL of a server."
    ),
    click.option(
        "--adapter",
        metavar="FOLDER",
        help="LoRA adapter for the weights, or `none` [default: the bundled one that fits].",
    ),
    click.option("--no-model", is_flag=True, help="Use no model, even if one is configured."),
    click.option(
        "--harvest/--no-harvest",
        default=None,
        help="Run README, docs, examples and tests, confined, for their calls [default: off].",
    ),
    click.option(
        "--retrace", is_flag=True, help="Run the configured `trace` command and the harvest first."
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["never", "proposal", "inconclusive"]),
        help="Exit 1 when there is a proposal, or 3 when a verdict is inconclusive "
        "[default: never].",
    ),
)


def search_options(command: Command) -> Command:
    """Add the options that both verbs have."""
    return with_options(OPTIONS, command)


def plan_of(
    scope: Scope,
    settings: Settings,
    progress: Progress,
    *,
    change: Change | None = None,
    retrace: bool = False,
    only_reads: bool = False,
) -> Plan:
    """Discover targets and workloads of a tree, or of what changed in it. What `only_reads` runs
    nothing, and needs no problems.

    Raises:
        ConfigError: A declared workload is of no target.
        DiscoveryError: There is no such target.
    """
    path = scope.root
    progress.waiting(f"reading {path.resolve().name or path} ...")
    if scope.places and not only_reads:  # before a command records calls for minutes
        scope.refuse_unknown(discover(path, settings.discover))
    # As the report names it: it goes to others, whom the folders of this machine tell nothing.
    file = settings.file.relative_to(path).as_posix() if settings.file else "the configuration"
    evidence = Evidence(
        declared=declarations(settings.workloads, file),
        traces=kept_traces(path, settings)
        if only_reads
        else traces_for(path, settings, progress, again=retrace),
    )
    plan = survey(
        path,
        settings.discover,
        evidence=evidence,
        repository=repository_name(path),
        folder=folder_in_repository(path),
        head_sha=head_sha(path),
        change=change,
        with_problems=not only_reads,
        on_gpu=measures_on_gpu(settings.device),
        is_wanted=scope.holds,
    )
    if plan.discovery is not None:
        scope.refuse_unknown(plan.discovery)
    # A change may have removed the target, and a flag may have left out its file.
    if change is None and not chooses_files(settings):
        refuse_unmatched(plan)
    return plan


def chooses_files(settings: Settings) -> bool:
    """Return whether a flag says which files are read."""
    chosen = ("discover.include", "discover.exclude")
    return any(key in chosen and origin == "command line" for key, _, origin in settings.origins())


@contextlib.contextmanager
def context_of(
    plan: Plan, place: Placed, progress: Progress, *, may_reuse: bool
) -> Iterator[RunContext]:
    """Yield the verifiers, the strategies and the archive of the plan's checkout; no model."""
    settings, backend = place
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(
            Archive.open(plan.root / settings.state_dir / "archive.sqlite")
        )
        pool = None
        if backend is not None and any(planned.problem is not None for planned in plan.targets):
            pool = stack.enter_context(Pool(backend, notice=progress.notice, is_of_one_kind=True))
        session: Verifier = pool.first if pool else stack.enter_context(alone(plan, settings))
        acceptor = stack.enter_context(contextlib.closing(acceptor_of(plan, settings, archive)))
        yield searching(
            *(archive, session, settings, progress),
            pool=pool,
            may_reuse=may_reuse,
            acceptor=acceptor,
        )


def acceptor_of(plan: Plan, settings: Settings, archive: Archive) -> Acceptor:
    """Return what asks the repository about proposals. Its programs run on this machine only."""
    root = plan.root.resolve()
    top = next((one for one in (root, *root.parents) if is_project(one)), root)

    def start(root: Path, import_roots: tuple[str, ...]) -> Harvester:
        return Harvester(
            root,
            python=settings.python or sys.executable,
            import_roots=import_roots,
            num_threads=settings.trial.threads,
            has_gpu=measures_on_gpu(settings.device),
        )

    return Acceptor(
        plan.root,
        settings.discover,
        archive,
        start=start if settings.executor == "local" else None,
        limit_s=settings.review.accept_s,
        trace=settings.trace,
        top=top,
    )


@contextlib.contextmanager
def context_without_memory(
    plan: Plan, settings: Settings, progress: Progress
) -> Iterator[RunContext]:
    """Yield one verifier and the strategies, for a run that writes nothing to the checkout."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive.open(Path(folder) / "archive.sqlite") as archive,
        alone(plan, settings) as session,
    ):
        yield searching(archive, session, settings, progress)


def searching(
    archive: Archive, session: Verifier, settings: Settings, progress: Progress, **more: Any
) -> RunContext:
    """Return the context of a search, with the strategies that suit the device."""
    kind = "cuda" if measures_on_gpu(settings.device) else "cpu"
    min_share = settings.review.min_share
    return RunContext(
        session=session,
        strategies=default_strategies(settings.playbook, kind, min_share=min_share),
        archive=archive,
        progress=progress,
        config=settings.review,
        policy=settings.trial.policy,
        ranking=ranking_of(archive),
        **more,
    )


def alone(plan: Plan, settings: Settings) -> Session:
    """Return one verifier, even where several are configured and there is nothing to verify."""
    return session_of(unplaced(settings), plan.root.resolve())


@contextlib.contextmanager
def with_models(
    context: RunContext, plan: Plan, settings: Settings, *, is_wanted: bool, since: float
) -> Iterator[RunContext]:
    """Add the configured models to the context, in a run that began at `since`."""
    if context.pool is not None and is_wanted:
        for config in (settings.model, settings.opinion.client(settings.model)):
            refuse_a_model_that_disturbs(settings, config)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(
            model_for(plan, settings, context.progress, is_wanted=is_wanted)
        )
        # Without a model that writes there is no jump to ask about.
        other = stack.enter_context(opinion_of(settings, context.progress)) if model else None
        yield replace(
            context,
            since=since,
            optimizer=optimizer_of(model, settings, since=since),
            reviewer=reviewer_of(other, settings, plan.root, context.archive, since=since),
            started_s=time.monotonic(),  # the budget is for looking, not for loading weights
        )


def exit_code(report: Report, fail_on: str) -> int:
    """Return the exit code of docs/exit-codes.md for a search: finished, cut short or
    interrupted.
    """
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


def refuse_uncallable(report: Report) -> None:
    """Refuse declared workloads that their targets cannot be called with. The report is written
    before. Raises: ConfigError, with the key of each."""
    said = []
    for entry in report.entries:
        declared = [one.source for one in entry.workloads if one.provenance == "declared"]
        if declared and entry.skipped and entry.skipped.startswith(INVALID):
            where = ", ".join(dict.fromkeys(filter(None, declared)))
            target = entry.target.address
            why = entry.skipped.splitlines()[0].removeprefix(INVALID)
            said.append(f"{where}: `{target}` cannot be called with it: {why}")
    if said:
        raise ConfigError("; ".join(said))


def is_evident(entry: Entry) -> bool:
    """Return whether a proposal rests on more than a guess of how the target is called."""
    return entry.best is not None and not all(one.is_guess for one in entry.workloads)
