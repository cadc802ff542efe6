"""What docs/published-kernels.md shows of the rows of published_kernels.py."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cudal1_ci.stats import speedups

ESCAPED = 1.5
"""Events that say so many times more than the clock which waits do not see all of the work."""


def table(document: dict[str, Any]) -> str:
    """The rows as Markdown: the named ones each, the sets in numbers."""
    rows = document["rows"]
    device = (document.get("device") or {}).get("name", "no device")
    runs = document["runs"]
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(run["commit"] for run in runs))
    parts = [
        f"{len(rows)} trials on {device}, {runs[-1]['date'][:10]}, commit {commits}, "
        f"`{runs[0]['command']}`.",
        named_table([row for row in rows if row["group"] not in ("release", "escape")]),
        escape_table([row for row in rows if row["group"] == "escape"]),
        release_table([row for row in rows if row["group"] == "release"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def named_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        "| code | what it does | published | judge | speedup | static rules | as expected |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['group']}: {row['reason']} | {times(row['published'])} | "
        f"{verdict(row)} | {interval(row)} | {', '.join(row['screen']['convictions']) or '–'} "
        f"| {said(row['as_expected'])} |"
        for row in rows
    ]
    return "\n".join(lines)


def escape_table(rows: list[dict[str, Any]]) -> str:
    """Codes with work on side streams: what each of three clocks says of them."""
    if not rows:
        return ""
    clocked = [r for r in rows if (r.get("clocks") or {}).get("event_speedup")]
    escaped = [
        r for r in clocked if r["clocks"]["event_speedup"] > ESCAPED * r["clocks"]["waited_speedup"]
    ]
    counts = Counter(row["status"] for row in rows)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    text = [
        f"**Streams that nothing waits for** (v1, A100): {len(rows)} codes judged: {statuses}. "
        f"{len(clocked)} were also timed by events on the current stream and by a clock that waits "
        f"for the device: in {len(escaped)} the first says more than {ESCAPED} times the second. "
        f"Not as expected: {sum(row['as_expected'] is False for row in rows)}; nothing can be said "
        f"of {sum(row['as_expected'] is None for row in rows)}.",
    ]
    shown = sorted(
        clocked, key=lambda r: -r["clocks"]["event_speedup"] / r["clocks"]["waited_speedup"]
    )[:20]
    if shown:
        text += ["", "| code | events | waiting | judge | speedup |", "|---|---|---|---|---|"]
    for row in shown:
        clocks = row["clocks"]
        text.append(
            f"| {row['name']} | {times(clocks['event_speedup'])} | "
            f"{times(clocks['waited_speedup'])} | {verdict(row)} | {interval(row)} |"
        )
    return "\n".join(text)


def release_table(rows: list[dict[str, Any]]) -> str:
    """The release as a whole: what became of it, and its speedups beside those published."""
    if not rows:
        return ""
    counts = Counter(row["status"] for row in rows)
    both = [row for row in rows if row["speedup"] and row["published"]]
    lines = [f"**{rows[0]['release']}**: {len(rows)} codes of which nothing was stated before.", ""]
    lines += ["| status | codes |", "|---|---|"]
    lines += [f"| `{status}` | {count} |" for status, count in counts.most_common()]
    if both:
        ours = speedups.geometric_mean([row["speedup"] for row in both])
        theirs = speedups.geometric_mean([row["published"] for row in both])
        lines += [
            "",
            f"Of {len(both)} that passed and have a published speedup the geometric mean is "
            f"{ours:.2f}x here, and {theirs:.2f}x as published.",
        ]
    return "\n".join(lines)


def verdict(row: dict[str, Any]) -> str:
    return f"`{row['status']}`" + (f" `{row['rule']}`" if row["rule"] else "")


def times(speedup: float | None) -> str:
    return "–" if speedup is None else f"{speedup:.2f}x"


def interval(row: dict[str, Any]) -> str:
    if row["speedup"] is None:
        return "–"
    if row["speedup_low"] is None:
        return f"{row['speedup']:.2f}x (one launch)"
    return f"{row['speedup']:.2f}x [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"


def said(is_expected: bool | None) -> str:
    return {True: "yes", False: "**no**", None: "–"}[is_expected]
