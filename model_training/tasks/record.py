"""Hold a task: a reference program to make faster, and where it comes from."""

from __future__ import annotations

import ast
from typing import Literal

from cudal1_ci.records import Call, Made, Problem, Record, TextProgram, Workload, content_hash

TaskSource = Literal["generated", "kernelbench"]


class Task(Record, frozen=True, kw_only=True):
    """Hold a KernelBench-form text: `Model`, `get_inputs()` and mostly `get_init_inputs()`."""

    source: TaskSource
    name: str
    """Of the task where it comes from: `attention-17`, `level1/12`."""
    family: str
    text: str

    @property
    def id(self) -> str:
        """Hash the text."""
        return content_hash(self.text)

    @property
    def problem(self) -> Problem:
        """Return what the verifier is given, as `cudal1-ci verify` would of the file.

        Raises:
            SyntaxError: The text is no Python.
        """
        defined = {getattr(node, "name", None) for node in ast.parse(self.text).body}
        has_init = "get_init_inputs" in defined
        workload = Workload(
            name="default",
            provenance="declared",
            source=f"{self.name}:get_inputs",
            init=Made(function="get_init_inputs") if has_init else Call(),
            call=Made(function="get_inputs"),
        )
        return Problem(
            reference=TextProgram(source=self.text, entry="Model"), workloads=(workload,)
        )
