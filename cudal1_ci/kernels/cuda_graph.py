"""Replay a module's inference call as a CUDA graph.

    class Block(torch.nn.Module):
        @cuda_graphed
        def forward(self, x): ...

A graph launches all kernels of a call at once, which pays where launching them one by one takes
longer than running them. Outputs are copies, so that a later call changes none of them. Arguments
are tensors and plain values, also in lists, tuples and dicts. A call that cannot be replayed (in
training, with gradients, with other arguments) runs as it did before.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

MAX_GRAPHS = 8
"""Graphs that a module keeps, one for each combination of shapes; each has memory of its own. Calls
of further combinations run as before: recording takes many times as long as a call."""
NUM_WARM_UP_CALLS = 2
PLAIN_VALUES = (bool, int, float, str, type(None))
INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
"""Attributes of every module that change nothing of a call, or are noted as its parts."""


class RecordedCall:
    """Record one call as a CUDA graph and replay it with other tensors.

    Arguments that are not tensors are those of the recorded call, and so are lists and objects that
    the module holds. Where NVIDIA's `cuda.bindings` are installed, the copies of inputs and outputs
    are nodes of the graph; else they are launched around it, which takes twice as long in a small
    model.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        module: torch.nn.Module,
        args: Sequence[Any],
        named: dict[str, Any],
        tensors: Sequence[torch.Tensor],
    ):
        """Record a call; its arguments hold these tensors."""
        self.lock = threading.Lock()
        self.moves: list[Callable[[int], int]] | None = None
        with torch.inference_mode(False), torch.no_grad(), undrawn(tensors[0].device):
            self.inputs = [one.clone() for one in tensors]
            self.args, self.named = with_tensors([args, named], iter(self.inputs))
            side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(NUM_WARM_UP_CALLS):
                    result = self.called(forward, module)
            torch.cuda.current_stream().wait_stream(side)
            given = tree_leaves([self.args, self.named])
            left = [one for one in given if isinstance(one, torch.Tensor)]
            if [*map(id, left)] != [*map(id, self.inputs)]:
                raise RuntimeError("a forward that changes lists that it is given is no CUDA graph")
            self.remember_state(module)
            try:
                self.record_with_copies(forward, module, tensors, self.tensors_of(result))
            except (AttributeError, ImportError, KeyError):
                self.moves = None
                self.record(forward, module, torch.cuda.CUDAGraph())
            self.stream = torch.cuda.current_stream()
        if not self.is_current():
            raise RuntimeError("a forward that replaces what its module holds is no CUDA graph")

    def called(self, forward: Callable[..., Any], module: torch.nn.Module) -> Any:
        """Return the output of a plain call for the arguments that the graph reads."""
        return forward(module, *self.args, **self.named)

    def record(
        self,
        forward: Callable[..., Any],
        module: torch.nn.Module,
        graph: Any,
        sources: Sequence[torch.Tensor] = (),
        targets: Sequence[torch.Tensor] = (),
    ) -> None:
        """Capture the call, with copies from `sources` before it and to `targets` after it."""
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for own, source in zip(self.inputs, sources):
                own.copy_(source)
            self.leaves = self.tensors_of(self.called(forward, module))
            for place, target in enumerate(targets):
                if self.leaves[place].stride() != target.stride():
                    self.leaves[place] = self.leaves[place].clone()
                target.copy_(self.leaves[place])
        self.graph = graph

    def record_with_copies(
        self,
        forward: Callable[..., Any],
        module: torch.nn.Module,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        """Capture the call with its copies as nodes whose addresses can be changed.

        Raises:
            ImportError: `cuda.bindings` is not installed.
            AttributeError: This torch does not expose its graphs.
            KeyError: A copy is not a node that copies consecutive bytes.
        """
        from cuda.bindings import runtime

        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
            raise AttributeError("raw_cuda_graph_exec")
        for number, (own, given) in enumerate(zip(self.inputs, tensors)):
            if own.is_complex() or given.is_neg() or own.stride() != given.stride():
                raise KeyError(number)
        sources = [torch.empty_like(one) for one in self.inputs]
        targets = [torch.empty_like(one) for one in outputs]
        graph: Any = torch.cuda.CUDAGraph(keep_graph=True)
        self.record(forward, module, graph, sources, targets)
        nodes = {}
        recorded = graph.raw_cuda_graph()
        count = runtime.cudaGraphGetNodes(recorded, numNodes=0)[2]
        for node in runtime.cudaGraphGetNodes(recorded, numNodes=count)[1][:count]:
            kind = runtime.cudaGraphNodeGetType(node)[1]
            if kind == runtime.cudaGraphNodeType.cudaGraphNodeTypeMemcpy:
                copy = runtime.cudaGraphMemcpyNodeGetParams(node)[1]
                nodes[int(copy.srcPtr.ptr), int(copy.dstPtr.ptr)] = node
        graph.instantiate()
        executable = runtime.cudaGraphExec_t(graph.raw_cuda_graph_exec())
        update = runtime.cudaGraphExecMemcpyNodeSetParams1D
        direction = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice

        def mover(source: torch.Tensor, to: torch.Tensor, is_input: bool) -> Callable[[int], int]:
            size = to.numel() * to.element_size()
            start, end = source.data_ptr(), to.data_ptr()
            node = nodes[start, end]
            if is_input:
                return lambda place: update(executable, node, end, place, size, direction)[0]
            return lambda place: update(executable, node, place, start, size, direction)[0]

        moves = [mover(*pair, True) for pair in zip(sources, self.inputs)]
        moves += [mover(*pair, False) for pair in zip(self.leaves, targets)]
        self.moves = moves
        self.places: list[int | None] = [None for _ in moves]

    def remember_state(self, module: torch.nn.Module) -> None:
        """Note the parts of the module and where its tensors are stored."""
        kept = (torch.Tensor, *PLAIN_VALUES)
        parts = [
            (held, name, one)
            for part in module.modules()
            for held in (part._parameters, part._buffers, part._modules, vars(part))
            for name, one in held.items()
            if held is not vars(part) or (isinstance(one, kept) and name not in INTERNAL)
        ]
        self.holders, self.keys, self.parts = ([*column] for column in zip(*parts))
        self.tensors = [one for one in self.parts if isinstance(one, torch.Tensor)]
        self.addresses = [one.data_ptr() for one in self.tensors]

    def is_current(self) -> bool:
        """Return whether the module still has the recorded parts, stored in the same places. A
        replay waits for this, so its loops are those of the interpreter."""
        if not all(map(is_, map(dict.get, self.holders, self.keys), self.parts)):
            return False
        return [*map(torch.Tensor.data_ptr, self.tensors)] == self.addresses

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the output for arguments with these tensors; None where one cannot be copied by a
        node."""
        if self.moves is None:
            outs = self.replay_with_copies_around(tensors)
        else:
            outs = [torch.empty_like(one) for one in self.leaves]
            places = [one.data_ptr() for one in tensors]
            places += [one.data_ptr() for one in outs]
            with self.lock:
                for number, (move, place) in enumerate(zip(self.moves, places)):
                    if place != self.places[number]:
                        if move(place):
                            return None
                        self.places[number] = place
                self.graph.replay()
        if self.is_one_tensor:
            return outs[0]
        values = list(self.values)
        for number, one in zip(self.results, outs):
            values[number] = one
        return tree_unflatten(values, self.structure)

    def replay_with_copies_around(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with self.lock:
            stream = torch.cuda.current_stream()
            if stream != self.stream:
                stream.wait_stream(self.stream)
                self.stream = stream
            for own, one in zip(self.inputs, tensors):
                own.copy_(one)
            self.graph.replay()
            return [one.clone() for one in self.leaves]

    def tensors_of(self, result: Any) -> list[torch.Tensor]:
        """Return the tensors of an output in order, and note what it holds besides.

        Raises:
            TypeError: The output holds something that is no tensor, plain value or container.
        """
        self.is_one_tensor = isinstance(result, torch.Tensor)
        leaves, self.structure = tree_flatten(result)
        for one in leaves:
            if not isinstance(one, torch.Tensor) and type(one) not in PLAIN_VALUES:
                raise TypeError(f"a CUDA graph cannot return a {type(one).__name__}")
        self.results = [n for n, one in enumerate(leaves) if isinstance(one, torch.Tensor)]
        self.values = [None if isinstance(one, torch.Tensor) else one for one in leaves]
        return [leaves[n] for n in self.results]


def form_of(one: Any, form: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Add what a graph depends on of an argument to `form`, and its tensors; return whether a graph
    can have it."""
    kind = type(one)
    if kind is torch.Tensor:
        if not (one.is_cuda and one.layout is torch.strided):
            return False
        form += (one.shape, one.stride(), one.dtype, one.device, one.is_neg())
        tensors.append(one)
        return True
    if kind in PLAIN_VALUES:
        form += (kind, one)
        return True
    if kind not in (tuple, list, dict):
        return False
    form += (kind, tuple(one) if kind is dict else len(one))
    return all(form_of(part, form, tensors) for part in (one.values() if kind is dict else one))


def with_tensors(one: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Return arguments with other tensors in them."""
    if isinstance(one, torch.Tensor):
        return next(tensors)
    if isinstance(one, dict):
        return {key: with_tensors(value, tensors) for key, value in one.items()}
    if isinstance(one, (tuple, list)):
        return type(one)(with_tensors(part, tensors) for part in one)
    return one


@contextlib.contextmanager
def undrawn(device: torch.device) -> Iterator[None]:
    """Let calls change nothing of what is drawn later. Autocast keeps no copies of weights: a graph
    would read those after they are gone."""
    keeps_casts = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.random.fork_rng([device]):
            yield
    finally:
        torch.set_autocast_cache_enabled(keeps_casts)


def cuda_graphed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Record inference calls on a GPU as CUDA graphs, one for each combination of shapes, and
    replay them; run all other calls as before."""
    recorded: weakref.WeakKeyDictionary[Any, dict[Any, RecordedCall]] = weakref.WeakKeyDictionary()

    def record(
        self: Any,
        args: Sequence[Any],
        named: dict[str, Any],
        tensors: Sequence[torch.Tensor],
        key: tuple[Any, ...],
    ) -> RecordedCall | None:
        if not tensors or torch.cuda.is_current_stream_capturing():
            return None
        calls = recorded.setdefault(self, {})
        calls.pop(key, None)
        if len(calls) == MAX_GRAPHS:
            if next(iter(calls.values())).is_current():
                return None
            calls.clear()
        with torch.cuda.device(tensors[0].device):
            calls[key] = RecordedCall(forward, self, args, named, tensors)
        return calls[key]

    @functools.wraps(forward)
    def replayed(self: Any, *args: Any, **named: Any) -> Any:
        is_plain = not (self.training or torch.is_grad_enabled())
        if not is_plain or torch.compiler.is_compiling():
            return forward(self, *args, **named)
        casts = torch.is_autocast_enabled("cuda")
        form: list[Any] = [torch.get_autocast_dtype("cuda") if casts else None]
        tensors: list[torch.Tensor] = []
        if not (form_of(args, form, tensors) and form_of(named, form, tensors)):
            return forward(self, *args, **named)
        key = tuple(form)
        call = recorded.get(self, {}).get(key)
        if call is None or not call.is_current():
            call = record(self, args, named, tensors, key)
        elif torch.cuda.is_current_stream_capturing():
            call = None
        output = None if call is None else call(tensors)
        return forward(self, *args, **named) if output is None else output

    return replayed
