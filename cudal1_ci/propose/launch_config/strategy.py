"""Propose other launch configurations: for a kernel that discovery found, which is a target of its
own, and for the kernels that the recorded call of a module or a function launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from cudal1_ci.propose import NeedsRecording
from cudal1_ci.propose.apply import PREFIX, exemplars_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.launch_config import FAMILY, NAME, Launches, launch_candidates, numbers_in
from cudal1_ci.propose.launch_config.launched import launched
from cudal1_ci.propose.recorded.graph import Graph, Operation, graph_of, time_us
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.records.recording import Recording
from cudal1_ci.stats import speedups

CUDA_LAUNCH = re.compile(r"(\w+)\s*(?:<[\w\s,:]+>)?\s*<<<")


class KernelLaunches:
    """Move the numbers of a kernel's own launches."""

    name = "kernels"

    def __init__(self, config: PlaybookConfig | None = None, *, min_share: float = 0.0):
        """Leave a kernel as it is where it takes less than `min_share` (0..1) of traced time."""
        self.min_share = min_share
        self.is_on = not {NAME, FAMILY} & {*(config or PlaybookConfig()).skip}

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        """Return programs with one number moved; later what gained together, and further."""
        if problem.target is None or not problem.target.is_kernel or not self.is_on:
            return []
        if speedups.is_negligible(problem, self.min_share):
            return []
        found = launch_candidates(problem, exemplars_of(evaluations), n)
        return [msgspec.structs.replace(c, proposer=PREFIX + c.proposer) for c in found]


class RecordedLaunches(NeedsRecording):
    """Move the numbers of recorded launches, those of the most expensive kernel first."""

    name = "launches"

    def __init__(self, config: PlaybookConfig | None = None, *, min_share: float = 0.0):
        """Leave a target as it is where it takes less than `min_share` (0..1) of traced time."""
        self.min_share = min_share
        self.is_on = not {NAME, FAMILY} & {*(config or PlaybookConfig()).skip}

    def propose_recorded(
        self,
        problem: Problem,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> list[Candidate]:
        """Return programs with one number moved; later what gained together, and further."""
        if not self.is_on or speedups.is_negligible(problem, self.min_share):
            return []
        if problem.target is not None and problem.target.is_kernel:
            return []
        exemplars = exemplars_of(evaluations)
        tried = {one.candidate.id for one in exemplars}
        found: list[Candidate] = []
        for one in recorded_launches(problem, graph_of(recording)):
            singles = [candidate for candidate, _ in one.singles()]
            is_tried = tried.intersection(each.id for each in singles)
            found += one.further(exemplars) if is_tried else singles
        return [msgspec.structs.replace(c, proposer=PREFIX + c.proposer) for c in found[:n]]


def recorded_launches(problem: Problem, graph: Graph) -> Iterator[Launches]:
    """Yield the launches of each kernel, the most expensive one first."""
    source = Source(problem.reference, graph)
    kernels: dict[tuple[str, str, str], list[Operation]] = {}
    for one in graph.operations:
        for key in kernels_of(one, source):
            kernels.setdefault(key, []).append(one)
    for (path, kernel, kind), operations in sorted(
        kernels.items(), key=lambda item: -sum(map(time_us, item[1]))
    ):
        file, launch = source.file(path), operations[0].recorded.launch
        definition = None if launch is None else source.file(launch.file or path)
        if file is None or definition is None:
            continue
        numbers = numbers_in(path or ".py", file.text, kernel, kind, definition.text)
        if numbers:
            shown = launched(graph, operations) if kind == "triton_kernel" else None
            program = problem.reference
            yield Launches(problem, kernel, kind, program, path, file.text, numbers, shown)


def kernels_of(operation: Operation, source: Source) -> Iterator[tuple[str, str, str]]:
    """Yield file, name and kind of the kernels that an operation may launch: of an extension, those
    in the strings of the file that calls it."""
    launch, frame = operation.recorded.launch, source.frame(operation)
    file = None if frame is None else source.file(frame.file)
    if launch is None or frame is None or file is None:
        return
    if launch.language == "triton":
        yield frame.file, launch.kernel, "triton_kernel"
        return
    for name in dict.fromkeys(CUDA_LAUNCH.findall(file.text)):
        yield frame.file, name, "cuda_kernel"
