"""Propose to compile the smallest parts of a target that gain, found in a recorded call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.propose import NeedsRecording
from cudal1_ci.propose.apply import described, unique
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.rule import Call, RecordedRule, candidate_with
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.wrappers.region_code import changes_for
from cudal1_ci.propose.wrappers.regions import Finder
from cudal1_ci.propose.wrappers.strategy import compiles, faster, has_region
from cudal1_ci.propose.wrappers.table import COMPILED_REGION, COMPILES
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.recording import Recording

MAX_BASES = 2
"""The most faster programs whose regions are compiled in turn."""
RULE = RecordedRule(
    name=COMPILED_REGION,
    family="compilation",
    why="torch.compile fuses operations that otherwise write to memory what the next one reads; "
    "the code around them stays as it is.",
    precondition="elementwise operations, reductions and views in a row, without a graph break; "
    f"{COMPILES}, and so does the first call with other shapes",
    find=lambda call: [change for _, change in changes_for(call, Finder(call).regions())],
)


class CompiledRegions(NeedsRecording):
    """Propose compiled regions of the reference, and of the fastest rewritten program."""

    name = "regions"

    def __init__(self, config: PlaybookConfig | None = None, *, kind: str = "cpu"):
        config = config or PlaybookConfig()
        self.is_on = compiles(config, kind) and not {RULE.name, RULE.family} & {*config.skip}

    def propose_recorded(
        self,
        problem: Problem,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> list[Candidate]:
        """Return the reference with its best region compiled, and with all of them."""
        return [] if evaluations or not self.is_on else compiled(problem, recording)[:n]

    def base(self, evaluations: Sequence[Evaluation]) -> Candidate | None:
        """Return the fastest rewritten program, unless its regions were tried."""
        if not self.is_on:
            return None
        candidates = [one.candidate for one in evaluations]
        tried = [one for one in candidates if has_region(one) and len(one.edits) > 1]
        if len(tried) >= MAX_BASES:
            return None
        found = [
            one.candidate
            for one in faster(evaluations)
            if not has_region(one.candidate) and one.candidate.generation is None
        ]
        return found[0] if found else None

    def propose_on(
        self,
        problem: Problem,
        base: Candidate,
        recording: Recording,
        evaluations: Sequence[Evaluation],  # noqa: ARG002
        n: int,
    ) -> list[Candidate]:
        """Return a faster program with all of its regions compiled, by a recorded call of it."""
        return compiled(problem, recording, base)[-1:][:n]


def compiled(
    problem: Problem, recording: Recording, base: Candidate | None = None
) -> list[Candidate]:
    """Return a program with its best region compiled, then with all of them."""
    program = problem.reference if base is None else base.program
    graph = graph_of(recording)
    call = Call(msgspec.structs.replace(problem, reference=program), graph, Source(program, graph))
    changes = [(RULE, change) for _, change in changes_for(call, Finder(call).regions())]
    made = [candidate_with(call, one) for one in (changes[:1], changes)]
    found = unique(one for one in made if one is not None)
    return [described(problem, base, one.program, one.edits) for one in found]
