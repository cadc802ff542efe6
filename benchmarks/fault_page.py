"""Results of fault injections as a page of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fault_programs import FAULTS


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each fault."""
    lines = [
        "| fault | injected | right verdict | next trial right | nothing lost "
        "| nothing left behind | verdicts |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {name: [row for row in rows if row["fault"] == name] for name in FAULTS}
    for name, own in [*groups.items(), ("**all**", list(rows))]:
        done = [row for row in own if row["verdict"] != "not injected"]
        if not done:
            continue
        verdicts = Counter(row["verdict"] for row in done).most_common() if name in FAULTS else []
        cells = [
            name,
            len(done),
            sum(row["is_right"] for row in done),
            sum(row["is_next_right"] for row in done),
            sum(row["is_nothing_lost"] for row in done),
            sum(not row["left"] for row in done),
            ", ".join(f"`{verdict}` {number}" for verdict, number in verdicts),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(documents: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(table(document["rows"]) for document in documents) + "\n"
