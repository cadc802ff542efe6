"""Run tasks: is what one computes deterministic, finite, and of all of its inputs? How long does it
take?

    python -m model_training.tasks.probe --device cuda < tasks.jsonl > probed.jsonl

A line in is `{"name": ..., "text": ...}`, a line out the name with what was found. Only for texts
of our own making (generate.py): they run in this process. Whether a task can be verified is the
verifier's to say later; this keeps out what never can.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import torch

MAX_CALL_S = 0.5
"""A reference that takes longer leaves no time to try variants of it."""


def probe(text: str, device: str = "cpu") -> dict[str, Any]:
    """Return `{"problem": None, "call_us": 41.2}`, or why the task is none."""
    try:
        return probed(text, device)
    except Exception as error:  # noqa: BLE001 - whatever a program may raise
        return {"problem": f"{type(error).__name__}: {error}"}


@torch.no_grad()
def probed(text: str, device: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "<task>", "exec"), names)
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]()).to(device)
    inputs = [one.to(device) for one in names["get_inputs"]()]
    first = call(model, inputs)
    if not isinstance(first, torch.Tensor) or not first.numel():
        return {"problem": f"expected a tensor, got {type(first).__name__}"}
    if not torch.isfinite(first).all():
        return {"problem": "not finite"}
    if not torch.equal(first, call(model, inputs)):
        return {"problem": "not deterministic"}
    for number, one in enumerate(inputs):
        changed = [*inputs[:number], other_than(one), *inputs[number + 1 :]]
        if torch.allclose(first, call(model, changed), rtol=1e-4, atol=1e-5):
            return {"problem": f"does not depend on input {number}"}
    if first.numel() > 1 and first.float().std() < 1e-6 * max(1.0, first.abs().max().item()):
        return {"problem": "the same value everywhere"}
    took_s = seconds_of(model, inputs, device)
    if took_s > MAX_CALL_S:
        return {"problem": f"takes {took_s:.1f} s"}
    return {"problem": None, "call_us": round(took_s * 1e6, 1), "num_elements": first.numel()}


def call(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Any:
    """Call on copies: a task may write into its inputs, and batch norm keeps a state."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = model(*(one.clone() for one in inputs))
    model.load_state_dict(state)
    return found


def other_than(value: torch.Tensor) -> torch.Tensor:
    """Return a value as it might also be: noise, or another index."""
    if value.is_floating_point():
        return value + torch.randn_like(value) * 0.5
    return value.flip(0).roll(1, 0) if value.numel() > 1 else value + 1


def seconds_of(model: torch.nn.Module, inputs: list[torch.Tensor], device: str) -> float:
    """Return the least of three calls: enough to sort out what is far too slow."""
    least = math.inf
    for _ in range(3):
        start_s = time.perf_counter()
        model(*inputs)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        least = min(least, time.perf_counter() - start_s)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for line in sys.stdin:
        task = json.loads(line)
        found = {"name": task["name"], **probe(task["text"], options.device)}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
