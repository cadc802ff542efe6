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

MAX_OPERATIONS = 16384
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
class Launch:
    """What is known of a kernel of the user's beyond its arguments."""

    language: Literal["triton", "extension"]
    """Of an extension, one call of a function of it counts as a launch."""
    kernel: Name
    grid: Annotated[tuple[Count, ...], AtMost(3)] = ()
    constants: Annotated[tuple[Keyword, ...], AtMost(MAX_LOCALS)] = ()
    """Arguments that the kernel is compiled for."""
    num_warps: Count | None = None
    num_stages: Count | None = None
    reads: Annotated[tuple[Name, ...], AtMost(MAX_LOCALS)] = ()
    """Names of the arguments in `kwargs` whose memory it reads."""
    writes: Annotated[tuple[Name, ...], AtMost(MAX_LOCALS)] = ()
    """Names of those that it writes: the first outputs of the operation, in this order."""
    is_sure: bool = True
    """Whether its source shows what it reads and writes; if not, that may be any argument."""
    file: Name = ""
    """Where it is defined, below the checkout; "" for the text of a task, or another place."""
    first_line: Count | None = None
    """Of its definition; None where that is not in the checkout."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.file)
        need(not path.is_absolute() and ".." not in path.parts, "a path below the checkout")


@dataclass(frozen=True, kw_only=True)
class RecordedOperation:
    """One call of a torch function, or one launch of a kernel."""

    name: Name
    """Last part of its name: `softmax`, `__matmul__`, `index_add_`. Of an operator in a namespace
    other than `aten`, `mylib::scan`; of a launch, `triton:KERNEL`; of a function of an extension,
    `MODULE:FUNCTION`."""
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
    library_call: Number | None = None
    """Number of the call into other code that it is a part of: `rearrange(...)` is several
    operations with one span."""
    launch: Launch | None = None

    def __post_init__(self) -> None:
        launch = self.launch
        if launch is not None:
            given = {one.name for one in self.kwargs}
            need(given.issuperset((*launch.reads, *launch.writes)), "names of its arguments")
            need(len(launch.writes) <= len(self.outputs), "an output for each written argument")


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
            constants = () if one.launch is None else one.launch.constants
            given = (*numbers_in(one.args), *numbers_in(one.kwargs), *numbers_in(constants))
            used = (*one.outputs, *given)
            need(all(n < known for n in used), "numbers of values in operations")
        need(all(n < known for n in self.outputs), "numbers of values in outputs")


def numbers_in(arguments: Sequence[Argument | Keyword]) -> Iterator[int]:
    """Yield the numbers of values in arguments."""
    for one in arguments:
        argument = one.argument if isinstance(one, Keyword) else one
        if argument.value is not None:
            yield argument.value
        yield from numbers_in(argument.items)
