"""Record one call of a program: each torch function with the expression that called it, each launch
of a Triton kernel, and each call of an extension.

A `TorchFunctionMode` sees every torch function that Python calls, and the calling frame's position
in its code gives lines and columns. So a branch that was not taken is absent, helpers and
submodules are followed, and a loop shows as the same expressions with other values. Functions below
a recorded one (`softmax` inside of `multi_head_attention_forward`) are part of it.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ..runner.arguments import flatten
from ..wire.recording import (
    MAX_ITEMS,
    MAX_LITERAL_CHARS,
    MAX_LOCALS,
    MAX_OPERATIONS,
    MAX_VALUES,
    Argument,
    Frame,
    Keyword,
    Launch,
    RecordedOperation,
    RecordedValue,
    Recording,
    Scope,
    Span,
)
from .backward import backward_times, next_number
from .launches import Seen, SeenOperator, operator_of, tensors_in, watched

HERE = str(Path(__file__).parent)
SYNCS = frozenset(
    (
        *("item", "tolist", "cpu", "numpy", "nonzero", "masked_select", "unique", "equal"),
        *("unique_consecutive", "allclose", "is_nonzero"),
        *("__bool__", "__int__", "__float__", "__index__"),
    )
)
"""Functions whose result the host has to wait for on a GPU."""
MOST_LOOKED_AT = 2**20
"""Elements of a tensor whose values are looked at."""
NUM_EARLIER, SHORT_US = 2, 50_000.0
"""Recordings before the one that is returned, of calls that take less."""
FEW_OPERATIONS, MOST_KEPT_BYTES = 4096, 8 * 2**30
"""Operations that are recorded whatever they make, and memory of tensors in longer recordings."""
Events = tuple[torch.cuda.Event, torch.cuda.Event]
LITERALS = (int, float, bool, complex, str, type(None), type(...), torch.dtype, torch.device)


def waits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the host waits for the result on a GPU: where its shape follows from values,
    as of `x[mask]` and `torch.where(mask)`, too."""
    if name == "where":
        return len(args) + len(kwargs) == 1
    if name == "__getitem__":
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(o, torch.Tensor) and o.dtype == torch.bool and o.dim() for o in parts)
    return name in SYNCS


def recorded(
    call: Callable[[], Any],
    module: torch.nn.Module | None,
    inputs: Sequence[torch.Tensor],
    root: str | None,
    text: Path,
) -> Recording:
    """Call twice to time, then to record; a short call is recorded more than once, because another
    process may have stopped it. The shortest times count. Where gradients are on, the backward pass
    of the last call is timed too.

    Args:
        call: The forward call.
        module: The target, if it is a module.
        inputs: Tensors among its arguments.
        root: Folder of the checkout; None for the program of a task, whose file is `text`.
    """
    total_us = min(timed(call, inputs) for _ in range(2))
    earlier: list[Recording] = []
    for _ in range(NUM_EARLIER if total_us < SHORT_US else 0):
        recorder = Recorder(module, inputs, root, text)
        with watched(recorder.launch), recorder:
            output = call()
        earlier.append(recorder.result(output, total_us))
        del recorder, output  # with all tensors that they keep
    recorder = Recorder(module, inputs, root, text)
    with watched(recorder.launch), recorder:
        output = call()
    recording = with_least_times(recorder.result(output, total_us), earlier)
    return recorder.with_backward(recording, output) if torch.is_grad_enabled() else recording


def with_least_times(recording: Recording, earlier: Sequence[Recording]) -> Recording:
    """Return a recording with the least time of each operation, of those with equal operations."""
    names = [one.name for one in recording.operations]
    equal = [one for one in earlier if [it.name for it in one.operations] == names]
    operations = tuple(
        replace(
            each[0],
            host_us=min(one.host_us for one in each),
            device_us=min(
                (one.device_us for one in each if one.device_us is not None), default=None
            ),
        )
        for each in zip(recording.operations, *(one.operations for one in equal), strict=True)
    )
    return replace(recording, operations=operations)


