"""The rounds of stage 2: their settings, their tasks, what is learned from, when they end. Pure.

kept(groups, max_per_task=4, rng=random.Random(0))
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least
from model_training.answers import code_of
from model_training.asking import Group
from model_training.collection import Example
from model_training.environment import COPY, NO_CODE
from model_training.rollouts import Sampling
from model_training.supervised import SupervisedConfig
from model_training.table import HACKS, NOT_EXECUTED
from model_training.tasks.record import Task


class SelfSupervisedConfig(Record, frozen=True, kw_only=True):
    """Of stage 2."""

    num_rounds: int = 3
    """At the most."""
    tasks_per_round: int = 80
    num_samples: int = 8
    """Answers to a task."""
    max_per_task: int = 4
    """Of a task's answers, those that are learned from."""
    min_gain: float = 0.01
    """Of the success rate; less is no rise."""
    patience: int = 1
    """Rounds without a rise after which it ends."""
    sampling: Sampling = Sampling(temperature=1.0, max_tokens=512)
    training: SupervisedConfig = SupervisedConfig(learning_rate=1e-4, epochs=1.0)

    def __post_init__(self) -> None:
        names = ("num_rounds", "tasks_per_round", "num_samples", "max_per_task", "patience")
        at_least(self, "self-supervised", 1, *names)


def chosen(
    tasks: Sequence[Task], config: SelfSupervisedConfig, seed: int, number: int
) -> list[Task]:
    """The tasks of a round: those that no round has had, until all have had their turn."""
    order = list(tasks)
    random.Random(seed).shuffle(order)
    count = min(config.tasks_per_round, len(order))
    return [order[(number * count + place) % len(order)] for place in range(count)]


def kept(groups: Sequence[Group], max_per_task: int, rng: random.Random) -> list[Example]:
    """Answers to learn from: right, whole, no copy, of each form one; how fast does not count."""
    found: list[Example] = []
    for group in groups:
        problem, forms = group.prompt.task.problem, dict[str, Example]()
        pairs = list(zip(group.completions, group.outcomes, strict=True))
        rng.shuffle(pairs)
        for answer, outcome in pairs:
            evaluation = outcome.evaluation
            if evaluation is None or outcome.sample.speedup is None or answer.is_cut:
                continue
            code = code_of(problem, evaluation)
            if code is None or len(forms) == max_per_task:
                continue
            form = fingerprint(code)
            said = Message(role="assistant", content=answer.text)
            example = Example(
                task=group.prompt.task.name,
                messages=(*group.prompt.messages, said),
                speedup=outcome.sample.speedup,
                techniques=evaluation.candidate.techniques,
                proposer=evaluation.candidate.proposer,
                form=form,
            )
            forms.setdefault(form, example)
        found += forms.values()
    return found


def success(groups: Sequence[Group]) -> float:
    """Of all answers, those that are executable, correct and no copy."""
    statuses = statuses_of(groups)
    return statuses.count("passed") / len(statuses)


def measures(groups: Sequence[Group]) -> dict[str, float]:
    """Shares of all answers."""
    statuses = statuses_of(groups)
    cut = [one.is_cut for group in groups for one in group.completions]
    count = len(statuses)
    return {
        "correct": success(groups),
        "copies": statuses.count(COPY) / count,
        "format": 1 - statuses.count(NO_CODE) / count,
        "executable": sum(one not in NOT_EXECUTED for one in statuses) / count,
        "hacks": sum(one in HACKS for one in statuses) / count,
        "cut": sum(cut) / count,
    }


def statuses_of(groups: Sequence[Group]) -> list[str]:
    return [one.sample.status for group in groups for one in group.outcomes]


def best_of(rates: Sequence[float], config: SelfSupervisedConfig) -> int:
    """The last round whose answers were better than those of all before it."""
    best = 0
    for number, rate in enumerate(rates):
        if rate > rates[best] + config.min_gain:
            best = number
    return best


def has_stopped(rates: Sequence[float], config: SelfSupervisedConfig) -> bool:
    """Whether success has not risen for as many rounds as there is patience."""
    return len(rates) - 1 - best_of(rates, config) >= config.patience
