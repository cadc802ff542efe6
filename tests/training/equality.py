"""Programs built and called as the judge would: in evaluation, without gradients, on copies."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch


def names_of(text: str) -> dict[str, Any]:
    """What a program defines. From a file, as Triton reads the source of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("program", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return vars(module)


def built(
    text: str, entry: str, task: str | None = None, dtype: torch.dtype = torch.float64
) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The module with its state made random, and inputs; `task` is the text that makes inputs."""
    names = names_of(text)
    given = names if task is None else names_of(task)
    torch.manual_seed(0)
    model = names[entry](*given["get_init_inputs"]()).to(dtype).eval()
    for value in model.state_dict().values():
        if value.is_floating_point():  # what begins as zeros and ones would hide mistakes
            value.add_(torch.rand_like(value) * 0.5)
    inputs = given["get_inputs"]()
    return model, [one.to(dtype) if one.is_floating_point() else one for one in inputs]


def called(model: torch.nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    given = [one.clone() for one in inputs]
    with torch.no_grad():
        found = model(*given)
    assert all(torch.equal(a, b) for a, b in zip(given, inputs, strict=True)), "inputs changed"
    return found
