"""Read a recording as a graph: which operation made a value, and which ones read it.

Names of operations are those of torch functions without underscores around them: `q @ k`,
`torch.matmul` and `Tensor.matmul` are all `matmul`. Nothing here looks at text.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudal1_ci.records.recording import Argument, RecordedOperation, RecordedValue, Recording

CANONICAL = {
    "true_divide": "div",
    "truediv": "div",
    "rmul": "mul",
    "radd": "add",
    "iadd": "add_",
    "imul": "mul_",
    "isub": "sub_",
    "itruediv": "div_",
    "multiply": "mul",
    "divide": "div",
    "subtract": "sub",
    "rtruediv": "rdiv",
    "bmm": "matmul",
    "mm": "matmul",
    "spmm": "matmul",  # another name of torch.mm, which torch finds first
    "rmatmul": "rmatmul",
    "negative": "neg",
}
"""Other spellings of an operation. A reversed one (`rsub`, `rdiv`) keeps its name: its first
argument is the right operand."""
CASTS = frozenset(("float", "half", "bfloat16", "double", "to", "type", "type_as"))
VIEWS = frozenset(
    [
        "view",
        "reshape",
        "transpose",
        "permute",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "flatten",
        "unflatten",
        "T",
        "mT",
        "swapaxes",
        "movedim",
        "contiguous",
    ]
)


@dataclass(frozen=True)
class Operation:
    """An operation of the graph."""

    index: int
    name: str
    """Canonical, without underscores around it."""
    recorded: RecordedOperation

    @property
    def output(self) -> int | None:
        """Return its first output."""
        return self.recorded.outputs[0] if self.recorded.outputs else None

    def argument(self, position: int, name: str | None = None) -> Argument | None:
        """Return an argument by its position, or by its name."""
        if position < len(self.recorded.args):
            return self.recorded.args[position]
        for one in self.recorded.kwargs:
            if one.name == name:
                return one.argument
        return None

    def value(self, position: int, name: str | None = None) -> int | None:
        """Return the number of the tensor that an argument is; None if it is none."""
        found = self.argument(position, name)
        return found.value if found is not None else None

    def literal(self, position: int, name: str | None = None) -> object:
        """Return the number, string or tuple of numbers that an argument is; None if it is
        another thing or absent."""
        return literal(self.argument(position, name))


def time_us(operation: Operation) -> float:
    """Return the time of an operation: on its device, where that was timed."""
    return operation.recorded.forward_us


def literal(argument: Argument | None) -> object:
    """Return what a literal argument is."""
    if argument is None:
        return None
    if argument.kind in ("tuple", "list"):
        return tuple(literal(one) for one in argument.items)
    if argument.kind != "literal" or argument.text is None:
        return None
    try:
        found: object = ast.literal_eval(argument.text)
    except (ValueError, SyntaxError):  # inf, nan, torch.float32
        return float(argument.text) if argument.text in ("inf", "-inf") else argument.text
    return found


class Graph:
    """The operations of a recording, with makers and readers of values."""

    def __init__(self, recording: Recording):
        self.recording = recording
        self.operations = [
            Operation(index, canonical(one.name), one)
            for index, one in enumerate(recording.operations)
        ]
        self.maker: dict[int, Operation] = {}
        self.readers: dict[int, list[Operation]] = {}
        self.parts_of_call: dict[int, list[Operation]] = {}
        """Operations of a call into other code, in order."""
        self.in_frame: dict[int, list[Operation]] = {}
        """Operations that are written in an activation's own function, in order."""
        self.called_by: dict[int, list[int]] = {}
        """Activations by the one that called them."""
        for called, frame in enumerate(recording.frames):
            if frame.caller is not None:
                self.called_by.setdefault(frame.caller, []).append(called)
        for one in self.operations:
            if one.recorded.frame is not None:
                self.in_frame.setdefault(one.recorded.frame, []).append(one)
            if (number := one.recorded.library_call) is not None:
                self.parts_of_call.setdefault(number, []).append(one)
            given = dict.fromkeys(values_in(one.recorded))
            for read in given:
                self.readers.setdefault(read, []).append(one)
            for made in one.recorded.outputs:
                if made not in given:  # a cast to the dtype that a tensor has returns the tensor
                    self.maker.setdefault(made, one)

    def of(self, value: int | None) -> RecordedValue | None:
        """Return shape, dtype and origin of a value."""
        return None if value is None else self.recording.values[value]

    def made_by(self, value: int | None, *names: str) -> Operation | None:
        """Return the operation that made a value, if it has one of these names."""
        found = self.maker.get(value) if value is not None else None
        return found if found is not None and (not names or found.name in names) else None

    def num_dims(self, value: int | None) -> int:
        found = self.of(value)
        return -1 if found is None else len(found.shape)

    def dims(self, given: object, value: int | None) -> tuple[int, ...]:
        """Return dimensions as numbers from 0, in order; () if they are not known."""
        rank = self.num_dims(value)
        if isinstance(given, int):
            given = (given,)
        if not isinstance(given, tuple) or not all(isinstance(one, int) for one in given):
            return ()
        return tuple(sorted(one % rank for one in given)) if rank > 0 else ()

    def is_last_dim(self, operation: Operation, position: int = 1, name: str = "dim") -> bool:
        """Return whether an operation on its first argument is over that one's last dimension."""
        value = operation.value(0)
        given = operation.literal(position, name)
        return self.dims(given, value) == (self.num_dims(value) - 1,)

    def before_casts(self, value: int | None) -> int | None:
        """Return the value that casts and copies were made of."""
        while (maker := self.made_by(value, *CASTS, "contiguous", "clone")) is not None:
            value = maker.value(0)
        return value

    def sole_reader(self, value: int | None) -> Operation | None:
        """Return the only operation that reads a value; None if the call returns it too."""
        found = self.readers.get(value, []) if value is not None else []
        return found[0] if len(found) == 1 and value not in self.recording.outputs else None

    def in_one_call(self, operation: Operation) -> list[Operation]:
        """Return the operations of the library call that an operation is a part of: of
        `rearrange(x, "b (h d) -> b h d", h=8)` all that it does."""
        number = operation.recorded.library_call
        return [operation] if number is None else self.parts_of_call[number]

    def parts(self, operation: Operation | None) -> tuple[int | None, int | None]:
        """Return the two operands of a binary operation; None for one that is no tensor."""
        if operation is None:
            return None, None
        return operation.value(0), operation.value(1, "other")


def canonical(name: str) -> str:
    """Return the name that all spellings of an operation share."""
    bare = name[2:-2] if name.startswith("__") and name.endswith("__") else name
    return CANONICAL.get(bare, bare)


def values_in(operation: RecordedOperation) -> Iterator[int]:
    """Yield the numbers of the tensors that an operation reads."""
    yield from flat(operation.args)
    yield from flat([one.argument for one in operation.kwargs])


def flat(arguments: Sequence[Argument]) -> Iterator[int]:
    """Yield the numbers of the tensors in arguments, in order."""
    for one in arguments:
        if one.value is not None:
            yield one.value
        yield from flat(one.items)


@functools.lru_cache(maxsize=4)
def graph_of(recording: Recording) -> Graph:
    """Return the graph of a recording, made once for all rules."""
    return Graph(recording)
