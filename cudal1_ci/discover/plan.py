"""Turn a tree, or a change of it, into a Plan of targets with problems.

Reads files and runs nothing. Every target is in the plan: with a Problem when a workload is known,
otherwise with the reason and its fix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudal1_ci.discover import Discovery, DiscoveryConfig, discover, reference_program
from cudal1_ci.discover.changed import select_changed
from cudal1_ci.discover.declared import unmatched
from cudal1_ci.discover.kernel_problems import kernel_problem, obstacle
from cudal1_ci.discover.ladder import (
    Evidence,
    NoWorkload,
    workloads_besides,
    workloads_of,
)
from cudal1_ci.discover.launchers import Reach, reach_of
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Change, Notice, Problem, Target, Workload


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Hold a target and its problem, or the reason for having none."""

    target: Target
    problem: Problem | None = None
    reason: str | None = None
    hint: str | None = None
    workloads: tuple[Workload, ...] = ()
    """How it is called; those of the problem where there is one."""
    others: tuple[Workload, ...] = ()
    """Further recorded calls, under which proposals are timed."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Hold all targets of a tree or a change, in source order."""

    root: Path
    repository: str
    folder: str = "."
    """Of the root, below the top of its repository."""
    base_sha: str | None = None
    head_sha: str | None = None
    targets: tuple[Planned, ...]
    removed: tuple[Target, ...] = ()
    """By the change, where they were."""
    notices: tuple[Notice, ...] = ()
    unmatched: tuple[Notice, ...] = ()
    """Of the notices, those of declared workloads that are of no target."""
    discovery: Discovery | None = None
    """The discovery that the plan was made from,"""
    evidence: Evidence | None = None
    """and what was known of calls."""
    on_gpu: bool = False


def survey(
    root: Path,
    config: DiscoveryConfig,
    *,
    evidence: Evidence,
    repository: str,
    folder: str = ".",
    head_sha: str | None = None,
    change: Change | None = None,
    with_problems: bool = True,
    on_gpu: bool = False,
    is_wanted: Callable[[Target], bool] = lambda _: True,
) -> Plan:
    """Plan everything in a tree, or all that a change touches, that could be made faster.

    A listing needs no problems, and their hashes over all imports take time. `on_gpu` says whether
    calls with CUDA tensors can be measured. `is_wanted` chooses among the targets.

    Raises:
        DiscoveryError: `root` cannot be read.
        ConfigError: A declared workload is malformed.
    """
    discovery = discover(root, config)
    targets: Sequence[Target] = discovery.targets
    removed: Sequence[Target] = ()
    if change is not None:
        selection = select_changed(discovery, change)
        targets, removed = selection.targets, selection.removed
    targets = [target for target in targets if is_wanted(target)]
    is_idle = bool(unmatched(evidence.declared, discovery.targets))
    of_interest = discovery.targets if is_idle else targets
    kernels = [target for target in of_interest if target.is_kernel and target.launchers]
    # Searching all that leads to a kernel takes time, and is useless without a GPU. But it also
    # finds functions that are no targets, for which a workload may be declared.
    reaches = reach_of(discovery, kernels) if on_gpu or is_idle else {}
    launchers = [one for reach in reaches.values() for one in reach.launchers]
    notices = [*discovery.notices, *evidence.notices]
    idle = unmatched(evidence.declared, [*discovery.targets, *launchers])
    notices += idle
    notices += removal_notices(removed)
    return Plan(
        root=root,
        repository=repository,
        folder=folder,
        base_sha=change.base_sha if change else None,
        head_sha=head_sha,
        targets=tuple(
            planned_kernel(root, target, reaches.get(target), discovery, evidence, on_gpu)
            if target.is_kernel
            else planned(root, target, discovery if with_problems else None, evidence, on_gpu)
            for target in targets
        ),
        removed=tuple(removed),
        notices=tuple(notices),
        unmatched=tuple(idle),
        discovery=discovery,
        evidence=evidence,
        on_gpu=on_gpu,
    )


def surroundings(plan: Plan) -> tuple[Planned, ...]:
    """Return the plan's targets that are no kernels, and those of the tree that it leaves out:
    calls of what it holds may be part of theirs."""
    own = tuple(one for one in plan.targets if not one.target.is_kernel)
    discovery, evidence = plan.discovery, plan.evidence
    if discovery is None or evidence is None:
        return own
    known = {(one.target.path, one.target.qualname) for one in plan.targets}
    others = tuple(
        planned(plan.root, target, discovery, evidence, plan.on_gpu)
        for target in discovery.targets
        if not target.is_kernel and (target.path, target.qualname) not in known
    )
    return (*own, *others)


def refuse_unmatched(plan: Plan) -> None:
    """Refuse declared workloads that are of no target. Raises: ConfigError, with the key."""
    if plan.unmatched:
        raise ConfigError("; ".join(f"{one.path}: {one.message}" for one in plan.unmatched))


def removal_notices(removed: Sequence[Target]) -> list[Notice]:
    """Return notices that a removed target leaves nothing to measure."""
    return [
        Notice(path=target.path, message=f"{target.qualname} was removed by the change")
        for target in removed
    ]


def planned(
    root: Path, target: Target, discovery: Discovery | None, evidence: Evidence, on_gpu: bool
) -> Planned:
    """Return a target with its problem, or with the reason for having none.

    Without `discovery` the target gets only its workloads.
    """
    found = workloads_of(root, target, evidence)
    if isinstance(found, NoWorkload):
        return Planned(target=target, reason=found.reason, hint=found.hint)
    needs_gpu = [workload for workload in found if uses_cuda(workload) and not on_gpu]
    if len(needs_gpu) == len(found):
        return Planned(
            target=target,
            reason="it is only called with CUDA tensors; this run measures on the CPU",
            hint="declare a workload with CPU tensors, or measure on a GPU: --device cuda",
            workloads=found,
        )
    workloads = tuple(workload for workload in found if workload not in needs_gpu)
    if discovery is None:
        return Planned(target=target, workloads=workloads)
    program = reference_program(root, target, discovery)
    return Planned(
        target=target,
        problem=Problem(reference=program, workloads=workloads, target=target),
        workloads=workloads,
        others=tuple(
            one
            for one in workloads_besides(target, evidence, found)
            if on_gpu or not uses_cuda(one)
        ),
    )


def planned_kernel(
    root: Path,
    target: Target,
    reach: Reach | None,
    discovery: Discovery,
    evidence: Evidence,
    on_gpu: bool,
) -> Planned:
    """Return a kernel with the problem of its launcher."""
    found: Problem | NoWorkload | None = obstacle(target, reach, on_gpu)
    if found is None and reach is not None:
        found = kernel_problem(root, target, reach, discovery, evidence)
    if isinstance(found, NoWorkload):
        return Planned(target=target, reason=found.reason, hint=found.hint)
    assert found is not None, "on a GPU all that leads to a kernel is looked for"
    return Planned(target=target, problem=found, workloads=found.workloads)


def uses_cuda(workload: Workload) -> bool:
    """Return whether a call has tensors of a CUDA device."""
    return "'cuda" in repr(workload.call)


def how(workload: Workload) -> str:
    """Describe a workload's source and conditions: `traced, train, bf16 autocast`."""
    return ", ".join((workload.provenance, *workload.conditions))
