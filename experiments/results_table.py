"""Render the tables of a report card's run as Markdown, in the form of CUDA-L1's (arXiv
2507.14111).

The text says what the tables cover and what they leave out. Numbers are the card's own
(report_card/card.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from cudal1_ci.render.wording import count_text, duration_text
from cudal1_ci.report_card.card import ALL
from cudal1_ci.report_card.columns import BEST, OWN
from cudal1_ci.report_card.shape import Policy, RowDocument, RunDocument, Standing, TaskDocument
from cudal1_ci.report_card.table import (
    FILL_RULE,
    POLICY_WORDS,
    bounds,
    cost_text,
    has_one_launch,
    number,
)

HEADS = ("mean", "geo. mean [95 %]", "max", "75 %", "50 %", "25 %", "success", "> 1.01x")
SOURCE_WORDS = {
    "cuda-l1": "reference programs of CUDA-L1's release",
    "kernelbench": "reference programs of KernelBench",
}
MOST_NAMED = 30
"""Of the tasks that are missing."""
LEFT_OUT: dict[Standing, str] = {
    "degenerate": "the output does not depend on the input, so any answer passes, or unrelated "
    "answers would pass",
    "invalid": "the reference cannot be verified here",
}


def opening(run: RunDocument, machine: str, source: str) -> str:
    """Say what was measured, on what, when; first what was not."""
    tasks = of_machine(run, machine)
    date = f"{run.generated_at:%Y-%m-%d}" if run.generated_at else "no date"
    kinds = Counter(SOURCE_WORDS.get(one.source, f"tasks of {one.source}") for one in tasks)
    what = " and ".join(f"{count} {kind}" for kind, count in kinds.items())
    how = ", one repetition each" if has_one_launch(run) else ""
    if run.precision != "strict":
        how += f", precision `{run.precision}`"
    text = f"{what} on {machine}; policy `{run.policy}`{how}, {date}, {source}."
    lacking = sorted({one for device in run.devices for one in device.sandbox_missing})
    if lacking:
        text += f" The sandbox was without {', '.join(lacking)}."
    if len(run.judge) > 1:
        text += f" The verifier had {len(run.judge)} different settings."
    return " ".join(filter(None, (incomplete(tasks), text)))


def incomplete(tasks: Sequence[TaskDocument]) -> str:
    """Say by level that not all tasks were tried, and name them where they are few; empty where all
    were.
    """
    names = [task.name for task in tasks if task.standing == "missing"]
    if not names:
        return ""
    totals = Counter(task.level or "without a level" for task in tasks)
    reached = Counter(t.level or "without a level" for t in tasks if t.standing != "missing")
    by_level = ", ".join(f"{level} {reached[level]} of {totals[level]}" for level in sorted(totals))
    which = f": {', '.join(names)}" if len(names) <= MOST_NAMED else ""
    are = "is" if len(names) == 1 else "are"
    return (
        f"**Incomplete: {count_text(len(names), 'task')} of {len(tasks)} {are} missing, because at "
        f"least one column did not finish{which}.** Finished: {by_level}."
    )


def headline(run: RunDocument, machine: str) -> str:
    """Render the table over all tasks."""
    return f"{over_all(rows_of(run, machine, 'strict'))}\n\n{FILL_RULE}"


def by_the_paper(run: RunDocument, machine: str) -> str:
    """Render the table by CUDA-L1's rules; empty where the run does not count by them."""
    rows = rows_of(run, machine, "cuda-l1")
    if not rows:
        return ""
    text = f"The same verdicts {POLICY_WORDS['cuda-l1']}:\n\n{over_all(rows)}"
    thrown = [f"`{row.solver}` {row.num_thrown_away}" for row in rows if row.num_thrown_away]
    if thrown:
        text += (
            "\n\nTasks of which these rules throw the times away, which count 1.00x: "
            f"{', '.join(thrown)}."
        )
    return text


def over_all(rows: Sequence[RowDocument]) -> str:
    heads = (count_text(rows[0].num_tasks, "task"), *HEADS)
    return markdown([heads, *map(cells, rows)])


def cells(row: RowDocument) -> tuple[str, ...]:
    """Format a row of the table."""
    return (
        solver_text(row.solver),
        number(row.mean.estimate),
        f"{number(row.geometric_mean.estimate)} {bounds(row.geometric_mean)}",
        number(row.max),
        number(row.q75),
        number(row.median.estimate),
        number(row.q25),
        f"{row.num_success}/{row.num_tasks}",
        str(row.num_above),
    )


def levels(run: RunDocument, machine: str) -> str:
    """Format each level in a few numbers; empty where there is one."""
    rows = [row for row in run.card if row.machine == machine and row.policy == "strict"]
    scopes = list(dict.fromkeys(row.scope for row in rows if row.scope != ALL))
    if not scopes:
        return ""
    sizes = {row.scope: row.num_tasks for row in rows}
    table = [["", *(f"{scope} ({count_text(sizes[scope], 'task')})" for scope in scopes)]]
    for solver in run.solvers:
        found = {row.scope: row for row in rows if row.solver == solver}
        table.append([solver_text(solver), *(level_text(found[scope]) for scope in scopes)])
    return f"By level, geometric mean, above 1.01x and right:\n\n{markdown(table)}"


def level_text(row: RowDocument) -> str:
    """Format `1.52, 12, 97`."""
    return f"{number(row.geometric_mean.estimate)}, {row.num_above}, {row.num_success}"


def out_of_it(run: RunDocument, machine: str) -> str:
    """Name all tasks that are in no column; empty where there are none. The opening names those
    that were not tried.
    """
    tasks = of_machine(run, machine)
    found = {key: [t.name for t in tasks if t.standing == key] for key in LEFT_OUT}
    told = [
        f"{LEFT_OUT[key]} ({len(names)}): {', '.join(names)}"
        for key, names in found.items()
        if names
    ]
    if not told:
        return ""
    total = sum(map(len, found.values()))
    head = f"Excluded from every column, {total} of {count_text(len(tasks), 'task')}"
    return f"{head}: {'; '.join(told)}."


def costs(run: RunDocument, machine: str) -> str:
    """Say what a gain cost in each of our columns."""
    rows = [row for row in rows_of(run, machine, "strict") if row.solver in OWN]
    if not rows:
        return ""
    lines = [
        f"- `{row.solver}`: "
        + (cost_text(row) or f"no gain, {duration_text(row.judged_s)} of verification")
        for row in rows
    ]
    return "\n".join(["**Cost of a gain**, failed attempts included:", "", *lines])


def rows_of(run: RunDocument, machine: str, way: Policy) -> list[RowDocument]:
    """Return the rows over all tasks of the machine."""
    return [r for r in run.card if (r.machine, r.scope, r.policy) == (machine, ALL, way)]


def of_machine(run: RunDocument, machine: str) -> list[TaskDocument]:
    return [task for task in run.tasks if task.machine == machine]


def solver_text(solver: str) -> str:
    return f"**`{solver}`**" if solver == BEST else f"`{solver}`"


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Render a Markdown table; the first row is the head, numbers are to the right."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" + "|--:" * (head.count(" | ")) + "|", *body])
