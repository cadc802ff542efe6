"""Stage 1's data set: every source of variants asked about every task, and what the judge passed.

    examples = collect(tasks, scorer, config, run)         # RUN/examples.jsonl

Sources are the product's playbook, hand-made variants of generated tasks, and language models
behind servers (the paper's six are six entries). A model is asked the product's own first question
until two of its answers to a task have passed, or twenty were given. Tasks go to whichever judge is
free. All verdicts are in the archive as they come, and of a task that a model is done with its
candidates too: a collection that was stopped asks and judges nothing twice.

Source: CUDA-L1 (arXiv 2507.14111), section 2.2. Departures: see collection.py.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from cudal1_ci.bounds import at_least
from cudal1_ci.optimization import known_profile
from cudal1_ci.propose.models import LanguageModel
from cudal1_ci.propose.models.config import ModelConfig
from cudal1_ci.propose.models.opening import opened
from cudal1_ci.propose.playbook import Playbook
from cudal1_ci.schema import Evaluation, Record
from model_training.asking import first_prompt
from model_training.checkpoints import write_text
from model_training.collection import (
    CollectionConfig,
    Example,
    Proposer,
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

STAGE, EXAMPLES = "collect", "examples.jsonl"
ASKED = "collected-from-model"
"""Kind of a note: ids of the candidates that a model wrote for a task."""
SourceName = Literal["playbook", "hand-made", "toy"]


class CollectConfig(Record, frozen=True, kw_only=True):
    """Who is asked, and how often."""

    sources: tuple[SourceName, ...] = ("playbook",)
    kinds: tuple[str, ...] = ("torch",)
    """Of hand-made variants: `torch`, `triton`, `graph`, `compile`."""
    models: tuple[ModelConfig, ...] = ()
    """Language models, by the URL of a server or as weights that one is started for."""
    max_attempts: int = 20
    """Answers of a model to a task."""
    max_successes: int = 2
    """After so many that passed a model is asked no more about the task."""
    num_at_once: int = 4
    """Answers of a model that are asked for before the first is judged."""
    max_candidates: int = 16
    """Of a source that is no model, for a task."""
    num_tasks: int | None = None
    """Of those for training, the first; None is all."""
    keep: CollectionConfig = CollectionConfig()

    def __post_init__(self) -> None:
        names = ("max_attempts", "max_successes", "num_at_once", "max_candidates", "num_tasks")
        at_least(self, "collection", 1, *names)


def collect(
    tasks: Sequence[Task], scorer: Scorer, config: CollectConfig, run: Run
) -> list[Example]:
    """All examples, balanced; also as a file of the run.

    Raises:
        Stopped: The run must stop; what was judged is in the archive.
        ModelError: A model cannot be reached.
    """
    wanted = tasks[: config.num_tasks]
    proposers = sources(config)
    found: dict[str, list[Example]] = {}
    statuses: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(opened(one)) for one in config.models]

        def work(judge: Shared, task: Task) -> None:
            if not scorer.accepts(judge, task):
                statuses["invalid_reference"] += 1
                return
            said = list(
                judged(
                    task,
                    proposers,
                    judge,
                    scorer.archive,
                    scorer.policy,
                    config.max_candidates,
                )
            )
            for model in models:
                said += asked(task, model, judge, scorer, config)
            device = scorer.device()
            profile = known_profile(task.problem, scorer.archive, device)
            statuses.update(one.verdict.status for one in said)
            found[task.id] = examples_of(task, said, device, profile, config.keep)

        scorer.each(wanted, work)
    everything = [one for task in wanted for one in found.get(task.id, ())]
    chosen = balanced(everything, config.keep)
    write_text(run.folder / EXAMPLES, lines(chosen))
    run.rewind(STAGE, 0)
    run.log(
        STAGE,
        1,
        tasks=len(wanted),
        judged=sum(statuses.values()),
        passed=statuses["passed"],
        tasks_with_examples=sum(map(bool, found.values())),
        examples=len(chosen),
        **{f"family_{name}": number for name, number in counted(chosen).items()},
    )
    run.finish(STAGE, EXAMPLES)
    return chosen


def sources(config: CollectConfig) -> list[Proposer]:
    """Those that are no models, in their order."""
    found: list[Proposer] = []
    for name in config.sources:
        if name == "playbook":
            found.append(Playbook())
        elif name == "hand-made":
            made = importlib.import_module("model_training.variants")
            found.append(made.HandMade(config.kinds))
        else:
            from model_training.toy import ToyProposer  # here, as it is for tests

            found.append(ToyProposer())
    return found


def asked(
    task: Task, model: LanguageModel, judge: Shared, scorer: Scorer, config: CollectConfig
) -> Iterator[Evaluation]:
    """Evaluations of a model's candidates, each once; what it was asked before is looked up."""
    problem, archive = task.problem, scorer.archive
    key = f"{problem.id}/{model.identity.model}/{scorer.policy}"
    before = archive.noted(ASKED, key, list[str])
    if before is not None:
        device = judge.device().key
        known = [archive.lookup(problem.id, one, device, scorer.policy) for one in before]
        yield from (one for one in known if one is not None)
        return
    prompt = first_prompt(task, archive, scorer.device())
    environment = scorer.environment_of(judge, proposer=f"model:{model.identity.model}")
    found: dict[str, Evaluation] = {}
    for first in range(0, config.max_attempts, config.num_at_once):
        scorer.go_on()
        count = min(config.num_at_once, config.max_attempts - first)
        for answer in model.ask(prompt.messages, n=count, seed=first):
            is_cut = answer.finish_reason == "length"
            evaluation = environment.outcome(prompt, answer.text, is_cut=is_cut).evaluation
            if evaluation is not None:
                found[evaluation.candidate.id] = evaluation
        passed = [one for one in found.values() if one.verdict.status == "passed"]
        if len(passed) >= config.max_successes:
            break
    archive.note(ASKED, key, list(found))
    yield from found.values()
