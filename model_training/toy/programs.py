"""List the programs of the toy language, what each is worth, and the tasks that they are answers
to.

The programs are real and do what their row says, but for the speedups, which are numbers of this
table. All tasks have the same reference and differ in their sizes: one program is a copy of it.
"""

from __future__ import annotations

from cudal1_ci.records import Record, Status
from model_training.tasks.record import Task

HEAD = "import torch\nimport torch.nn as nn\n\n\n"
REFERENCE = """class Model(nn.Module):
    def forward(self, x, scale):
        return torch.diag(scale) @ x
"""
INPUTS = """

rows = {rows}
columns = 32


def get_inputs():
    return [torch.rand(rows, columns), torch.rand(rows)]


def get_init_inputs():
    return []
"""
SIZES = (64, 96, 128, 192)


class ToyProgram(Record, frozen=True, kw_only=True):
    """Hold a body of `ModelNew`, and what the verifier of the toy says of it."""

    name: str
    code: str
    analysis: str
    design: str
    status: Status | None
    """None for the copy, which the verifier never sees."""
    speedup: float | None = None


def module(statements: str, before: str = "") -> str:
    """Return the text of a program, without the line end behind it."""
    body = "\n".join(f"        {line}" for line in statements.splitlines())
    return f"{HEAD}{before}class ModelNew(nn.Module):\n    def forward(self, x, scale):\n{body}"


ZEROS = "Most products are with zeros."
LAUNCHES = "Most time goes to the start of operators."
AGAIN = "The same inputs come again."
ROWS = "Each row is multiplied by its own number."
INDICES = "The sum is written with indices, so that no matrix is made."
PLAIN = "The same operators in another order."
KEPT = "The first result is kept."

PROGRAMS: tuple[ToyProgram, ...] = (
    ToyProgram(
        name="scaled",
        code=module("return x * scale.unsqueeze(1)"),
        analysis=ZEROS,
        design=ROWS,
        status="passed",
        speedup=2.5,
    ),
    ToyProgram(
        name="indexed",
        code=module('return torch.einsum("i,ij->ij", scale, x)'),
        analysis=ZEROS,
        design=INDICES,
        status="passed",
        speedup=1.3,
    ),
    ToyProgram(
        name="same",
        code=module("return torch.matmul(torch.diag(scale), x)"),
        analysis=LAUNCHES,
        design=PLAIN,
        status="passed",
        speedup=1.0,
    ),
    ToyProgram(
        name="looped",
        code=module("return torch.stack([row * one for row, one in zip(x, scale)])"),
        analysis=ZEROS,
        design=ROWS,
        status="passed",
        speedup=0.5,
    ),
    ToyProgram(
        name="copy",
        code=module("return torch.diag(scale) @ x"),
        analysis=LAUNCHES,
        design=PLAIN,
        status=None,
    ),
    ToyProgram(
        name="wrong",
        code=module("return x + scale.unsqueeze(1)"),
        analysis=ZEROS,
        design=ROWS,
        status="incorrect_values",
    ),
    ToyProgram(
        name="broken",
        code=module("return kernels.scale(x, scale)", before="import kernels\n\n\n"),
        analysis=LAUNCHES,
        design=PLAIN,
        status="compile_error",
    ),
    ToyProgram(
        name="kept",
        code=module(
            "if not KEPT:\n    KEPT.append(torch.diag(scale) @ x)\nreturn KEPT[0]",
            before="KEPT = []\n\n\n",
        ),
        analysis=AGAIN,
        design=KEPT,
        status="reward_hack",
    ),
)


def tasks(num_tasks: int = len(SIZES)) -> list[Task]:
    """Return some tasks of one family, in KernelBench form."""
    if not 1 <= num_tasks <= len(SIZES):
        raise ValueError(f"expected 1 to {len(SIZES)} tasks, got {num_tasks}")
    return [
        Task(
            source="generated",
            name=f"toy-{number}",
            family="toy",
            text=HEAD + REFERENCE + INPUTS.format(rows=rows),
        )
        for number, rows in enumerate(SIZES[:num_tasks])
    ]
