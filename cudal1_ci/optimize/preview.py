"""Say what a scan would try, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.discover.plan import Plan, how
from cudal1_ci.propose import RecordingStrategy, Strategy

LATER = "recorded rewrites are looked for when it runs"


def preview(plan: Plan, strategies: Sequence[Strategy], n: int) -> list[str]:
    """Return a line for every target: what would be tried, or why nothing would be."""
    lines = []
    for one in plan.targets:
        name = f"{one.target.path}:{one.target.first_line} {one.target.qualname}"
        if one.problem is None:
            lines.append(f"skip  {name}: {one.reason}")
            continue
        calls = ", ".join(f"{w.name} ({how(w)})" for w in one.problem.workloads)
        candidates = [c for s in strategies for c in s.propose(one.problem, (), n)]
        nothing = "a model, where one is given" if one.target.is_kernel else "no rewrite matches"
        tried = ", ".join(c.proposer for c in candidates) or nothing
        if not one.target.is_kernel and any(isinstance(s, RecordingStrategy) for s in strategies):
            tried += f"; {LATER}"
        lines.append(f"judge {name} on {calls}: {tried}")
    return lines
