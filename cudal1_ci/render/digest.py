"""Sort what a report says into the order in which a person wants to know it.

What a change did to the speed comes first, where a comparison was made (changes.py). Then come
proposals, the largest saving of time first; then degenerate references, apart from the speedups
that count. Then come targets that were verified without gain, and last what was skipped, by
reason. Text, Markdown and HTML all show this digest; they differ in words and colors only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudal1_ci.records import (
    Entry,
    Evaluation,
    Listing,
    Measurement,
    Report,
    Workload,
    content_hash,
)
from cudal1_ci.render.changes import Changes, changes, counts_text, is_only_compared
from cudal1_ci.render.saving import Saved, rank, saved_by
from cudal1_ci.render.wording import count_text, devices_text, duration_text, reason_text

SUSPECTED = "opinion.hack"
"""The rule of what a second opinion found (propose/llm/hack_review/review.py)."""
NOISY = "timing.noisy"
"""The rule of a candidate that the machine was too busy to measure."""
SUSPECTED_WORDS = "Fast, but suspected by another model, so not proposed"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A target with the best that was found for it. Numbers start at 1."""

    number: int
    entry: Entry
    evaluation: Evaluation

    @property
    def id(self) -> str | None:
        """Return the id by which the patch is requested; None where there is no patch."""
        patch = self.evaluation.candidate.patch
        return None if patch is None else content_hash(patch)

    @property
    def saved(self) -> Saved | None:
        """Return what it saves at least; None where that is nothing."""
        return saved_by(self.entry, self.evaluation)

    def workload(self, measurement: Measurement) -> Workload | None:
        """Return the workload of a measurement."""
        found = (w for w in self.entry.workloads if w.name == measurement.workload)
        return next(found, None)


@dataclass(frozen=True, kw_only=True)
class Suspected:
    """A candidate that another model suspects, with its words."""

    entry: Entry
    evaluation: Evaluation
    message: str


@dataclass(frozen=True, kw_only=True)
class SkippedGroup:
    """Targets skipped for one reason. `details` holds, for each, what its own reason adds."""

    reason: str
    hints: tuple[str, ...]
    entries: tuple[Entry, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UncallableGroup:
    """Hold targets of a listing that cannot be called for one reason, with the remedy."""

    said: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The parts of a report, each sorted. An entry is in one part; one that was compared with its
    base and nothing else is in none."""

    changes: Changes
    is_search: bool
    """Whether faster versions were looked for, so that finding none is worth a word."""
    proposals: tuple[Proposal, ...]
    nothing_proven: str
    """What is said where there are none."""
    suspected: tuple[Suspected, ...]
    """Candidates of any entry that a model suspects; they are in no other part."""
    degenerate: tuple[Entry, ...]
    unimproved: tuple[Entry, ...]
    skipped: tuple[SkippedGroup, ...]


def digest(document: Report) -> Digest:
    """Sort a report into its parts."""
    proposed, degenerate, unimproved, skipped = [], [], [], []
    for entry in document.entries:
        if entry.best is not None:
            proposed.append((entry, entry.evaluations[entry.best]))
        elif is_degenerate(entry):
            degenerate.append(entry)
        elif entry.skipped is not None:
            skipped.append(entry)
        elif not is_only_compared(entry):
            unimproved.append(entry)
    proposed.sort(key=lambda pair: (*rank(saved_by(*pair)), -worth(pair[1])))
    return Digest(
        changes=changes(document),
        is_search=is_search(document),
        proposals=tuple(
            Proposal(number=number, entry=entry, evaluation=evaluation)
            for number, (entry, evaluation) in enumerate(proposed, 1)
        ),
        nothing_proven=nothing_proven(document),
        suspected=tuple(suspicions(document)),
        degenerate=tuple(degenerate),
        unimproved=tuple(unimproved),
        skipped=grouped(skipped),
    )


def nothing_proven(document: Report) -> str:
    """Say that there is no proposal, and that a busy machine is why where it mostly is."""
    tried = [evaluation for entry in document.entries for evaluation in entry.evaluations]
    num_noisy = sum(any(one.rule == NOISY for one in each.findings) for each in tried)
    said = "No faster version was proven."
    if not num_noisy or 2 * num_noisy < len(tried):
        return said
    return (
        f"{said} The machine was too busy to measure {num_noisy} of "
        f"{count_text(len(tried), 'candidate')}: cudal1-ci doctor says what disturbs it."
    )


def suspicions(document: Report) -> Iterator[Suspected]:
    """Yield the candidates that are not proposed because a model suspects them."""
    for entry in document.entries:
        for evaluation in entry.evaluations:
            for finding in evaluation.findings:
                if finding.rule == SUSPECTED and evaluation.status == "inconclusive":
                    yield Suspected(entry=entry, evaluation=evaluation, message=finding.message)


def worth(evaluation: Evaluation) -> float:
    """Return the geometric mean of the lower bounds over the measurements; 0 where there
    is none.
    """
    bounds = [m.speedup_low for m in evaluation.measurements if m.speedup_low is not None]
    return math.exp(statistics.fmean(map(math.log, bounds))) if bounds else 0.0


def is_degenerate(entry: Entry) -> bool:
    """Return whether the reference's answer does not depend on its input. A constant is then a
    correct and worthless answer. A refused reference's reason begins with its status.
    """
    statuses = [evaluation.status for evaluation in entry.evaluations]
    return "degenerate" in statuses or (entry.skipped or "").startswith("degenerate")


def grouped(entries: Sequence[Entry]) -> tuple[SkippedGroup, ...]:
    """Group skipped targets by the first line of their reason, largest group first."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(reason_text(entry.skipped), []).append(entry)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(
        SkippedGroup(
            reason=reason,
            hints=tuple(dict.fromkeys(e.hint for e in members if e.hint)),
            entries=tuple(members),
            details=tuple("\n".join((e.skipped or "").strip().splitlines()[1:]) for e in members),
        )
        for reason, members in ordered
    )


