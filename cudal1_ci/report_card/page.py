"""Render a card as one HTML file without requests, under the policy of the report's page
(render/html.py). Every number links to the candidate, its verdict and its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cudal1_ci.propose.llm.measured import size
from cudal1_ci.render.html import asset, inline, integrity, page_environment, prose
from cudal1_ci.render.plots import paired_times
from cudal1_ci.render.wording import (
    ENDED_WORDS,
    NOT_MEASURED,
    STATUS_WORDS,
    count_text,
    devices_text,
    interval_text,
    ratio_text,
)
from cudal1_ci.report_card.card import ALL, counted, machines, row_of, scopes
from cudal1_ci.report_card.columns import BEST, COLUMNS
from cudal1_ci.report_card.plots import Drawn, RoofPoint, curves, roofline, strips
from cudal1_ci.report_card.roof import distance
from cudal1_ci.report_card.shape import (
    Policy,
    ResultDocument,
    RowDocument,
    RunDocument,
    TaskDocument,
    TrialDocument,
)
from cudal1_ci.report_card.table import (
    FILL_RULE,
    bounds,
    cost_text,
    kernels_text,
    number,
    policy_words,
)
from cudal1_ci.report_card.worth import Worth, worth

SHOWN_P = ("1", "2", "5")
WAYS: tuple[Policy, ...] = ("strict", "cuda-l1")
STANDINGS = {
    "degenerate": "Excluded: wrong answers would pass",
    "invalid": "Excluded: the reference cannot be verified here",
    "missing": "Excluded: not tried in every column",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A column on a task."""

    solver: str
    worth: Worth
    strict: str
    """With its interval."""
    place: str
    """Where its trials are on the page."""
    failed: str
    """Why it counts 1.00; empty where it does not."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A task of the table."""

    place: str
    task: TaskDocument
    cells: tuple[Cell, ...]
    distance: float | None
    """How many times as long as its bound a call of `best` takes, or of the reference."""


@dataclass(frozen=True, kw_only=True)
class MachineView:
    """Hold one machine's tables and drawings."""

    name: str
    tables: tuple[tuple[str, tuple[tuple[Policy, tuple[RowDocument, ...]], ...]], ...]
    """By scope, by the way of counting."""
    curves: Markup
    strips: Markup
    roof: Markup
    rows: tuple[Row, ...]
    has_bounds: bool
    """Whether it is known of a task what the device takes for it at the least."""
    apart: tuple[tuple[str, tuple[TaskDocument, ...]], ...]
    best: RowDocument | None


MAX_BYTES = 1_500_000
"""Of a page; a larger one is slow to open and to send."""
DETAILS = (
    "",
    "Times are drawn of the candidates that count in best.",
    "Times and code are shown of the candidates that count in best.",
    "Of candidates that do not count in best, a line is shown.",
    "A line is shown of each candidate.",
)
"""What a page leaves out, the least first; the JSON has it all."""


def render_page(run: RunDocument) -> str:
    """Render the whole page, with as much detail as fits."""
    for detail in range(len(DETAILS)):
        text = _rendered(run, detail)
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def _rendered(run: RunDocument, detail: int) -> str:
    script = asset("report.js")
    environment = page_environment()
    environment.filters.update(
        inline=inline, prose=prose, ratio=ratio_text, number=number, bounds=bounds, bytes=size
    )
    views = [machine_view(run, name, place) for place, name in enumerate(machines(run))]
    return environment.get_template("bench.html.j2").render(
        run=run,
        views=views,
        portability=portability(run),
        colors={
            solver: color(solver)
            for solver in (
                *COLUMNS,
                *run.solvers,
                *(r.solver for t in run.tasks for r in t.results),
            )
        },
        devices=devices_text(run.devices),
        shown_code=shown_code,
        subject=subject(run),
        detail=detail,
        left_out=DETAILS[detail],
        is_best=is_best,
        has_best=lambda row, result: any(is_best(row, result, one) for one in result.trials),
        paired_times=paired_times,
        cost_text=cost_text,
        kernels_text=kernels_text,
        is_counted=is_counted,
        status_words=STATUS_WORDS,
        policy_words=policy_words(run),
        standings=STANDINGS,
        fill_rule=FILL_RULE,
        shown_p=SHOWN_P,
        ended=ENDED_WORDS.get(run.ended),
        style=Markup(asset("report.css") + asset("bench.css")),
        script=Markup(script),
        script_hash=integrity(script),
    )


def machine_view(run: RunDocument, machine: str, place: int) -> MachineView:
    rows = [row for row in run.card if row.machine == machine]
    tasks = counted(run, machine)
    drawn = [drawing(tasks, solver) for solver in run.solvers] if tasks else []
    apart = [task for task in run.tasks if task.machine == machine]
    return MachineView(
        name=machine,
        tables=tuple(
            (scope, tuple((way, found) for way in WAYS if (found := of_scope(rows, scope, way))))
            for scope, _ in scopes(run, machine)
        ),
        curves=curves(drawn) if drawn else Markup(),
        strips=strips(drawn) if drawn else Markup(),
        roof=roofline(roof_points(tasks, BEST if BEST in run.solvers else "eager")),
        rows=tuple(row_view(run, task, f"m{place}t{turn}") for turn, task in enumerate(tasks)),
        has_bounds=any(task.least_us for task in tasks),
        apart=tuple(
            (standing, left_out)
            for standing in STANDINGS
            if (left_out := tuple(task for task in apart if task.standing == standing))
        ),
        best=next(iter(r for r in of_scope(rows, ALL, "strict") if r.solver == BEST), None),
    )


