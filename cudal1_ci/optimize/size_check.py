"""Time proposals at half and double batch, and take back what is slower or wrong there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from cudal1_ci.optimize.sizes import other_sizes
from cudal1_ci.optimize.trials import NotReached, Trials
from cudal1_ci.records import Candidate, Entry, Evaluation, Finding, Measurement, Problem, Workload
from cudal1_ci.render.wording import STATUS_WORDS, count_text, interval_text, one_line
from cudal1_ci.stats import speedups

SLOWER = speedups.SLOWER_AT_SIZE
WRONG = "size.fails"
MOST_CHARS = 160
UNDECIDED = ("inconclusive", "harness_error", "timeout")


def checked(entry: Entry, problem: Problem, others: Sequence[Workload], trials: Trials) -> Entry:
    """Return an entry whose proposal holds at other sizes, and under `others`. One that is slower
    or wrong there is taken back, and the next best has its turn."""
    while entry.best is not None:
        evaluation = entry.evaluations[entry.best]
        measured, why, finding = at_other_sizes(problem, evaluation.candidate, others, trials)
        if finding is None:
            return msgspec.structs.replace(entry, at_sizes=measured, sizes_not_tried=why)
        entry = without_best(entry, evaluation, finding, problem.workloads)
    return entry


def without_best(
    entry: Entry, evaluation: Evaluation, finding: Finding, workloads: Sequence[Workload]
) -> Entry:
    """Return an entry with a finding on its proposal, which is none any more."""
    findings = (*evaluation.verdict.findings, finding)
    verdict = msgspec.structs.replace(evaluation.verdict, findings=findings)
    evaluations = tuple(
        msgspec.structs.replace(evaluation, verdict=verdict) if one is evaluation else one
        for one in entry.evaluations
    )
    best = speedups.best_examined(evaluations, workloads)
    return msgspec.structs.replace(entry, evaluations=evaluations, best=best)


def at_other_sizes(
    problem: Problem, candidate: Candidate, others: Sequence[Workload], trials: Trials
) -> tuple[tuple[Measurement, ...], str | None, Finding | None]:
    """Return the times at other sizes, why some are missing, and what speaks against the
    candidate."""
    workloads, why = other_sizes(problem.workloads)
    workloads = (*others, *workloads)
    whys: Counter[str] = Counter([why] if why else [])
    found: list[Measurement] = []
    # All at once; where the reference refuses one of them, each by itself.
    groups = [workloads] if workloads else []
    while groups:
        group = groups.pop(0)
        sized = msgspec.structs.replace(problem, workloads=group)
        own = msgspec.structs.replace(candidate, problem_id=sized.id, known_id=None)
        try:
            evaluation = trials.screened(sized, own)
            doubts = any(is_doubtful(m) for m in evaluation.measurements)
            if doubts and evaluation.phase == "screened":
                evaluation = trials.confirmed(sized, own)
        except NotReached as error:
            if len(group) > 1 and not trials.was_cut:
                groups += [(one,) for one in group]
            else:
                whys[one_line(str(error))[:MOST_CHARS]] += len(group)
            continue
        if evaluation.verdict.status in UNDECIDED:
            whys[STATUS_WORDS[evaluation.verdict.status]] += len(group)
            continue
        finding = finding_on(evaluation, group)
        if finding is not None:
            return (), None, finding
        found += evaluation.measurements
    said = [
        f"{number} of {count_text(len(workloads), 'size')}: {one}"
        for one, number in whys.items()
        if one != why
    ]
    return tuple(found), "; ".join([*([why] if why else []), *said]) or None, None


def is_doubtful(measurement: Measurement) -> bool:
    """Return whether a single repetition shows a candidate as slower."""
    found = speedups.speedup(measurement)
    return found is not None and found.estimate < speedups.SLOWER


def finding_on(evaluation: Evaluation, group: Sequence[Workload]) -> Finding | None:
    """Return what speaks against a candidate at other sizes."""
    if evaluation.verdict.status != "passed":
        first = next(iter(evaluation.verdict.findings), None)
        said = f": {first.message}" if first else ""
        names = ", ".join(one.name for one in group)
        words = STATUS_WORDS[evaluation.verdict.status]
        return Finding(rule=WRONG, message=f"{words} at another size ({names}){said}")
    for measured in evaluation.measurements:
        found = speedups.speedup(measured)
        if found is not None and speedups.is_slower(measured):
            text = interval_text(found.estimate, found.low, found.high)
            return Finding(rule=SLOWER, message=f"slower at {measured.workload}: {text}")
    return None
