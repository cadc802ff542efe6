"""Split a model's text into prose and code blocks, whatever its fences are.

This module knows Markdown as models write it: backticks, tildes and similar characters, indented
fences, fences inside docstrings, a missing last fence. It does not know what a block is for.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

MOST_BLOCKS = 64
MOST_FENCES = 1_000
MOST_CLOSINGS = 6
"""The most lines tried as the end of one block: a docstring holds few fences of its own."""
MOST_READ = 500_000
"""The most characters parsed to find the ends of blocks; a second of work."""

_THOUGHT_ENDS = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_STARTS = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
# Zero-width characters and byte order marks may be anywhere and mean nothing.
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u3000"), " ")
_CONTROL = {
    code: None
    for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000))
    if code not in {9, 10}
}
# Characters that a keyboard or a renderer writes for a backtick or a tilde.
_LIKE_BACKTICKS = re.compile(
    r"^([ \t>]*)([\uff40\u02cb\u00b4\u2018\u2019\u201b]{3,})", re.MULTILINE
)
_LIKE_TILDES = re.compile(r"^([ \t>]*)([\uff5e\u02dc\u223c]{3,})", re.MULTILINE)
_FENCE = re.compile(r"^(?P<indent>[ \t>]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")


@dataclass(frozen=True)
class Block:
    """Code between two fences, or from the last fence to the end of the text."""

    tag: str
    """The word behind the opening fence, in lower case."""
    code: str
    first_line: int
    """Line of the opening fence, from 0."""
    last_line: int
    is_closed: bool


def cleaned(text: str) -> str:
    """Return text with plain line ends, normal backticks, and no control or invisible
    characters.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate(_INVISIBLE | _SPACES | _CONTROL)
    text = _LIKE_BACKTICKS.sub(lambda match: match[1] + "`" * len(match[2]), text)
    return _LIKE_TILDES.sub(lambda match: match[1] + "~" * len(match[2]), text)


def without_thoughts(text: str) -> str | None:
    """Return the text after a model's thinking; None if the thinking never ends."""
    last = None
    for match in _THOUGHT_ENDS.finditer(text):
        last = match
    if last is not None:
        return text[last.end() :]
    return None if _THOUGHT_STARTS.match(text) else text


def blocks_in(text: str, is_whole: Callable[[str], bool]) -> list[Block]:
    """Return the code blocks of a cleaned text, in order. A block with fences inside ends at the
    first fence where its code `is_whole`.
    """
    lines = text.split("\n")
    fences = [(i, match) for i, line in enumerate(lines) if (match := _FENCE.match(line))]
    del fences[MOST_FENCES:]
    num_read = 0
    found: list[Block] = []
    position = 0
    while position < len(fences) and len(found) < MOST_BLOCKS:
        start, opening = fences[position]
        closings = [
            (at, line)
            for at, (line, match) in enumerate(fences[position + 1 :], position + 1)
            if closes(match, opening)
        ][:MOST_CLOSINGS]
        tag = (opening["info"].split() or [""])[0].strip("{}.,:").lower()
        if not closings:
            found.append(Block(tag, block_code(lines[start + 1 :]), start, len(lines), False))
            break
        at, end = closings[0]
        for later, line in closings if len(closings) > 1 else ():
            code = block_code(lines[start + 1 : line])
            num_read += len(code)
            if num_read > MOST_READ:
                break
            if is_whole(code):
                at, end = later, line
                break
        found.append(Block(tag, block_code(lines[start + 1 : end]), start, end, True))
        position = at + 1
    return found


def closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return fence["mark"].startswith(opening["mark"]) and not fence["info"].strip()


def block_code(lines: list[str]) -> str:
    """Return a block's lines without their common indentation or quote marks."""
    if lines and all(line.startswith(">") or not line.strip() for line in lines):
        lines = [line[1:].removeprefix(" ") for line in lines]
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def printable(text: str) -> str:
    """Return a line of a model for a message: short, without control characters."""
    plain = "".join(c for c in text if unicodedata.category(c)[0] != "C")
    return plain if len(plain) <= 160 else f"{plain[:157]}..."
