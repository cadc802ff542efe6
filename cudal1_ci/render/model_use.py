"""Say what models answered in a run, one line for each, failures included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from cudal1_ci.records import Entry, ModelUse, Report
from cudal1_ci.render.outcomes import outcomes, outcomes_text
from cudal1_ci.render.wording import count_text, duration_text

MODEL_WORDS = "The model's own claims, not measured:"
CONTRADICTED_WORDS = "The measurements contradict this:"
NOTHING_TRIED = "no rewrite matches"
REFUSED_WORDS = {
    "no_code": "without code",
    "no_entry": "without the target",
    "syntax": "no Python",
    "truncated": "cut off",
    "unchanged": "a copy of the reference",
    "duplicate": "known already",
    "wrong_language": "in another language",
    "signature": "with another signature",
    "rate_limit": "refused for their rate",
    "server": "lost with the server",
    "timeout": "too late",
    "garbage": "not the protocol",
    "too_long": "too long",
    "degenerate": "the same words again and again",
    "budget": "beyond the budget of tokens",
    "refused": "refused",
    "empty": "empty",
    "cancelled": "not waited for",
    "unreadable": "without a verdict that can be read",
    "prompt": "not asked, as the code is too long",
}


def model_text(document: Report) -> str | None:
    """Return the model use of the whole run; None where no model was used."""
    uses = [entry.model_use for entry in document.entries if entry.model_use is not None]
    if not uses:
        return None
    names = ", ".join(dict.fromkeys(map(name_text, uses)))
    num_answers = sum(use.num_answers for use in uses)
    num_repairs = sum(use.num_repairs for use in uses)
    refused = refused_counts(uses)
    repaired = f" ({num_repairs} to repair an earlier one)" if num_repairs else ""
    parts = [
        f"{count_text(num_answers, 'answer')}{repaired}",
        f"{count_text(num_answers - refused.total(), 'candidate')} verified",
        *refused_words(refused),
        f"{sum(use.completion_tokens for use in uses):,} tokens written, "
        f"{sum(use.prompt_tokens for use in uses):,} read",
        f"{duration_text(sum(use.generating_s for use in uses))} generating, "
        f"{duration_text(sum(use.waiting_s for use in uses))} of it with the verifier idle",
    ]
    return f"model {names}: " + "; ".join(parts)


def name_text(use: ModelUse) -> str:
    """Format `Qwen2.5-Coder-0.5B with adapter cuda-0.5b (0123456789abcdef)`."""
    if use.adapter is None:
        return use.model
    name = f"{use.adapter_name} " if use.adapter_name else ""
    return f"{use.model} with adapter {name}({use.adapter})"


def opinion_text(document: Report) -> str | None:
    """Return the second opinions of the whole run; None where no model gave one."""
    uses = [entry.opinion_use for entry in document.entries if entry.opinion_use is not None]
    if not uses:
        return None
    failed: Counter[str] = Counter()
    for use in uses:
        failed.update(use.failed)
    names = ", ".join(dict.fromkeys(use.model for use in uses))
    parts = [
        f"asked about {count_text(sum(use.num_asked for use in uses), 'jump')}",
        f"{sum(use.num_suspected for use in uses)} suspected",
    ]
    if failed:
        parts.append(f"no opinion on {failed.total()} ({', '.join(refused_words(failed))})")
    return f"second opinion of {names}: " + "; ".join(parts)


def refused_counts(uses: Iterable[ModelUse]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for use in uses:
        counts.update(use.refused)
    return counts


def refused_words(counts: Mapping[str, int]) -> list[str]:
    """Format refusals as `3 without code`, the most frequent first."""
    return [
        f"{count} {REFUSED_WORDS.get(kind, kind.replace('_', ' '))}"
        for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def attempts_text(entry: Entry, several_devices: bool = False) -> str:
    """Say what became of everything that was tried on a target without a proposal."""
    refused = refused_words(refused_counts([entry.model_use])) if entry.model_use else []
    judged = [outcomes_text(entry.evaluations, several_devices)] if entry.evaluations else []
    return "; ".join([*judged, *refused]) or NOTHING_TRIED


def attempts_rows(entry: Entry, several_devices: bool = False) -> list[tuple[str, str]]:
    """Return the attempts as rows: a speedup, the best first, and its outcome. All attempts without
    a speedup make one row, whose first part is empty.
    """
    rows = [row for one in outcomes(entry.evaluations, several_devices) for row in one.rows]
    measured = [(speedup, words) for speedup, words in rows if speedup]
    others = [words for speedup, words in rows if not speedup]
    if entry.model_use:
        others += refused_words(refused_counts([entry.model_use]))
    if others or not measured:
        measured.append(("", "; ".join(others) or NOTHING_TRIED))
    return measured
