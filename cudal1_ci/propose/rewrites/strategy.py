"""Propose the rewrites of the table: each by itself, then those that gained together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cudal1_ci.propose import launch_config
from cudal1_ci.propose.apply import PREFIX, apply, operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.rewrite import Rewrite
from cudal1_ci.propose.rewrites.table import NEED_TRITON, REWRITES
from cudal1_ci.records import Candidate, Evaluation, Exemplar, Problem
from cudal1_ci.stats import speedups

WORTH_COMBINING = 1.0
"""Score above which a rewrite that passed is combined with others."""


class Playbook:
    """Propose the rewrites of the table."""

    name = "rewrites"

    def __init__(
        self,
        config: PlaybookConfig | None = None,
        rewrites: Sequence[Rewrite] = REWRITES,
        *,
        min_share: float = 0.0,
        kind: str = "cpu",
    ):
        """Leave a target's own lines as they are where it takes less than `min_share` (0..1) of the
        traced time. `kind` is the device's: `cpu` or `cuda`."""
        self.config = config or PlaybookConfig()
        self.min_share = min_share
        left_out = {*self.config.skip}
        has_triton = kind == "cuda" if self.config.triton is None else self.config.triton
        left_out |= set() if has_triton else NEED_TRITON
        self.rewrites = [one for one in rewrites if not {one.name, one.family} & left_out]
        self.launches = not {launch_config.NAME, launch_config.FAMILY} & left_out

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        """Return rewritten programs, single rewrites before combinations. For a kernel only the
        launch numbers change: its launcher is a target of its own.
        """
        exemplars = exemplars_of(evaluations)
        is_negligible = speedups.is_negligible(problem, self.min_share)
        if problem.target is not None and problem.target.is_kernel:
            is_tried = self.launches and not is_negligible
            others = launch_config.launch_candidates(problem, exemplars, n) if is_tried else []
            return [msgspec.structs.replace(c, proposer=PREFIX + c.proposer) for c in others]
        if exemplars:
            return self.combined(problem, exemplars)[:n]
        singles = [
            (candidate, one)
            for one in self.rewrites
            if (one.is_of_program or not is_negligible)
            and (candidate := apply(problem, None, [one])) is not None
        ]
        candidates = [candidate for candidate, _ in singles]
        if len(singles) > 1:
            both = apply(problem, None, [one for _, one in singles])
            candidates += [both] if both is not None else []
        return unique(candidates)[:n]

    def combined(self, problem: Problem, exemplars: Sequence[Exemplar]) -> list[Candidate]:
        """Return combinations of rewrites that passed and gained alone: all of them, and the
        best two. The same combinations also apply to a model's best program.
        """
        gained: list[Rewrite] = []
        for exemplar in exemplars:
            names = operators_of(exemplar.candidate)
            if exemplar.score > WORTH_COMBINING and len(names) == 1:
                gained += [one for one in self.rewrites if one.name == names[0]]
        shown = {exemplar.candidate.id for exemplar in exemplars}
        candidates = []
        for chosen in (gained, gained[:2]):
            if len(chosen) > 1:
                in_order = [one for one in self.rewrites if one in chosen]
                candidate = apply(problem, None, in_order)
                candidates += [candidate] if candidate is not None else []
        candidates += self.on_top(problem, gained, exemplars)
        return [one for one in unique(candidates) if one.id not in shown]

    def on_top(
        self, problem: Problem, gained: Sequence[Rewrite], exemplars: Sequence[Exemplar]
    ) -> Iterator[Candidate]:
        """Yield a model's fastest program, rewritten by what gained in the reference and matches
        here: once with all of it, once with only what applies to the whole program.
        """
        others = [one for one in exemplars if one.candidate.generation is not None]
        best = max(others, key=lambda one: one.score, default=None)
        if best is None or best.score <= WORTH_COMBINING:
            return
        for chosen in (gained, [one for one in gained if one.is_of_program]):
            candidate = apply(
                problem, best.candidate, [one for one in self.rewrites if one in chosen]
            )
            if candidate is not None:
                yield candidate


def exemplars_of(evaluations: Sequence[Evaluation]) -> list[Exemplar]:
    """Return the candidates that passed with their scores, best first."""
    scored = [
        Exemplar(candidate=one.candidate, score=speedups.score(one))
        for one in evaluations
        if one.verdict.status == "passed"
    ]
    return sorted(scored, key=lambda one: -one.score)


def unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the first of the candidates with the same program."""
    return list({candidate.id: candidate for candidate in reversed(list(candidates))}.values())[
        ::-1
    ]
