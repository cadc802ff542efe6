"""What CUDA-L1's release has for a task, as candidates of stage 1's collection.

    PublishedKernels(Path("CUDA-L1")).propose(task.problem, (), n=16)

The release is fetched by whoever runs this, and nothing of it is in this repository. Its speedups
are not believed: the judge measures anew, and some of its kernels are no honest ones. A task is
known by its program, whatever its names, numbers and layout (tasks/fingerprint.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.records import Candidate, Exemplar, Problem, TextProgram
from model_training.answers import program_in
from model_training.tasks.fingerprint import form
from model_training.tasks.published import cuda_l1

PROPOSER = "cuda-l1"


class PublishedKernels:
    """A proposer, of one GPU's part of the release."""

    def __init__(self, release: Path, gpu: str = "h100") -> None:
        """Raises: ConfigError where the folder is not the release."""
        self._known: dict[str, list[str]] = defaultdict(list)
        for one in cuda_l1(release, gpu):
            self._known[form(one.task.text)].append(one.code)

    def propose(
        self, problem: Problem, exemplars: Sequence[Exemplar], n: int
    ) -> Sequence[Candidate]:
        """None for a task that is not in it."""
        assert isinstance(problem.reference, TextProgram)
        codes = self._known.get(form(problem.reference.source), [])
        programs = [program_in(problem.reference, code) for code in codes]
        shown = {exemplar.candidate.id for exemplar in exemplars}
        candidates = [
            Candidate(problem_id=problem.id, program=one, proposer=PROPOSER)
            for one in programs
            if not isinstance(one, Unusable)
        ]
        return [one for one in candidates if one.id not in shown][:n]
