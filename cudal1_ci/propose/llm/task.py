"""Describe one request to a model: everything that the prompt shows, before it is text."""

from __future__ import annotations

import re
from typing import Literal

from cudal1_ci.propose.llm.context import ESSENTIAL, Part
from cudal1_ci.propose.roofline import DeviceFacts, facts_of
from cudal1_ci.records import Device, Exemplar, Problem, Record, Target, TextProgram

Form = Literal["module_text", "patch", "triton", "cuda"]
"""The form of the answer's code. It is a whole Python file, or the changed definitions of the
target's file. Either may contain Triton kernels that do the work. Otherwise it is the changed
CUDA of a file or string."""


class ProfileRow(Record, frozen=True, kw_only=True):
    """A kernel, or on a CPU an operator, of one call of the reference, as runner/profiling.py
    reports it.
    """

    name: str
    num_calls: int
    time_us: float


class ReferenceTime(Record, frozen=True, kw_only=True):
    """The reference's time for a workload."""

    workload: str
    time_us: float
    output_bytes: int | None = None


class Variant(Record, frozen=True, kw_only=True):
    """An exemplar with its own text of the target; its score is a speedup."""

    exemplar: Exemplar
    text: str
    language: Literal["python", "cuda"] = "python"


class Task(Record, frozen=True, kw_only=True):
    """A request to a model."""

    problem: Problem
    name: str
    """The answer's class, function or kernel: `ModelNew`, or the target's own name in its file."""
    form: Form
    context: tuple[Part, ...]
    """The result of `context_of`."""
    device: Device
    profile: tuple[ProfileRow, ...] | str
    """Where the reference's time is spent, or why that is unknown."""
    times: tuple[ReferenceTime, ...] = ()
    variants: tuple[Variant, ...] = ()
    """Variants in any order."""
    answer_tokens: int = 2048
    """The most tokens of the answer."""

    def __post_init__(self) -> None:
        if not all(part.isidentifier() for part in self.name.split(".")):
            raise ValueError(f"expected the name of a class or function, got {self.name!r}")
        if not any(part.priority == ESSENTIAL for part in self.context):
            raise ValueError(f"{self.name}: expected a context that shows the reference")
        if not self.profile:
            raise ValueError(f"{self.name}: expected a profile, or why there is none")
        is_text = isinstance(self.problem.reference, TextProgram)
        if self.form != "triton" and is_text != (self.form == "module_text"):
            what = "a text program" if is_text else "a tree program"
            raise ValueError(f"{self.name}: {self.form} is no form of an answer for {what}")
        target = self.problem.target
        if self.form == "cuda" and (target is None or target.kind != "cuda_kernel"):
            raise ValueError(f"{self.name}: expected a CUDA kernel for an answer in CUDA")

    @property
    def kernel(self) -> Target | None:
        """Return the target if it is a kernel."""
        target = self.problem.target
        return target if target is not None and target.is_kernel else None

    @property
    def called_name(self) -> str:
        """Return the name of the reference that is called, compared and timed."""
        program = self.problem.reference
        if isinstance(program, TextProgram):
            return program.entry
        return program.import_path.partition(":")[2] if self.kernel is not None else self.name

    @property
    def facts(self) -> DeviceFacts | None:
        return facts_of(self.device.name) if self.device.kind == "cuda" else None

    @property
    def is_class(self) -> bool:
        """Return whether the reference is a class, by its text."""
        program = self.problem.reference
        name = program.entry if isinstance(program, TextProgram) else self.name
        head = re.compile(rf"^\s*class\s+{re.escape(name.partition('.')[0])}\b", re.MULTILINE)
        return any(head.search(p.text) for p in self.context if p.priority == ESSENTIAL)
