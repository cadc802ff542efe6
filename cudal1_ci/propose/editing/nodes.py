"""Walk a syntax tree of libcst, which never changes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import libcst as cst


@functools.lru_cache(maxsize=2**15)
def children_of(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """Return what is directly in a node. Many rules ask, and libcst builds it again each time."""
    return tuple(node.children)


def in_order(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all below it, in text order."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(children_of(one))
