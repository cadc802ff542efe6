"""Vary the launch configuration of Triton and CUDA kernels.

The work of a block, its number of warps and its number of stages decide how much memory traffic is
in progress at a time. First each number moves by itself, by one step and by two. Then the changes
that gained are combined, and the best change moves further. The kernel does not change. Numbers
that the source computes or an autotuner chooses do not change either.

    launch_candidates(problem, (), 12)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cudal1_ci.propose.launch_config.cuda import cuda_numbers, cuda_numbers_in_strings
from cudal1_ci.propose.launch_config.launched import Launched
from cudal1_ci.propose.launch_config.number import LaunchNumber, written
from cudal1_ci.propose.launch_config.triton import triton_numbers
from cudal1_ci.propose.target_file import file_text, with_file
from cudal1_ci.records import Candidate, Exemplar, Problem, Program, TextProgram, TreeProgram

NAME = "launch_parameters"
FAMILY = "launch parameters"
DESIGN = (
    "the kernel stays as it is; the numbers are the best of those that were tried for these calls "
    "on this device, and other sizes and devices may want others"
)
TUNED = ", which `triton.autotune` would choose for each"
WHY = (
    "how much a block does, how many warps share it and how many loads run ahead decide how much "
    "memory traffic is under way at a time, and what is best depends on the device and the sizes."
)
STEPS = (1, -1, 2, -2)
"""Steps of each number, in the order in which they are tried."""
MOST_SINGLES = {"triton_kernel": 10, "cuda_kernel": 4}
"""The most single changes; each variant of a CUDA file needs a build by nvcc."""
GAINED = 1.0
"""Score above which a number moves further and is combined with others."""


def launch_candidates(problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
    """Return at most `n` programs with another launch configuration. Without exemplars each number
    changes by itself; with exemplars the next changes follow from those that gained.
    """
    launches = launches_of(problem)
    if launches is None:
        return []
    found = launches.further(exemplars) if exemplars else [one for one, _ in launches.singles()]
    return found[:n]


@dataclass(frozen=True)
class Launches:
    """A file that launches the problem's kernel, with the numbers of the launch."""

    problem: Problem
    kernel: str
    kind: str
    """`triton_kernel` or `cuda_kernel`."""
    program: Program
    path: str
    text: str
    numbers: tuple[LaunchNumber, ...]
    recorded: Launched | None = None
    """How a recorded call launched it."""

    def candidate(self, steps: Mapping[LaunchNumber, int]) -> Candidate | None:
        """Return a candidate with numbers moved by steps; None if a number cannot move."""
        values = {one: value for one, by in steps.items() if (value := one.after(by)) is not None}
        if len(values) < len(steps):
            return None
        if self.recorded is not None and not self.recorded.is_useful(values):
            return None
        settings = ", ".join(f"{one.name}={new}" for one, new in values.items())
        lines = "\n".join(f"- `{one.name}`: {one.value} -> {new}" for one, new in values.items())
        text = written(self.text, values)
        return Candidate(
            problem_id=self.problem.id,
            program=self.program_with(text),
            proposer=f"{NAME}({settings})",
            analysis=f"- {WHY}\n\nFound in launches of `{self.kernel}`:\n{lines}",
            design=f"- {NAME}: {DESIGN}{TUNED if self.kind == 'triton_kernel' else ''}",
            techniques=(FAMILY,),
        )

    def program_with(self, text: str) -> Program:
        """Return the program with another text of the file."""
        if isinstance(self.program, TextProgram):
            return msgspec.structs.replace(self.program, source=text)
        return with_file(self.program, self.path, self.text, text)

    def singles(self) -> list[tuple[Candidate, tuple[LaunchNumber, int]]]:
        """Return a candidate for each single number, the smaller steps first."""
        steps = STEPS if self.recorded is None else self.recorded.steps
        found = [
            (one, (number, by))
            for by in steps
            for number in self.numbers
            if (one := self.candidate({number: by})) is not None
        ]
        return found[: MOST_SINGLES[self.kind]]

    def further(self, exemplars: Sequence[Exemplar]) -> list[Candidate]:
        """Return new candidates: changes that gained together, and the best change a step
        further.
        """
        scores = {one.candidate.id: one.score for one in exemplars}
        best: dict[LaunchNumber, int] = {}
        ranked = [(scores.get(one.id, 0.0), move) for one, move in self.singles()]
        for score, (number, by) in sorted(ranked, key=lambda one: -one[0]):
            if score > GAINED:
                best.setdefault(number, by)
        made = (self.candidate(steps) for steps in followed(best))
        found = {one.id: one for one in made if one is not None and one.id not in scores}
        return list(found.values())


def followed(best: Mapping[LaunchNumber, int]) -> Iterator[Mapping[LaunchNumber, int]]:
    """Yield what to try after single changes that gained, best first."""
    if not best:
        return
    first, by = next(iter(best.items()))
    on = {first: by + (1 if by > 0 else -1)}
    two = dict(list(best.items())[:2])
    yield from (two, dict(best), on, two | on, dict(best) | on)


def launches_of(problem: Problem) -> Launches | None:
    """Return the launches; None where no launch of the kernel has a number."""
    kernel, program = problem.target, problem.reference
    if kernel is None or not kernel.is_kernel or not isinstance(program, TreeProgram):
        return None
    definition = file_text(program, kernel.path)
    if definition is None:
        return None
    callers = [one.partition(":")[0] for one in kernel.launchers]
    for path in dict.fromkeys((kernel.path, *callers)):
        text = file_text(program, path)
        numbers = numbers_in(path, text, kernel.last_name, kernel.kind, definition) if text else ()
        if text is not None and numbers:
            return Launches(problem, kernel.last_name, kernel.kind, program, path, text, numbers)
    return None


def numbers_in(
    path: str, text: str, kernel: str, kind: str, definition: str
) -> tuple[LaunchNumber, ...]:
    """Return the numbers in a file's launches of a kernel."""
    if kind == "triton_kernel":
        return triton_numbers(text, kernel, definition)
    if path.endswith(".py"):
        return cuda_numbers_in_strings(text, kernel)
    return cuda_numbers(text, kernel)
