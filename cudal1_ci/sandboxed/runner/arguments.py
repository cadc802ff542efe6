"""Convert between Python objects and flat lists of tensors: arguments in, outputs out.

Arguments come as specs with slots for tensors, or as a pickle with slots that an inputs runner
made. Only runners open a pickle; the verifier passes it on unread. Outputs of any nesting become
leaves (tensors) and a structure (everything else, as text). The verifier compares these separately.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import inspect
import io
import pickle
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from collections.abc import Mapping as AnyMapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ..memory.layouts import Layout, comparable, is_ordinary, layout_of, parts_of, put_together
from ..wire.arguments import (
    Argument,
    Call,
    Constant,
    GivenCall,
    Instance,
    Items,
    Mapping,
    Pickled,
    Symbol,
    TensorPlace,
    TensorSpec,
)

Spec = TypeVar("Spec", Call, Instance)
Place = int | tuple[Layout, tuple[int, ...]]
"""The number of a plain tensor in a pickle; or a layout and the numbers of its parts."""
PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)
PLAIN_VALUES = (bool, int, str, bytes, range, slice, torch.dtype, torch.device, torch.layout)
MAX_DEPTH = 12
"""Most levels of nesting in outputs. Deeper nesting is a cycle or not an output."""


def symbol(path: str) -> Any:
    """Return the object that `pkg.mod:Qual.Name` names."""
    module, _, qualname = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def build(spec: Argument, slots: Sequence[torch.Tensor]) -> Any:
    """Build the object that a spec describes, with its tensors from `slots`."""
    again = functools.partial(build, slots=slots)
    match spec:
        case TensorPlace(index=index):
            return slots[index]
        case Constant(value=value):
            return value
        case Symbol(path=path):
            return symbol(path)
        case Items(items=items, container=container):
            return make_container(container, [again(item) for item in items])
        case Mapping(items=items, container=container):
            pairs = [(again(key), again(value)) for key, value in items]
            return dict(pairs) if container == "dict" else symbol(container)(pairs)
        case Instance(factory=factory):
            args, kwargs = built(spec, slots)
            return symbol(factory)(*args, **kwargs)
        case TensorSpec():
            raise ValueError("a tensor has no place")


def make_container(name: str, items: list[Any]) -> Any:
    """Make a list, tuple, set, or a namedtuple by import path."""
    plain: dict[str, Callable[[list[Any]], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
    }
    if name in plain:
        return plain[name](items)
    kind = symbol(name)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def build_call(call: GivenCall, slots: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Build positional and keyword arguments of a call spec or of a pickled call."""
    if isinstance(call, Pickled):
        if call.data is None:
            raise ValueError("a pickled call came without its pickle")
        return unpickle(call.data, slots)
    return built(call, slots)


