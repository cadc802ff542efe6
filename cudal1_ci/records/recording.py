"""Record one call of a target: its operations in order, and where they are written.

Each tensor that an operation returns or writes is a new value, so a value never changes. Fields are
those of `sandboxed/wire/recording.py`, which documents them.
"""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.record import Record


class Argument(Record, frozen=True, kw_only=True):
    """An argument of an operation, or what a local variable holds."""

    kind: Literal["value", "literal", "module", "tuple", "list", "slice", "other"]
    value: int | None = None
    """Of a tensor: its number in `values`."""
    text: str | None = None
    """Of a literal: its `repr`. Of a module: its path below the target, "" for the target. Of
    another object: its type."""
    items: tuple[Argument, ...] = ()


class Keyword(Record, frozen=True, kw_only=True):
    """A named argument, or a local variable."""

    name: str
    argument: Argument


class RecordedValue(Record, frozen=True, kw_only=True):
    """A tensor at one moment."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    origin: Literal["input", "parameter", "buffer", "operation", "other"]
    path: str = ""
    fill: float | None = None
    is_tril: bool = False


class Span(Record, frozen=True, kw_only=True):
    """An expression in a file. Lines count from 1; columns count bytes of UTF-8 from 0."""

    line: int
    last_line: int
    column: int | None
    last_column: int | None


class Frame(Record, frozen=True, kw_only=True):
    """One activation of a function of the checkout."""

    file: str
    function: str
    first_line: int
    caller: int | None
    call: Span | None


class Launch(Record, frozen=True, kw_only=True):
    """What is known of a kernel of the user's beyond its arguments."""

    language: Literal["triton", "extension"]
    kernel: str
    grid: tuple[int, ...] = ()
    constants: tuple[Keyword, ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    is_sure: bool = True
    file: str = ""
    first_line: int | None = None


class RecordedOperation(Record, frozen=True, kw_only=True):
    """One call of a torch function, or one launch of a kernel."""

    name: str
    args: tuple[Argument, ...]
    kwargs: tuple[Keyword, ...]
    outputs: tuple[int, ...]
    frame: int | None
    span: Span | None
    scope: int | None
    host_us: float = 0.0
    device_us: float | None = None
    backward_us: float | None = None
    syncs: bool = False
    library_call: int | None = None
    launch: Launch | None = None

    @property
    def forward_us(self) -> float:
        """Return the time of the call: on its device, where that was timed."""
        return self.host_us if self.device_us is None else self.device_us


class Scope(Record, frozen=True, kw_only=True):
    """Local variables of a frame."""

    locals: tuple[Keyword, ...]


class Recording(Record, frozen=True, kw_only=True):
    """One call of a target."""

    values: tuple[RecordedValue, ...]
    frames: tuple[Frame, ...]
    scopes: tuple[Scope, ...]
    operations: tuple[RecordedOperation, ...]
    outputs: tuple[int, ...]
    total_us: float
    is_cut: bool = False
