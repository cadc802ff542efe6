"""Compute what is watched of a step of stage 3, from its prompts, answers and verdicts. Pure.

    measures(groups, paid, best, ages)["correct"]

Shares are of all completions of a step, except where another whole is named. `judged` counts the
different programs that got a new verdict, on a GPU or on the CPU. A speedup is the lower bound of
the measured one. What does not exist (the median speedup where nothing passed) is None.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from cudal1_ci.propose.llm.answer import Parsed, parse
from cudal1_ci.records import TextProgram
from cudal1_ci.stats.speedups import geometric_mean
from model_training.answers import form_of
from model_training.asking import RolloutGroup
from model_training.environment import COPY, NO_CODE, SHOWN, Outcome
from model_training.objective.advantage import is_silent
from model_training.rollouts import Completion
from model_training.table import HACKS, NOT_EXECUTED

FAST = (1.0, 1.2)
"""p of KernelBench's fast_p: correct, and more than p times as fast."""


def measures(
    groups: Sequence[RolloutGroup],
    paid: Sequence[Sequence[float]],
    best: Mapping[str, float],
    ages: Sequence[int],
) -> dict[str, float | None]:
    """Return the numbers of a step.

    Args:
        paid: Rewards as they are learned from, by group; an outcome's reward is what they are
            made of.
        best: The highest score of each task so far, 1 where there is none.
        ages: Of the exemplars that the prompts show, in steps since they were found; without the
            references.
    """
    completions = [one for group in groups for one in group.completions]
    outcomes = [one for group in groups for one in group.outcomes]
    rewards = [one.reward for one in outcomes]
    statuses = [one.sample.status for one in outcomes]
    speedups = [one.sample.speedup for one in outcomes if one.sample.speedup is not None]
    lengths = [len(one.token_ids) for one in completions]
    shown = [name for group in groups for name in group.prompt.exemplar_ids]
    num = len(outcomes)
    return {
        "reward": statistics.fmean(rewards),
        "reward_std": statistics.pstdev(rewards),
        "silent_share": sum(is_silent(one) for one in paid) / len(groups),
        "format": 1 - statuses.count(NO_CODE) / num,
        "executable": sum(one not in NOT_EXECUTED for one in statuses) / num,
        "correct": len(speedups) / num,
        "copies": statuses.count(COPY) / num,
        "copies_shown": sum(is_shown(group, one) for group in groups for one in group.outcomes)
        / num,
        "hacks": sum(one in HACKS for one in statuses) / num,
        "analysis": sum(has_analysis(one) for one in completions) / num,
        "not_confirmed": sum(one.was_confirmed is False for one in outcomes) / num,
        "known": sum(one.is_known for one in outcomes) / num,
        "judged": sum(one.evaluation is not None and not one.is_known for one in outcomes),
        **{f"fast_{p:g}": sum(one > p for one in speedups) / num for p in FAST},
        "speedup_median": statistics.median(speedups) if speedups else None,
        "speedup_geometric_mean": geometric_mean(speedups) if speedups else None,
        "speedup_max": max(speedups, default=None),
        "best": geometric_mean(list(best.values())),
        "best_max": max(best.values()),
        "faster_tasks": sum(one > FAST[1] for one in best.values()) / len(best),
        "length": statistics.fmean(lengths),
        "length_max": max(lengths),
        "cut": sum(one.is_cut for one in completions) / num,
        "exemplars": len(shown) / len(groups),
        "exemplar_age": statistics.fmean(ages) if ages else None,
        "exemplar_diversity": len(set(shown)) / len(shown) if shown else None,
    }


def is_shown(group: RolloutGroup, outcome: Outcome) -> bool:
    """Return whether an answer is an exemplar of its prompt, but for names and layout."""
    if outcome.refused == SHOWN:
        return True
    program = outcome.evaluation.candidate.program if outcome.evaluation else None
    problem, forms = group.prompt.task.problem, group.prompt.exemplar_forms
    return isinstance(program, TextProgram) and form_of(problem, program.source) in forms


def has_analysis(completion: Completion) -> bool:
    """Return whether an answer with code says why."""
    read = parse(completion.text, is_cut=completion.is_cut)
    return isinstance(read, Parsed) and bool(read.analysis.strip())
