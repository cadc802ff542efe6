"""Whether a proposal is in the code: the lines of its patch, wherever they are in their file now.

    before, after = blocks_of(patch)         at the commit at which it was proven
    fate_of(before, after, text_of)          at a later one: accepted, open or outdated

Of each change of a patch the lines that it removes and the lines that it adds, both with the line
above and the line below, are kept as a hash: enough to recognize them, and no code of the project
in the history. Blank lines and spaces at the end of a line do not count. Accepted is a proposal of
which all new blocks are there and none of the old ones; open one of which all old ones are there;
outdated any other. So code that was accepted in other words (renamed, formatted otherwise) counts
as outdated: we do not claim what we cannot see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from cudal1_ci.render.hunks import FileDiff, Hunk, files_of
from cudal1_ci.trend.record import Block, FateWord

TextOf = Callable[[str], str | None]
"""The text of a file of a commit; None where there is none."""


def blocks_of(patch: str) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """What a patch removes and what it adds. Raises: ReportError, when it is no patch."""
    before: list[Block] = []
    after: list[Block] = []
    for file in files_of(patch):
        for old, new in _changes(file):
            if old == new:
                continue
            before += [_block(file.path, old)] if old else []
            after += [_block(file.path, new)] if new else []
    return tuple(before), tuple(after)


def fate_of(before: Sequence[Block], after: Sequence[Block], text_of: TextOf) -> FateWord | None:
    """What became of it in some tree; None for a patch whose lines cannot be recognized."""
    if not after:
        return None
    old_there = [_is_in(text_of(block.path) or "", block) for block in before]
    new_there = [_is_in(text_of(block.path) or "", block) for block in after]
    if all(new_there) and not any(old_there):
        return "accepted"
    return "open" if all(old_there) and not all(new_there) else "outdated"


def _changes(file: FileDiff) -> Iterator[tuple[list[str], list[str]]]:
    """Old and new lines of each change, with their neighbors."""
    for hunk in file.hunks:
        yield from _changes_of(hunk)


def _changes_of(hunk: Hunk) -> Iterator[tuple[list[str], list[str]]]:
    lines = [(line.mark, line.text.rstrip()) for line in hunk.lines if line.text.strip()]
    number = 0
    while number < len(lines):
        if lines[number][0] == " ":
            number += 1
            continue
        end = number
        while end < len(lines) and lines[end][0] != " ":
            end += 1
        above = [text for _, text in lines[max(0, number - 1) : number]]
        below = [text for _, text in lines[end : end + 1]]
        changed = lines[number:end]
        old = [text for mark, text in changed if mark == "-"]
        new = [text for mark, text in changed if mark == "+"]
        yield [*above, *old, *below], [*above, *new, *below]
        number = end


def _block(path: str, lines: Sequence[str]) -> Block:
    return Block(path=path, num_lines=len(lines), digest=_digest(lines))


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@lru_cache(maxsize=64)
def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


@lru_cache(maxsize=4096)
def _is_in(text: str, block: Block) -> bool:
    """Remembered, as most files are the same from commit to commit."""
    lines = _lines(text)
    starts = range(len(lines) - block.num_lines + 1)
    return any(_digest(lines[i : i + block.num_lines]) == block.digest for i in starts)
