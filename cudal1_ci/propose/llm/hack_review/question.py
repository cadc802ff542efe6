"""Build the question about a jump: the reference, the candidate, and the hacks most like it.

The words are in templates/prompt_opinion*.md.j2. The candidate's own analysis is not shown: it was
written to convince. Parts that do not fit are left out whole, the least similar cases first. If the
candidate itself does not fit, no question is sent: half of a candidate could be the honest half.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.propose.llm.hack_review.bare import bare
from cudal1_ci.propose.llm.hack_review.cases import Case
from cudal1_ci.propose.llm.prompt import estimated_tokens
from cudal1_ci.propose.llm.quoting import Shown
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.variants import reference_text, variant_text
from cudal1_ci.propose.llm.words import template
from cudal1_ci.records import Evaluation, Problem, TreeProgram
from cudal1_ci.stats import speedups

MAX_WORDS = 80
"""The most words of the reason: the finding shows a sentence or two."""


def candidate_text(evaluation: Evaluation) -> str:
    """Return the candidate's code, without words that could persuade."""
    return bare(variant_text(evaluation.candidate.program))


def question(
    problem: Problem, evaluation: Evaluation, cases: Sequence[Case], budget_tokens: int
) -> list[Message] | None:
    """Return the messages within the token budget; None if they do not fit."""
    system = Message(role="system", content=template("prompt_opinion_system").render())
    for number in range(len(cases), -1, -1):
        content = template("prompt_opinion").render(
            reference=reference_text(problem),
            candidate=candidate_text(evaluation),
            language=language(evaluation),
            times=one_digit(times_faster(evaluation)),
            cases=cases[:number],
            max_words=MAX_WORDS,
        )
        messages = [system, Message(role="user", content=content)]
        if estimated_tokens(messages) <= budget_tokens:
            return messages
    return None


def language(evaluation: Evaluation) -> str:
    program = evaluation.candidate.program
    files = program.overlay if isinstance(program, TreeProgram) else ()
    return "cuda" if files and not any(one.path.endswith(".py") for one in files) else "python"


def one_digit(number: float) -> Shown:
    """Return a number rounded to one digit: `5` for 5.31, `50` for 48. A second measurement then
    gives the same question.
    """
    return Shown(f"{float(format(number, '.1g')):g}")


def times_faster(evaluation: Evaluation) -> float:
    """Return the highest measured speedup of a workload."""
    found = [speedups.speedup(one) for one in evaluation.measurements]
    return max((one.estimate for one in found if one is not None), default=1.0)
