"""Render a card as text, in the form of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cudal1_ci.render.wording import count_text, duration_text, one_line
from cudal1_ci.report_card.card import ALL, counted, machines
from cudal1_ci.report_card.columns import BEST
from cudal1_ci.report_card.roof import unmoved
from cudal1_ci.report_card.shape import IntervalDocument, RowDocument, RunDocument, TaskDocument

HEADS = (
    "solver",
    "geo. mean",
    "[95 %]",
    "mean",
    "max",
    "75%",
    "50%",
    "25%",
    "success",
    ">1.01x",
    "fast_2",
)
FILL_RULE = (
    "A task on which a column failed or was given nothing counts 1.00x in it and is counted as "
    "failed. Intervals: bootstrap over tasks, 95 %."
)
POLICY_WORDS = {
    "strict": "strict: the estimate over launches of fresh processes",
    "cuda-l1": "counted as CUDA-L1 does: median of seven bucket means, rounded toward 1.00, "
    "jumps measured again",
}
ONE_LAUNCH = "strict: the estimate of one launch, of the process that was examined"
"""Of a run with `trial.num-launches = 1`."""
NAMED = 12
"""Tasks of a kind that are named."""


def render_table(run: RunDocument) -> str:
    """Render the whole card."""
    return "\n".join(_lines(run)) + "\n"


def _lines(run: RunDocument) -> Iterator[str]:
    for machine in machines(run):
        yield machine
        if run.precision != "strict":
            yield f"precision {run.precision}: candidates may be less precise than the reference"
        for way in ("strict", "cuda-l1"):
            rows = [one for one in run.card if one.machine == machine and one.policy == way]
            if rows:
                yield ""
                yield policy_words(run)[way]
            for scope in dict.fromkeys(one.scope for one in rows):
                inside = [one for one in rows if one.scope == scope]
                yield ""
                yield from aligned(
                    [
                        (f"{scope} ({count_text(inside[0].num_tasks, 'task')})", *HEADS[1:]),
                        *map(cells, inside),
                    ]
                )
        yield ""
        yield from _remarks(run, machine, "What a gain cost", cost_text)
        yield from _remarks(run, machine, "Kernels of their own, of those that count", kernels_text)
        yield from _unmoved(run, machine)
        yield from _apart([task for task in run.tasks if task.machine == machine])
        for row in run.card:
            if row.num_thrown_away and (row.machine, row.scope) == (machine, ALL):
                yield (
                    f"{row.solver}: CUDA-L1's rules throw the times of "
                    f"{count_text(row.num_thrown_away, 'task')} away, which count 1.00x"
                )
    yield FILL_RULE
    yield f"{count_text(len(run.tasks), 'task')} in {duration_text(run.elapsed_s)}" + (
        "" if run.ended == "done" else "; incomplete, --resume continues"
    )


def policy_words(run: RunDocument) -> dict[str, str]:
    """Return how each policy counts, as this run was measured."""
    return POLICY_WORDS | ({"strict": ONE_LAUNCH} if has_one_launch(run) else {})


def has_one_launch(run: RunDocument) -> bool:
    """Return whether everything was measured with one repetition."""
    trials = [trial for task in run.tasks for result in task.results for trial in result.trials]
    measured = [one for trial in trials for one in trial.measurements]
    return bool(measured) and all(len(one.repetitions) == 1 for one in measured)


def cells(row: RowDocument) -> tuple[str, ...]:
    """Format a row of the table."""
    return (
        f"  {row.solver}",
        number(row.geometric_mean.estimate),
        bounds(row.geometric_mean),
        number(row.mean.estimate),
        number(row.max),
        number(row.q75),
        number(row.median.estimate),
        number(row.q25),
        f"{row.num_success}/{row.num_tasks}",
        str(row.num_above),
        f"{row.fast_p['2']:.2f}",
    )


def number(value: float) -> str:
    """Format two decimals, or fewer for large numbers."""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def bounds(interval: IntervalDocument) -> str:
    return f"[{number(interval.low)}, {number(interval.high)}]"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align columns to one width, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = zip(row, widths, strict=True)
        yield "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)])


def _remarks(
    run: RunDocument, machine: str, head: str, text_of: Callable[[RowDocument], str]
) -> Iterator[str]:
    """Yield remarks on columns under the strict policy, over all tasks; columns without one are
    left out.
    """
    rows = [r for r in run.card if (r.machine, r.scope, r.policy) == (machine, ALL, "strict")]
    found = [f"  {row.solver}: {text}" for row in rows if (text := text_of(row))]
    if found:
        yield head
        yield from found
        yield ""


def kernels_text(row: RowDocument) -> str:
    """Format `2 of 48 with kernels launch one`; empty where there are none."""
    if not row.num_declaring:
        return ""
    return f"{row.num_launching} of {row.num_declaring} with kernels launch one"


def cost_text(row: RowDocument) -> str:
    """Format `3 gains, each 12 s of verification and 640 tokens`; empty where there are none."""
    if not row.num_gains:
        return ""
    each = duration_text(row.judged_s / row.num_gains)
    text = f"{count_text(row.num_gains, 'gain')}, each {each} of verification"
    if row.completion_tokens:
        text += f" and {count_text(round(row.completion_tokens / row.num_gains), 'token')}"
    return text


def _unmoved(run: RunDocument, machine: str) -> Iterator[str]:
    """Yield tasks where nothing was won, and how much there is to win."""
    found = unmoved(counted(run, machine)) if BEST in run.solvers else []
    if not found:
        return
    bounded = [(task, times) for task, times in found if times is not None]
    head = f"{count_text(len(found), 'task')}: best stays at 1.00x"
    if not bounded:
        yield head
        yield ""
        return
    yield f"{head}; times the least that their bytes and operations take"
    for task, times in bounded[:NAMED]:
        yield f"  {task.name}: {number(times)}"
    if len(bounded) > NAMED:
        yield f"  and {len(bounded) - NAMED} more, nearer to it"
    if len(bounded) < len(found):
        yield f"  of {len(found) - len(bounded)} it is not known"
    yield ""


def _apart(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    """Yield what is in no table, by reason."""
    words = {
        "degenerate": "excluded: wrong answers would pass",
        "invalid": "excluded: the reference cannot be verified",
        "missing": "excluded: not tried in every column",
    }
    for standing, said in words.items():
        found = [task for task in tasks if task.standing == standing]
        if found:
            yield f"{count_text(len(found), 'task')}: {said}"
            for task in found[:NAMED]:
                yield f"  {task.name}: {one_line(task.reason or '')[:160]}"
            if len(found) > NAMED:
                yield f"  and {len(found) - NAMED} more"
            yield ""
