"""List the strategies that every command uses: `scan`, `sweep`, `bench` and the Action."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.propose import Noticed, NoticingStrategy, RecordingStrategy, Strategy
from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.launch_config.strategy import KernelLaunches, RecordedLaunches
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.propose.wrappers.region_strategy import CompiledRegions
from cudal1_ci.propose.wrappers.strategy import Wrappers
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.recording import Recording


def default_strategies(
    config: PlaybookConfig, kind: str, *, min_share: float = 0.0
) -> tuple[Strategy, ...]:
    """Return the strategies that suit a `kind` of device (`cpu` or `cuda`), cheap ones first. Of
    two that propose the same edits the first one is heard."""
    return (
        RecordedRewrites(config, min_share=min_share, kind=kind),
        KernelLaunches(config, min_share=min_share),
        *([RecordedLaunches(config, min_share=min_share)] if kind == "cuda" else []),
        CompiledRegions(config, kind=kind),
        Wrappers(config, kind=kind),
    )


def proposed_by(
    strategy: Strategy,
    problem: Problem,
    recording: Recording | None,
    evaluations: Sequence[Evaluation],
    n: int,
) -> Sequence[Candidate]:
    """Return at most `n` candidates of one strategy, from a recorded call where there is one."""
    if isinstance(strategy, RecordingStrategy) and recording is not None:
        return strategy.propose_recorded(problem, recording, evaluations, n)
    return strategy.propose(problem, evaluations, n)


def noticed_by(
    strategies: Sequence[Strategy], problem: Problem, recording: Recording, path: str
) -> Noticed:
    """Return what strategies noticed in a recording. `path` is the file of a program that is a
    text."""
    found = [s.noticed(problem, recording) for s in strategies if isinstance(s, NoticingStrategy)]
    return Noticed(
        near_misses=tuple(
            msgspec.structs.replace(miss, path=miss.path or path)
            for one in found
            for miss in one.near_misses
        ),
        failures=tuple(failure for one in found for failure in one.failures),
    )


def covering(candidate: Candidate, before: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate of an earlier strategy that has the same edits; None if there is
    none."""
    edits = operators_of(candidate)
    return next((one for one in before if edits and edits == operators_of(one)), None)
