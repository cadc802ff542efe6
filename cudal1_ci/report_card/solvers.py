"""The columns: who writes candidates for a task.

Each is a proposer as the product's own are. `contrastive`, the loop with a model, asks the judge
between its proposals and is turn.py's; `best` puts together what the others found
(combinations.py), and is the best verdict of our own columns that is a gain, the reference where
there is none (worth.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cudal1_ci.propose import Proposer
from cudal1_ci.propose.rewrites import Playbook, PlaybookConfig
from cudal1_ci.records import Candidate, Exemplar, Problem, Record, TextProgram
from cudal1_ci.report_card.tasks import Published, Task
from cudal1_ci.report_card.wrapped import WRAPPERS
from cudal1_ci.verification.verify import entry_of

CONTRASTIVE = "contrastive"
GIVEN = "published"
BEST = "best"


class Means(Record, frozen=True, kw_only=True):
    """What solvers are made of."""

    kind: str
    """Of the device: `cpu` or `cuda`."""
    playbook: PlaybookConfig = PlaybookConfig()
    published: Mapping[str, tuple[Published, ...]] = {}
    """By problem."""


class Eager:
    """The reference itself: its speedup says what noise is."""

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        del exemplars, n
        return [Candidate(problem_id=problem.id, program=problem.reference, proposer="eager")]


class Wrapped:
    """The reference under torch.compile or as a CUDA graph; nothing where that needs a GPU and
    there is none."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        del exemplars, n
        wrapper = WRAPPERS[self.name]
        if wrapper.needs_gpu and self.kind != "cuda":
            return []
        text = wrapper.wrap(text_of(problem))
        return [candidate(problem, text, self.name, *wrapper.techniques)]


class Given:
    """Kernels that others published."""

    def __init__(self, published: Mapping[str, tuple[Published, ...]]) -> None:
        self.published = published

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        del exemplars, n  # all that were published: what counts is not ours to choose
        return [
            msgspec.structs.replace(
                candidate(problem, one.code, f"{GIVEN}:{one.origin}"),
                program=TextProgram(source=one.code, entry=entry_of(one.code)),
            )
            for one in self.published.get(problem.id, ())
        ]


def _wrapped(name: str, means: Means) -> Proposer:
    return Wrapped(name, means.kind)


SOLVERS: dict[str, Callable[[Means], Proposer]] = {
    "eager": lambda _: Eager(),
    **{name: functools.partial(_wrapped, name) for name in WRAPPERS},
    "playbook": lambda means: Playbook(means.playbook),
    GIVEN: lambda means: Given(means.published),
}
COLUMNS = (*(name for name in SOLVERS if name != GIVEN), CONTRASTIVE, GIVEN, BEST)
"""Every column, in the order in which a card has them."""
DEFAULT = ("eager", "compile", "compile-reduce-overhead", "cuda-graph", "playbook", GIVEN, BEST)
OWN = tuple(name for name in COLUMNS if name not in ("eager", GIVEN))
"""What `best` chooses from: never what others published, and not the noise of the reference."""


def means_for(kind: str, playbook: PlaybookConfig, tasks: Sequence[Task]) -> Means:
    """For the tasks of a run on a kind of device; on a GPU the playbook writes kernels too."""
    published = {task.problem.id: task.published for task in tasks}
    if kind == "cuda":
        playbook = msgspec.structs.replace(playbook, triton=True)
    return Means(kind=kind, playbook=playbook, published=published)


def text_of(problem: Problem) -> str:
    """The text of a task's reference."""
    assert isinstance(problem.reference, TextProgram), "tasks are texts"
    return problem.reference.source


def candidate(
    problem: Problem,
    text: str,
    proposer: str,
    *techniques: str,
    analysis: str = "",
    design: str = "",
) -> Candidate:
    """A text of which `ModelNew` is the answer."""
    return Candidate(
        problem_id=problem.id,
        program=TextProgram(source=text, entry="ModelNew"),
        proposer=proposer,
        analysis=analysis,
        design=design,
        techniques=techniques,
    )
