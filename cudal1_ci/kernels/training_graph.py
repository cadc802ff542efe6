"""Replay a module's training call and its backward pass as CUDA graphs.

    class Block(torch.nn.Module):
        @graphed_in_training
        def forward(self, x): ...

A graph launches all kernels of a pass at once, which pays where launching them one by one takes
longer than running them. Outputs and gradients are copies, so that a later call changes none of
them. Arguments are tensors and plain values, also in lists, tuples and dicts. A call that cannot be
replayed runs as it did before: without gradients, with hooks on submodules, with other arguments,
and while the backward pass of an earlier call is still to come.

This file needs no other one: a patch adds it alone to a module that is only trained.
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
from torch.nn.modules import module as torch_modules
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

DEVICE = "cuda"
MAX_STEPS = 8
"""Recordings that are made for a module. Each combination of shapes takes one, which keeps memory
of its own; further ones run as before."""
NUM_WARM_UP_STEPS = 3
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN_VALUES = (bool, int, float, str, type(None))
INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
"""Attributes of every module that change nothing of a call, or are noted as its parts."""


class Turn:
    """Stand for a call whose backward pass may still come: dropped by it, or with the outputs."""


class RecordedStep:
    """Record one call and its backward pass as CUDA graphs, and replay them with other tensors.

    Arguments that are not tensors are those of the recorded call, and so are lists and objects that
    the module holds.

    Raises:
        TypeError: The outputs hold something else than tensors and plain values, none of them has
            a gradient, or gradients reach a tensor that is no parameter of the module.
        RuntimeError: The call waits for the GPU, or changes what the module holds.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        module: torch.nn.Module,
        args: Sequence[Any],
        named: dict[str, Any],
        tensors: Sequence[torch.Tensor],
    ):
        """Record a step; its arguments hold these tensors."""
        self.forward = forward
        self.lock = threading.Lock()
        self.turn: Callable[[], Turn | None] = lambda: None
        self.own = [one.detach().clone().requires_grad_(one.requires_grad) for one in tensors]
        self.arguments = with_tensors([args, named], iter(self.own))
        self.device = self.own[0].device
        trained = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
        self.names = [f"inner.{name}" for name, _ in trained]
        self.weights = [one for _, one in trained]
        # Autograd runs its nodes on streams: those of the weights may be in use on another.
        self.aliases = [torch.nn.Parameter(one.detach()) for one in self.weights]
        self.sources = [one for one in (*self.own, *self.aliases) if one.requires_grad]
        self.remember_state(module)
        with undone(module, self.device):
            self.warm_up(module)
            left = [one for one in tree_leaves(self.arguments) if isinstance(one, torch.Tensor)]
            if [*map(id, left)] != [*map(id, self.own)]:
                raise RuntimeError("a forward that changes lists that it is given is no CUDA graph")
            self.record(module)
        if not self.is_current():
            raise RuntimeError("a forward that replaces what its module holds is no CUDA graph")

    def called(
        self, module: torch.nn.Module, given: Sequence[Any], weights: Sequence[torch.Tensor]
    ) -> list[Any]:
        """Return the leaves of an output that is computed with these weights."""
        args, named = given
        own = dict(zip(self.names, weights))
        unhooked = Unhooked(module, self.forward)
        result = torch.func.functional_call(unhooked, own, tuple(args), named)
        leaves, self.structure = tree_flatten(result)
        return leaves

    def differentiated(self, leaves: Sequence[Any], given: Sequence[torch.Tensor]) -> Any:
        """Return the gradients of the sources. A backward pass runs outside of autocast."""
        wanted = [leaves[n] for n in self.wanted]
        with torch.autocast(DEVICE, enabled=False):
            return torch.autograd.grad(wanted, self.sources, given, allow_unused=True)

    def warm_up(self, module: torch.nn.Module) -> None:
        """Make calls outside of a graph, since the first ones do more than later ones."""
        before = torch.cuda.get_rng_state(self.device)
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(NUM_WARM_UP_STEPS):
                leaves = self.called(module, self.arguments, self.aliases)
                self.examine(leaves)
                self.given = [torch.zeros_like(leaves[n]) for n in self.wanted]
                self.differentiated(leaves, self.given)
        torch.cuda.current_stream().wait_stream(side)
        self.draws = not torch.equal(before, torch.cuda.get_rng_state(self.device))

    def examine(self, leaves: Sequence[Any]) -> None:
        """Note which outputs are tensors, and which have gradients; refuse what a graph loses."""
        if any(type(one) not in (torch.Tensor, *PLAIN_VALUES) for one in leaves):
            raise TypeError("a CUDA graph returns tensors alone")
        self.places = [n for n, one in enumerate(leaves) if isinstance(one, torch.Tensor)]
        self.wanted = [n for n in self.places if leaves[n].requires_grad]
        if not self.wanted:
            raise TypeError("no output has a gradient")
        known = {id(one) for one in self.sources}
        pending: list[Any] = [leaves[n].grad_fn for n in self.wanted]
        seen: set[Any] = set()
        while pending:
            node = pending.pop()
            if node is None or id(getattr(node, "variable", self.sources[0])) not in known:
                raise TypeError("a gradient reaches a tensor that is no parameter of the module")
            if node not in seen:
                seen.add(node)
                pending += [one for one, _ in node.next_functions if one is not None]

    def record(self, module: torch.nn.Module) -> None:
        """Capture both passes."""
        self.forth, self.back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        mode = "thread_local"
        with torch.cuda.graph(self.forth, capture_error_mode=mode):
            leaves = self.called(module, self.arguments, self.aliases)
        with torch.cuda.graph(self.back, pool=self.forth.pool(), capture_error_mode=mode):
            found = iter(self.differentiated(leaves, self.given))
        self.leaves = [one.detach() if n in self.places else one for n, one in enumerate(leaves)]
        tensors = (*self.own, *self.aliases)
        self.gradients = [next(found) if one.requires_grad else None for one in tensors]
        self.reached = [one for one in self.gradients if one is not None]
        self.stream = torch.cuda.current_stream()

    def remember_state(self, module: torch.nn.Module) -> None:
        """Note the parts of the module, where its tensors are stored, and their hooks."""
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
        self.trained = [one.requires_grad for one in self.tensors]
        self.hooks = hooks_of(module)

    def is_current(self) -> bool:
        """Return whether the module still has the recorded parts, stored in the same places. A
        replay waits for this, so its loops are those of the interpreter."""
        if not all(map(is_, map(dict.get, self.holders, self.keys), self.parts)):
            return False
        if [one.requires_grad for one in self.tensors] != self.trained:
            return False
        return [*map(torch.Tensor.data_ptr, self.tensors)] == self.addresses

    def __call__(self, module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the output for arguments with these tensors."""
        outs = ReplayedStep.apply(  # type: ignore[no-untyped-call]
            self, module, *tensors, *self.weights
        )
        leaves = list(self.leaves)
        for n, one in zip(self.places, outs):
            leaves[n] = one
        return tree_unflatten(leaves, self.structure)

    @contextlib.contextmanager
    def in_order(self) -> Iterator[None]:
        """Wait for the replay before this one, on whatever stream that was."""
        with self.lock:
            stream = torch.cuda.current_stream()
            if stream != self.stream:
                stream.wait_stream(self.stream)
                self.stream = stream
            yield

    def replay(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], Turn]:
        """Return the outputs for these arguments, and the turn of their backward pass."""
        with self.in_order():
            for own, one in zip(self.own, tensors):
                own.copy_(one)
            self.forth.replay()
            turn = Turn()
            self.turn = weakref.ref(turn)
            return [self.leaves[n].clone() for n in self.places], turn

    def replay_backward(self, given: Sequence[Any]) -> list[torch.Tensor | None]:
        """Return the gradients of the arguments and the weights for the last replay."""
        with self.in_order():
            for own, one in zip(self.given, given):
                own.copy_(one)
            self.back.replay()
            copies = [torch.empty_like(one) for one in self.reached]
            torch._foreach_copy_(copies, self.reached)
        found = iter(copies)
        return [None if one is None else next(found) for one in self.gradients]

    def differentiate_again(
        self,
        module: torch.nn.Module,
        tensors: Sequence[torch.Tensor],
        given: Sequence[Any],
        random: torch.Tensor | None,
    ) -> list[torch.Tensor | None]:
        """Return the same by a call without graphs: for a second backward pass, for gradients of
        gradients, and where not every output has a gradient."""
        with undone(module, self.device):
            if random is not None:
                torch.cuda.set_rng_state(random, self.device)
            # The weights may have made an argument: only what this call does with them counts.
            views = [one.view_as(one) for one in tensors]
            args = with_tensors(self.arguments, iter(views))
            leaves = self.called(module, args, views[len(self.own) :])
        pairs = [(leaves[n], one) for n, one in zip(self.wanted, given) if one is not None]
        with torch.autocast(DEVICE, enabled=False):
            found = torch.autograd.grad(
                [one for one, _ in pairs],
                [one for one in views if one.requires_grad],
                [one for _, one in pairs],
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        gradients = iter(found)
        return [next(gradients) if one.requires_grad else None for one in tensors]


class Unhooked(torch.nn.Module):
    """Run the forward of a module whose own hooks have run by then."""

    def __init__(self, inner: torch.nn.Module, of_inner: Callable[..., Any]):
        super().__init__()
        self.inner, self.of_inner = inner, of_inner

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.of_inner(self.inner, *args, **named)


class ReplayedStep(torch.autograd.Function):
    """Replay a recorded step; its backward pass replays the gradients."""

    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, step: RecordedStep, module: torch.nn.Module, *tensors: Any) -> Any:
        ctx.step, ctx.module = step, module
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.random = torch.cuda.get_rng_state(step.device) if step.draws else None
        outs, ctx.turn = step.replay(tensors)
        fixed = [one for n, one in zip(step.places, outs) if n not in step.wanted]
        ctx.mark_non_differentiable(*fixed)
        return tuple(outs)

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *given: Any) -> Any:
        step, tensors, turn = ctx.step, ctx.saved_tensors, ctx.turn
        ctx.turn = None
        wanted = [one for n, one in zip(step.places, given) if n in step.wanted]
        if all(one is None for one in wanted):
            return None, None, *(None for _ in tensors)
        is_last = turn is not None and step.turn() is turn
        if is_last and not torch.is_grad_enabled() and all(one is not None for one in wanted):
            return None, None, *step.replay_backward(wanted)
        return None, None, *step.differentiate_again(ctx.module, tensors, wanted, ctx.random)


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """Return the hooks that run within a call of the module, by kind and submodule."""
    parts = [one for one in module.modules() if one is not module]
    own = [getattr(one, name) for one in parts for name in HOOKS]
    return own + [getattr(torch_modules, f"_global{name}") for name in HOOKS]


@contextlib.contextmanager
def undone(module: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Let calls with gradients change neither tensors that the module holds nor what is drawn
    later. Autocast keeps no copies of weights: a graph would read those after they are gone."""
    held = [
        one
        for part in module.modules()
        for one in (*part._buffers.values(), *vars(part).values())
        if isinstance(one, torch.Tensor)
    ]
    kept = [(one, one.detach().clone()) for one in held]
    keeps_casts = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.random.fork_rng([device]), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(keeps_casts)
        for one, before in kept:
            one.data.copy_(before)  # counts as no change for the backward pass to come


def form_of(one: Any, form: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Add what a recording depends on of an argument to `form`, and its tensors; return whether a
    graph can have it."""
    kind = type(one)
    if kind is torch.Tensor:
        if not (one.is_cuda and one.layout is torch.strided):
            return False
        form += (one.shape, one.stride(), one.dtype, one.device, one.requires_grad)
        form += (one.is_neg(), one.is_conj())
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


def is_watched() -> bool:
    """Return whether something follows the single operations of this call: a capture, a function
    transform, or what packs tensors for the backward pass."""
    return (
        torch.cuda.is_current_stream_capturing()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    )


def graphed_in_training(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Record training calls on a GPU and their backward passes as CUDA graphs, one pair for each
    combination of shapes, and replay them; run all other calls as before."""
    recorded: weakref.WeakKeyDictionary[Any, dict[Any, RecordedStep]] = weakref.WeakKeyDictionary()
    tried: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def record(
        self: Any,
        args: Sequence[Any],
        named: dict[str, Any],
        tensors: Sequence[torch.Tensor],
        form: tuple[Any, ...],
    ) -> RecordedStep | None:
        steps = recorded.setdefault(self, {})
        steps.pop(form, None)
        number = tried.get(self, 0)
        if number == MAX_STEPS:
            return None
        weights = list(self.parameters())
        is_plain = all(type(one) is torch.nn.Parameter for one in weights) and all(
            one.is_cuda and one.is_leaf for one in (*weights, *self.buffers())
        )
        is_trained = any(one.requires_grad for one in (*weights, *tensors))
        if not (is_plain and tensors and is_trained) or any(hooks_of(self)):
            return None
        tried[self] = number + 1
        with torch.cuda.device(tensors[0].device), contextlib.suppress(TypeError):
            steps[form] = RecordedStep(forward, self, args, named, tensors)
        return steps.get(form)

    @functools.wraps(forward)
    def replayed(self: Any, *args: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return forward(self, *args, **named)
        casts = torch.is_autocast_enabled(DEVICE)
        depends: list[Any] = [torch.get_autocast_dtype(DEVICE) if casts else None]
        tensors: list[torch.Tensor] = []
        is_usual = form_of(args, depends, tensors) and form_of(named, depends, tensors)
        if not is_usual or is_watched():
            return forward(self, *args, **named)
        form = tuple(depends)
        step = recorded.get(self, {}).get(form)
        if step is None or not step.is_current():
            step = record(self, args, named, tensors, form)
        if step is None or step.turn() is not None or any(step.hooks):
            return forward(self, *args, **named)
        return step(self, tensors)

    return replayed
