"""List the strategies that every command uses: `scan`, `sweep`, `bench` and the Action."""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.propose import RecordingStrategy, Strategy
from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.strategy import RecordedRewrites, covered_by
from cudal1_ci.propose.rewrites.strategy import Playbook
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
        Playbook(config, min_share=min_share, kind=kind),
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


def not_covered(
    candidates: Sequence[Candidate], before: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Return the candidates with other edits than those of earlier strategies."""
    known = {operators_of(one) for one in before}
    known |= {(name,) for one in before for name in covered_by(operators_of(one))}
    return [one for one in candidates if operators_of(one) not in known - {()}]
