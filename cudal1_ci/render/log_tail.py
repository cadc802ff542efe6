"""Show the end of what a program printed or raised, where it concerns the user's own code."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUM_LINES = 5
FRAME = re.compile(r'  File "(?P<path>[^"]+)", line \d+')
HEAD = "Traceback (most recent call last):"
NOT_THEIRS = re.compile(r"cudal1_ci/sandboxed/[\w/]+\.py$|^<frozen ")
"""What called the user's code, or imported it."""


def log_tail(log: str) -> list[str]:
    """Return the last lines, without frames of the runner and without lines that lost
    their frame.
    """
    blocks = [block for block in _blocks(log.rstrip().splitlines()) if not _is_ours(block)]
    tail: list[str] = []
    for block in reversed(blocks):
        if tail and len(tail) + len(block) > NUM_LINES:
            break
        tail = [*block, *tail]
    return tail if len(tail) <= NUM_LINES else tail[-NUM_LINES:]


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Return blocks: a traceback frame with its source and marks, or a line outside of any
    frame.
    """
    blocks: list[list[str]] = []
    for line in lines:
        if blocks and FRAME.match(blocks[-1][0]) and line.startswith("    "):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


def _is_ours(block: Sequence[str]) -> bool:
    """Return whether a block is a traceback's head or a frame of our own code."""
    if block[0] == HEAD:
        return True
    frame = FRAME.match(block[0])
    return frame is not None and NOT_THEIRS.search(frame["path"]) is not None
