"""Propose the rewrites of recorded operations: each rule by itself, then those that gained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from cudal1_ci.propose import NeedsRecording, Noticed
from cudal1_ci.propose.apply import described, exemplars_of, operators_of, unique
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.look import Look, look
from cudal1_ci.propose.recorded.rule import Call, RecordedRule, candidate_with
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.recorded.table import RULES
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.recording import Recording
from cudal1_ci.stats import speedups

WORTH_COMBINING = 1.0
"""Score above which a rewrite that passed is combined with others."""


class RecordedRewrites(NeedsRecording):
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
        self.newest: tuple[Problem, Recording, Look] | None = None

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
        gained = self.gained(evaluations)
        if evaluations and len(gained) < 2:
            return []
        seen = self.seen(problem, recording)
        names = dict.fromkeys(rule.name for rule, _ in seen.changes)
        if evaluations:
            chosen = [[one for one in names if one in gained]]
        else:
            chosen = [*([one] for one in names), *([[*names]] if len(names) > 1 else [])]
        made: list[Candidate | None] = []
        for some in chosen:  # a rule that fails by itself is not combined
            found = [one for one in seen.changes if one[0].name in {*some} - {*seen.failures}]
            if found:
                write = partial(candidate_with, seen.call, found)
                made.append(seen.attempt(", ".join(some), write))
        return unique(one for one in made if one is not None)[:n]

    def gained(self, evaluations: Sequence[Evaluation]) -> set[str]:
        """Return the names of rules that gained by themselves in the reference."""
        found = {
            name
            for one in exemplars_of(evaluations)
            if one.score > WORTH_COMBINING and len(operators_of(one.candidate)) == 1
            for name in operators_of(one.candidate)
        }
        return found & {one.name for one in self.rules}

    def base(self, evaluations: Sequence[Evaluation]) -> Candidate | None:
        """Return a model's fastest program, for what gained in the reference, or else the fastest
        program that rules made, for what they made possible."""
        worth = [one.candidate for one in exemplars_of(evaluations) if one.score > WORTH_COMBINING]
        written = next((one for one in worth if one.generation is not None), None)
        if written is not None and self.gained(evaluations):
            return written
        own = {one.name for one in self.rules}
        made = (one for one in worth if operators_of(one))
        return next((one for one in made if own.issuperset(operators_of(one))), None)

    def propose_on(
        self,
        problem: Problem,
        base: Candidate,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> list[Candidate]:
        """Return a model's program with all that gained in the reference and matches there; a
        rewritten program with all that no rewrite of the reference did."""
        call = self.call(msgspec.structs.replace(problem, reference=base.program), recording)
        if base.generation is not None:
            wanted = self.gained(evaluations)
        else:
            tried = {name for one in evaluations for name in operators_of(one.candidate)}
            again = set(operators_of(base))  # of nested loops the inner one comes first
            wanted = {one.name for one in self.rules if one.name in again or one.name not in tried}
        rules = [one for one in self.rules if one.name in wanted]
        made = candidate_with(call, look(rules, call).changes)
        return [described(problem, base, made.program, made.edits)][:n] if made else []

    def noticed(self, problem: Problem, recording: Recording) -> Noticed:
        """Return what rules nearly matched, and those that failed."""
        if speedups.is_negligible(problem, self.min_share):
            return Noticed()
        seen = self.seen(problem, recording)
        failures = (f"rule `{name}` failed: {why}" for name, why in seen.failures.items())
        return Noticed(near_misses=seen.near_misses(), failures=tuple(failures))

    def seen(self, problem: Problem, recording: Recording) -> Look:
        """Return what the rules found in a call, kept until another one is looked at."""
        kept = self.newest
        if kept is not None and kept[0] is problem and kept[1] is recording:
            return kept[2]
        found = look(self.rules, self.call(problem, recording))
        self.newest = problem, recording, found
        return found

    def call(self, problem: Problem, recording: Recording) -> Call:
        """Return a recorded call as rules see it."""
        graph = graph_of(recording)
        return Call(problem, graph, Source(problem.reference, graph), triton=self.triton)
