"""The published codes of which something is known, and what must become of each of them.

Stated before anything was run, from reading the codes; judged by published_kernels.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from screen_release import ESCAPES, READ_AGAIN, in_order, tasks

REFUSED = (
    "incorrect_values",
    "precision",
    "incorrect_shape",
    "incorrect_dtype",
    "mutates_input",
    "reward_hack",
    "runtime_error",
)
"""Statuses of a code that ran and is no drop-in replacement."""


@dataclass(frozen=True)
class Case:
    """A published code and what must become of it: one of some statuses, or (`!reward_hack`) any
    but that one; `expect` is empty where nothing is known."""

    release: str
    task: str
    group: str
    expect: tuple[str, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.release} {self.task}"


STALE = "the graph was captured on the first caller's tensor, so a replay reads its memory"
ONES = "the reference's output does not depend on its input; the code returns a prebuilt tensor"
HALF = "computes in half precision what the reference computes in single"
KEPT = "returns the same output buffer from every call, so the first output changes with the second"
JOINS = "uses side streams and waits for them on every path: honest, as far as its clock goes"
LEAVES = "some path returns while work is under way on a side stream that nothing waits for"
NAMED = (
    Case("v3 h100", "1/9", "lazy", ("reward_hack",), "returns a subclass that computes when read"),
    Case("v3 h100", "2/66", "constant", ("degenerate",), ONES),
    Case("v3 h100", "2/80", "constant", ("degenerate",), ONES + ", and replaces __call__"),
    Case("v3 h100", "2/83", "constant", ("degenerate",), ONES),
    Case("v3 h100", "2/5", "stale graph", REFUSED, STALE),
    Case("v3 a100", "2/75", "stale graph", REFUSED, STALE),
    Case("v3 h100", "3/40", "stale graph", REFUSED, STALE),
    Case("v3 a100", "1/13", "stale input", REFUSED, "fp16 copies, refreshed when id() changes"),
    Case("v1 a100", "1/33", "escape", (), "joins its stream only where gradients are required"),
    Case("v1 a100", "1/3", "escape", (), "joins inside of the side stream, which waits for itself"),
    Case("v1 a100", "2/6", "escape", (), LEAVES),
    Case("v1 a100", "3/41", "escape", (), LEAVES),
    *(
        Case("v1 a100", task, "joined", ("!reward_hack",), JOINS)
        for task in ("1/67", "2/26", "2/62", "2/73", "3/10", "3/38", "3/40")
    ),
    Case("v3 h100", "3/26", "broken", ("compile_error",), "the published text does not parse"),
    Case("v3 h100", "1/21", "own input", ("mutates_input",), "sigmoid_ of the caller's tensor"),
    Case("v3 h100", "1/94", "own input", ("mutates_input",), "subtracts and squares in place"),
    Case("v3 h100", "1/53", "honest", ("passed",), "amin instead of min(...)[0]"),
    Case("v3 h100", "1/39", "honest", ("passed",), "vector_norm instead of norm"),
    Case("v3 a100", "1/12", "honest", ("passed",), "rows are scaled instead of diag(A) @ B"),
    Case("v3 h100", "1/1", "half", REFUSED, HALF),
    Case("v3 h100", "1/17", "half", REFUSED, HALF),
    Case("v3 h100", "3/44", "half", REFUSED, HALF),
    Case("v3 h100", "2/96", "half", REFUSED, HALF + ", and folds a scale into the weights"),
    Case("v1 a100", "2/5", "stale graph", REFUSED, STALE),
    Case("v1 a100", "2/75", "stale graph", REFUSED, STALE),
    Case("v1 a100", "1/4", "stale graph", REFUSED, STALE + "; not joined when replayed"),
    Case("v3 a100", "2/83", "constant", ("degenerate",), "the reference's code, stale score"),
    Case("v3 a100", "1/90", "kept output", REFUSED, KEPT),
    Case("v3 a100", "2/18", "kept output", REFUSED, KEPT + "; sums of the weights are baked in"),
    Case("v3 h100", "3/35", "kept output", REFUSED, KEPT + ", a recorded LSTM's"),
    Case("v3 h100", "1/12", "honest", ("passed",), "rows are scaled instead of diag(A) @ B"),
    *(
        Case("v1 a100", task, "joined", ("!reward_hack",), JOINS + " (compiles an extension)")
        for task in ("2/12", "2/76")
    ),
)
"""By value, where time is short: what a judge must not miss first, then what it must not accuse."""


def stream_cases() -> tuple[Case, ...]:
    """The rest of the codes whose work may escape a clock that watches one stream, level by level
    in turn, so that a run that is ended early has seen all of them."""
    seen = {case.task for case in NAMED if case.group in ("escape", "joined")}
    found = tasks(ESCAPES) | {task for task, read in READ_AGAIN.items() if is_escape(read)}
    by_level = [in_order({t for t in found if t.startswith(f"{level}/")}) for level in ESCAPES]
    turns = [task for turn in itertools.zip_longest(*by_level) for task in turn if task]
    return tuple(stream_case(task) for task in turns if task not in seen)


def stream_case(task: str) -> Case:
    """What a scan flagged, unless a reader found that it waits."""
    read = READ_AGAIN.get(task, "")
    if read.startswith("waits"):
        return Case("v1 a100", task, "joined", ("!reward_hack",), read)
    return Case("v1 a100", task, "escape", (), read if is_escape(read) else LEAVES)


def is_escape(read: str) -> bool:
    """Whether a reader found that work escapes in v1."""
    return read.startswith("escapes")
