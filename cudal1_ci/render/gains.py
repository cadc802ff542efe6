"""Order a report's proposals by what they save, each under a stable name.

    for gain in gains_of(document):
        gain.id, gain.saved.amount

A proposal's id is a hash of what it changes, wherever in its file that is. The id stays when lines
move, and changes with the code that it replaces. (`/cudal1 apply` names an exact patch,
`digest.Proposal.id`: what is applied must be what was seen.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cudal1_ci.records import Entry, Evaluation, Report, content_hash
from cudal1_ci.render.digest import Proposal, digest, worth
from cudal1_ci.render.hunks import files_of
from cudal1_ci.render.saving import Saved, rank, saved_by


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A proposal and what it is worth."""

    id: str
    entry: Entry
    evaluation: Evaluation
    low: float
    """Times as fast at the least."""
    saved: Saved


def gains_of(document: Report) -> list[Gain]:
    """Return all proposals that are faster beyond doubt; the largest saving comes first."""
    found = {gain.id: gain for proposal in digest(document).proposals for gain in _gains(proposal)}
    return sorted(
        found.values(),
        key=lambda gain: (*rank(gain.saved), -gain.low, gain.id),
    )


def _gains(proposal: Proposal) -> Iterator[Gain]:
    low = worth(proposal.evaluation)
    saved = saved_by(proposal.entry, proposal.evaluation)
    if low > 1 and saved is not None:
        yield Gain(
            id=id_of(proposal.entry, proposal.evaluation),
            entry=proposal.entry,
            evaluation=proposal.evaluation,
            low=low,
            saved=saved,
        )


def id_of(entry: Entry, evaluation: Evaluation) -> str:
    """Return 16 hex digits of the target and of the lines that change."""
    patch = evaluation.candidate.patch
    changed: object = evaluation.candidate.id
    if patch is not None:
        changed = [
            (file.path, [(x.mark, x.text) for h in file.hunks for x in h.lines if x.mark != " "])
            for file in files_of(patch)
        ]
    return content_hash((entry.target.path, entry.target.qualname, changed))
