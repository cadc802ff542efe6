"""What a call of the playbook's CUDA graph costs, and what each of its parts does.

    python benchmarks/graph_call.py                    # on a GPU

A small module is called many times in a row, its outputs kept, as the judge does in a timed batch:
eagerly, as `cuda_graphed` records it (its inputs' and outputs' copies are nodes of the graph), and
as it records it without NVIDIA's bindings (copied around the graph). Every call has another input
than the one before, at another place. Microseconds a call, medians of the rounds, of one process in
turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from discovery_speed import provenance
from text_trials import write
from torch import nn

from cudal1_ci.propose.apply import library_text

OUTPUT = Path(__file__).parent / "results" / "graph-call.json"
KEPT = 100
"""Outputs of a batch."""
Call = Callable[[], Any]


class Gelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x)


class Chain(nn.Module):
    """Ten small kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.relu(self.fc(x)) + 1
            x = x / x.sum(1, keepdim=True)
        return x


def recorded(module: nn.Module, x: torch.Tensor, *, with_bindings: bool = True) -> nn.Module:
    """The same as the playbook records it, with or without NVIDIA's bindings."""
    names: dict[str, Any] = {}
    exec(library_text("cuda_graph"), names)
    kind = type(module)
    graphed = {"forward": names["cuda_graphed"](kind.forward)}
    other: nn.Module = type("Recorded", (kind,), graphed)().cuda().eval()
    other.load_state_dict(module.state_dict())
    hidden = {} if with_bindings else {"cuda.bindings": None}
    calls: list[Any] = []
    own = names["RecordedCall"].__init__

    def noted(call: Any, *given: Any) -> None:
        own(call, *given)
        calls.append(call)

    names["RecordedCall"].__init__ = noted
    with mock.patch.dict(sys.modules, hidden):
        other(x)
    (call,) = calls
    if (call.moves is not None) != with_bindings:
        raise RuntimeError(f"copied {'around' if with_bindings else 'by nodes of'} the graph")
    return other


def microseconds(call: Call, num_calls: int) -> float:
    """Of a call, in batches whose outputs are kept."""
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    for _ in range(num_calls // KEPT):
        kept = [call() for _ in range(KEPT)]
        torch.cuda.synchronize()
        del kept
    return (time.perf_counter() - started_s) / num_calls * 1e6


def ways(kind: type[nn.Module], sets: list[torch.Tensor]) -> dict[str, Call]:
    """By name, each with another input than the call before."""
    torch.manual_seed(0)
    plain = kind().cuda().eval()
    made = {
        "eager": plain,
        "copies as nodes": recorded(plain, sets[0]),
        "copies around it": recorded(plain, sets[0], with_bindings=False),
    }
    for name, one in made.items():
        for x in sets[:3]:
            torch.testing.assert_close(one(x), plain(x), msg=f"{name}: another answer")
    x, y = sets[0], torch.empty_like(sets[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain(y)

    def turning(one: nn.Module) -> Call:
        count = iter(range(10**9))
        return lambda: one(sets[next(count) % len(sets)])

    found = {name: turning(one) for name, one in made.items()}
    found |= {
        "copy_": lambda: y.copy_(x),
        "clone": lambda: x.clone(),
        "empty_like": lambda: torch.empty_like(x),
        "replay": lambda: graph.replay(),
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    rows = []
    with torch.no_grad():
        for module, shape in ((Gelu, (16, 1024)), (Chain, (64, 256))):
            sets = [torch.randn(shape, device="cuda") for _ in range(8)]
            found = ways(module, sets)
            times: dict[str, list[float]] = {name: [] for name in found}
            for _ in range(options.rounds + 1):
                for name, call in found.items():
                    times[name].append(microseconds(call, options.calls))
            medians = {name: round(statistics.median(one[1:]), 2) for name, one in times.items()}
            row = {"module": module.__name__, "microseconds": medians}
            rows.append(row)
            print(json.dumps(row, indent=1), flush=True)
    device = torch.cuda.get_device_name()
    write(options.output, {**provenance(), "device": device, "rows": rows})


if __name__ == "__main__":
    main()
