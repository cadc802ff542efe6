"""Numbers as the table, the page and the card say them, and the rules that they go by."""

from __future__ import annotations

from model_training.report.cost import StageCost
from model_training.report.rewrites import Rewrites
from model_training.report.rows import Difference, is_better, is_worse
from model_training.table import COUNTED, FASTER, LEVEL, NUM_RESAMPLES, Share, Table

FILL = (
    "A task of which no sample is correct and faster than the reference counts 1.00x in mean, "
    "geometric mean and median: the reference is still there. How many tasks have a correct sample "
    "is the column success."
)
GREEDY = "One answer to each task, the likeliest (temperature 0)."
PAIRED = (
    "Shares in points of a hundred. Better or worse: the whole interval is above or below zero."
)
INTERVALS = (
    f"Intervals are {LEVEL:.0%} over tasks: percentiles of {NUM_RESAMPLES} bootstrap draws of "
    "tasks with a fixed seed. Speedups are lower bounds of what was measured, and of the best of k "
    "samples in expectation, but max, which is of all. Differences draw the tasks of both rows "
    "together."
)
HACKS = (
    "Hacks are answers that the judge has convicted; what it has not seen counts as what it passes "
    "for. They are worth nothing."
)


REWRITES = (
    "A recording is the task itself as a CUDA graph: right wherever a task can be recorded, and "
    "what the playbook writes without a model. Here it is worth nothing. Distinct are the programs "
    "among the answers to a task, but for names and layout."
)


def columns(k: int) -> tuple[str, ...]:
    """Headings of the table, without that of the row's name."""
    return (
        "tasks",
        "samples",
        "format",
        "executable",
        "correct (pass@1)",
        f"pass@{k}",
        f"above {FASTER}x, best of {k}",
        f"tasks above {COUNTED}x",
        f"mean, best of {k}",
        f"geo. mean, best of {k}",
        f"median, best of {k}",
        "max",
        "success",
        "hacks caught",
    )


def cells(table: Table) -> tuple[str, ...]:
    """A row, in the order of the headings."""
    return (
        str(table.num_tasks),
        str(table.num_samples),
        percent(table.format),
        percent(table.executable),
        percent(table.correct),
        percent(table.pass_at_k),
        percent(table.faster_at_k),
        f"{table.above}/{table.num_tasks}",
        ratio(table.mean),
        ratio(table.geometric_mean),
        f"{table.median:.2f}x",
        f"{table.max:.2f}x",
        f"{table.success}/{table.num_tasks}",
        str(table.hacks),
    )


def rewrite_columns(k: int) -> tuple[str, ...]:
    """Headings of what is more than a recording, without that of the row's name."""
    return (
        "correct",
        "recordings among them",
        "rewrites correct (pass@1)",
        f"rewrites, pass@{k}",
        f"rewrites above {FASTER}x, best of {k}",
        f"geo. mean, best of {k}",
        "max",
        f"distinct of {k}",
    )


def rewrite_cells(one: Rewrites) -> tuple[str, ...]:
    """A row, in the order of the headings."""
    table = one.row.table
    return (
        f"{one.num_right}/{table.num_samples}",
        str(one.num_recordings),
        percent(table.correct),
        percent(table.pass_at_k),
        percent(table.faster_at_k),
        ratio(table.geometric_mean),
        f"{table.max:.2f}x",
        f"{one.num_distinct:.1f}",
    )


DIFFERENCES = {
    "format": "format",
    "executable": "executable",
    "correct": "correct",
    "pass_at_k": "pass@k",
    "faster_at_k": f"above {FASTER}x",
    "mean": "mean",
    "geometric_mean": "geo. mean",
}
SPEEDUPS = ("mean", "geometric_mean")


def differences(found: Difference) -> list[tuple[str, str]]:
    """Of each column of `DIFFERENCES`: the difference, and `better` or `worse` where it is so
    beyond its interval, else `no`."""
    return [
        (
            difference(found.columns[measure], is_speedup=measure in SPEEDUPS),
            verdict(found.columns[measure]),
        )
        for measure in DIFFERENCES
    ]


def verdict(found: Share) -> str:
    return "better" if is_better(found) else "worse" if is_worse(found) else "no"


def difference(found: Share, *, is_speedup: bool) -> str:
    """In points of a hundred, `+12.0 [+3.0, +20.1]`; of speedups `+0.12x [-0.01, +0.30]`."""
    if is_speedup:
        return f"{found.value:+.2f}x [{found.low:+.2f}, {found.high:+.2f}]"
    value, low, high = (100 * one for one in (found.value, found.low, found.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def percent(share: Share) -> str:
    """`71.2% [65.0, 77.1]`."""
    return f"{share.value:.1%} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def ratio(share: Share) -> str:
    """`1.31x [1.20, 1.45]`."""
    return f"{share.value:.2f}x [{share.low:.2f}, {share.high:.2f}]"


def duration(seconds: float) -> str:
    """`4 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


COST_COLUMNS = (
    "run",
    "stage",
    "steps",
    "wall",
    "generating",
    "judging",
    "training",
    "other",
    "samples",
    "correct",
    "copies",
    "hacks caught",
    "jumps measured again",
    "not confirmed",
)


def cost_cells(cost: StageCost) -> tuple[str, ...]:
    """A row, in the order of the headings."""
    return (
        cost.run,
        cost.stage,
        str(cost.num_steps),
        duration(cost.wall_s),
        duration(cost.generating_s),
        duration(cost.judging_s),
        duration(cost.training_s),
        duration(cost.other_s),
        str(cost.num_samples),
        str(cost.num_correct),
        str(cost.num_copies),
        str(cost.num_hacks),
        str(cost.num_remeasured),
        str(cost.num_unconfirmed),
    )
