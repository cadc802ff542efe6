"""Extract the prose of an answer: analysis and design, under headings of any style.

Headings have the forms that models write (`## 1. Performance Analysis:`, bold, numbered, bare).
Without headings, all text before the code is the analysis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudal1_ci.propose.llm.fences import Block

LONGEST_PART = 2_000
"""The most characters of an analysis or a design: people read a paragraph or two."""

_HEADING = re.compile(
    r"^\s*(?P<mark>#{1,6}\s*)?(?P<bold>\*\*|__)?(?:(?:step|part|section)\s+)?"
    r"(?:\(?(?P<number>\d{1,2})[.):]\s*)?(?:\*\*|__)?"
    r"(?P<words>(?:performance\s+)?analysis|algorithm(?:ic)?\s+design|design"
    r"|(?:optimi[sz]ed\s+)?code(?:\s+implementation)?|implementation|final\s+code)"
    r"(?P<end>\s*:?\s*(?:\*\*|__)?\s*:?)(?P<rest>.*)$",
    re.IGNORECASE,
)


def prose_of(text: str, blocks: list[Block]) -> list[str]:
    """Return the lines of a text, with the lines of its blocks empty."""
    lines = text.split("\n")
    for block in blocks:
        for line in range(block.first_line, min(block.last_line + 1, len(lines))):
            lines[line] = ""
    return lines


def parts(lines: Sequence[str], code_line: int) -> tuple[str, str]:
    """Return analysis and design by their headings; without headings, all before the code is the
    analysis.
    """
    found: dict[str, list[str]] = {"analysis": [], "design": [], "code": []}
    current: str | None = None
    for line in lines:
        heading = heading_of(line)
        if heading is not None:
            current, rest = heading
            found[current].append(rest)
        elif current is not None:
            found[current].append(line)
    if not any("".join(found[part]).strip() for part in ("analysis", "design")):
        before = [line for line in lines[:code_line] if heading_of(line) is None]
        return capped("\n".join(before)), ""
    return capped("\n".join(found["analysis"])), capped("\n".join(found["design"]))


def heading_of(line: str) -> tuple[str, str] | None:
    """Return which part a line opens, and the text of that part on the same line."""
    if len(line) > 10 * LONGEST_PART:
        return None
    match = _HEADING.match(line)
    if match is None:
        return None
    is_marked = bool(match["mark"] or match["bold"])
    if not is_marked and match["rest"].strip() and ":" not in match["end"]:
        return None  # a sentence that begins with the word
    if is_marked and match["rest"].strip() and not match["end"].strip():
        # "## Code of the fused kernel" is a heading of its own, without further text.
        rest = ""
    else:
        rest = match["rest"].strip().removesuffix("**").strip()
    words = match["words"].lower()
    part = "analysis" if "analysis" in words else "design" if "design" in words else "code"
    return part, rest


def capped(text: str) -> str:
    """Return a part cut at a whole word, without runs of empty lines."""
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if len(text) <= LONGEST_PART:
        return text
    head = text[: LONGEST_PART - 1]
    at = max(head.rfind(" "), head.rfind("\n"))
    return (head[:at] if at > 0 else head).rstrip() + "…"
