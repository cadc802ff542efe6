"""Collect stage 1's data set: ask every source of variants about every task.

    examples = collect(tasks, scorer, config, run)         # RUN/examples.jsonl

Sources are the product's playbook, hand-made variants of generated tasks, and language models
behind servers (the paper's six are six entries). A model is asked the product's own first question
until two of its answers to a task have passed, or twenty were given. Verdicts are in the archive as
they come, and with a model's last answer to a task its candidates: a collection that was stopped
asks and verifies nothing twice.

Source: CUDA-L1 (arXiv 2507.14111), section 2.2. Departures: see examples.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import known_profile
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.llm.servers import LanguageModel
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.records import Evaluation, Record
from cudal1_ci.records.validation import at_least
from model_training.asking import first_prompt
from model_training.checkpoints import write_text
from model_training.examples import (
    CollectionConfig,
    Example,
    balanced,
    counted,
    examples_of,
    judged,
    lines,
)
from model_training.judges import Shared
from model_training.run import Run
from model_training.scoring import Scorer
from model_training.tasks.record import Task
from model_training.variants import HandMade
from model_training.variants.rules import AROUND

if TYPE_CHECKING:
    from model_training.run_setup import RunSetup

STAGE, EXAMPLES = "collect", "examples.jsonl"
ASKED = "collected-from-model"
"""Kind of a note: ids of the candidates that a model wrote for a task."""
SourceName = Literal["playbook", "hand-made", "toy"]


class CollectConfig(Record, frozen=True, kw_only=True):
    """Configure who is asked, and how often."""

    sources: tuple[SourceName, ...] = ("playbook",)
    models: tuple[ModelConfig, ...] = ()
    """Language models, by the URL of a server or as weights that one is started for."""
    max_attempts: int = 20
    """Answers of a model to a task."""
    max_successes: int = 2
    """After so many that passed a model is asked no more about the task."""
    num_at_once: int = 4
    """Answers of a model that are asked for before the first is verified."""
    max_candidates: int = 16
    """Of a source that is no model, for a task."""
    num_tasks: int | None = None
    """Of those for training, the first; None is all."""
    partly: tuple[str, ...] = ()
    """Families whose own step stays as it is in all examples; what is rewritten is known from
    others and stands around it. Of their tasks there are hand-made variants alone. That is what an
    answer is to do with work that it knows nothing better for."""
    keep: CollectionConfig = CollectionConfig()

    def __post_init__(self) -> None:
        names = ("max_attempts", "max_successes", "num_at_once", "max_candidates", "num_tasks")
        at_least(self, "collection", 1, *names)
        if self.partly and "hand-made" not in self.sources:
            raise ConfigError(
                "collection.partly: expected `hand-made` among collection.sources, as there are "
                "hand-made variants alone of these families"
            )


def main(setup: RunSetup) -> None:
    """Collect the data set of stage 1."""
    collect(setup.split.training, setup.scorer, setup.config.collection, setup.run)


def collect(
    tasks: Sequence[Task], scorer: Scorer, config: CollectConfig, run: Run
) -> list[Example]:
    """Collect all examples, balanced; also as a file of the run, whose metrics have a step for each
    time that it was begun.

    Raises:
        Stopped: The run must stop; what was verified is in the archive.
        ModelError: A model cannot be reached.
        ConfigError: No task is of a family that is named.
    """
    step = run.last_step(STAGE) + 1
    run.rewind(STAGE, step - 1)
    work = Collection(scorer, config, sources(config))
    wanted, began_s = chosen_tasks(tasks, config), time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            work.models = [stack.enter_context(opened(one)) for one in config.models]
            scorer.each(wanted, work.of_task, lambda task: task.id)
    finally:
        chosen = balanced(
            [one for task in wanted for one in work.found.get(task.id, ())], config.keep
        )
        run.log(STAGE, step, **work.numbers(chosen, time.monotonic() - began_s))
    write_text(run.folder / EXAMPLES, lines(chosen))
    run.finish(STAGE, EXAMPLES)
    return chosen


def chosen_tasks(tasks: Sequence[Task], config: CollectConfig) -> list[Task]:
    """Return the first tasks, as many as are asked about."""
    families = {one.family for one in tasks}
    if unknown := set(config.partly) - families:
        raise ConfigError(
            f"collection.partly: expected some of {', '.join(sorted(families))}, "
            f"got {', '.join(sorted(unknown))}"
        )
    return list(tasks[: config.num_tasks])


class Collection:
    """Hold what is known so far; verifiers work on different tasks at once."""

    def __init__(
        self, scorer: Scorer, config: CollectConfig, proposers: Sequence[Strategy]
    ) -> None:
        self.scorer, self.config, self.proposers = scorer, config, proposers
        self.around = [HandMade(AROUND)]
        self.models: list[LanguageModel] = []
        self.found: dict[str, list[Example]] = {}
        """By the id of their task."""
        self.statuses: Counter[str] = Counter()
        self.asking_s: list[float] = []
        """What models took to answer."""

    def of_task(self, judge: Shared, task: Task) -> None:
        scorer, config = self.scorer, self.config
        if not scorer.accepts(judge, task):
            self.statuses["invalid_reference"] += 1
            return
        is_partly = task.family in config.partly
        proposers = self.around if is_partly else self.proposers
        said = list(
            judged(task, proposers, judge, scorer.archive, scorer.policy, config.max_candidates)
        )
        for model in [] if is_partly else self.models:
            said += self.asked(task, model, judge)
        device = scorer.device()
        profile = known_profile(task.problem, scorer.archive, device)
        self.statuses.update(one.verdict.status for one in said)
        self.found[task.id] = examples_of(task, said, device, profile, config.keep)

    def asked(self, task: Task, model: LanguageModel, judge: Shared) -> Iterator[Evaluation]:
        """Ask a model, or look up its earlier answers; return evaluations of its candidates."""
        problem, archive, config = task.problem, self.scorer.archive, self.config
        policy = self.scorer.policy
        key = f"{problem.id}/{model.identity.model}/{policy}"
        before = archive.noted(ASKED, key, list[str])
        if before is not None:
            device = judge.device().key
            known = [archive.lookup(problem.id, one, device, policy) for one in before]
            yield from (one for one in known if one is not None)
            return
        prompt = first_prompt(task, archive, self.scorer.device())
        proposer = f"model:{model.identity.model}"
        environment = self.scorer.environment_of(judge, proposer=proposer)
        found: dict[str, Evaluation] = {}
        for first in range(0, config.max_attempts, config.num_at_once):
            self.scorer.go_on()
            count = min(config.num_at_once, config.max_attempts - first)
            began_s = time.monotonic()
            answers = model.ask(prompt.messages, n=count, seed=first)
            self.asking_s.append(time.monotonic() - began_s)
            for answer in answers:
                is_cut = answer.finish_reason == "length"
                evaluation = environment.outcome(prompt, answer.text, is_cut=is_cut).evaluation
                if evaluation is not None:
                    found[evaluation.candidate.id] = evaluation
            passed = [one for one in found.values() if one.verdict.status == "passed"]
            if len(passed) >= config.max_successes:
                break
        archive.note(ASKED, key, list(found))
        yield from found.values()

    def numbers(self, chosen: Sequence[Example], took_s: float) -> dict[str, float]:
        """Return numbers for the metrics; each verifier waits for the answers of a model that it
        has asked."""
        generate_s = math.fsum(self.asking_s) / len(self.scorer.judges)
        return {
            "tasks": len(self.found) + self.statuses["invalid_reference"],
            "judged": sum(self.statuses.values()) - self.statuses["invalid_reference"],
            "passed": self.statuses["passed"],
            "tasks_with_examples": sum(map(bool, self.found.values())),
            "examples": len(chosen),
            **{f"family_{name}": number for name, number in counted(chosen).items()},
            "generate_s": generate_s,
            "score_s": took_s - generate_s,
        }


def sources(config: CollectConfig) -> list[Strategy]:
    """Return the strategies that ask no model, in their order."""
    found: list[Strategy] = []
    for name in config.sources:
        if name == "playbook":
            found.append(RecordedRewrites())
        elif name == "hand-made":
            found.append(HandMade())
        else:
            from model_training.toy import ToyProposer  # here, as it is for tests

            found.append(ToyProposer())
    return found
