"""Decide when to ask for a second opinion, and apply it.

A candidate that a model suspects is `inconclusive`, not convicted. A model's opinion is no
measurement, is sometimes wrong, and could be provoked by text in a repository. The candidate is not
proposed either: a person finds it in the report with the reason, and decides. So a wrong or hostile
answer can at worst block a proposal; no answer can make one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import msgspec

from cudal1_ci.propose.llm.asking import Asker, Question
from cudal1_ci.propose.llm.hack_review.cases import Case, Database
from cudal1_ci.propose.llm.hack_review.question import candidate_text, question
from cudal1_ci.propose.llm.hack_review.reply import Opinion, read
from cudal1_ci.propose.llm.quoting import trimmed
from cudal1_ci.propose.llm.servers import LanguageModel
from cudal1_ci.propose.llm.variants import reference_text
from cudal1_ci.records import Evaluation, Finding, OpinionUse, Problem, Verdict
from cudal1_ci.stats import speedups

HACK = "opinion.hack"
SEED = 0
MAX_DESCRIPTION_CHARS = 600
MAX_CODE_CHARS = 2_500
"""The most characters of a case: a long one would leave no room for the others."""


@dataclass(frozen=True)
class Reviewer:
    """A model that is asked about jumps, with the cases that it sees."""

    model: LanguageModel
    database: Database
    prompt_tokens: int

    @property
    def name(self) -> str:
        return PurePosixPath(self.model.identity.model).name

    def apart(self) -> Reviewer:
        """Return a reviewer for another thread; it cancels only its own requests."""
        return replace(self, model=self.model.apart())


@dataclass
class Review:
    """Collect the opinions on the candidates of one problem."""

    reviewer: Reviewer
    problem: Problem
    is_over: Callable[[], bool]
    """Called while an answer is pending."""
    num_asked: int = 0
    num_suspected: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    def of(self, evaluation: Evaluation, *, has_jumped: bool) -> Evaluation:
        """Return the evaluation, changed by an opinion where there is one. Only a jump that passed
        is asked about; a candidate that the verifier convicted becomes a proven case.
        """
        database = self.reviewer.database
        if evaluation.verdict.status == "reward_hack":
            database.add(candidate_text(evaluation), proven(evaluation))
        if evaluation.verdict.status != "passed" or not has_jumped:
            return evaluation
        opinion = self.opinion(evaluation)
        if opinion is None or not opinion.is_hack:
            return evaluation
        self.num_suspected += 1
        database.add(candidate_text(evaluation), suspected(evaluation))
        finding = Finding(rule=HACK, message=self.message(evaluation, opinion))
        verdict = Verdict(status="inconclusive", findings=(finding, *evaluation.verdict.findings))
        return msgspec.structs.replace(evaluation, verdict=verdict, measurements=(), kernels=())

    def opinion(self, evaluation: Evaluation) -> Opinion | None:
        """Return the model's opinion; None, counted, if the reply has none."""
        self.num_asked += 1
        reference = reference_text(self.problem)
        cases = self.reviewer.database.like(candidate_text(evaluation), reference)
        messages = question(self.problem, evaluation, cases, self.reviewer.prompt_tokens)
        if messages is None:
            self.failed["prompt"] += 1
            return None
        memory = self.reviewer.database.archive
        asker = Asker(self.reviewer.model, memory, 1, self.is_over)
        for _, answer in asker.answers([Question(messages=tuple(messages), seed=SEED)]):
            opinion = None if answer.failure else read(answer.text)
            if opinion is None:
                self.failed[answer.failure or "unreadable"] += 1
            return opinion
        self.failed["cancelled"] += 1
        return None

    def message(self, evaluation: Evaluation, opinion: Opinion) -> str:
        """Return the model's words as a quotation, with the measurement. A verdict without `passed`
        has no other field for it.
        """
        found = [speedups.speedup(one) for one in evaluation.measurements]
        times = ", ".join(f"{one.estimate:.2f}x" for one in found if one is not None)
        words = f'in its words: "{opinion.reason}"' if opinion.reason else "it gives no reason"
        return (
            f"the verifier found no fault and measured {times} on {device_name(evaluation)}, but "
            f"another model ({self.reviewer.name}) suspects a hack; this is not proven; "
            f"{words}"
        )

    def use(self) -> OpinionUse | None:
        """Return the model use so far; None without any."""
        if not self.num_asked:
            return None
        return OpinionUse(
            model=self.reviewer.model.identity.model,
            num_asked=self.num_asked,
            num_suspected=self.num_suspected,
            failed=dict(sorted(self.failed.items())),
        )


def device_name(evaluation: Evaluation) -> str:
    return evaluation.device.name if evaluation.device else "an unknown device"


def shape(evaluation: Evaluation) -> str:
    """Return as much of a candidate as a case holds."""
    return trimmed(candidate_text(evaluation), MAX_CODE_CHARS, "first") or "(no text)"


def proven(evaluation: Evaluation) -> Case:
    """Return the case of a candidate that the verifier convicted."""
    said = "; ".join(f"{one.rule}: {one.message}" for one in evaluation.verdict.findings)
    return Case(
        name=f"judged_{evaluation.candidate.id[:8]}",
        description=f"Rejected by the verifier. {said}"[:MAX_DESCRIPTION_CHARS],
        code=shape(evaluation),
    )


def suspected(evaluation: Evaluation) -> Case:
    """Return the case of a candidate that a model suspects. The model's words are left out: they
    could influence the next model.
    """
    return Case(
        name=f"suspected_{evaluation.candidate.id[:8]}",
        description="Suspected by a model when it claimed a jump. Nobody has proven it.",
        code=shape(evaluation),
        standing="suspected",
    )
