"""Find the shape of each tensor of a task's `forward` before each statement.

    shapes_in(program, task.text)[0]["x"]      # (4096, 512)

Runs the task on tensors without storage: only for texts of our own making (tasks/generate.py), as
tasks/probe.py does.
"""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from model_training.variants.source import Program

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
"""By name; submodules' parameters under `self.norm.weight`."""
RECORD = "__shapes_here__"


def shapes_in(program: Program, text: str) -> list[Shapes]:
    """Return the shapes before each statement of `forward`, and after the last one."""
    names: dict[str, Any] = {}
    exec(compile(text, "<task>", "exec"), names)
    found: list[Shapes] = []

    def record(known: dict[str, Any]) -> None:
        model = known["self"]
        own = {f"self.{name}": value for name, value in model.named_parameters()}
        own |= {f"self.{name}": value for name, value in model.named_buffers()}
        tensors = {k: v for k, v in (known | own).items() if isinstance(v, torch.Tensor)}
        found.append({name: tuple(value.shape) for name, value in tensors.items()})

    names[RECORD] = record
    exec(compile(recorded(program), "<shapes>", "exec"), names)
    with FakeTensorMode(), torch.no_grad():
        model = names["Model"](*names["get_init_inputs"]())
        names["forward"](model, *names["get_inputs"]())
    return found


def recorded(program: Program) -> ast.Module:
    """Return `forward` as a function that reports its names before each statement."""
    source = f"def forward({', '.join(('self', *program.arguments))}):\n    return x"
    module = ast.parse(source)
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    tell = ast.parse(f"{RECORD}(dict(locals()))").body[0]
    function.body = [
        *(one for statement in program.forward for one in (tell, statement.node)),
        tell,
        *function.body,
    ]
    return ast.fix_missing_locations(module)
