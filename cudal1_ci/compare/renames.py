"""Find what a target of the head was called before, so that another name hides no slowdown.

A target that was moved keeps its name and kind, and is in another file. One that was renamed keeps
its file and kind, and most of its lines. Each is one of a kind: where two could be meant, neither
is. Kernels are left out, since what launches them is measured.

    earlier_of(added, removed, head_root, base_root, before)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from cudal1_ci.records import Target

ALIKE = 0.6
"""Share of lines that two texts have in common, of a target and of what it was before."""
MAX_LINES = 400
"""Of each text; what is longer is compared by its beginning."""


def earlier_of(
    added: Sequence[Target],
    removed: Sequence[Target],
    head_root: Path,
    base_root: Path,
    before: Mapping[str, str],
) -> dict[Target, Target]:
    """Return for targets of the head what they were in the base. `before` has the names of files
    that were renamed.
    """
    found: dict[Target, Target] = {}
    left = [target for target in removed if not target.is_kernel]
    for target in added:
        moved = [old for old in left if _is_named_alike(target, old)]
        others = [one for one in added if moved and _is_named_alike(one, moved[0])]
        if len(moved) == 1 and len(others) == 1:
            found[target] = moved[0]
            left.remove(moved[0])
    for target in added:
        if target in found or target.is_kernel:
            continue
        path, text = before.get(target.path, target.path), _text(head_root, target)
        ranked = sorted(
            (_alike(text, _text(base_root, old)), place)
            for place, old in enumerate(left)
            if old.path == path and old.kind == target.kind
        )
        if ranked and ranked[-1][0] >= ALIKE:
            found[target] = left.pop(ranked[-1][1])
    return found


def _is_named_alike(target: Target, old: Target) -> bool:
    return (target.qualname, target.kind) == (old.qualname, old.kind)


def _text(root: Path, target: Target) -> list[str]:
    """Return the lines of a target, without its own name."""
    try:
        lines = (root / target.path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    own = re.compile(rf"\b{re.escape(target.qualname.rpartition('.')[2])}\b")
    kept = lines[target.first_line - 1 : target.last_line][:MAX_LINES]
    return [own.sub("", line).strip() for line in kept if line.strip()]


def _alike(text: Sequence[str], other: Sequence[str]) -> float:
    return SequenceMatcher(None, text, other, autojunk=False).ratio()
