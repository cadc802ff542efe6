"""Replay a module's inference call as a CUDA graph.

    class Block(torch.nn.Module):
        @cuda_graphed
        def forward(self, x): ...

A graph launches all kernels of a call at once, which pays where launching them one by one takes
longer than running them. Outputs are copies, so that a later call changes none of them. A call that
cannot be replayed (in training, with gradients, with arguments other than tensors and plain values)
runs as it did before.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

MAX_GRAPHS = 8
"""Graphs that a module keeps, one for each combination of shapes; each has memory of its own."""
NUM_WARM_UP_CALLS = 2
PLAIN_VALUES = (bool, int, float, str, type(None))


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
        names: Sequence[str] = (),
    ):
        """Record a call. The last arguments are those with `names`."""
        self.names = names
        self.lock = threading.Lock()
        self.moves: list[Callable[[int], int]] | None = None
        with torch.inference_mode(False), torch.no_grad(), without_kept_casts():
            self.args = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
            self.inputs = [
                place for place, own in enumerate(self.args) if isinstance(own, torch.Tensor)
            ]
            side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(NUM_WARM_UP_CALLS):
                    result = self.called(forward, module)
            torch.cuda.current_stream().wait_stream(side)
            self.remember_state(module)
            try:
                self.record_with_copies(forward, module, args, self.tensors_of(result))
            except (AttributeError, ImportError, KeyError):
                self.moves = None
                self.record(forward, module, torch.cuda.CUDAGraph())
            self.stream = torch.cuda.current_stream()
        if not self.is_current():
            raise RuntimeError("a forward that replaces what its module holds is no CUDA graph")

    def called(self, forward: Callable[..., Any], module: torch.nn.Module) -> Any:
        """Return the output of a plain call for the arguments that the graph reads."""
        count = len(self.args) - len(self.names)
        return forward(module, *self.args[:count], **dict(zip(self.names, self.args[count:])))

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
            for place, source in zip(self.inputs, sources):
                self.args[place].copy_(source)
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
        args: Sequence[Any],
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
        own = [self.args[place] for place in self.inputs]
        for place, one in zip(self.inputs, own):
            given = args[place]
            if one.is_complex() or given.is_neg() or one.stride() != given.stride():
                raise KeyError(place)
        sources = [torch.empty_like(one) for one in own]
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

        moves = [mover(*pair, True) for pair in zip(sources, own)]
        moves += [mover(*pair, False) for pair in zip(self.leaves, targets)]
        self.moves = moves
        self.places: list[int | None] = [None for _ in moves]

    def remember_state(self, module: torch.nn.Module) -> None:
        """Note the parts of the module and where its tensors are stored."""
        self.parts = [
            (held, name, one)
            for part in module.modules()
            for held in (part._parameters, part._buffers, part._modules, vars(part))
            for name, one in held.items()
            if held is not vars(part) or isinstance(one, (torch.Tensor, *PLAIN_VALUES))
        ]
        tensors = [one for _, _, one in self.parts if isinstance(one, torch.Tensor)]
        self.weights = [(one.data_ptr, one.data_ptr()) for one in tensors]

    def is_current(self) -> bool:
        """Return whether the module still has the recorded parts, stored in the same places."""
        for held, name, one in self.parts:
            if held.get(name) is not one:
                return False
        for place, recorded in self.weights:
            if place() != recorded:
                return False
        return True

    def __call__(self, args: Sequence[Any]) -> Any:
        """Return the output for these arguments; None where a tensor cannot be copied by a node."""
        if self.moves is None:
            outs = self.replay_with_copies_around(args)
        else:
            outs = [torch.empty_like(one) for one in self.leaves]
            places = [args[place].data_ptr() for place in self.inputs]
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

    def replay_with_copies_around(self, args: Sequence[Any]) -> list[torch.Tensor]:
        with self.lock:
            stream = torch.cuda.current_stream()
            if stream != self.stream:
                stream.wait_stream(self.stream)
                self.stream = stream
            for place in self.inputs:
                self.args[place].copy_(args[place])
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


@contextlib.contextmanager
def without_kept_casts() -> Iterator[None]:
    """Let autocast keep no copies of weights: a graph would read those after they are gone."""
    keeps_casts = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(keeps_casts)


def cuda_graphed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Record inference calls on a GPU as CUDA graphs, one for each combination of shapes, and
    replay them; run all other calls as before."""
    recorded: weakref.WeakKeyDictionary[Any, dict[Any, RecordedCall]] = weakref.WeakKeyDictionary()

    def key_of(args: Sequence[Any], names: Sequence[str]) -> tuple[Any, ...] | None:
        casts = torch.is_autocast_enabled("cuda")
        key: list[Any] = [names, torch.get_autocast_dtype("cuda") if casts else None]
        for one in args:
            if type(one) is torch.Tensor and one.is_cuda and one.layout is torch.strided:
                key += (one.shape, one.stride(), one.dtype, one.device, one.is_neg())
            elif type(one) in PLAIN_VALUES:
                key += (type(one), one)
            else:
                return None
        return tuple(key)

    def record(
        self: Any, args: Sequence[Any], names: Sequence[str], key: tuple[Any, ...]
    ) -> RecordedCall | None:
        devices = [one.device for one in args if isinstance(one, torch.Tensor)]
        if not devices or torch.cuda.is_current_stream_capturing():
            return None
        calls = recorded.setdefault(self, {})
        calls.pop(key, None)
        if len(calls) == MAX_GRAPHS:
            calls.clear()
        with torch.cuda.device(devices[0]):
            calls[key] = RecordedCall(forward, self, args, names)
        return calls[key]

    @functools.wraps(forward)
    def replayed(self: Any, *args: Any, **named: Any) -> Any:
        is_plain = not (self.training or torch.is_grad_enabled())
        if not is_plain or torch.compiler.is_compiling():
            return forward(self, *args, **named)
        given, names = (*args, *named.values()), tuple(named)
        key = key_of(given, names)
        if key is None:
            return forward(self, *args, **named)
        call = recorded.get(self, {}).get(key)
        if call is None or not call.is_current():
            call = record(self, given, names, key)
        elif torch.cuda.is_current_stream_capturing():
            call = None
        output = None if call is None else call(given)
        return forward(self, *args, **named) if output is None else output

    return replayed