def built(spec: Call | Instance, slots: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Build positional and keyword arguments of specs."""
    args = [build(one, slots) for one in spec.args]
    return args, {name: build(one, slots) for name, one in spec.kwargs.items()}


def tensor_specs(call: Call) -> tuple[Call, list[TensorSpec]]:
    """Return a call with a place for each tensor spec, and those specs."""
    specs: list[TensorSpec] = []

    def placed(value: Argument) -> Argument:
        match value:
            case TensorSpec():
                specs.append(value)
                return TensorPlace(index=len(specs) - 1)
            case Items(items=items):
                return replace(value, items=tuple(placed(one) for one in items))
            case Mapping(items=pairs):
                return replace(value, items=tuple((placed(a), placed(b)) for a, b in pairs))
            case Instance():
                return arguments_of(value)
        return value

    def arguments_of(value: Spec) -> Spec:
        args = tuple(placed(one) for one in value.args)
        kwargs = {name: placed(one) for name, one in value.kwargs.items()}
        return replace(value, args=args, kwargs=kwargs)

    return arguments_of(call), specs


# --- calls that user code made -----------------------------------------------------------------


def pickle_call(made: Any) -> tuple[str, list[torch.Tensor], list[int]]:
    """Return a pickle with slots of what `get_inputs` returned, the tensors, and the numbers of
    those that describe the structure of others. Sparse and quantized tensors come in parts.

    Raises:
        pickle.PicklingError, TypeError: It holds something that cannot be pickled.
    """
    call = call_from(made)
    tensors: list[torch.Tensor] = []
    structure: list[int] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Place | None:
            is_tensor = isinstance(value, torch.Tensor)
            if not is_tensor or (type(value) not in PLAIN_CLASSES and is_ordinary(value)):
                return None
            if value.is_meta:
                return None
            first = len(tensors)
            if is_ordinary(value):
                tensors.append(value.detach())
                return first
            parts = parts_of(value)
            tensors.extend(parts.values())
            numbers = range(first, len(tensors))
            structure.extend(n for n, name in zip(numbers, parts, strict=True) if name != "values")
            return layout_of(value), tuple(numbers)

        def reducer_override(self, value: Any) -> Any:
            """Take an iterator apart, which a call would use up. A generator's state is no
            argument: it stays on the CPU, and as it is."""
            if isinstance(value, torch.Generator):
                return generator_at, (str(value.device), value.get_state().numpy().tobytes())
            is_one = isinstance(value, Iterator) and not isinstance(value, io.IOBase)
            return (Repeated, (list(value),)) if is_one else NotImplemented

    buffer = io.BytesIO()
    Pickler(buffer).dump(call)
    return base64.b64encode(buffer.getvalue()).decode(), tensors, structure


def generator_at(device: str, state: bytes) -> torch.Generator:
    """Return a generator with a state that another one had."""
    made = torch.Generator(device)
    made.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return made


class Repeated(list[Any]):
    """The items of an iterator among the arguments, for each call again."""


class Yielded(list[Any]):
    """The items of an iterator that a call returned."""


def with_iterators(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments with new iterators in their places."""
    return (
        [iter(one) if type(one) is Repeated else one for one in args],
        {name: iter(one) if type(one) is Repeated else one for name, one in kwargs.items()},
    )


def drained(output: Any, depth: int = 0) -> Any:
    """Return an output with the items of what would make them later."""
    kind = type(output)
    if kind is torch.Tensor or depth > MAX_DEPTH:
        return output
    if kind in (list, tuple):
        items = [drained(one, depth + 1) for one in output]
        is_new = any(one is not other for one, other in zip(items, output, strict=True))
        return kind(items) if is_new else output
    if kind is dict:
        found = {key: drained(one, depth + 1) for key, one in output.items()}
        return found if any(found[key] is not one for key, one in output.items()) else output
    return Yielded(output) if isinstance(output, Iterator) else output


def call_from(made: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments of what `get_inputs` returned."""
    if isinstance(made, dict):
        return [], made
    return (list(made) if isinstance(made, list | tuple) else [made]), {}


def masks_among(
    tensors: Sequence[torch.Tensor], made: Any, signature: inspect.Signature | None
) -> tuple[int, ...]:
    """Return the numbers of the tensors that are arguments with a mask's name."""
    args, kwargs = call_from(made)
    names = [] if signature is None else [*signature.parameters]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    memory = {
        one.data_ptr()
        for name, one in given.items()
        if "mask" in name and type(one) is torch.Tensor and one.layout == torch.strided
    }
    return tuple(number for number, one in enumerate(tensors) if one.data_ptr() in memory)


def unpickle(data: str, slots: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Return the call that `pickle_call` made. Only runners call this."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, where: Place) -> torch.Tensor:
            if isinstance(where, int):
                return slots[where]
            layout, numbers = where
            return put_together(layout, [slots[number] for number in numbers])

    args, kwargs = Unpickler(io.BytesIO(base64.b64decode(data))).load()
    return args, kwargs


# --- outputs -------------------------------------------------------------------------------------


def flatten(output: Any) -> tuple[list[torch.Tensor], str]:
    """Return the tensors of an output in order, and its structure with the plain values, as
    text."""
    leaves: list[torch.Tensor] = []
    structure = "".join(walk(output, leaves, 0))
    if not leaves:  # whole numbers and truth values alone are the answer
        structure = "".join(walk(output, leaves, 0, counts=True))
    return leaves, structure


def walk(
    value: Any, leaves: list[torch.Tensor], depth: int, *, counts: bool = False
) -> Iterator[str]:
    """Yield pieces of the structure's text; add tensors to `leaves`, and where it `counts` whole
    numbers and truth values."""
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            yield f"meta {value.dtype} {list(value.shape)} {list(value.stride())}"
            return
        if is_ordinary(value):
            leaves.append(value)
            yield "*"
            return
        kind, parts = comparable(value)
        leaves += parts
        yield f"{kind}{'*' * len(parts)}"
    elif depth > MAX_DEPTH:
        yield "..."
    elif counts and is_counted(value):
        leaves.append(torch.tensor(value))
        yield type(value).__name__
    elif counts and type(value) is list and all(map(is_counted, value)):
        leaves.append(torch.tensor(value, dtype=torch.int64))  # of any length
        yield "list of int"
    elif value is None or isinstance(value, PLAIN_VALUES):
        yield repr(value)
    elif isinstance(value, float):
        # A float computed from tensors carries their rounding, so it is compared as a tensor.
        leaves.append(torch.tensor(value))
        yield "f"
    elif isinstance(value, complex):
        leaves.append(torch.tensor(value))
        yield "c"
    elif type(value).__module__ == "numpy" and (array := of_numpy(value)) is not None:
        leaves.append(array)
        yield f"numpy {type(value).__name__}*"
    elif isinstance(value, AnyMapping):
        yield from bracket(f"{type(value).__name__}(", value.items(), leaves, depth, counts)
    elif isinstance(value, set | frozenset):
        yield type(value).__name__
        yield from walk(in_order(value), leaves, depth, counts=counts)
    elif isinstance(value, list | tuple | deque | KeysView | ValuesView | ItemsView):
        yield from bracket(f"{type(value).__name__}(", enumerate(value), leaves, depth, counts)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
        yield from bracket(f"{type(value).__name__}(", fields, leaves, depth, counts)
    elif not callable(value) and (held := attributes_of(value)) is not None:
        yield from bracket(f"{type(value).__name__}(", held.items(), leaves, depth, counts)
    else:
        yield f"<{type(value).__name__}>"


def is_counted(value: Any) -> bool:
    """Return whether a tensor of whole numbers or truth values can hold a value."""
    return type(value) in (bool, int) and abs(value) < 2**63


def in_order(values: AbstractSet[Any]) -> Any:
    """Return numbers of a set as a tensor, in their order, and the rest as a list by their text."""
    if values and all(type(one) in (int, float) for one in values):
        return torch.tensor(sorted(values))
    return sorted(values, key=repr)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return what an object holds, in slots too; None for one that has no place for any."""
    names = [
        name
        for kind in reversed(type(value).__mro__)
        for names in [kind.__dict__.get("__slots__", ())]
        for name in ([names] if isinstance(names, str) else names)
        if name not in ("__dict__", "__weakref__")
    ]
    own = getattr(value, "__dict__", None)
    if own is None and not names:
        return None
    return {**{one: getattr(value, one) for one in names if hasattr(value, one)}, **(own or {})}


def of_numpy(value: Any) -> torch.Tensor | None:
    """Return an array or a number of numpy as a tensor; None where torch has no such dtype."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def bracket(
    opening: str, items: Any, leaves: list[torch.Tensor], depth: int, counts: bool
) -> Iterator[str]:
    """Yield a container's text."""
    yield opening
    for key, item in items:
        yield f"{key}:"
        yield from walk(item, leaves, depth + 1, counts=counts)
        yield ","
    yield ")"
