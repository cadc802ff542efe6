"""Evaluations of runs as rows of the table, and how far each is from the one before.

    rows = rows_of(runs)
    for row in rows: row.label, row.table, row.differences

A row is a policy: its samples of several seeds are one set, so that the interval over tasks has the
noise of sampling in it. An evaluation that is in several runs counts once. All rows have the same
k, the smallest of the evaluations. Stages come in the order of the pipeline, then the ablations.

A stage is compared with the row of the stage before, an ablation with the row of the stage that it
is an ablation of, the last; and a stage that several runs have, such as one with exemplars and one
without, with that of the run that was named first. Tasks are drawn in pairs, since the same task is
about as hard for both policies: the interval of the difference is narrower than those of the two
rows say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Record, content_hash
from model_training.report.run_folder import STAGES, Greedy, PolicyEvaluation, Run, place_of
from model_training.table import MEASURES, Numbers, Sample, Share, Table, by_task, interval, table


class Difference(Record, frozen=True, kw_only=True):
    """A row less another."""

    against: str
    """Label of the other."""
    num_paired: int
    """Tasks that both have."""
    columns: Mapping[str, Share]
    """By the name of the column, with its interval."""


class Row(Record, frozen=True, kw_only=True):
    """A policy of the table."""

    label: str
    name: str
    """Of the evaluation: a stage, or an ablation."""
    run: str
    policy: str
    temperature: float
    seeds: tuple[int, ...]
    samples: tuple[Sample, ...]
    table: Table
    differences: tuple[Difference, ...] = ()
    """To the rows that it is compared with."""


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """All rows; none where nothing was evaluated.

    Raises:
        ReportError: A task of an evaluation has fewer samples than its k.
    """
    groups: dict[tuple[str, ...], list[tuple[Run, PolicyEvaluation]]] = defaultdict(list)
    seen: list[PolicyEvaluation] = []
    for run in runs:
        for one in run.evaluations:
            members = groups[one.name, one.policy, str(one.temperature), owner(run, one)]
            if one not in seen and all(one.seed != other.seed for _, other in members):
                members.append((run, one))
                seen.append(one)
    groups = {key: members for key, members in groups.items() if members}
    if not groups:
        return []
    k = min(one.k for members in groups.values() for _, one in members)
    names = [key[0] for key in groups]
    found = [
        row_of(members, k, is_alone=names.count(key[0]) == 1) for key, members in groups.items()
    ]
    found.sort(key=lambda row: place_of(row.name))
    return [compared(row, found[:place]) for place, row in enumerate(found)]


def owner(run: Run, evaluation: PolicyEvaluation) -> str:
    """Whose policy it is: weights before training are those of all runs that began with them and
    with the same adapter, and two runs may give one name to different checkpoints."""
    hashes = [found for one in run.environments if (found := one.get("weights_sha256"))]
    if evaluation.name != STAGES[0] or not hashes:
        return run.name
    settings = run.config.get("config", {}).get("model", {})
    return content_hash([hashes[-1], settings.get("adapter")])


def greedy_rows_of(runs: Sequence[Run]) -> list[Row]:
    """The same of the likeliest answers, one to each task: rows of their own, as theirs is another
    k."""
    found = []
    for run in runs:
        evaluations = [greedy(one, one.greedy) for one in run.evaluations if one.greedy is not None]
        found.append(msgspec.structs.replace(run, evaluations=tuple(evaluations)))
    return rows_of(found)


def greedy(one: PolicyEvaluation, answers: Greedy) -> PolicyEvaluation:
    """As an evaluation with one answer to a task."""
    return msgspec.structs.replace(one, k=1, temperature=0.0, samples=answers.samples, greedy=None)


def row_of(members: Sequence[tuple[Run, PolicyEvaluation]], k: int, *, is_alone: bool) -> Row:
    """Of all seeds of a policy."""
    run, first = members[0]
    samples = tuple(sample for _, one in members for sample in one.samples)
    try:
        counted = table(samples, k)
    except ValueError as error:
        raise ReportError(f"{run.folder}, evaluation {first.name}: {error}") from error
    return Row(
        label=first.name if is_alone else f"{first.name} ({run.name})",
        name=first.name,
        run=run.name,
        policy=first.policy,
        temperature=first.temperature,
        seeds=tuple(one.seed for _, one in members),
        samples=samples,
        table=counted,
    )


def compared(row: Row, earlier: Sequence[Row]) -> Row:
    """With its differences to the rows that it is compared with."""
    found = []
    for other in others(row, earlier):
        pairs = paired(other.samples, row.samples)
        columns = differences(pairs, row.table.k)
        if columns:
            found.append(Difference(against=other.label, num_paired=len(pairs), columns=columns))
    return msgspec.structs.replace(row, differences=tuple(found))


def others(row: Row, earlier: Sequence[Row]) -> list[Row]:
    """The last stage before it, of its own run where that has one; and the first row of its own
    stage."""
    before = [one for one in earlier if one.name in STAGES and one.name != row.name]
    last = [one for one in before if one.name == before[-1].name]
    own = [one for one in last if one.run == row.run]
    same = [one for one in earlier if one.name == row.name]
    return [*(own or last)[:1], *same[:1]]


def paired(
    before: Sequence[Sample], after: Sequence[Sample]
) -> list[tuple[Sequence[Sample], Sequence[Sample]]]:
    """The samples of each task that both have."""
    one, other = by_task(before), by_task(after)
    return [(one[task], other[task]) for task in sorted(one.keys() & other.keys())]


def differences(
    pairs: Sequence[tuple[Sequence[Sample], Sequence[Sample]]], k: int, seed: int = 0
) -> dict[str, Share]:
    """By column: after less before, over tasks that are drawn together."""
    if not pairs:
        return {}
    rng = np.random.default_rng(seed)
    return {measure: gained(pairs, k, measure, rng) for measure in MEASURES}


def gained(
    pairs: Sequence[tuple[Sequence[Sample], Sequence[Sample]]],
    k: int,
    measure: str,
    rng: np.random.Generator,
) -> Share:
    """Of one column."""
    of, how = MEASURES[measure]

    def gain(values_2XN: Numbers) -> Numbers:
        return how(values_2XN[1]) - how(values_2XN[0])

    both = [[of(k, samples) for samples in side] for side in zip(*pairs, strict=True)]
    return interval(np.array(both), gain, rng)


def is_better(difference: Share) -> bool:
    """Beyond its interval."""
    return difference.low > 0


def is_worse(difference: Share) -> bool:
    return difference.high < 0


def sampled(statuses: Mapping[str, int]) -> str:
    """`passed 12, no_code 3`."""
    return ", ".join(f"{status} {count}" for status, count in statuses.items())
