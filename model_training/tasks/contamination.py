"""Refuse a run in which a task for training is one for evaluation.

    refuse_contamination(training, evaluation)     # raises, naming both tasks and what is the same

The paper trains and evaluates on the same 250 tasks (arXiv 2507.14111); here that is the split
`paper`, by that name alone (splits.py), and is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from model_training.tasks.fingerprint import LIKE, Fingerprints, fingerprints, jaccard
from model_training.tasks.record import Task

MAX_NAMED = 5


class Hit(Record, frozen=True, kw_only=True):
    """Name a task for training that is one for evaluation."""

    training: str
    evaluation: str
    reason: str


def hits(training: Sequence[Task], evaluation: Sequence[Task]) -> list[Hit]:
    """Return all hits, each task for training at most once."""
    kept = [(one, fingerprints(one.text)) for one in evaluation]
    forms: dict[str, Task] = {known.form: one for one, known in kept}
    operators: dict[str, Task] = {known.operators: one for one, known in kept}
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (_, known) in enumerate(kept):
        for place, value in enumerate(known.shingles):
            places[place, value].append(number)
    found = []
    for task in training:
        own = fingerprints(task.text)
        hit = same(own, forms, operators) or alike(own, kept, places)
        if hit is not None:
            other, reason = hit
            found.append(Hit(training=task.name, evaluation=other.name, reason=reason))
    return found


def same(
    own: Fingerprints, forms: dict[str, Task], operators: dict[str, Task]
) -> tuple[Task, str] | None:
    if own.form in forms:
        return forms[own.form], "the same program under other names or with other numbers"
    if own.operators in operators:
        return operators[own.operators], "the same operators in the same order"
    return None


def alike(
    own: Fingerprints,
    kept: Sequence[tuple[Task, Fingerprints]],
    places: dict[tuple[int, int], list[int]],
) -> tuple[Task, str] | None:
    """Compare runs of tokens, of those that share one hash at least."""
    near = {number for place in enumerate(own.shingles) for number in places.get(place, ())}
    for number in sorted(near):
        other, known = kept[number]
        index = jaccard(own, known)
        if index >= LIKE:
            return other, f"{index:.0%} of their runs of 13 tokens are the same"
    return None


def refuse_contamination(training: Sequence[Task], evaluation: Sequence[Task]) -> None:
    """Refuse tasks for training that are tasks for evaluation.

    Raises: ConfigError.
    """
    found = hits(training, evaluation)
    if not found:
        return
    named = "; ".join(f"{h.training} is {h.evaluation}: {h.reason}" for h in found[:MAX_NAMED])
    more = f"; and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    raise ConfigError(
        f"expected no task for training among those for evaluation, got {len(found)} of "
        f"{len(training)}: {named}{more}. Hold out their family, or name the split `paper`"
    )
