"""Stage 1's data set: every source of variants asked about every task, and what the judge passed.

    examples = collect(tasks, scorer, config, run)         # RUN/examples.jsonl

Sources are the product's playbook, hand-made variants of generated tasks, CUDA-L1's published
kernels, and language models behind servers (the paper's six are six entries). A model is asked the
product's own first question until two of its answers to a task have passed, or twenty were given.
Tasks go to whichever judge is free. All verdicts are in the archive as they come, and of a task
that a model is done with its candidates too: a collection that was stopped asks and judges nothing
twice.

Source: CUDA-L1 (arXiv 2507.14111), section 2.2. Departures: see collection.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import known_profile
from cudal1_ci.propose.llm.servers import LanguageModel
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Evaluation, Record
from cudal1_ci.records.validation import at_least, positive
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
from model_training.examples import earlier_examples
from model_training.judges import Shared
from model_training.published_kernels import PublishedKernels
from model_training.run import Run
from model_training.scoring import Scorer
from model_training.tasks.record import Task
from model_training.variants import HandMade, Kind
from model_training.variants.rules import AROUND

STAGE, EXAMPLES = "collect", "examples.jsonl"
ASKED = "collected-from-model"
"""Kind of a note: ids of the candidates that a model wrote for a task."""
SourceName = Literal["playbook", "hand-made", "published", "toy"]


class CollectConfig(Record, frozen=True, kw_only=True):
    """Who is asked, and how often."""

    sources: tuple[SourceName, ...] = ("playbook",)
    kinds: tuple[Kind, ...] = ("torch",)
    """Of hand-made variants; all but `torch` need a GPU."""
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
    leaves_out: tuple[str, ...] = ()
    """Families that stage 1 sees nothing of and the later stages ask about: what to do with work
    that no example shows is to be learned there, as evaluation asks for it."""
    partly: tuple[str, ...] = ()
    """Families whose own step stays as it is in all examples; what is rewritten is known from
    others and stands around it. Of their tasks there are hand-made variants alone. That is what an
    answer is to do with work that it knows nothing better for."""
    known: tuple[str, ...] = ()
    """Files of examples of earlier runs, `examples.jsonl` or `.gz`: a task that has some there is
    not asked about again, and those are its examples."""
    minutes: float | None = None
    """After so long no further task is begun, and what there is by then is the data set; None is
    no limit. Counted anew when a run is taken up again."""
    keep: CollectionConfig = CollectionConfig()

    def __post_init__(self) -> None:
        names = ("max_attempts", "max_successes", "num_at_once", "max_candidates", "num_tasks")
        at_least(self, "collection", 1, *names)
        positive(self, "collection", "minutes")
        if both := set(self.leaves_out) & set(self.partly):
            raise ConfigError(
                "collection.leaves-out and collection.partly: expected different families, got "
                f"{', '.join(sorted(both))} in both"
            )
        if self.partly and "hand-made" not in self.sources:
            raise ConfigError(
                "collection.partly: expected `hand-made` among collection.sources, as there are "
                "hand-made variants alone of these families"
            )


def collect(
    tasks: Sequence[Task],
    scorer: Scorer,
    config: CollectConfig,
    run: Run,
    release: Path | None = None,
) -> list[Example]:
    """All examples, balanced; also as a file of the run, whose metrics have a step for each time
    that it was begun.

    Args:
        release: A checkout of CUDA-L1's release, for the source `published`.

    Raises:
        Stopped: The run must stop; what was judged is in the archive.
        ModelError: A model cannot be reached.
        ConfigError: A source has nothing to propose from; no task is of a family that is named; a
            file of known examples cannot be read, or is of other tasks.
    """
    step = run.last_step(STAGE) + 1
    run.rewind(STAGE, step - 1)
    work = Collection(scorer, config, sources(config, release))
    wanted, began_s = chosen_tasks(tasks, config), time.monotonic()
    work.found.update(earlier_examples(config.known, wanted, quotes=config.keep.quotes))
    unknown = [one for one in wanted if one.id not in work.found]
    try:
        with contextlib.ExitStack() as stack:
            work.models = [stack.enter_context(opened(one)) for one in config.models]
            scorer.each(unknown, work.of_task, lambda task: task.id)
    finally:
        chosen = balanced(
            [one for task in wanted for one in work.found.get(task.id, ())], config.keep
        )
        run.log(STAGE, step, **work.numbers(chosen, time.monotonic() - began_s))
    write_text(run.folder / EXAMPLES, lines(chosen))
    run.finish(STAGE, EXAMPLES)
    return chosen


def chosen_tasks(tasks: Sequence[Task], config: CollectConfig) -> list[Task]:
    """Those that are asked about."""
    families = {one.family for one in tasks}
    for key, named in (("leaves-out", config.leaves_out), ("partly", config.partly)):
        if unknown := set(named) - families:
            raise ConfigError(
                f"collection.{key}: expected some of {', '.join(sorted(families))}, "
                f"got {', '.join(sorted(unknown))}"
            )
    return [one for one in tasks if one.family not in config.leaves_out][: config.num_tasks]


class Collection:
    """What is known so far; judges work on different tasks at once."""

    def __init__(
        self, scorer: Scorer, config: CollectConfig, proposers: Sequence[Proposer]
    ) -> None:
        self.scorer, self.config, self.proposers = scorer, config, proposers
        self.around = [HandMade(config.kinds, AROUND)]
        self.models: list[LanguageModel] = []
        self.found: dict[str, list[Example]] = {}
        """By the id of their task."""
        self.statuses: Counter[str] = Counter()
        self.asking_s: list[float] = []
        """What models took to answer."""
        self.ends_s = math.inf if config.minutes is None else time.monotonic() + 60 * config.minutes

    def of_task(self, judge: Shared, task: Task) -> None:
        if time.monotonic() >= self.ends_s:
            return
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
        """Evaluations of a model's candidates, each once; what it was asked before is looked up."""
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
        """For the metrics; each judge waits for the answers of a model that it has asked."""
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


def sources(config: CollectConfig, release: Path | None = None) -> list[Proposer]:
    """Those that are no models, in their order."""
    found: list[Proposer] = []
    for name in config.sources:
        if name == "playbook":
            found.append(Playbook())
        elif name == "hand-made":
            found.append(HandMade(config.kinds))
        elif name == "published":
            if release is None:
                raise ConfigError(
                    "collection.sources: `published` proposes from CUDA-L1's release; fetch "
                    "deepreinforce-ai/CUDA-L1 and name its folder in tasks.cuda-l1"
                )
            found.append(PublishedKernels(release))
        else:
            from model_training.toy import ToyProposer  # here, as it is for tests

            found.append(ToyProposer())
    return found
