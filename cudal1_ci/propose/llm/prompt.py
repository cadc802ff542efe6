"""Render a task as messages to a model: what it sees, what it must answer, what is banned.

The words are in templates/prompt*.md.j2. Text from a repository, a model or a program is data: it
is in a fence that it cannot leave, under a line that says so (quoting.py). A prompt that is too
long loses whole parts, the least useful first. The order is: helpers of other files, the profile's
tail, the slower variants, helpers of the same file, less important workloads, the profile, the last
variant, constants and bases. Text is never cut in the middle. The prompt has no random part and no
date: the same task gives the same prompt, in the product and in training.

    messages = render(task, budget_tokens=6000)
    messages = render_repair(task, answer.text, evaluation.verdict, budget_tokens=8000)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from cudal1_ci.errors import PromptError
from cudal1_ci.propose.llm.context import BASE, HELPER, OTHER_FILE, Part
from cudal1_ci.propose.llm.measured import device_text, profile_text, workload_text
from cudal1_ci.propose.llm.quoting import Shown, named, trimmed, visible
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.task import Task, Variant
from cudal1_ci.propose.llm.words import template
from cudal1_ci.records import Record, Target, TextProgram, Verdict, Workload

MAX_WORDS = 80
"""The most words of analysis and design. A small model that thinks longer writes no better code,
and in training words cost as much as code."""
TOKENS_PER_LINE = 12
"""Average tokens of a line of code; models count lines better than tokens."""
PROFILE_ROWS = 8
SHORT_PROFILE_ROWS = 3
MAX_FINDINGS = 5
FINDINGS_CHARS = 2_500
LOG_CHARS = 2_000
"""Characters from the end of a traceback: the error and the frames that matter."""
MESSAGE_TOKENS = 8
"""Tokens that a chat template puts around a message."""

REPAIRABLE = frozenset(
    {
        "compile_error",
        "runtime_error",
        "timeout",
        "incorrect_shape",
        "incorrect_dtype",
        "incorrect_values",
        "precision",
        "mutates_input",
    }
)
"""Statuses that are the candidate's fault, so that another answer may fix them. Cheating is
excluded: a model that learns how it was caught learns to hide."""


def render(task: Task, budget_tokens: int) -> list[Message]:
    """Return the first turn, within a budget in tokens of `estimated_tokens`.

    Raises:
        PromptError: Even without all that can be dropped it is longer.
    """
    return _fitting(task, budget_tokens, ())


def render_repair(
    task: Task, previous_answer: str, failure: Verdict | str, budget_tokens: int
) -> list[Message]:
    """Return the turn after a failed answer: the request, the answer, and its error. `failure` is
    the verifier's verdict, or why the answer has no readable code.

    Raises:
        PromptError: Even without all that can be dropped it is longer.
        ValueError: Another answer could not fix what the verdict reports.
    """
    status: str = "format"
    log, findings = "", ""
    if isinstance(failure, Verdict):
        if failure.status not in REPAIRABLE:
            raise ValueError(f"a candidate that is {failure.status} cannot be fixed by its author")
        status, log = failure.status, trimmed(failure.log, LOG_CHARS, "last")
        findings = trimmed(_findings(failure), FINDINGS_CHARS, "first")
    else:
        findings = trimmed(failure, FINDINGS_CHARS, "first")
    feedback = template("prompt_repair").render(
        status=status, findings=findings.strip(), log=log.strip()
    )
    turns = (
        Message(role="assistant", content=visible(previous_answer)),
        Message(role="user", content=feedback),
    )
    return _fitting(task, budget_tokens, turns)


def estimated_tokens(messages: list[Message]) -> int:
    """Return an upper bound of the tokens, without a tokenizer. Three ASCII characters count as one
    token; code has three to four. A digit counts as one, and so does each UTF-8 byte of other
    characters: the worst case of a byte-level tokenizer.
    """
    total = 0
    for message in messages:
        text = message.content
        num_digits = sum(map(text.count, "0123456789"))
        num_ascii = sum(map(str.isascii, text))
        num_bytes = len(text.encode("utf-8", "surrogatepass"))
        total += num_digits + ceil((num_ascii - num_digits) / 3) + num_bytes - num_ascii
    return total + MESSAGE_TOKENS * len(messages)


# --- what fits ---------------------------------------------------------------------------------


class _Shown(Record, frozen=True, kw_only=True):
    """The parts of a task that are shown."""

    context: tuple[Part, ...]
    workloads: tuple[Workload, ...]
    variants: tuple[Variant, ...]
    profile_rows: int = PROFILE_ROWS


def _fitting(task: Task, budget_tokens: int, turns: tuple[Message, ...]) -> list[Message]:
    """Return the longest conversation that fits.

    Raises:
        PromptError: No conversation fits.
    """
    system = Message(role="system", content=template("prompt_system").render())
    needed = 0
    for shown in _ever_shorter(task):
        messages = [system, Message(role="user", content=_request(task, shown)), *turns]
        needed = estimated_tokens(messages)
        if needed <= budget_tokens:
            return messages
    raise PromptError(
        f"{task.name}: the prompt needs {needed} tokens without all that can be left out, and the "
        f"budget is {budget_tokens}; use a model with a longer context or allow a shorter answer"
    )


def _ever_shorter(task: Task) -> Iterator[_Shown]:
    """Yield the whole task, then the task with one more piece dropped each time, the least useful
    first.
    """
    but = msgspec.structs.replace
    shown = _Shown(
        context=task.context,
        workloads=tuple(sorted(task.problem.workloads, key=lambda one: -(one.share or 0.0))),
        variants=tuple(sorted(task.variants, key=lambda v: (v.exemplar.score, v.text))),
    )
    yield shown
    while (fewer := _without_part(shown, OTHER_FILE)) is not None:
        yield (shown := fewer)
    yield (shown := but(shown, profile_rows=SHORT_PROFILE_ROWS))
    while len(shown.variants) > 1:
        yield (shown := but(shown, variants=shown.variants[1:]))
    while (fewer := _without_part(shown, HELPER)) is not None:
        yield (shown := fewer)
    while len(shown.workloads) > 1:
        yield (shown := but(shown, workloads=shown.workloads[:-1]))
    yield (shown := but(shown, profile_rows=0))
    yield (shown := but(shown, variants=()))
    while (fewer := _without_part(shown, BASE)) is not None:
        yield (shown := fewer)


def _without_part(shown: _Shown, least: int) -> _Shown | None:
    """Return the task without the last part of the highest priority number; None if that number is
    below `least`.
    """
    highest = max(part.priority for part in shown.context)
    if highest < least:
        return None
    last = max(i for i, part in enumerate(shown.context) if part.priority == highest)
    context = shown.context[:last] + shown.context[last + 1 :]
    return msgspec.structs.replace(shown, context=context)


# --- words -------------------------------------------------------------------------------------


def _request(task: Task, shown: _Shown) -> str:
    """Return the user's turn."""
    missing = Shown("left out to save room")
    if isinstance(task.profile, str):
        missing = named(task.profile)
    has_rows = not isinstance(task.profile, str) and shown.profile_rows
    program = task.problem.reference
    return template("prompt").render(
        name=task.name,
        reference_name=task.called_name,
        top_name=task.name.partition(".")[0],
        kernel_path=task.kernel.path if task.kernel else None,
        launchers=launchers_beside(task.kernel) if task.kernel else "",
        form=task.form,
        is_text=isinstance(program, TextProgram),
        is_class=task.is_class,
        is_gpu=task.device.kind == "cuda",
        context=shown.context,
        num_parts_left_out=len(task.context) - len(shown.context),
        workloads=workload_text(task, shown.workloads),
        num_workloads_left_out=len(task.problem.workloads) - len(shown.workloads),
        device=device_text(task),
        profile=profile_text(task, shown.profile_rows) if has_rows else None,
        no_profile=missing,
        variants=shown.variants,
        references=[one.text.strip() for one in shown.context],
        max_words=MAX_WORDS,
        max_lines=task.answer_tokens // TOKENS_PER_LINE // 10 * 10,
    )


def launchers_beside(kernel: Target) -> str:
    """Return the definitions in a kernel's file that launch it, and so may change with it."""
    here = [one.partition(":")[2] for one in kernel.launchers if one.startswith(f"{kernel.path}:")]
    names = dict.fromkeys(name.partition(".")[0] for name in here)
    return ", ".join(name for name in names if name.isidentifier())


def _findings(verdict: Verdict) -> str:
    """Return the verifier's findings, a paragraph each, with measured errors."""
    said = []
    for finding in verdict.findings[:MAX_FINDINGS]:
        where = f" (line {finding.line})" if finding.line else ""
        evidence = f"\n{finding.evidence}" if finding.evidence else ""
        said.append(f"{finding.rule}: {finding.message}{where}{evidence}")
    if verdict.max_abs_error is not None:
        said.append(f"largest absolute error: {verdict.max_abs_error:.3g}")
    if verdict.max_rel_error is not None:
        said.append(f"largest relative error: {verdict.max_rel_error:.3g}")
    return "\n".join(said)
