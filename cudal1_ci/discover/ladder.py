"""Choose how a target is called: the best evidence first.

declared > benchmark > traced > synthetic. A target without evidence gets a notice of what would
provide it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from cudal1_ci.discover.declared import Declaration
from cudal1_ci.discover.declared_source import declared_in_source, sidecar_path
from cudal1_ci.discover.synthetic import synthetic_workload
from cudal1_ci.discover.traces import Traces
from cudal1_ci.records import Notice, Target, Workload

MAX_WORKLOADS = 3
"""Of one target: those that took the most time, and one in training and one in inference where
there are such. More shapes cost more than they tell."""

MOST_REASON = 80
"""Characters that are shown of why a call by defaults failed."""

MOST_BESIDES = 6
"""Further traced calls under which a proposal is timed."""

HINT = (
    "record one with `cudal1-ci trace` (README, docs, examples, tests) or with `cudal1-ci trace -- "
    "COMMAND` (your own code), or declare one (docs/workloads.md)"
)


@dataclass(frozen=True)
class Evidence:
    """Hold what is known of calls before the source is read."""

    declared: tuple[Declaration, ...] = ()
    traces: Traces = field(default_factory=Traces)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return self.traces.notices


@dataclass(frozen=True)
class NoWorkload:
    """Report why a target's calls are unknown, and what would provide them."""

    reason: str
    hint: str = HINT


def workloads_of(
    root: Path, target: Target, evidence: Evidence
) -> tuple[Workload, ...] | NoWorkload:
    """Return the workloads of a target, or the reason for having none.

    Raises:
        ConfigError: A workload that is declared in the source is malformed.
    """
    source = read(root / target.path)
    sidecar = read(root / sidecar_path(target.path))
    declared = [one.workload for one in evidence.declared if one.matches(target)]
    declared += declared_in_source(target, source or "", sidecar)
    if declared:
        return unique_names(declared)[:MAX_WORKLOADS]
    traced = evidence.traces.workloads(target)
    if traced:
        of_benchmarks = [one for one in traced if one.provenance == "benchmark"]
        return chosen(tuple(of_benchmarks or traced))
    reason = evidence.traces.reason(target)
    if reason is not None:
        return NoWorkload(f"its calls could not be recorded: {reason}", "declare a workload")
    made = synthetic_workload(target, source or "")
    if made is not None:
        return (made,)
    failed = evidence.traces.failed_defaults.get(f"{target.path}:{target.first_line}")
    reason = "no workload: no known call"
    if failed:
        reason += f"; tried with its defaults: {failed.partition(' (')[0][:MOST_REASON]}"
    return NoWorkload(reason, evidence.traces.hint or HINT)


def workloads_besides(
    target: Target, evidence: Evidence, found: tuple[Workload, ...]
) -> tuple[Workload, ...]:
    """Return further traced calls of a target that has traced workloads: a proposal is timed under
    them, too."""
    if all(one.provenance == "declared" for one in found):
        return ()
    others = [one for one in evidence.traces.workloads(target) if one not in found]
    return tuple(others[:MOST_BESIDES])


def chosen(workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
    """Return the first workloads, with at least one of each mode that exists.

    A change may be right in inference and wrong in training, or the reverse. So the first workload
    of a missing mode replaces the last one.
    """
    first, others = workloads[:MAX_WORKLOADS], workloads[MAX_WORKLOADS:]
    modes = {workload.mode for workload in first}
    missing = next((one for one in others if one.mode not in modes), None)
    return first if missing is None else (*first[:-1], missing)


def unique_names(workloads: list[Workload]) -> tuple[Workload, ...]:
    """Return workloads whose names differ, the first of each name."""
    return tuple({workload.name: workload for workload in reversed(workloads)}.values())[::-1]


@functools.lru_cache(maxsize=4)
def read(path: Path) -> str | None:
    """Return a file's text, cached because the targets of a file follow one another."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
