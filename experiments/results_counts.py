"""Count facts of a report card's run that the tables of results_page.py do not have.

    python experiments/results_counts.py assets/results/report-card-h100.json.gz

By what gains are made, what stays at 1.00x, how long timed batches were and how far they deviate,
and what became of the published kernels and of each rewrite alone.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from cudal1_ci.propose.wrappers.strategy import launches_its_own
from cudal1_ci.records import Measurement
from cudal1_ci.report_card.card import counted, machines
from cudal1_ci.report_card.columns import BEST, OWN, PUBLISHED
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.shape import TaskDocument, TrialDocument
from cudal1_ci.report_card.summary import ABOVE
from cudal1_ci.report_card.worth import gains as gains_of
from cudal1_ci.report_card.worth import worth
from cudal1_ci.stats.speedups import MANY, REPETITION_SPREAD, geometric_mean, t_quantile

AS_LAID_OUT = "compile-as-laid-out"
SHORT_US = 50.0
SHORT_BATCH_US = 3000.0
LARGE_BYTES = 2**28
"""Of inputs, parameters, buffers and outputs together."""
LONG_US = 1000.0
TIE = 1.02
CUT = 0.6
FEWEST_TIMES = 3
"""Of a task, for which there is a usual one."""
NUM_DRAWS = 200


def tasks_in(file: Path) -> list[TaskDocument]:
    """Return the first machine's tasks that are in its tables. Raises ReportError."""
    run = read_run(file)
    return counted(run, machines(run)[0])


def trials_of(task: TaskDocument, solver: str) -> Iterator[TrialDocument]:
    return (t for result in task.results if result.solver == solver for t in result.trials)


def eager_of(task: TaskDocument) -> Measurement | None:
    """Return the reference's measurement against itself; None where it was not timed."""
    return next((t.measurements[0] for t in trials_of(task, "eager") if t.measurements), None)


