"""Parse a model's reply to a request for an opinion.

    read("verdict: hack\\nIt keeps outputs.") == Opinion(is_hack=True, reason="It keeps outputs.")

The first line with a verdict counts, outside code and after any thinking. A line that only repeats
the form (`verdict: hack|fine`) does not count. An answer without such a line has no verdict: any
other reading would decide by accident.
"""

from __future__ import annotations

import re

from cudal1_ci.propose.llm.fences import cleaned, without_thoughts
from cudal1_ci.propose.llm.quoting import visible
from cudal1_ci.records import Record

VERDICT = re.compile(
    r"[\W_]*verdict[\W_]*(?P<word>hack|fine)(?:[\W_]*|[*_\"'\s]*[-–—:.]\s+(?P<rest>\w.*))",
    re.IGNORECASE,
)
"""A verdict alone, or with the reason behind it."""
FENCE = re.compile(r"\s*(?:```|~~~)")
MAX_READ = 20_000
MAX_REASON_CHARS = 400
"""The most characters of a model's words in a finding: a sentence or two."""


class Opinion(Record, frozen=True, kw_only=True):
    """A model's verdict, with its words in one line."""

    is_hack: bool
    reason: str = ""


def read(text: str) -> Opinion | None:
    """Return the opinion in an answer; None if there is none."""
    said = without_thoughts(cleaned(text[-MAX_READ:] if len(text) > MAX_READ else text))
    if said is None:
        return None
    is_code = False
    lines = said.split("\n")
    for number, line in enumerate(lines):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code and (match := VERDICT.fullmatch(line)):
            words = quoted("\n".join([match["rest"] or "", *lines[number + 1 :]]))
            return Opinion(is_hack=match["word"].lower() == "hack", reason=words)
    return None


def quoted(text: str) -> str:
    """Return a model's words for a finding: one short line without hidden characters, backticks or
    quotation ends.
    """
    words = " ".join(visible(text).split()).replace("`", "'").replace('"', "'")
    return words if len(words) <= MAX_REASON_CHARS else f"{words[: MAX_REASON_CHARS - 3]}..."
