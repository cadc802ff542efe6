"""Give tasks names that are unique. Pure.

KernelBench's `level1/1` and that of CUDA-L1's release are two texts under one name, and so are a
task before and after its text was changed. A name that several problems have says its source too,
and where that is not enough its title, or the start of its problem's id:

    level1/1    level1/1 (kernelbench)    level1/1 (kernelbench, 1_Square)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

ID_CHARS = 8
NUM_ADDITIONS = 3


class Named(NamedTuple):
    """Describe a task's name, here or in an earlier run with others."""

    name: str
    source: str
    title: str
    problem_id: str

    @property
    def own(self) -> str:
        """Return the name that the source gives."""
        for addition in reversed(additions(self)):
            if self.name.endswith(addition):
                return self.name.removesuffix(addition)
        return self.name


def names_apart(tasks: Iterable[Named]) -> dict[str, str]:
    """Return a unique name for each problem; its own where no other task has it."""
    by_problem = {one.problem_id: one for one in sorted(tasks, reverse=True)}
    names = {key: one.own for key, one in by_problem.items()}
    for number in range(NUM_ADDITIONS):
        count = Counter(names.values())
        names |= {
            key: by_problem[key].own + additions(by_problem[key])[number]
            for key, name in names.items()
            if count[name] > 1
        }
    return names


def additions(one: Named) -> tuple[str, ...]:
    """Return additions to the name; each is used where the one before it is not enough."""
    problem_id = one.problem_id[:ID_CHARS]
    words = (one.source, f"{one.source}, {one.title or problem_id}", f"{one.source}, {problem_id}")
    return tuple(f" ({one})" for one in words)
