"""A history in a few lines, for a terminal and a log."""

from __future__ import annotations

from cudal1_ci.render.wording import count_text, one_line, ratio_text, time_text
from cudal1_ci.trend.proposals import Told
from cudal1_ci.trend.view import Seen, View

MAX_LINES = 20
"""Of a kind; the page has all of them."""
NUM_SHA = 10


def render_summary(view: View) -> str:
    """Plain text, ending in a newline."""
    lines = [
        "; ".join(
            [
                count_text(len(view.commits.all), "commit"),
                count_text(len(view.targets), "target"),
                " and ".join(map(one_line, view.devices)) or "nothing measured",
                f"{count_text(len(view.standing), 'step')} to slower that nothing has mended",
            ]
        )
    ]
    if view.commits.left_out:
        lines.append(
            f"left out: {count_text(len(view.commits.left_out), 'commit')} beside the line"
        )
    lines += _part("Steps", [step_text(view, seen) for seen in view.steps])
    lines += _part("Proven, not applied", [_missed(one, more) for one, more in view.missed])
    lines += _part("Accepted", [_accepted(view, one) for one in view.accepted])
    return "\n".join(lines) + "\n"


def step_text(view: View, seen: Seen) -> str:
    """`1.12x slower  pkg/model.py:Block  base, NVIDIA H200  at 5f3c2a9d41 (10.0 us -> 11.2 us)`."""
    step, series = seen.step, seen.series
    how = "slower" if step.ratio > 1 else "faster"
    ratio = step.ratio if step.ratio > 1 else 1 / step.ratio
    mended = "" if seen.mended_at is None else f", mended at {_sha(view, seen.mended_at)}"
    return (
        f"{ratio_text(ratio)} {how}  {one_line(series.target)}  {one_line(series.workload)}, "
        f"{one_line(series.machine.name)}  at {_sha(view, step.place)} "
        f"({time_text(step.before_us)} -> {time_text(step.after_us)}){mended}"
    )


def _missed(one: Told, num_others: int) -> str:
    others = f", and {count_text(num_others, 'other')}" if num_others else ""
    return (
        f"{one_line(one.proposal.target)}  {one_line(one.proposal.technique)}: "
        f"{time_text(one.saved_us) if one.saved_us > 0 else 'nothing'} less, "
        f"{count_text(one.age_commits, 'commit')} old{others}"
    )


def _accepted(view: View, one: Told) -> str:
    at = "" if one.settled_at is None else f" at {_sha(view, one.settled_at)}"
    return f"{one_line(one.proposal.target)}  {one_line(one.proposal.technique)}{at}"


def _part(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  ... and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return ["", f"{title} ({len(lines)})", *(f"  {line}" for line in lines[:MAX_LINES]), *more]


def _sha(view: View, place: int) -> str:
    return view.commit(place).sha[:NUM_SHA]