def timed(call: Callable[[], Any], inputs: Sequence[torch.Tensor]) -> float:
    """Return the microseconds of one call. The first one also warms up."""
    synchronize(inputs)
    started_s = time.perf_counter()
    call()
    synchronize(inputs)
    return 1e6 * (time.perf_counter() - started_s)


def synchronize(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for the GPU where the call computes on one."""
    if any(one.is_cuda for one in tensors):
        torch.cuda.synchronize()


class Recorder(TorchFunctionMode):
    """Keep every torch function that is called while it is entered."""

    def __init__(
        self,
        module: torch.nn.Module | None,
        inputs: Sequence[torch.Tensor],
        root: str | None,
        text: Path,
    ):
        super().__init__()
        self.root, self.text = None if root is None else os.path.realpath(root), str(text)
        self.values: list[RecordedValue] = []
        self.numbers: dict[int, int] = {}
        self.by_storage: dict[int | None, list[int]] = {}
        """Ids of tensors by the memory that they are in."""
        self.alive: list[Any] = []
        """What is recorded, so that no id is given twice."""
        self.kept: set[int] = set()
        """Addresses of the memory that recorded tensors keep."""
        self.kept_bytes = 0
        self.frames: list[Frame] = []
        self.frame_numbers: dict[int, int] = {}
        self.library_calls: dict[int, int] = {}
        """Numbers of calls into other code, by the ids of their frames."""
        self.scopes: list[Scope] = []
        self.newest_scope: dict[int, int] = {}
        self.operations: list[RecordedOperation] = []
        self.events: dict[int, tuple[torch.cuda.Event, torch.cuda.Event]] = {}
        self.new_nodes = range(0)
        """Numbers of the autograd nodes that the operation timed last made."""
        self.nodes: dict[int, int] = {}
        """Operations by the numbers of the autograd nodes that they made."""
        self.is_cut = False
        self.is_launching = False
        """Whether a kernel is being launched: what torch functions do then is part of it."""
        self.is_on_gpu = any(one.is_cuda for one in inputs)
        self.files: dict[str, str | None] = {}
        self.paths = (
            {} if module is None else {id(one): name for name, one in module.named_modules()}
        )
        for kind, tensors in (
            ("parameter", () if module is None else module.named_parameters()),
            ("buffer", () if module is None else module.named_buffers()),
        ):
            for path, tensor in tensors:
                self.new_value(tensor, kind, path)
        for tensor in inputs:
            self.new_value(tensor, "input")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.is_full() or self.is_launching:
            return func(*args, **kwargs)
        if (operator := operator_of(func)) is not None:
            return self.launch(SeenOperator(operator, func, args, kwargs))
        frame, span, scope, library_call = self.place()
        given = tuple(self.argument(one) for one in args[:MAX_ITEMS])
        named = self.keywords(kwargs)
        event, result, host_us = self.timed(lambda: func(*args, **kwargs))
        name = name_of(func)
        if is_property(func) and not isinstance(result, torch.Tensor):
            return result  # x.shape, x.dtype, x.grad = None
        self.keep(
            event,
            RecordedOperation(
                name=name[:512],
                args=given,
                kwargs=named,
                outputs=self.outputs_of(name, args, kwargs, result),
                frame=frame,
                span=span,
                scope=scope,
                host_us=host_us,
                syncs=waits(name, args, kwargs),
                library_call=library_call,
            ),
        )
        return result

    def launch(self, seen: Seen) -> Any:
        """Launch a kernel, or call an extension, and keep it as an operation."""
        if self.is_full() or self.is_launching:
            return seen.launch()
        self.is_launching = True
        try:
            return self.launched(seen)
        finally:
            self.is_launching = False

    def launched(self, seen: Seen) -> Any:
        """Launch, and keep the operation."""
        frame, span, scope, library_call = self.place()
        named, constants = self.keywords(seen.arguments), self.keywords(seen.constants)
        event, result, host_us = self.timed(seen.launch)
        tensors = seen.written()
        self.forget_views(tensors)
        if seen.language == "extension":
            tensors += tensors_in(result)
        known = {one.name for one in named}
        file, line = self.defined(seen.function)
        self.keep(
            event,
            RecordedOperation(
                name=seen.name[:512],
                args=(),
                kwargs=named,
                outputs=tuple(self.number_of(one) for one in tensors[:MAX_ITEMS]),
                frame=frame,
                span=span,
                scope=scope,
                host_us=host_us,
                library_call=library_call,
                launch=Launch(
                    language=seen.language,
                    kernel=seen.kernel[:512],
                    grid=seen.grid[:3],
                    constants=constants,
                    num_warps=seen.num_warps,
                    num_stages=seen.num_stages,
                    reads=tuple(one for one in seen.reads if one in known),
                    writes=tuple(one for one in seen.writes if one in known),
                    is_sure=seen.is_sure,
                    file=file[:512],
                    first_line=line,
                ),
            ),
        )
        return result

    def is_full(self) -> bool:
        """Return whether no more operations are kept, and remember that some were not."""
        count = len(self.operations)
        is_long = count >= MAX_OPERATIONS or len(self.values) >= MAX_VALUES // 2
        is_large = count >= FEW_OPERATIONS and self.kept_bytes > MOST_KEPT_BYTES
        self.is_cut = self.is_cut or is_long or is_large
        return self.is_cut

    def timed(self, call: Callable[[], Any]) -> tuple[Events | None, Any, float]:
        """Return events around a call on a GPU, its result, and its microseconds on the host."""
        event = self.start_event()
        first_node = next_number()
        started_s = time.perf_counter()
        result = call()
        host_us = 1e6 * (time.perf_counter() - started_s)
        if event is not None:
            event[1].record()
        self.new_nodes = range(first_node, next_number())
        return event, result, min(host_us, 1e12)

    def keep(self, event: Events | None, operation: RecordedOperation) -> None:
        """Keep the operation that was timed last, and the events around it."""
        number = len(self.operations)
        self.nodes.update(dict.fromkeys(self.new_nodes, number))
        if event is not None:
            self.events[number] = event
        self.operations.append(operation)

    def keywords(self, named: dict[str, Any]) -> tuple[Keyword, ...]:
        """Return named arguments as they are kept."""
        items = itertools.islice(named.items(), MAX_LOCALS)
        return tuple(Keyword(name=name[:512], argument=self.argument(one)) for name, one in items)

    def defined(self, function: Any) -> tuple[str, int | None]:
        """Return the file below the checkout and the first line of a kernel's function."""
        if not isinstance(function, FunctionType):
            return "", None
        file = self.own_file(function.__code__.co_filename)
        return ("", None) if file is None else (file, function.__code__.co_firstlineno)

    def start_event(self) -> Events | None:
        """Return events around an operation on a GPU, the first one recorded."""
        if not self.is_on_gpu:
            return None
        new: Any = torch.cuda.Event
        event = new(enable_timing=True), new(enable_timing=True)
        event[0].record()
        return event

    def outputs_of(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> tuple[int, ...]:
        """Return the numbers of what an operation returned or wrote."""
        tensors = [one for one in flatten(result)[0] if isinstance(one, torch.Tensor)]
        writes = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
        writes = writes or kwargs.get("inplace") is True
        if name == "__setitem__":
            tensors, writes = [args[0]], True
        if isinstance(kwargs.get("out"), torch.Tensor):
            tensors, writes = [kwargs["out"]], True
        if writes:
            self.forget_views(tensors)
        # A cast to the dtype that a tensor has returns the tensor itself.
        return tuple(
            self.new_value(one) if writes else self.number_of(one) for one in tensors[:MAX_ITEMS]
        )

    def number_of(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor, a new one if it has none."""
        known = self.numbers.get(id(tensor))
        return self.new_value(tensor) if known is None else known

    # --- values ----------------------------------------------------------------------------------

    def new_value(self, tensor: torch.Tensor, origin: Any = "operation", path: str = "") -> int:
        """Return the number of a new value."""
        number = len(self.values)
        looks = origin != "operation" or tensor.dtype == torch.bool
        fill, is_tril = facts_of(tensor) if looks else (None, False)
        self.values.append(
            RecordedValue(
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()) if tensor.layout == torch.strided else (),
                dtype=str(tensor.dtype).removeprefix("torch."),
                device=tensor.device.type,
                requires_grad=tensor.requires_grad,
                origin=origin,
                path=path[:512],
                fill=fill,
                is_tril=is_tril,
            )
        )
        self.numbers[id(tensor)] = number
        self.alive.append(tensor)
        if (place := storage_of(tensor)) is not None:
            self.by_storage.setdefault(place, []).append(id(tensor))
            if place not in self.kept:
                self.kept.add(place)
                self.kept_bytes += tensor.element_size() * math.prod(tensor.shape)
        return number

    def forget_views(self, written: Sequence[Any]) -> None:
        """Forget the numbers of all tensors in the memory that was written: where they are seen
        again, they are new values."""
        for tensor in written:
            for one in self.by_storage.pop(storage_of(tensor), ()):
                self.numbers.pop(one, None)

    def argument(self, value: Any, depth: int = 0) -> Argument:
        """Return what is kept of an argument or a local variable."""
        if isinstance(value, torch.Tensor):
            number = self.numbers.get(id(value))
            return Argument(
                kind="value", value=self.new_value(value, "other") if number is None else number
            )
        if isinstance(value, torch.nn.Module):
            path = self.paths.get(id(value))
            if path is None:
                return Argument(kind="other", text=type(value).__name__[:MAX_LITERAL_CHARS])
            return Argument(kind="module", text=path[:MAX_LITERAL_CHARS])
        if isinstance(value, (tuple, list)) and depth < 3 and len(value) <= MAX_ITEMS // 8:
            items = tuple(self.argument(one, depth + 1) for one in value)
            return Argument(kind="tuple" if isinstance(value, tuple) else "list", items=items)
        if isinstance(value, slice):
            bounds = (value.start, value.stop, value.step)
            return Argument(kind="slice", items=tuple(self.argument(one, 3) for one in bounds))
        if isinstance(value, LITERALS):
            text = repr(value)
            if len(text) <= MAX_LITERAL_CHARS:
                return Argument(kind="literal", text=text)
        return Argument(kind="other", text=type(value).__name__[:MAX_LITERAL_CHARS])

    # --- places ----------------------------------------------------------------------------------

    def place(self) -> tuple[int | None, Span | None, int | None, int | None]:
        """Return frame, expression and local variables of the user's code that is running, and
        the number of the call into other code that it waits for."""
        frame, called = inspected(), None
        while frame is not None and self.file_of(frame) is None:
            frame, called = frame.f_back, frame
        if frame is None:
            return None, None, None, None
        number = self.frame_number(frame)
        return number, span_of(frame), self.scope_number(frame), self.library_call(called)

    def library_call(self, frame: FrameType | None) -> int | None:
        """Return the number of a call into other code, by its frame."""
        if frame is None:
            return None
        if id(frame) not in self.library_calls:
            self.library_calls[id(frame)] = len(self.library_calls)
            self.alive.append(frame)
        return self.library_calls[id(frame)]

    def next_own(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of the checkout, from a frame outwards."""
        while frame is not None and self.file_of(frame) is None:
            frame = frame.f_back
        return frame

    def file_of(self, frame: FrameType) -> str | None:
        """Return the path of a frame's file below the checkout; None if it is of another one."""
        name = frame.f_code.co_filename
        if name not in self.files:
            self.files[name] = self.own_file(name)
        return self.files[name]

    def own_file(self, name: str) -> str | None:
        if self.root is None:
            return "" if name == self.text else None
        if name.startswith("<"):  # `<string>` and the like: no file, so its caller has the text
            return None
        path = os.path.realpath(name)
        if not path.startswith(self.root + os.sep) or "site-packages" in path:
            return None
        return os.path.relpath(path, self.root)

    def frame_number(self, frame: FrameType) -> int:
        """Return the number of a frame."""
        known = self.frame_numbers.get(id(frame))
        if known is not None:
            return known
        caller = self.next_own(frame.f_back)
        caller_number = None if caller is None else self.frame_number(caller)
        code = frame.f_code
        function = str(getattr(code, "co_qualname", code.co_name))
        number = len(self.frames)
        self.frames.append(
            Frame(
                file=(self.file_of(frame) or "")[:512],
                function=function.replace(".<locals>", "")[:512],
                first_line=code.co_firstlineno,
                caller=caller_number,
                call=None if caller is None else span_of(caller),
            )
        )
        self.frame_numbers[id(frame)] = number
        self.alive.append(frame)
        return number

    def scope_number(self, frame: FrameType) -> int | None:
        """Return the number of a frame's local variables as they are now."""
        found = []
        for name, value in itertools.islice(frame.f_locals.items(), MAX_LOCALS):
            argument = self.argument(value)
            found.append(Keyword(name=name[:512], argument=argument))
        scope = Scope(locals=tuple(found))
        newest = self.newest_scope.get(id(frame))
        if newest is not None and self.scopes[newest] == scope:
            return newest
        self.scopes.append(scope)
        self.newest_scope[id(frame)] = len(self.scopes) - 1
        return len(self.scopes) - 1

    def result(self, output: Any, total_us: float) -> Recording:
        """Return what was recorded."""
        if self.events:
            torch.cuda.synchronize()
        operations = [
            one
            if number not in self.events
            else replace(
                one,
                device_us=1e3 * self.events[number][0].elapsed_time(self.events[number][1]),
            )
            for number, one in enumerate(self.operations)
        ]
        returned = [one for one in flatten(output)[0] if isinstance(one, torch.Tensor)]
        numbers = [
            self.numbers[id(one)] if id(one) in self.numbers else self.new_value(one, "other")
            for one in returned[:MAX_ITEMS]
        ]
        return Recording(
            values=tuple(self.values),
            frames=tuple(self.frames),
            scopes=tuple(self.scopes),
            operations=tuple(operations),
            outputs=tuple(numbers),
            total_us=min(total_us, 1e12),
            is_cut=self.is_cut,
        )

    def with_backward(self, recording: Recording, output: Any) -> Recording:
        """Return a recording with what the backward pass of each operation takes."""
        tensors = [one for one in flatten(output)[0] if isinstance(one, torch.Tensor)]
        times = backward_times(tensors, self.nodes, self.is_on_gpu)
        operations = [
            replace(one, backward_us=times.get(number))
            for number, one in enumerate(recording.operations)
        ]
        return replace(recording, operations=tuple(operations))


def name_of(function: Callable[..., Any]) -> str:
    """Return the last part of a torch function's name; of a property, its name: `mT`."""
    if is_property(function):
        return str(getattr(getattr(function, "__self__", None), "__name__", "__get__"))
    name = resolve_name(function) or getattr(function, "__name__", None) or "unknown"
    return str(name).rpartition(".")[2]


def is_property(function: Callable[..., Any]) -> bool:
    """Return whether a torch function reads or writes an attribute of a tensor."""
    return getattr(function, "__name__", "") in ("__get__", "__set__", "__delete__")


def inspected() -> FrameType | None:
    """Return the innermost frame outside of this file and of torch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame


def span_of(frame: FrameType) -> Span | None:
    """Return the expression that a frame is evaluating."""
    code, line = frame.f_code, frame.f_lineno or 0
    if not hasattr(code, "co_positions"):
        return Span(line=line, last_line=line, column=None, last_column=None)
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or position[0] is None:
        return None
    _, last, column, last_column = position
    line = int(position[0])
    return Span(line=line, last_line=last or line, column=column, last_column=last_column)


def storage_of(tensor: Any) -> int | None:
    """Return the address of a tensor's memory; None where it has none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return None
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # as vmap does
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage().data_ptr() or None


def facts_of(tensor: torch.Tensor) -> tuple[float | None, bool]:
    """Return the number that all elements are, if any, and whether it is a lower triangle."""
    if not 0 < tensor.numel() <= MOST_LOOKED_AT or tensor.is_complex():
        return None, False
    if tensor.layout != torch.strided or tensor.is_quantized:
        return None, False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # under vmap it has no value
        return None, False
    with torch._C.DisableTorchFunction(), torch.no_grad():
        first = float(tensor.flatten()[0])
        fill = first if math.isfinite(first) and bool((tensor == first).all()) else None
        is_square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1
        is_tril = is_square and bool(
            ((tensor != 0) == torch.ones_like(tensor, dtype=torch.bool).tril()).all()
        )
    return fill, is_tril
