"""Propose the rewrites of recorded operations: each rule by itself, then those that gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded import (
    activations,
    attention,
    experts,
    filters,
    lookups,
    loops,
    masks,
    norms,
    pairs,
    scans,
    targets,
    triplets,
)
from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, candidate_with
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.rewrites.strategy import WORTH_COMBINING, exemplars_of, unique
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.recording import Recording
from cudal1_ci.stats import speedups

RULES: tuple[RecordedRule, ...] = (
    *scans.RULES,
    *loops.RULES,
    *experts.RULES,
    *attention.RULES,
    *norms.RULES,
    *activations.RULES,
    *masks.RULES,
    *filters.RULES,
    *lookups.RULES,
    *pairs.RULES,
    *targets.RULES,
    *triplets.RULES,
)


class RecordedRewrites:
    """Propose rewrites of what the reference did in one call."""

    name = "recorded"

    def __init__(
        self,
        config: PlaybookConfig | None = None,
        rules: Sequence[RecordedRule] = RULES,
        *,
        min_share: float = 0.0,
        kind: str = "cpu",
    ):
        """Leave a target as it is where it takes less than `min_share` (0..1) of traced time.
        `kind` is the device's: `cpu` or `cuda`."""
        self.min_share = min_share
        config = config or PlaybookConfig()
        self.triton = kind == "cuda" if config.triton is None else config.triton
        left_out = {*config.skip}
        self.rules = [one for one in rules if not {one.name, one.family} & left_out]

    def propose(
        self,
        problem: Problem,  # noqa: ARG002
        evaluations: Sequence[Evaluation],  # noqa: ARG002
        n: int,  # noqa: ARG002
    ) -> list[Candidate]:
        """Return nothing: without a recording nothing is known."""
        return []

    def propose_recorded(
        self,
        problem: Problem,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> list[Candidate]:
        """Return rewritten programs: single rules and all of them first, then those that
        gained together."""
        if speedups.is_negligible(problem, self.min_share):
            return []
        gained = {
            name
            for one in exemplars_of(evaluations)
            if one.score > WORTH_COMBINING and len(operators_of(one.candidate)) == 1
            for name in operators_of(one.candidate)
        } & {one.name for one in self.rules}
        if evaluations and len(gained) < 2:
            return []
        graph = graph_of(recording)
        call = Call(problem, graph, Source(problem.reference, graph), self.triton)
        found = [
            (rule, change)
            for rule in self.rules
            for change in unique_changes(rule, call)
            if call.is_own(change)
        ]
        names = dict.fromkeys(rule.name for rule, _ in found)
        if evaluations:
            chosen = [[one for one in names if one in gained]]
        else:
            chosen = [*([one] for one in names), *([[*names]] if len(names) > 1 else [])]
        made = (candidate_with(call, [one for one in found if one[0].name in c]) for c in chosen)
        return unique(one for one in made if one is not None)[:n]


def covered_by(operators: Sequence[str]) -> frozenset[str]:
    """Return the rewrites of texts that need not be tried beside recorded ones."""
    return frozenset(name for rule in RULES if rule.name in operators for name in rule.covers)


def unique_changes(rule: RecordedRule, call: Call) -> Iterator[Change]:
    """Yield a rule's changes, the same expression once: a loop or a second call of a function
    runs it again. One that should read otherwise there is left out."""
    first: dict[object, Change | None] = {}
    for change in rule.find(call):
        for node in change.new:
            known = first.setdefault(node, change)
            if known is not None and known.new != change.new:
                first[node] = None
    yielded: set[int] = set()
    for one in first.values():
        if one is None or id(one) in yielded or any(first[node] is not one for node in one.new):
            continue
        yielded.add(id(one))
        yield one
