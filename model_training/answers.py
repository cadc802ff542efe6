"""Write the answer that a model is trained to give for a variant: analysis, design and code.

    answer_text(problem, evaluation, profile)

The analysis begins with the operators that take most of the reference's time, and then says why the
variant is faster; where the question shows another variant, what made that one faster stands first.
Both parts are short, as the prompt asks for at most eighty words. The code defines `ModelNew`, with
its imports and what it uses, and nothing of what makes inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.measured import brief_rows
from cudal1_ci.propose.llm.prompt import MAX_WORDS
from cudal1_ci.propose.llm.splice.names import binds, uses
from cudal1_ci.propose.llm.splice.text_form import as_text_program
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.records import Evaluation, Problem, TextProgram

NUM_OPERATORS = 3
"""Of the profile, those that the analysis names."""
NO_REASON = "The reference does more work than its result needs."
NO_DESIGN = "The same result with less work."
"""Of a candidate without a text of its own."""
TEMPLATE = """## Performance analysis
{analysis}

## Algorithm design
{design}

## Code
```python
{code}
```
"""


def answer_text(
    problem: Problem,
    evaluation: Evaluation,
    profile: Sequence[ProfileRow] = (),
    shown: Evaluation | None = None,
) -> str | None:
    """Return an answer; None for a program that is none: the reference, or no text.
    `shown` is the second variant of the question, faster than the reference, which is the first."""
    code = code_of(problem, evaluation)
    if code is None:
        return None
    candidate = evaluation.candidate
    why, how = in_a_line(candidate.analysis), in_a_line(candidate.design)
    analysis = " ".join(filter(None, (why_faster(shown), where_time_goes(profile), why)))
    return TEMPLATE.format(
        analysis=shortened(analysis) or NO_REASON,
        design=shortened(how) or NO_DESIGN,
        code=code.strip(),
    )


def code_of(problem: Problem, evaluation: Evaluation) -> str | None:
    """Return what an answer would have to say to be this candidate; None where that is the
    reference."""
    program = evaluation.candidate.program
    return code_in(problem, program.source) if isinstance(program, TextProgram) else None


def code_in(problem: Problem, source: str) -> str | None:
    """Return what an answer would have to say to be a program of this text."""
    reference = problem.reference
    if not isinstance(reference, TextProgram):
        return None
    found = program_in(reference, source)
    return None if isinstance(found, Unusable) else without_leftovers(found.source)


def form_of(problem: Problem, source: str) -> str | None:
    """Return what is equal for programs that differ in names, comments and layout alone; None for
    the reference."""
    code = code_in(problem, source)
    return None if code is None else fingerprint(code)


@lru_cache(maxsize=1024)
def program_in(reference: TextProgram, code: str) -> TextProgram | Unusable:
    """Return the answer's code as the product reads it. The result is cached: reading takes
    milliseconds, and many answers have equal code.
    """
    return as_text_program(reference, code)


@lru_cache(maxsize=1024)
def without_leftovers(source: str) -> str:
    """Leave out docstrings of the file, and sizes that only the inputs were made of."""
    module = cst.parse_module(source)
    definitions = [item for item in module.body if isinstance(item, cst.ClassDef | cst.FunctionDef)]
    used = {name for item in definitions for name in uses(item)}
    kept: list[cst.BaseStatement | cst.SimpleStatementLine | cst.BaseCompoundStatement] = []
    for item in module.body:
        is_text = isinstance(item, cst.SimpleStatementLine) and all(
            isinstance(part, cst.Expr) for part in item.body
        )
        is_size = isinstance(item, cst.SimpleStatementLine) and all(
            isinstance(part, cst.Assign | cst.AnnAssign) for part in item.body
        )
        if not is_text and not (is_size and not set(binds(item)) & used):
            kept.append(item)
    return module.with_changes(body=kept, header=[]).code.strip() + "\n"


def where_time_goes(profile: Sequence[ProfileRow]) -> str:
    """Return `Most of the time goes to aten::mm (71%) and aten::copy_ (12%).`"""
    total_us = sum(row.time_us for row in profile)
    if total_us <= 0:
        return ""
    first = brief_rows(profile)[:NUM_OPERATORS]
    named = [f"{row.name} ({row.time_us / total_us:.0%})" for row in first]
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"Most of the time goes to {listed}."


def why_faster(shown: Evaluation | None) -> str:
    """Return `Variant 2 is faster than variant 1. The diagonal is a product with each row.`"""
    if shown is None:
        return ""
    return f"Variant 2 is faster than variant 1. {in_a_line(shown.candidate.design)}".strip()


def in_a_line(text: str) -> str:
    """Join a list of reasons, without marks, and without where they were found."""
    text = text.partition("\n\nFound:")[0]
    lines = [re.sub(r"^[-*] (?:\w+: )?", "", line).strip() for line in text.splitlines()]
    sentences = [f"{line[0].upper()}{line[1:].rstrip('.')}." for line in lines if line]
    return " ".join(sentences)


def shortened(text: str) -> str:
    """Return whole sentences of at most as many words as the prompt allows."""
    kept: list[str] = []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        if len(" ".join([*kept, sentence]).split()) > MAX_WORDS:
            break
        kept.append(sentence)
    return " ".join(kept)
