"""The columns: who writes candidates for a task.

Each is a proposer as the product's own are. `contrastive`, the loop with a model, asks the judge
between its proposals and is run.py's; `best` writes nothing: it is the best verdict of our own
columns that is a gain, and the reference where there is none (worth.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from cudal1_ci.bench.tasks import Published, Task
from cudal1_ci.bench.wrapped import compiled, graphed
from cudal1_ci.propose import Proposer
from cudal1_ci.propose.playbook import Playbook, PlaybookConfig
from cudal1_ci.schema import Candidate, Exemplar, Problem, Record, TextProgram
from cudal1_ci.verification import entry_of

CONTRASTIVE = "contrastive"
GIVEN = "published"
BEST = "best"
NEEDS_GPU = frozenset({"cuda-graph"})


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


class Compiled:
    """The reference under torch.compile."""

    def __init__(self, name: str, mode: str | None) -> None:
        self.name, self.mode = name, mode

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        del exemplars, n
        text = compiled(text_of(problem), self.mode)
        return [candidate(problem, text, self.name, "compilation")]


class Graphed:
    """The reference as a CUDA graph; nothing where there is no GPU."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        del exemplars, n
        if self.kind != "cuda":
            return []
        return [candidate(problem, graphed(text_of(problem)), "cuda-graph", "CUDA graph")]


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


SOLVERS: dict[str, Callable[[Means], Proposer]] = {
    "eager": lambda _: Eager(),
    "compile": lambda _: Compiled("compile", None),
    "compile-reduce-overhead": lambda _: Compiled("compile-reduce-overhead", "reduce-overhead"),
    "compile-max-autotune": lambda _: Compiled("compile-max-autotune", "max-autotune"),
    "cuda-graph": lambda means: Graphed(means.kind),
    "playbook": lambda means: Playbook(means.playbook),
    GIVEN: lambda means: Given(means.published),
}
COLUMNS = (*(name for name in SOLVERS if name != GIVEN), CONTRASTIVE, GIVEN, BEST)
"""Every column, in the order in which a card has them."""
DEFAULT = ("eager", "compile", "compile-reduce-overhead", "cuda-graph", "playbook", GIVEN, BEST)
OWN = tuple(name for name in COLUMNS if name not in ("eager", GIVEN, BEST))
"""What `best` chooses from: never what others published, and not the noise of the reference."""


def means_for(kind: str, playbook: PlaybookConfig, tasks: Sequence[Task]) -> Means:
    """For the tasks of a run on a kind of device."""
    published = {task.problem.id: task.published for task in tasks}
    return Means(kind=kind, playbook=playbook, published=published)


def text_of(problem: Problem) -> str:
    """The text of a task's reference."""
    assert isinstance(problem.reference, TextProgram), "tasks are texts"
    return problem.reference.source


def candidate(
    problem: Problem, text: str, proposer: str, technique: str | None = None
) -> Candidate:
    return Candidate(
        problem_id=problem.id,
        program=TextProgram(source=text, entry="ModelNew"),
        proposer=proposer,
        techniques=(technique,) if technique else (),
    )
