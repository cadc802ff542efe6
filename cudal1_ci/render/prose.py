"""Parse the markup of our own sentences: lists of lines with a dash, `code` in backticks.

Proposers, hints and notices write so; Markdown and HTML each show it in their own way. Whatever
else the text contains is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A run of text, or of code."""

    text: str
    is_code: bool


@dataclass(frozen=True, kw_only=True)
class Block:
    """A paragraph, or an item of a list."""

    pieces: tuple[Piece, ...]
    is_item: bool


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the non-empty lines of a text as blocks."""
    lines = [line.strip() for line in text.splitlines()]
    return tuple(
        Block(pieces=pieces_of(line.removeprefix("- ")), is_item=line.startswith("- "))
        for line in lines
        if line
    )


def pieces_of(line: str) -> tuple[Piece, ...]:
    """Split a line into text and code in turn; `split` returns its group's matches at odd
    places.
    """
    return tuple(
        Piece(text=text, is_code=i % 2 == 1) for i, text in enumerate(CODE.split(line)) if text
    )
