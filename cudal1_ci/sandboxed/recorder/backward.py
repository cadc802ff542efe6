"""Time the backward pass of a recorded call by the operations of its forward pass.

Autograd numbers its nodes as the forward pass makes them, so the numbers that an operation used are
those of its nodes. Each node is timed by hooks before and after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

NUM_PASSES = 2
"""The shorter time counts: the first pass also warms up."""
ACCUMULATES = "AccumulateGrad"


def next_number() -> int:
    """Return the number that autograd gives to the next node; 0 where torch does not tell it."""
    autograd: Any = torch._C._autograd
    return int(autograd._get_sequence_nr()) if hasattr(autograd, "_get_sequence_nr") else 0


def backward_times(
    outputs: Sequence[torch.Tensor], made: dict[int, int], is_on_gpu: bool
) -> dict[int, float]:
    """Return the microseconds that the backward pass of a sum of outputs takes by operation; {} if
    it has none, or fails: then nothing is known.

    Args:
        outputs: What the call returned.
        made: Operations by the numbers of the nodes that they made.
        is_on_gpu: Whether events of the GPU time them.
    """
    roots = [one for one in outputs if one.grad_fn is not None]
    nodes = list(nodes_below([one.grad_fn for one in roots]))
    leaves = [node.variable for node in nodes if type(node).__name__ == ACCUMULATES]
    if not leaves:
        return {}
    best: dict[int, float] = {}
    for _ in range(NUM_PASSES):
        timer = Timer(is_on_gpu)
        handles = []
        for node in nodes:
            operation = made.get(node._sequence_nr())
            if operation is not None and type(node).__name__ != ACCUMULATES:
                handles.append(node.register_prehook(timer.before(node, operation)))
                handles.append(node.register_hook(timer.after(node)))
        try:
            torch.autograd.grad(
                roots,
                leaves,
                [torch.ones_like(one) for one in roots],
                retain_graph=True,
                allow_unused=True,
            )
        except RuntimeError:  # what a forward pass wrote over, or has no derivative
            return {}
        finally:
            for handle in handles:
                handle.remove()
        for operation, spent_us in timer.times().items():
            best[operation] = min(spent_us, best.get(operation, spent_us))
    return best


def nodes_below(waiting: list[Any]) -> Iterator[Any]:
    """Yield the nodes of a graph, each once."""
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [one for one, _ in node.next_functions]


class Timer:
    """Note when nodes start and end."""

    def __init__(self, is_on_gpu: bool):
        self.is_on_gpu = is_on_gpu
        self.running: dict[Any, tuple[int, Any]] = {}
        self.spans: list[tuple[int, Any, Any]] = []

    def now(self) -> Any:
        if not self.is_on_gpu:
            return time.perf_counter()
        new: Any = torch.cuda.Event
        event = new(enable_timing=True)
        event.record()
        return event

    def before(self, node: Any, operation: int) -> Callable[..., None]:
        def hook(_: Any) -> None:
            self.running[node] = operation, self.now()

        return hook

    def after(self, node: Any) -> Callable[..., None]:
        def hook(_: Any, __: Any) -> None:
            operation, start = self.running.pop(node)
            self.spans.append((operation, start, self.now()))

        return hook

    def times(self) -> dict[int, float]:
        """Return microseconds by operation."""
        if self.is_on_gpu:
            torch.cuda.synchronize()
        found: dict[int, float] = {}
        for operation, start, end in self.spans:
            spent_us = 1e3 * start.elapsed_time(end) if self.is_on_gpu else 1e6 * (end - start)
            found[operation] = found.get(operation, 0.0) + min(spent_us, 1e12)
        return found
