"""What a call of the playbook's CUDA graph costs, and what each of its parts does.

    python benchmarks/graph_call.py                    # on a GPU

A small module is called many times in a row, its outputs kept, as the judge does in a timed batch:
eagerly, as `cuda_graphed` records it (its inputs copied in, its outputs copied out), and with both
copies as nodes of the graph whose addresses are set before each replay, by NVIDIA's bindings and by
the runtime's own function. Microseconds a call, medians of the rounds, of one process in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from discovery_speed import provenance
from text_trials import write
from torch import nn

from cudal1_ci.propose.playbook.graphs import HELPERS

OUTPUT = Path(__file__).parent / "results" / "graph-call.json"
KEPT = 100
"""Outputs of a batch."""
DEVICE_TO_DEVICE = 3
MEMCPY = 1
Call = Callable[[], torch.Tensor]


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


class AsNodes:
    """A forward of one tensor as a graph that begins and ends with a copy."""

    def __init__(self, forward: nn.Module, x: torch.Tensor, by: str):
        mine = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                forward(mine)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(self.graph):
            mine.copy_(x)
            self.result = forward(mine)
            out = self.result.clone()
        self.graph.instantiate()
        self.mine, self.num_bytes, self.out_bytes = mine, mine.nbytes, out.nbytes
        copies = self.copies()
        self.copy_in = copies[x.data_ptr(), mine.data_ptr()]
        self.copy_out = copies[self.result.data_ptr(), out.data_ptr()]
        self.executable = self.graph.raw_cuda_graph_exec()
        self.set = {"bindings": self.by_bindings, "runtime": self.by_runtime}[by]()

    def copies(self) -> dict[tuple[int, int], Any]:
        """Nodes by the addresses that they copy from and to."""
        from cuda.bindings import runtime

        graph = self.graph.raw_cuda_graph()
        _, _, count = runtime.cudaGraphGetNodes(graph, numNodes=0)
        _, nodes, _ = runtime.cudaGraphGetNodes(graph, numNodes=count)
        found = {}
        for node in nodes[:count]:
            _, kind = runtime.cudaGraphNodeGetType(node)
            if int(kind) == MEMCPY:
                _, parameters = runtime.cudaGraphMemcpyNodeGetParams(node)
                place = int(parameters.srcPtr.ptr), int(parameters.dstPtr.ptr)
                found[place] = node
        return found

    def by_bindings(self) -> Callable[[Any, int, int, int], None]:
        from cuda.bindings import runtime

        executable = runtime.cudaGraphExec_t(self.executable)
        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        update = runtime.cudaGraphExecMemcpyNodeSetParams1D

        def set_(node: Any, to: int, source: int, size: int) -> None:
            (code,) = update(executable, node, to, source, size, kind)
            if code:
                raise RuntimeError(code)

        return set_

    def by_runtime(self) -> Callable[[Any, int, int, int], None]:
        maps = Path("/proc/self/maps").read_text()
        (path,) = sorted(set(re.findall(r"\S*/libcudart\.so\S*", maps)))[:1]
        update = ctypes.CDLL(path).cudaGraphExecMemcpyNodeSetParams1D
        update.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_size_t, ctypes.c_int]
        executable = self.executable
        self.copy_in, self.copy_out = int(self.copy_in), int(self.copy_out)

        def set_(node: Any, to: int, source: int, size: int) -> None:
            if update(executable, node, to, source, size, DEVICE_TO_DEVICE):
                raise RuntimeError("the address was refused")

        return set_

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(self.result)
        self.set(self.copy_in, self.mine.data_ptr(), x.data_ptr(), self.num_bytes)
        self.set(self.copy_out, out.data_ptr(), self.result.data_ptr(), self.out_bytes)
        self.graph.replay()
        return out


def recorded(module: type[nn.Module]) -> nn.Module:
    """As the playbook records it."""
    names: dict[str, Any] = {}
    exec("import functools\nimport weakref\nimport torch\n" + HELPERS, names)
    forward = names["cuda_graphed"](module.forward)
    return type("Recorded", (module,), {"forward": forward})()


def microseconds(call: Call, num_calls: int) -> float:
    """Of a call, in batches whose outputs are kept."""
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    for _ in range(num_calls // KEPT):
        kept = [call() for _ in range(KEPT)]
        torch.cuda.synchronize()
        del kept
    return (time.perf_counter() - started_s) / num_calls * 1e6


def ways(
    module: type[nn.Module], sets: list[torch.Tensor]
) -> tuple[dict[str, Call], dict[str, str]]:
    """By name, each with other inputs than the call before; and why there are no others."""
    torch.manual_seed(0)
    plain = module().cuda().eval()
    made: dict[str, Any] = {"eager": plain}
    made["as the playbook records it"] = recorded(module).cuda().eval()
    made["as the playbook records it"].load_state_dict(plain.state_dict())
    failures = {}
    for by in ("bindings", "runtime"):
        try:
            made[f"copies as nodes, {by}"] = AsNodes(plain, sets[0], by)
        except Exception as error:  # noqa: BLE001 (told instead of a number)
            failures[by] = f"{type(error).__name__}: {error}"
    for name, one in made.items():
        for x in sets[:3]:
            torch.testing.assert_close(one(x), plain(x), msg=f"{name}: another answer")
    graph, x, y = made["as the playbook records it"], sets[0], torch.empty_like(sets[0])
    graph(x)

    def turning(one: Any) -> Call:
        count = iter(range(10**9))
        return lambda: one(sets[next(count) % len(sets)])

    found = {name: turning(one) for name, one in made.items()}
    found |= {
        "copy_": lambda: y.copy_(x),
        "clone": lambda: x.clone(),
        "empty_like": lambda: torch.empty_like(x),
    }
    nodes = made.get("copies as nodes, runtime")
    if nodes is not None:
        found["replay"] = lambda: nodes.graph.replay()
        place = nodes.mine.data_ptr(), x.data_ptr(), nodes.num_bytes
        found["an address set"] = lambda: nodes.set(nodes.copy_in, *place)
    return found, failures


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
            found, failures = ways(module, sets)
            times: dict[str, list[float]] = {name: [] for name in found}
            for _ in range(options.rounds + 1):
                for name, call in found.items():
                    times[name].append(microseconds(call, options.calls))
            medians = {name: round(statistics.median(one[1:]), 2) for name, one in times.items()}
            row = {"module": module.__name__, "microseconds": medians, "failures": failures}
            rows.append(row)
            print(json.dumps(row, indent=1), flush=True)
    device = torch.cuda.get_device_name()
    write(options.output, {**provenance(), "device": device, "rows": rows})


if __name__ == "__main__":
    main()
