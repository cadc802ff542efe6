"""Turn variants of tasks that the verifier has passed into conversations to learn from.

    evaluations = judged(task, proposers, session, archive, policy)
    chosen = balanced(examples_of(task, evaluations, ...), config)

Only what passed is kept, with its measured speedup: near-duplicates once, the fastest few of a
task, no family of techniques above its share. A variant answers the question of a first round,
which shows the reference alone, and that of a later round, which shows a slower variant too.

Source: CUDA-L1 (arXiv 2507.14111), section 2.2: successful variants alone, at most two of a model
and task. Departures: variants come from the product's playbook too, and a target's analysis is
written from the measured profile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.target import TargetSearch
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.llm.context import context_of
from cudal1_ci.propose.llm.contrast import REFERENCE
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.prompt import render
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.task import ProfileRow, Variant
from cudal1_ci.propose.llm.task import Task as Question
from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.records import (
    Candidate,
    Device,
    Evaluation,
    Exemplar,
    Problem,
    Record,
    Target,
    Workload,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.recording import Recording
from cudal1_ci.records.validation import at_least, positive
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.stats import speedups
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.session import Session
from model_training.answers import answer_text, code_of
from model_training.tasks.record import Task

PROMPT_TOKENS = 4000
UNKNOWN = "none"
"""Family of what names no technique."""


class CollectionConfig(Record, frozen=True, kw_only=True):
    """Configure what is kept."""

    min_speedup: float = 1.0
    """Of the lower bound; what is right and slower teaches form alone."""
    max_per_task: int = 4
    max_share: float = 0.3
    """Of all examples, that of one family of techniques."""
    contrasts: bool = True
    """Whether a variant also answers a question that shows one of the slower ones."""

    def __post_init__(self) -> None:
        at_least(self, "collection", 1, "max_per_task")
        positive(self, "collection", "min_speedup", "max_share")


class Example(Record, frozen=True, kw_only=True):
    """Hold a conversation to learn from; a line of the data set."""

    task: str
    """Name of the task."""
    messages: tuple[Message, ...]
    """The product's own prompt, and the answer."""
    speedup: float
    techniques: tuple[str, ...]
    proposer: str
    form: str
    """Fingerprint of the code."""


class Verifier(Protocol):
    """Name what is needed of the product's session."""

    def device(self) -> Device: ...

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation: ...


@dataclass(frozen=True)
class Measuring:
    """Ask a verifier that has one way to measure, where the product's loop screens."""

    judge: Verifier

    def device(self) -> Device:
        return self.judge.device()

    def screen(
        self,
        problem: Problem,
        candidate: Candidate,
        most_s: float | None = None,  # noqa: ARG002
    ) -> Evaluation:
        return self.judge.evaluate(problem, candidate)

    def record(self, problem: Problem, workload: Workload) -> Recording | str:
        """Record a call on this machine's CPU: the rules read operations, not times."""
        with Session(TrialConfig(), device="cpu") as session:
            return session.record(problem, workload)


def judged(
    task: Task,
    strategies: Iterable[Strategy],
    judge: Verifier,
    archive: Archive,
    policy: str,
    max_candidates: int = 16,
) -> Iterator[Evaluation]:
    """Yield every candidate of an accepted task with its verdict, as the product's loop proposes,
    verifies and records it."""
    target = Target(
        path=task.name, qualname="Model", kind="torch_module", first_line=1, last_line=1
    )
    context = RunContext(
        session=Measuring(judge),  # type: ignore[arg-type]  # the reference was accepted: nothing is checked
        strategies=tuple(strategies),
        archive=archive,
        progress=SilentProgress(),
        config=ReviewConfig(num_candidates=max_candidates),
        policy=policy,
    )
    search = TargetSearch(target, task.problem, context.strategies, context)
    for candidate in search.next_candidates():
        yield search.evaluate(candidate)


