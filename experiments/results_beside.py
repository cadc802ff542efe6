"""Compare the best of our columns with the reference, the published kernels and the device.

Strict counting is used, over tasks that are in the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ci.propose.wrappers.strategy import launches_its_own
from cudal1_ci.render.wording import count_text, ratio_text
from cudal1_ci.report_card.columns import BEST, OWN, PUBLISHED
from cudal1_ci.report_card.roof import unmoved
from cudal1_ci.report_card.shape import TaskDocument
from cudal1_ci.report_card.summary import ABOVE
from cudal1_ci.report_card.table import number
from cudal1_ci.report_card.worth import Worth, own_worth, worth

LEVEL = 1.02
"""Within this factor two speedups are called level: what the verifier calls a gain is beyond it."""
NEAR = 1.2
"""Times the bound of the device, within which there is little left to win."""
NUM_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A task on which the published kernels are right."""

    name: str
    ours: Worth
    theirs: Worth

    @property
    def ratio(self) -> float:
        return self.ours.speedup / self.theirs.speedup

    @property
    def is_certain(self) -> bool:
        """Return whether the intervals do not overlap. A kept reference counts as 1.00, without a
        measurement.
        """
        ours, theirs = (
            (one.speedup if one.low is None else one.low, one.high or one.speedup)
            for one in (self.ours, self.theirs)
        )
        return ours[0] > theirs[1] or ours[1] < theirs[0]


def beside(tasks: Sequence[TaskDocument], solvers: Sequence[str]) -> str:
    """Return the whole comparison; empty for a run without a column of ours."""
    if not set(solvers) & set(OWN):
        return ""
    parts = [beside_reference(tasks)]
    if PUBLISHED in solvers:
        parts.append(beside_published(tasks))
    if roof := beside_roof(tasks):
        parts.append(roof)
    return "\n\n".join(parts)


def beside_reference(tasks: Sequence[TaskDocument]) -> str:
    """Say how many tasks are won, and by which column."""
    above, level, failed = standings(tasks)
    winners = Counter(worth(task, BEST).solver for task in above)
    by = ", ".join(f"`{name}` {count}" for name, count in winners.most_common())
    return (
        "**Against the reference**: of "
        f"{count_text(len(tasks), 'task')} the best of our columns is "
        f"above {ABOVE}x on {len(above)}{f' ({by})' if by else ''} and at 1.00x on "
        f"{len(level)}. "
        f"On {len(failed)} we had no right candidate, which counts 1.00x too."
    )


def standings(
    tasks: Sequence[TaskDocument],
) -> tuple[list[TaskDocument], list[TaskDocument], list[TaskDocument]]:
    """Return tasks above 1.01x, tasks that stay at 1 though one of our candidates was right, and
    tasks without a right candidate.
    """
    above = [task for task in tasks if worth(task, BEST).speedup > ABOVE]
    rest = [task for task in tasks if task not in above]
    return above, [t for t in rest if is_answered(t)], [t for t in rest if not is_answered(t)]


def is_answered(task: TaskDocument) -> bool:
    """Return whether any column of ours has a right candidate."""
    return any(own_worth(task, name, "strict").is_success for name in OWN)


def beside_published(tasks: Sequence[TaskDocument]) -> str:
    """Say which side is ahead where the published kernels are right, and what of the
    other tasks.
    """
    given = [(task, worth(task, PUBLISHED)) for task in tasks]
    pairs = [
        Pair(name=task.name, ours=worth(task, BEST), theirs=theirs)
        for task, theirs in given
        if theirs.is_success
    ]
    ahead, level, behind = compared(pairs)
    slower = sum(pair.theirs.speedup < 1 for pair in ahead)
    text = (
        "**Against the published kernels**, of "
        f"{count_text(len(pairs), 'task')} on which these are right: the best of our columns is "
        f"ahead by more than 2 % on {certainty(ahead)}, within 2 % on {len(level)} and behind by "
        f"more than 2 % on {certainty(behind)}."
    )
    trials = [pair.theirs.trial for pair in pairs if pair.theirs.trial is not None]
    runs = [launches_its_own(one.kernels) for one in trials]
    if num_declaring := len(runs) - runs.count(None):
        told = f"{num_declaring} of them bring kernels of their own"
        text += f" {told}; {runs.count(True)} launch one."
    if slower:
        text += f" Of those that are behind ours {slower} are slower than the reference."
    if behind:
        named = [
            f"{one.name} ({ratio_text(one.ours.speedup)} to {ratio_text(one.theirs.speedup)})"
            for one in behind[:NUM_NAMED]
        ]
        text += f" Farthest behind: {', '.join(named)}."
    return text + unpaired([(task, found) for task, found in given if not found.is_success])


def certainty(pairs: Sequence[Pair]) -> str:
    """Format `12 (9 beyond their intervals)`."""
    if not pairs:
        return "0"
    return f"{len(pairs)} ({sum(pair.is_certain for pair in pairs)} beyond both intervals)"


def unpaired(found: Sequence[tuple[TaskDocument, Worth]]) -> str:
    """Summarize the tasks without a right published kernel."""
    failed = [task for task, one in found if one.is_given]
    text = ""
    if failed:
        won = sum(worth(task, BEST).speedup > ABOVE for task in failed)
        text += (
            f" On {len(failed)} the published kernels failed; on {won} of these ours is above "
            f"{ABOVE}x."
        )
    if len(failed) < len(found):
        text += f" For {count_text(len(found) - len(failed), 'task')} none was published."
    return text


def compared(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Split pairs into ahead, level and behind by the estimates, each with the farthest behind
    first.
    """
    ranked = sorted(pairs, key=lambda pair: pair.ratio)
    return (
        [pair for pair in ranked if pair.ratio > LEVEL],
        [pair for pair in ranked if 1 / LEVEL <= pair.ratio <= LEVEL],
        [pair for pair in ranked if pair.ratio < 1 / LEVEL],
    )


def beside_roof(tasks: Sequence[TaskDocument]) -> str:
    """Say whether there was anything to win where nothing was won."""
    kept = unmoved(tasks)
    if not kept:
        return ""
    known = [(task.name, times) for task, times in kept if times is not None]
    head = f"**Against the device**: of {count_text(len(kept), 'task')} at 1.00x"
    if not known:
        return f"{head} the device's bound is unknown."
    num_near = sum(times <= NEAR for _, times in known)
    far = [f"{name} ({number(times)} times)" for name, times in known if times > NEAR]
    text = (
        f"{head}, within 20 % of the bound that their bytes and operations have by the device's "
        f"data sheet: {num_near}"
    )
    if len(known) < len(kept):
        text += f"; unknown for {len(kept) - len(known)}"
    if far:
        text += f". Farthest from it: {', '.join(far[:NUM_NAMED])}"
    return text + "."