def gains(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    found = [worth(task, BEST) for task in tasks]
    by = Counter(one.trial.candidate.proposer for one in found if one.trial is not None)
    yield f"gains: {sum(by.values())}"
    yield from (f"  {count:3} {proposer}" for proposer, count in by.most_common())
    stay = [task for task, one in zip(tasks, found, strict=True) if one.speedup <= ABOVE]
    yield f"at 1.00x: {len(stay)} {dict(Counter(task.level for task in stay))}"
    yield f"  {', '.join(task.name for task in stay if task.level != 'level1')} outside of level1"
    short = [
        one.speedup
        for task, one in zip(tasks, found, strict=True)
        if task.level == "level1"
        and (eager := eager_of(task)) is not None
        and (eager.reference_us or math.inf) < SHORT_US
    ]
    if short:
        yield f"level1 below {SHORT_US:.0f} us: {len(short)}, {geometric_mean(short):.2f}x"


def noise(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    eager = [one for task in tasks if (one := eager_of(task)) is not None]
    logs = [math.log(one.speedup) for one in eager if one.speedup is not None]
    spread = statistics.pstdev(logs)
    lowest, highest = (math.exp(one) for one in (min(logs), max(logs)))
    yield f"`eager`: {lowest:.2f}x to {highest:.2f}x on {len(logs)} tasks"
    yield f"log of `eager`: standard deviation {spread:.3f}"
    yield f"selection bias of `best`: {luck(tasks, spread):.1%}"
    held = [(one.speedup_low or 0.0) <= 1.0 <= (one.speedup_high or math.inf) for one in eager]
    alone = math.exp(t_quantile(MANY) * REPETITION_SPREAD["cuda"])
    by_spread = sum(1 / alone <= math.exp(one) <= alone for one in logs)
    yield f"intervals of `eager` that hold 1: {sum(held)} of {len(held)},"
    yield f"  {by_spread} with the known spread of repetitions alone"
    spread = [one.control_spread for one in eager if one.control_spread is not None]
    yield f"control deviates by {statistics.median(spread):.3f} in the median"
    batches_us = [one.repetitions[0].num_calls * (one.reference_us or math.nan) for one in eager]
    short = sum(us < SHORT_BATCH_US for us in batches_us)
    yield f"batches: {short} of {len(eager)} below {SHORT_BATCH_US / 1000:.0f} ms"
    yield cut(tasks)
    yield from compiling(tasks)


def large(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    """Yield facts of the tasks with large tensors, where there are some."""
    found = [one for one in tasks if one.demand and one.demand.num_bytes > LARGE_BYTES]
    eager = [one for task in found if (one := eager_of(task)) is not None and one.speedup]
    if not eager:
        return
    best = [worth(task, BEST).speedup for task in found]
    kept = sum(speedup <= ABOVE for speedup in best)
    yield (
        f"tensors of more than {LARGE_BYTES >> 20} MiB: {len(found)} tasks, `best` "
        f"{geometric_mean(best):.2f}x, {kept} at 1.00x"
    )
    ratios = [one.speedup or 1.0 for one in eager]
    yield f"  `eager` {min(ratios):.2f}x to {max(ratios):.2f}x"
    short = [one.speedup or 1.0 for one in eager if (one.reference_us or math.inf) < LONG_US]
    if short:
        yield f"  of calls below {LONG_US:.0f} us: {len(short)}, {geometric_mean(short):.2f}x"


def cut(tasks: Sequence[TaskDocument]) -> str:
    """Count repetitions whose exchange correction was too large. The comparison is with the same
    reference's time next to the other candidates of its task.
    """
    number = num_cut = 0
    for task in tasks:
        measured = (m for one in task.results for t in one.trials for m in t.measurements)
        times_us = [one.reference_us for one in measured if one.reference_us is not None]
        if len(times_us) >= FEWEST_TIMES:
            usual_us = statistics.median(times_us)
            number += len(times_us)
            num_cut += sum(us < CUT * usual_us for us in times_us)
    return f"repetitions with a reference below {CUT} times its usual time: {num_cut} of {number}"


def luck(tasks: Sequence[TaskDocument], spread: float) -> float:
    """Estimate how much of `best`'s geometric mean is selection luck. The measured values are taken
    as true, and noise of that spread is added. The luck is the mean excess of the chosen
    candidate's measurement over its true value.
    """
    rng = random.Random(0)
    found = [[math.log(one.speedup) for one in gains_of(task, OWN, "strict")] for task in tasks]
    logs = []
    for truths in found:
        for _ in range(NUM_DRAWS if truths else 0):
            noise = [rng.gauss(0.0, spread) for _ in truths]
            logs.append(max(zip(map(sum, zip(truths, noise, strict=True)), noise, strict=True))[1])
    return math.expm1(sum(logs) / NUM_DRAWS / len(tasks))


def compiling(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    """Yield what the compile column gets wrong, and whether it is right with the same layout of
    convolutions.
    """
    found = {task.name: next(trials_of(task, "compile"), None) for task in tasks}
    yield f"compile: {dict(Counter(t.status for t in found.values() if t is not None))}"
    wrong = [
        task
        for task in tasks
        if (trial := found[task.name]) is not None
        and trial.status in ("precision", "incorrect_values")
    ]
    convolve = sum(task.demand is not None and task.demand.convolution_flops > 0 for task in wrong)
    laid_out = [
        any(t.status == "passed" for t in some)
        for task in wrong
        if (some := [t for t in trials_of(task, BEST) if AS_LAID_OUT in t.candidate.proposer])
    ]
    yield f"  {len(wrong)} not right, {convolve} of these with convolutions;"
    yield f"  with the layout kept {sum(laid_out)} of {len(laid_out)} are right"


def published(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    trials = [trial for task in tasks for trial in trials_of(task, PUBLISHED)]
    yield f"published: {len(trials)} {dict(Counter(trial.status for trial in trials))}"
    rules = Counter(t.findings[0].rule for t in trials if t.status != "passed" and t.findings)
    yield f"  refused by {dict(rules.most_common())}"
    for declares in (False, True):
        pairs = []
        for task in tasks:
            theirs = worth(task, PUBLISHED)
            if theirs.trial is not None and bool(theirs.trial.kernels) == declares:
                pairs.append((worth(task, BEST).speedup, theirs.speedup))
        if not pairs:
            continue
        ours, given = (geometric_mean(some) for some in zip(*pairs, strict=True))
        ahead = sum(one > TIE * other for one, other in pairs)
        behind = sum(one * TIE < other for one, other in pairs)
        kernels = "with" if declares else "without"
        yield f"  {len(pairs)} right {kernels} kernels: {given:.2f}x, ours {ours:.2f}x,"
        yield f"  ahead on {ahead}, behind on {behind}"
    unlaunched = [
        trial.measurements[0].speedup or math.nan
        for task in tasks
        for trial in trials_of(task, "playbook")
        if trial.status == "passed" and launches_its_own(trial.kernels) is False
    ]
    if unlaunched:
        told = f"{len(unlaunched)}, {geometric_mean(unlaunched):.2f}x"
        yield f"playbook, with kernels and none of them launched: {told}"


def rewrites(tasks: Sequence[TaskDocument]) -> Iterator[str]:
    """Yield clearly faster rewrites by name; the others of a rewrite are counted together."""
    tried: dict[str, list[tuple[str, TrialDocument]]] = {}
    for task in tasks:
        for trial in trials_of(task, "playbook"):
            tried.setdefault(trial.candidate.proposer, []).append((task.name, trial))
    for proposer, trials in sorted(tried.items()):
        right = [(name, t.measurements[0]) for name, t in trials if t.status == "passed"]
        yield f"{proposer}: {len(right)} of {len(trials)} right"
        others = []
        for name, one in right:
            speedup = one.speedup or math.nan
            if (one.speedup_low or 0.0) > TIE:
                yield f"  {name} {speedup:.2f}x [{one.speedup_low:.2f}, {one.speedup_high:.2f}]"
            else:
                others.append(speedup)
        if others:
            told = f"{geometric_mean(others):.2f}x, from {min(others):.2f}x"
            yield f"  {len(others)} others {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    tasks = tasks_in(parser.parse_args().run)
    for line in (*gains(tasks), *noise(tasks), *large(tasks), *published(tasks), *rewrites(tasks)):
        print(line)


if __name__ == "__main__":
    main()