def of_scope(rows: Sequence[RowDocument], scope: str, way: Policy) -> tuple[RowDocument, ...]:
    return tuple(row for row in rows if row.scope == scope and row.policy == way)


def color(solver: str) -> int:
    return COLUMNS.index(solver) if solver in COLUMNS else len(COLUMNS)


def drawing(tasks: Sequence[TaskDocument], solver: str) -> Drawn:
    """Draw a column over the tasks of a table."""
    found = [(task.name, worth(task, solver)) for task in tasks]
    row = row_of(solver, ALL, "", "strict", tasks)
    return Drawn(
        solver=solver,
        number=color(solver),
        speedups=tuple((name, one.speedup, one.is_success) for name, one in found),
        quartiles=(row.q25, row.median.estimate, row.q75),
    )


def roof_points(tasks: Sequence[TaskDocument], solver: str) -> list[RoofPoint]:
    """Return where the tasks with a known bound are, before and after."""
    found = []
    for task in tasks:
        demand, now = task.demand, distance(task, worth(task, solver))
        if demand is None or not demand.num_bytes or now is None:
            continue
        flops = demand.product_flops + demand.convolution_flops
        point = RoofPoint(
            task=task.name,
            intensity=flops / demand.num_bytes,
            before=1 / (now * worth(task, solver).speedup),
            after=1 / now,
        )
        found.append(point)
    return found


def row_view(run: RunDocument, task: TaskDocument, place: str) -> Row:
    cells = []
    for solver in run.solvers:
        found = worth(task, solver)
        where = found.solver if solver == BEST else solver
        cells.append(
            Cell(
                solver=solver,
                worth=found,
                strict=worth_text(found),
                place=place if where == "reference" else f"{place}-{where}",
                failed=failed_because(task, solver, found),
            )
        )
    solver = BEST if BEST in run.solvers else "eager"
    far = distance(task, worth(task, solver))
    return Row(place=place, task=task, cells=tuple(cells), distance=far)


def worth_text(found: Worth) -> str:
    if found.low is None or found.high is None:
        return ratio_text(found.speedup) if found.is_success else NOT_MEASURED
    return interval_text(found.speedup, found.low, found.high)


def failed_because(task: TaskDocument, solver: str, found: Worth) -> str:
    """Return why a column failed on a task, in a few words."""
    if found.is_success:
        return ""
    result = next((one for one in task.results if one.solver == solver), None)
    if result is None or not result.trials:
        return "the verifier failed" if result is not None and result.failure else "nothing given"
    return STATUS_WORDS[result.trials[0].status]


def is_counted(row: Row, result: ResultDocument, trial: TrialDocument) -> bool:
    """Return whether a trial is the candidate that counts in its column."""
    return any(
        cell.solver == result.solver
        and cell.worth.trial is not None
        and cell.worth.trial.candidate.id == trial.candidate.id
        for cell in row.cells
    )


def is_best(row: Row | None, result: ResultDocument, trial: TrialDocument) -> bool:
    """Return whether a trial is the candidate that counts in `best`."""
    return row is not None and any(
        cell.solver == BEST
        and cell.worth.solver == result.solver
        and cell.worth.trial is not None
        and cell.worth.trial.candidate.id == trial.candidate.id
        for cell in row.cells
    )


def subject(run: RunDocument) -> str:
    """Format `cuda-l1: 250 tasks of level1, level2, level3`, what the card is of."""
    sources = dict.fromkeys(task.source for task in run.tasks)
    levels = sorted({task.level for task in run.tasks if task.level})
    tasks = count_text(len({task.name for task in run.tasks}), "task")
    said = f"{tasks} of {', '.join(levels)}" if levels else tasks
    return f"{', '.join(sources)}: {said}" if sources else said


def shown_code(task: TaskDocument, trial: TrialDocument) -> tuple[str, str]:
    """Return a heading and the code: only what a wrapper adds to the reference."""
    if trial.code == task.reference:
        return "The reference itself.", ""
    if trial.code.startswith(task.reference.rstrip()):
        return "The reference, and below it:", trial.code[len(task.reference.rstrip()) :].strip()
    return "", trial.code


def portability(run: RunDocument) -> list[tuple[str, list[RowDocument]]]:
    """Return each column's row on every machine, over tasks in the tables of all machines. Empty
    where there is one machine or no such task.
    """
    names = machines(run)
    by_machine = {name: {t.problem_id: t for t in counted(run, name)} for name in names}
    common = set.intersection(*map(set, by_machine.values())) if len(names) > 1 else set()
    if not common:
        return []
    return [
        (
            solver,
            [
                row_of(
                    solver, ALL, name, "strict", [by_machine[name][key] for key in sorted(common)]
                )
                for name in names
            ],
        )
        for solver in run.solvers
    ]