def uncallable(document: Listing) -> tuple[UncallableGroup, ...]:
    """Group targets of a listing without a workload by reason and remedy, largest group first."""
    groups: dict[str, list[Entry]] = {}
    for entry in document.entries:
        if not entry.workloads:
            hint = f" ({entry.hint})" if entry.hint else ""
            groups.setdefault(f"{entry.skipped or 'no workload'}{hint}", []).append(entry)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(UncallableGroup(said=said, entries=tuple(members)) for said, members in ordered)


def summary(document: Report) -> str:
    """Return one line: what was found among how much, on which device, in what time."""
    totals = document.totals
    searched = [
        f"{count_text(totals.num_proposals, 'faster version')} proven",
        f"{count_text(totals.num_targets, 'target')}, {totals.num_judged} measured, "
        f"{totals.num_skipped} skipped",
        f"{count_text(totals.num_candidates, 'candidate')} tried"
        + (f" ({totals.num_reused} from the archive)" if totals.num_reused else ""),
    ]
    parts = [
        counts_text(changes(document)),
        *(searched if is_search(document) else ()),
        devices_text(document.devices),
        duration_text(document.elapsed_s),
    ]
    return "; ".join(part for part in parts if part)


def is_search(document: Report) -> bool:
    """Return whether faster versions were searched for, and not only the two sides compared."""
    compared = [entry for entry in document.entries if entry.comparison is not None]
    tried = any(entry.evaluations or entry.model_use is not None for entry in document.entries)
    return tried or (document.searched and not compared)


def nothing_text(document: Report) -> str:
    """Return one sentence where there was nothing to look at; empty otherwise."""
    if document.entries:
        return ""
    base, head = ((sha or "?")[:12] for sha in (document.base_sha, document.head_sha))
    if is_search(document):
        since = f" that changed since {base}" if document.base_sha else ""
        return f"Nothing to look at: there is no PyTorch module, function or kernel{since}."
    return (
        f"Nothing to compare: no module, function or kernel differs between {base} and {head}, "
        "nor anything that one of them uses."
    )


def has_several_devices(document: Report) -> bool:
    """Return whether a measurement must name its device because the head of the report cannot."""
    devices = {
        measurement.device.name
        for entry in document.entries
        for evaluation in entry.evaluations
        for measurement in evaluation.measurements
    }
    return len(devices | {device.name for device in document.devices}) > 1
