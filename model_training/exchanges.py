"""What a variant exchanges, in words: the statements of `forward` that are others, and by which.

    quoted(reference, code, analysis, design)    # both parts, with the statements in them

An answer that first names what it is about to replace, and then by what, says before its code all
that is new in it. Without that the examples' reasons ("The formula is a kernel for each of its
operators.") fit any program, and what was learned from them was to make up a program to a reason
(docs/training.md, the sixth run). Text only: nothing is run here.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

from cudal1_ci.records import Record

MOST = 3
"""Exchanges that are told: the parts of an answer are short."""
LONGEST = 18
"""Words of a quotation; what is longer ends with dots, where a statement ends if it can."""
INSTEAD, ADDED, LEFT_OUT = "` in place of `", "` is added.", "` is left out."
OTHERS_STAY = "All other statements stay."


class Exchange(Record, frozen=True, kw_only=True):
    """Statements of a reference and those that stand in their place; either may be none."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def told(self) -> str:
        if not self.before:
            return f"`{quotation(self.after)}{ADDED}"
        if not self.after:
            return f"`{quotation(self.before)}{LEFT_OUT}"
        return f"`{quotation(self.after)}{INSTEAD}{quotation(self.before)}`."


def quoted(reference: str, code: str, analysis: str, design: str) -> tuple[str, str]:
    """Analysis and design with what is exchanged before the design's reasons; as they are where
    that cannot be told, or is told already."""
    found = exchanges(reference, code)
    if found is None or any(mark in design for mark in (INSTEAD, ADDED, LEFT_OUT)):
        return analysis, design
    changed, others_stay = found
    spots = [f"`{quotation(one.before)}`" for one in changed[:MOST] if one.before]
    where = f"The work to save is in {', '.join(spots)}." if spots else ""
    told = [one.told for one in changed[:MOST]]
    stay = OTHERS_STAY if others_stay and len(changed) <= MOST else ""
    return (
        " ".join(filter(None, (where, analysis))),
        " ".join(filter(None, (*told, stay, design))),
    )


def exchanges(reference: str, code: str) -> tuple[list[Exchange], bool] | None:
    """In the order of the statements, and whether there are others than these; None where one of
    the two has no `forward`, or both have the same."""
    before, after = statements(reference), statements(code)
    if before is None or after is None or before == after:
        return None
    blocks = difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()
    changed = [
        Exchange(before=tuple(before[a:b]), after=tuple(after[c:d]))
        for kind, a, b, c, d in blocks
        if kind != "equal"
    ]
    is_return = [one.startswith("return ") for one in after]
    others = any(
        not all(is_return[c:d]) for kind, _, _, c, d in blocks if kind == "equal" and c < d
    )
    return changed, others


def statements(source: str) -> list[str] | None:
    """Those of the last `forward`, as Python would write them; None without one."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    methods = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    return [ast.unparse(node) for node in methods[-1].body] if methods else None


def quotation(lines: Sequence[str]) -> str:
    """In a line: of a block its head, and of many statements the first."""
    heads = [one if "\n" not in one else f"{one.splitlines()[0]} ..." for one in lines]
    first, *more = heads
    words = first.split(" ")
    kept = [first if len(words) <= LONGEST else " ".join([*words[:LONGEST], "..."])]
    for one in more:
        if len("; ".join([*kept, one]).split(" ")) > LONGEST:
            return "; ".join([*kept, "..."])
        kept.append(one)
    return "; ".join(kept)
