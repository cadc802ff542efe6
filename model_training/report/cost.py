"""What runs cost, and what their training has sampled: sums over steps and samples."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from cudal1_ci.records import Record
from model_training.report.run_folder import Judged, Run, place_of, samples_of
from model_training.table import HACKS

PARTS = {"generating": "generate_s", "judging": "score_s", "training": "train_s"}
"""The numbers of a step that say what its seconds went to."""


class StageCost(Record, frozen=True, kw_only=True):
    """Of one stage of one run."""

    run: str
    stage: str
    num_steps: int
    wall_s: float
    """Until the stage's last step, without what a kill has lost."""
    generating_s: float
    judging_s: float
    training_s: float
    num_samples: int
    num_correct: int
    num_copies: int
    num_hacks: int
    """Convicted by the judge."""
    num_remeasured: int
    """Jumps that were measured again before they counted."""
    num_unconfirmed: int
    """Of these, how many did not come again: they count nothing."""
    statuses: dict[str, int]

    @property
    def other_s(self) -> float:
        """What no number of a step accounts for."""
        return max(0.0, self.wall_s - self.generating_s - self.judging_s - self.training_s)


def costs_of(runs: Sequence[Run]) -> list[StageCost]:
    """Stage after stage of run after run; stages of which there are neither steps nor samples are
    not there."""
    return [cost for run in runs for cost in costs_of_run(run)]


def costs_of_run(run: Run) -> list[StageCost]:
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps: Counter[str] = Counter()
    wall_s: dict[str, float] = defaultdict(float)
    for row in run.metrics:
        steps[row.stage] += 1
        wall_s[row.stage] = max(wall_s[row.stage], row.seconds)
        for part, key in PARTS.items():
            if key in row.numbers:
                seconds[row.stage][part].append(row.numbers[key])
    samples: dict[str, Counter[str]] = defaultdict(Counter)
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples_of(run):
        statuses[sample.stage][sample.status] += 1
        samples[sample.stage].update(told_of(sample))
    return [
        StageCost(
            run=run.name,
            stage=stage,
            num_steps=steps[stage],
            wall_s=wall_s[stage],
            generating_s=math.fsum(seconds[stage]["generating"]),
            judging_s=math.fsum(seconds[stage]["judging"]),
            training_s=math.fsum(seconds[stage]["training"]),
            num_samples=samples[stage]["all"],
            num_correct=samples[stage]["correct"],
            num_copies=samples[stage]["copy"],
            num_hacks=samples[stage]["hack"],
            num_remeasured=samples[stage]["remeasured"],
            num_unconfirmed=samples[stage]["unconfirmed"],
            statuses=dict(statuses[stage].most_common()),
        )
        for stage in sorted(steps.keys() | samples.keys(), key=place_of)
    ]


def told_of(sample: Judged) -> list[str]:
    """What a sample counts as."""
    return [
        "all",
        *(["correct"] if sample.status == "passed" else []),
        *(["copy"] if sample.status == "copy" else []),
        *(["hack"] if sample.status in HACKS else []),
        *(["remeasured"] if sample.was_confirmed is not None else []),
        *(["unconfirmed"] if sample.was_confirmed is False else []),
    ]