def examples_of(
    task: Task,
    evaluations: Iterable[Evaluation],
    device: Device,
    profile: Sequence[ProfileRow],
    config: CollectionConfig,
) -> list[Example]:
    """Return the fastest of those that passed, of each form one."""
    problem = task.problem
    kept: dict[str, Evaluation] = {}
    for one in sorted(evaluations, key=speedups.score, reverse=True):
        if one.verdict.status != "passed" or speedups.score(one) <= config.min_speedup:
            continue
        code = code_of(problem, one)
        if code is not None and len(kept) < config.max_per_task:
            kept.setdefault(fingerprint(code), one)

    def example(form: str, one: Evaluation, shown: Evaluation | None) -> Example | None:
        answer = answer_text(problem, one, profile, shown)
        if answer is None:
            return None
        variants = (original(problem), *([variant(shown)] if shown else []))
        request = render(question(problem, device, profile, variants), PROMPT_TOKENS)
        return Example(
            task=task.name,
            messages=(*request, Message(role="assistant", content=answer)),
            speedup=speedups.score(one),
            techniques=one.candidate.techniques,
            proposer=one.candidate.proposer,
            form=form,
        )

    found = []
    for place, (form, one) in enumerate(kept.items()):
        slower = list(kept.values())[place + 1 :] if config.contrasts else []
        found.append(example(form, one, None))
        if slower:
            found.append(example(form, one, slower[int(form, 16) % len(slower)]))
    return [one for one in found if one is not None]


def question(
    problem: Problem, device: Device, profile: Sequence[ProfileRow], variants: Sequence[Variant]
) -> Question:
    """Return what the product would ask of this problem."""
    return Question(
        problem=problem,
        name="ModelNew",
        form="module_text",
        context=context_of(problem),
        device=device,
        profile=tuple(profile) or "no operator was seen",
        variants=tuple(variants),
    )


def original(problem: Problem) -> Variant:
    """Return the reference as a variant: all that the first question of a problem shows."""
    reference = Candidate(problem_id=problem.id, program=problem.reference, proposer=REFERENCE)
    return Variant(exemplar=Exemplar(candidate=reference, score=1.0), text=reference_text(problem))


def variant(evaluation: Evaluation) -> Variant:
    """Return what was verified, as a prompt shows it."""
    candidate = evaluation.candidate
    exemplar = Exemplar(candidate=candidate, score=speedups.score(evaluation))
    return Variant(exemplar=exemplar, text=variant_text(candidate.program))


def balanced(examples: Sequence[Example], config: CollectionConfig) -> list[Example]:
    """Leave no family above its share of what is kept in the end; the fastest of a family stay.
    Where there are too few families for that, the largest are as large as one another."""
    families: dict[str, list[Example]] = defaultdict(list)
    for one in sorted(examples, key=lambda one: (-one.speedup, one.form)):
        families[family_of(one)].append(one)
    limit = most_of_a_family([len(members) for members in families.values()], config.max_share)
    kept = {id(one) for members in families.values() for one in members[:limit]}
    return [one for one in examples if id(one) in kept]


def family_of(example: Example) -> str:
    return example.techniques[0] if example.techniques else UNKNOWN


def most_of_a_family(sizes: Sequence[int], share: float) -> int:
    """Return the largest number so that families of at most that many keep to their share; where no
    number does, that of the second largest family."""
    if not sizes:
        return 0
    for limit in range(max(sizes), 0, -1):
        total = sum(min(size, limit) for size in sizes)
        if limit <= share * total:
            return limit
    return sorted(sizes)[-2] if len(sizes) > 1 else sizes[0]


def counted(examples: Sequence[Example]) -> dict[str, int]:
    """Return examples by family, for the record of a run."""
    return dict(Counter(map(family_of, examples)).most_common())


def lines(examples: Iterable[Example]) -> str:
    """Write JSON lines, as TRL's SFT trainer reads `messages`."""
    return "".join(msgspec.json.encode(one).decode() + "\n" for one in examples)


def read_examples(path: Path) -> list[Example]:
    """Read a data set of JSON lines.

    Raises:
        ConfigError: The file is not there, or a line is no example.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: expected examples to learn from ({error}); "
            "`python -m model_training collect` writes them"
        ) from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(msgspec.json.decode(line, type=Example))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}:{number}: expected an example: {error}") from error
    return found
