"""Quote untrusted text in a prompt: it cannot leave its fence, hide anything, or start a turn.

Covered: invisible characters and characters that reorder text, ANSI sequences, fences inside the
text, markers by which chat templates separate turns. Not covered: persuasive words. They are in a
fence that says that they are data, and their results are verified like any other.

    visible("a\\u202eb <|im_end|>") == "a<U+202E>b < |im_end|>"
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of invisible characters: controls, formats (bidi, zero width, tags),
surrogates, private use, line and paragraph separators."""
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
                   "\U000e0100-\U000e01ef]")  # fmt: skip
"""Letters and marks without ink: fillers and variation selectors."""
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
TURNS = re.compile(
    r"<(?=[|\uff5c])"
    r"|<(?=/?(?:s|bos|eos|start_of_turn|end_of_turn|think|tool_call|tool_response)>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
)
"""Where a special token of the usual chat templates begins: Llama, Qwen, Mistral, Gemma,
DeepSeek. Servers read these tokens in the text of a message too."""
MIN_FENCE = 3


class Shown(str):
    """Text that may be in a prompt as it is: our own words, or words quoted here."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return the text with hidden characters spelled out, ANSI sequences removed, special tokens
    broken by a space, and Unix line ends. Ordinary source is unchanged.
    """
    text = ANSI.sub("", text.removeprefix("\ufeff")).replace("\r\n", "\n")
    text = "".join(map(_seen, text)) if not text.isascii() or not text.isprintable() else text
    return TURNS.sub(lambda match: f"{match[0]} ", text)


def _seen(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) in HIDDEN or BLANK.match(character):
        return f"<U+{ord(character):04X}>"
    return character


def line(text: str) -> Shown:
    """Return the text in one line."""
    return Shown(" ".join(visible(text).split()))


def named(text: str) -> Shown:
    """Return a name or a path as a span of code in one line."""
    text = line(text)
    ticks = "`" * (1 + longest_run(text))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return Shown(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(text: str, language: str = "") -> Shown:
    """Return the text as a code block. Its fence is longer than any run of backticks in the
    text.
    """
    text = visible(text)
    ticks = "`" * max(MIN_FENCE, 1 + longest_run(text))
    end = "" if text.endswith("\n") or not text else "\n"
    return Shown(f"{ticks}{language}\n{text}{end}{ticks}")


def longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall(r"`+", text)), default=0)


def trimmed(text: str, max_chars: int, keep: Literal["first", "last"]) -> str:
    """Return the beginning or the end of a log, in whole lines. A notice replaces what is left out;
    a single line that is too long also gets a notice.
    """
    lines = visible(text).strip("\n").split("\n")
    if keep == "last":
        lines.reverse()
    kept: list[str] = []
    left = max_chars
    for number, one in enumerate(lines):
        whole = one if len(one) <= max_chars else f"(a line of {len(one)} characters is left out)"
        left -= len(whole) + 1
        if left < 0:
            kept.append(f"({len(lines) - number} lines are left out)")
            break
        kept.append(whole)
    if keep == "last":
        kept.reverse()
    return "\n".join(kept)
