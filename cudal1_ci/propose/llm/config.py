"""Configure what a model is asked. Every verb reads it, so nothing that asks is imported."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive

SamplerName = Literal["bucket", "island", "random", "none"]


class ContrastConfig(Record, frozen=True, kw_only=True):
    """Configure which variants a prompt shows."""

    sampler: SamplerName = "bucket"
    num_exemplars: int = 2
    bucket_width: float = 0.1
    """Variants whose speedups differ by less than about this fraction share a bucket."""
    temperature: float = 1.0
    """Temperature of the softmax over standardized bucket means; a small one draws only the
    fastest."""

    def __post_init__(self) -> None:
        at_least(self, "contrast", 0, "num_exemplars")
        positive(self, "contrast", "bucket_width", "temperature")


class OptimizerConfig(Record, frozen=True, kw_only=True):
    """Configure how much a model is asked."""

    num_rounds: int = 3
    """Rounds of questions for one target."""
    num_samples: int = 4
    """New variants that a round requests."""
    num_repairs: int = 2
    """Failed answers that a round requests again."""
    max_turns: int = 1
    """The most repairs of one answer."""
    patience: int = 2
    """Rounds without a better variant before the target is left."""
    prompt_tokens: int = 6000
    """The most tokens of a prompt; the least useful parts are left out first."""
    seed: int = 0
    """Seed for drawing exemplars and for the model's sampling."""

    def __post_init__(self) -> None:
        at_least(self, "optimizer", 1, "num_rounds", "num_samples", "patience", "prompt_tokens")
        at_least(self, "optimizer", 0, "num_repairs", "max_turns")
