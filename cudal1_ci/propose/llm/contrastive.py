"""Run the contrastive optimizer: a model sees measured variants and writes the next ones.

A round asks for new variants, each with other exemplars (contrast.py). It also asks for repairs of
failed answers of the round before: an unreadable format, an error, or wrong values, each with the
verifier's message. An answer becomes a candidate if it can be read (answer.py) and spliced into the
user's file (splice/). It must differ from the reference and from every earlier variant.

With unchanged weights this is the evolutionary baseline of CUDA-L1's paper ("evolve"). With an
adapter from contrastive training (model_training/) it is CUDA-L1. The optimizer trusts no statement
of a model: the verifier finds a candidate's worth.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec

from cudal1_ci.propose.llm.answer import Parsed, Unusable, parse
from cudal1_ci.propose.llm.asking import Asker, Question
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.contrast import select
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.prompt import REPAIRABLE
from cudal1_ci.propose.llm.servers import Answer, Message
from cudal1_ci.propose.llm.splice import splice
from cudal1_ci.propose.llm.task import Variant
from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.records import (
    Candidate,
    Evaluation,
    Generation,
    ModelUse,
    Problem,
    Program,
    content_hash,
)


@dataclass
class Failed:
    """A failed answer and its reason."""

    question: Question
    answer: str
    why: Evaluation | Unusable


@dataclass
class Optimization:
    """Optimize one problem with a model."""

    problem: Problem
    asker: Asker
    config: OptimizerConfig
    contrast: ContrastConfig
    wanted: tuple[str, ...]
    """Names that an answer's code may define, best first."""
    prompt: Callable[[Sequence[Variant]], Sequence[Message]]
    """Return the messages that ask for a new variant, with these exemplars."""
    repair: Callable[[Failed], Sequence[Message]]
    """Return the messages that ask for a failed answer again."""
    told: Callable[[int], None]
    """Called after every answer, with the number of answers to come."""
    seen: set[str] = field(default_factory=set)
    """Fingerprints of the variants that need no second verification."""
    failed: list[Failed] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    num_answers: int = 0
    num_repaired: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    _origins: dict[str, tuple[Question, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reference = fingerprint(reference_text(self.problem))

    def round(self, number: int, variants: Sequence[Variant]) -> Generator[Candidate]:
        """Yield candidates as their answers arrive. `variants` are all variants known to be
        correct.
        """
        self.seen.update(fingerprint(one.text) for one in variants)
        # In the order of the questions, not of the answers: a resumed run asks the same.
        self.failed.sort(key=lambda one: one.question.seed)
        repairs = self.failed[: self.config.num_repairs] if number else []
        self.failed = []
        questions = [
            Question(
                messages=tuple(self.repair(one)),
                seed=one.question.seed,
                turn=one.question.turn + 1,
                exemplar_ids=one.question.exemplar_ids,
            )
            for one in repairs
        ]
        questions += [self.question(number, i, variants) for i in range(self.config.num_samples)]
        if questions:
            self.told(len(questions))
        for number_answered, (question, answer) in enumerate(self.asker.answers(questions), 1):
            self.count(question, answer)
            candidate = self.candidate(question, answer)
            self.told(len(questions) - number_answered)
            if candidate is not None:
                yield candidate

    def question(self, number: int, place: int, variants: Sequence[Variant]) -> Question:
        """Return the question for a new variant, with exemplars of its own."""
        seed = int(content_hash([self.config.seed, self.problem.id, number, place])[:8], 16)
        shown = select(variants, self.contrast, random.Random(seed))
        return Question(
            messages=tuple(self.prompt(shown)),
            seed=seed,
            exemplar_ids=tuple(one.exemplar.candidate.id for one in shown),
        )

    def count(self, question: Question, answer: Answer) -> None:
        self.num_answers += 1
        self.num_repaired += question.turn > 0
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0

    def candidate(self, question: Question, answer: Answer) -> Candidate | None:
        """Return the candidate of an answer; None, counted, if it is not new."""
        if answer.failure is not None:
            self.refused[answer.failure] += 1
            return None
        is_cut = answer.finish_reason == "length"
        found = parse(answer.text, self.wanted, is_cut=is_cut)
        program = splice(self.problem, found) if isinstance(found, Parsed) else found
        if isinstance(program, Unusable):
            self.refused[program.kind] += 1
            self.fail(question, answer.text, program)
            return None
        assert isinstance(found, Parsed)
        kind = self.repetition(program)
        if kind is not None:
            self.refused[kind] += 1
            return None
        candidate = Candidate(
            problem_id=self.problem.id,
            program=program,
            proposer=f"model:{PurePosixPath(self.asker.model.identity.model).name}",
            analysis=found.analysis,
            design=found.design,
            exemplar_ids=question.exemplar_ids,
            generation=self.generation(question, answer),
        )
        self._origins[candidate.id] = (question, answer.text)
        return candidate

    def repetition(self, program: Program) -> str | None:
        """Return `unchanged` for the reference, `duplicate` for another variant, None for new
        code.
        """
        text = variant_text(program)
        form = fingerprint(text)
        if not text.strip() or form == self.reference:
            return "unchanged"
        if form in self.seen:
            return "duplicate"
        self.seen.add(form)
        return None

    def judged(self, evaluation: Evaluation) -> None:
        """Record the verdict on a candidate of this optimization."""
        origin = self._origins.get(evaluation.candidate.id)
        if origin is not None and evaluation.verdict.status in REPAIRABLE:
            self.fail(*origin, evaluation)

    def fail(self, question: Question, answer: str, why: Evaluation | Unusable) -> None:
        if question.turn < self.config.max_turns:
            self.failed.append(Failed(question, answer, why))

    def generation(self, question: Question, answer: Answer) -> Generation:
        return Generation(
            **msgspec.structs.asdict(self.asker.model.identity),
            seed=question.seed,
            prompt_digest=content_hash(question.messages),
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            turn=question.turn,
        )

    def use(self) -> ModelUse:
        """Return the model use so far."""
        times = self.asker.times
        identity = self.asker.model.identity
        return ModelUse(
            model=identity.model,
            adapter=identity.adapter,
            adapter_name=identity.adapter_name,
            num_answers=self.num_answers,
            refused=dict(sorted(self.refused.items())),
            num_repairs=self.num_repaired,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            generating_s=times.generating_s,
            waiting_s=times.waiting_s,
        )
