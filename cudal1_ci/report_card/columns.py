"""Name the columns of a report card, and the strategies that fill them.

`best` is what `scan` would propose: its strategies are those of every other command
(optimize/strategies.py). The other columns are parts of it, shown by themselves (one wrapper, the
rewrites, the model), the reference itself (`eager`, which says what noise is), and kernels that
others published.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.propose.wrappers.strategy import Wrappers
from cudal1_ci.propose.wrappers.table import COMPILED_REGION, WRAPPERS
from cudal1_ci.records import Candidate, Evaluation, Problem, Record, TextProgram
from cudal1_ci.report_card.shape import Policy
from cudal1_ci.report_card.tasks import Published, Task
from cudal1_ci.verification.config import Precision
from cudal1_ci.verification.verify import entry_of

EAGER = "eager"
REWRITES = "playbook"
CONTRASTIVE = "contrastive"
PUBLISHED = "published"
BEST = "best"
OF_WRAPPERS = {
    "compile": "compile",
    "compile-reduce-overhead": "compile_reduce_overhead",
    "compile-max-autotune": "compile_max_autotune",
    "cuda-graph": "cuda_graph",
}
"""Columns that are one wrapper of the reference, by its name in the table of wrappers."""
COLUMNS = (EAGER, *OF_WRAPPERS, REWRITES, CONTRASTIVE, PUBLISHED, BEST)
"""Every column, in the order in which a card has them."""
DEFAULT = (EAGER, "compile", "cuda-graph", REWRITES, PUBLISHED, BEST)
OWN = tuple(name for name in COLUMNS if name not in (EAGER, PUBLISHED))
"""What `best` chooses from: never what others published, and not the noise of the reference."""


class CardConfig(Record, frozen=True, kw_only=True):
    """Say which columns a card has, and how they are counted."""

    columns: tuple[str, ...]
    policy: Policy = "strict"
    precision: Precision = "strict"
    playbook: PlaybookConfig = PlaybookConfig()


class Eager:
    """Propose the reference itself."""

    name = EAGER

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        """Return the reference as a candidate."""
        del evaluations, n
        return [Candidate(problem_id=problem.id, program=problem.reference, proposer=EAGER)]


class PublishedKernels:
    """Propose the kernels that others published for a task."""

    name = PUBLISHED

    def __init__(self, kernels: Sequence[Published]) -> None:
        self.kernels = kernels

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        """Return all of them: what counts is not ours to choose."""
        del evaluations, n
        return [
            Candidate(
                problem_id=problem.id,
                program=TextProgram(source=one.code, entry=entry_of(one.code)),
                proposer=f"{PUBLISHED}:{one.origin}",
            )
            for one in self.kernels
        ]


def strategies_for(task: Task, config: CardConfig, kind: str) -> list[Strategy]:
    """Return what fills the columns of a task on a `kind` of device (`cpu` or `cuda`). Published
    kernels come last: most bring CUDA sources, which are built meanwhile."""
    columns, found = config.columns, list[Strategy]()
    if EAGER in columns:
        found.append(Eager())
    alone = [operator for name, operator in OF_WRAPPERS.items() if name in columns]
    if BEST in columns:
        found += default_strategies(config.playbook, kind)
        alone = [name for name in alone if name in ASKED_FOR]
    elif REWRITES in columns:
        found.append(RecordedRewrites(config.playbook, kind=kind))
    if alone:
        found.append(Wrappers(config.playbook, kind=kind, only=alone, combines=False))
    if PUBLISHED in columns:
        found.append(PublishedKernels(task.published))
    return found


ASKED_FOR = ("compile_reduce_overhead", "compile_max_autotune")
"""Wrappers that are tried only where their column is asked for."""


def column_of(candidate: Candidate, columns: Sequence[str]) -> str:
    """Return the column in which a candidate is shown: its own where the card has it, else
    `best`."""
    operators = operators_of(candidate)
    wrappers = {COMPILED_REGION, *(one.name for one in WRAPPERS)}
    if candidate.proposer == EAGER:
        own = EAGER
    elif candidate.proposer.startswith(f"{PUBLISHED}:"):
        own = PUBLISHED
    elif candidate.generation is not None:
        own = BEST if candidate.edits else CONTRASTIVE
    elif len(operators) == 1 and operators[0] in wrappers:
        own = next((name for name, one in OF_WRAPPERS.items() if one == operators[0]), BEST)
    else:
        own = BEST if wrappers.intersection(operators) else REWRITES
    return own if own in columns else BEST


def text_of(problem: Problem) -> str:
    """Return the text of a task's reference."""
    assert isinstance(problem.reference, TextProgram), "tasks are texts"
    return problem.reference.source
