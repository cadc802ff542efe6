"""Describe one recorded call: its operations in order, and where they are written.

Each tensor that an operation returns or writes is a new value, so a value never changes. The host
turns it into `records.Recording`, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

from .codec import AtMost, Within
from .tensors import Count, Name, Sizes, need
from .verdicts import MOST_US

MAX_OPERATIONS = 4096
MAX_VALUES = 4 * MAX_OPERATIONS
MAX_LITERAL_CHARS = 200
MAX_ITEMS = 1024
MAX_LOCALS = 256

ShortText = Annotated[str, AtMost(MAX_LITERAL_CHARS)]
Number = Annotated[int, Within(0, MAX_VALUES - 1)]
Times = Annotated[float, Within(0, MOST_US)]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of an operation, or what a local variable holds."""

    kind: Literal["value", "literal", "module", "tuple", "list", "slice", "other"]
    value: Number | None = None
    """Of a tensor: its number in `values`."""
    text: ShortText | None = None
    """Of a literal: its `repr`. Of a module: its path below the target, "" for the target. Of
    another object: its type."""
    items: Annotated[tuple[Argument, ...], AtMost(MAX_ITEMS)] = ()
    """Of a tuple or list: its items. Of a slice: start, stop and step."""


@dataclass(frozen=True, kw_only=True)
class Keyword:
    """A named argument, or a local variable."""

    name: Name
    argument: Argument


@dataclass(frozen=True, kw_only=True)
class RecordedValue:
    """A tensor at one moment."""

    shape: Sizes
    stride: Sizes
    dtype: Name
    """As torch names it: `float32`."""
    device: Name
    requires_grad: bool
    origin: Literal["input", "parameter", "buffer", "operation", "other"]
    path: Name = ""
    """Of a parameter or buffer: its name in the target's state_dict."""
    fill: float | None = None
    """The number that all elements are; None where they differ, or were not looked at."""
    is_tril: bool = False
    """Whether it is not zero exactly on and below the diagonal of its last two dimensions."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """An expression in a file. Columns count bytes of UTF-8, as Python's code positions do; None
    before Python 3.11."""

    line: Count
    last_line: Count
    column: Count | None
    last_column: Count | None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One activation of a function of the checkout."""

    file: Name
    """Path below the checkout's root; "" for the text of a task."""
    function: Name
    """Qualified name: `Attention.forward`."""
    first_line: Count
    caller: Number | None
    """Number of the frame that called it, through other packages too; None for the first one."""
    call: Span | None
    """The expression in the caller that called it."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.file)
        need(not path.is_absolute() and ".." not in path.parts, "a path below the checkout")


@dataclass(frozen=True, kw_only=True)
class RecordedOperation:
    """One call of a torch function."""

    name: Name
    """Last part of its name: `softmax`, `__matmul__`, `index_add_`."""
    args: Annotated[tuple[Argument, ...], AtMost(MAX_ITEMS)]
    kwargs: Annotated[tuple[Keyword, ...], AtMost(MAX_ITEMS)]
    outputs: Annotated[tuple[Number, ...], AtMost(MAX_ITEMS)]
    """Values that it made or overwrote."""
    frame: Number | None
    """The innermost frame of the checkout; None where there is none."""
    span: Span | None
    scope: Number | None
    """Number of the local variables of that frame before the operation."""
    host_us: Times = 0.0
    device_us: Times | None = None
    backward_us: Times | None = None
    """Of the nodes of autograd that it made, where the call trains: on the GPU where the forward
    pass is timed there."""
    syncs: bool = False
    """Whether the host waited for the device, or would on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Local variables of a frame."""

    locals: Annotated[tuple[Keyword, ...], AtMost(MAX_LOCALS)]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One call of a target."""

    values: Annotated[tuple[RecordedValue, ...], AtMost(MAX_VALUES)]
    frames: Annotated[tuple[Frame, ...], AtMost(MAX_VALUES)]
    scopes: Annotated[tuple[Scope, ...], AtMost(MAX_OPERATIONS)]
    operations: Annotated[tuple[RecordedOperation, ...], AtMost(MAX_OPERATIONS)]
    outputs: Annotated[tuple[Number, ...], AtMost(MAX_ITEMS)]
    """Values that the call returned."""
    total_us: Times
    """One call without the recorder."""
    is_cut: bool = False
    """Whether more operations ran than are recorded."""

    def __post_init__(self) -> None:
        known = len(self.values)
        for number, frame in enumerate(self.frames):
            need(frame.caller is None or frame.caller < number, "callers before what they call")
        for scope in self.scopes:
            need(all(n < known for n in numbers_in(scope.locals)), "numbers of values in scopes")
        for one in self.operations:
            need(one.frame is None or one.frame < len(self.frames), "numbers of frames")
            need(one.scope is None or one.scope < len(self.scopes), "numbers of scopes")
            used = (*one.outputs, *numbers_in(one.args), *numbers_in(one.kwargs))
            need(all(n < known for n in used), "numbers of values in operations")
        need(all(n < known for n in self.outputs), "numbers of values in outputs")


def numbers_in(arguments: Sequence[Argument | Keyword]) -> Iterator[int]:
    """Yield the numbers of values in arguments."""
    for one in arguments:
        argument = one.argument if isinstance(one, Keyword) else one
        if argument.value is not None:
            yield argument.value
        yield from numbers_in(argument.items)
