"""What `best` proposes by itself: finds of the other columns, together.

A rewrite of the playbook that gained is wrapped as the columns wrap the reference: fewer kernels,
and one launch for all of them, are two gains. Rewrites and wrappers are ranked by what they gained
on this very task, so that a few candidates are enough. A wrapper that was slower beyond doubt is
left out; one that failed comes last, as a rewrite may change what it failed on. Where no rewrite
gained, nothing is put together. Candidates are judged like all others, and are the column's own
trials.

    best:playbook:diagonal_product+cuda-graph
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci import score
from cudal1_ci.bench.solvers import BEST, candidate
from cudal1_ci.bench.wrapped import WRAPPERS
from cudal1_ci.schema import Candidate, Evaluation, Problem, TextProgram

PREFIX = f"{BEST}:"
REWRITES = "playbook"
"""The column whose finds are wrapped."""
MOST = 4
"""Candidates for one task."""
MOST_REWRITES = 2

Found = Mapping[str, Sequence[Evaluation]]
"""By column, what was judged so far."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that gained, to be wrapped."""

    evaluation: Evaluation
    text: str

    @property
    def name(self) -> str:
        return self.evaluation.candidate.proposer.removeprefix(PREFIX)


def combinations(problem: Problem, found: Found) -> list[Candidate]:
    """Candidates over what the columns found, the most promising first; none that was judged."""
    programs = gained(problem, found.get(REWRITES, ()))[:MOST_REWRITES]
    wrappers = promising(found)
    known = {one.candidate.id for column in found.values() for one in column}
    made = [together(problem, programs[a], wrappers[b]) for a, b in ranks(programs, wrappers)]
    distinct = {one.id: one for one in made if one.id not in known}
    return list(distinct.values())[:MOST]


def gained(problem: Problem, evaluations: Sequence[Evaluation]) -> list[Program]:
    """Programs that are a gain and have the reference's class, best first."""
    programs = [
        Program(evaluation=one, text=one.candidate.program.source)
        for one in evaluations
        if score.best([one], problem.workloads) is not None
        and isinstance(one.candidate.program, TextProgram)
        and one.candidate.program.entry == "Model"
    ]
    return sorted(programs, key=lambda one: -score.score(one.evaluation))


def promising(found: Found) -> list[str]:
    """Names of the wrappers that are columns of the run, best first."""
    asked = {name: found[name] for name in WRAPPERS if found.get(name)}
    usable = [
        name
        for name, evaluations in asked.items()
        if not all(any(map(score.is_slower, one.measurements)) for one in evaluations)
    ]
    return sorted(usable, key=lambda name: -max(map(score.score, asked[name])))


def ranks(programs: Sequence[object], wrappers: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Pairs of places: the best with the best, then where one of them is the second, ..."""
    pairs = [(a, b) for a in range(len(programs)) for b in range(len(wrappers))]
    yield from sorted(pairs, key=lambda pair: (sum(pair), pair))


def together(problem: Problem, program: Program, wrapper: str) -> Candidate:
    """A program that gained, wrapped."""
    of = program.evaluation.candidate
    return candidate(
        problem,
        WRAPPERS[wrapper].wrap(program.text),
        f"{PREFIX}{program.name}+{wrapper}",
        *dict.fromkeys((*of.techniques, WRAPPERS[wrapper].technique)),
        analysis=of.analysis,
        design=of.design,
    )
