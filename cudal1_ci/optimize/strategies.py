"""List the strategies that every command uses: `scan`, `sweep`, `bench` and the Action."""

from __future__ import annotations

from cudal1_ci.propose import Strategy
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.propose.wrappers.strategy import Wrappers


def default_strategies(
    config: PlaybookConfig, kind: str, *, min_share: float = 0.0
) -> tuple[Strategy, ...]:
    """Return the strategies that suit a `kind` of device (`cpu` or `cuda`), cheap ones first. Of
    two that propose the same edits the first one is heard."""
    return (
        RecordedRewrites(config, min_share=min_share),
        Playbook(config, min_share=min_share, kind=kind),
        Wrappers(config, kind=kind),
    )
