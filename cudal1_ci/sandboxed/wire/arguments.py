"""Describe the arguments of a call, as `cudal1_ci.records.workload` does, or as a runner made them.

The fields of those classes that the host has too are read from its records by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor that the verifier draws."""

    type: ClassVar[str] = "tensor"
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    requires_grad: bool = False
    invariants: tuple[str, ...] = ()
    """What its values keep to (tracer/invariants.py)."""


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """A tensor in shared memory, by its number among those of the call."""

    type: ClassVar[str] = "place"
    index: int


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A plain value."""

    type: ClassVar[str] = "constant"
    value: bool | int | float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """Something importable."""

    type: ClassVar[str] = "symbol"
    path: str


@dataclass(frozen=True, kw_only=True)
class Items:
    """`list`, `tuple`, `set`, or the import path of such a class, and its items."""

    type: ClassVar[str] = "items"
    items: tuple[Argument, ...] = ()
    container: str = "list"


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """`dict` or the import path of a mapping class, as key-value pairs."""

    type: ClassVar[str] = "mapping"
    items: tuple[tuple[Argument, Argument], ...] = ()
    container: str = "dict"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An object made by calling `factory`."""

    type: ClassVar[str] = "instance"
    factory: str
    args: tuple[Argument, ...] = ()
    kwargs: dict[str, Argument] = field(default_factory=dict)


Argument = TensorSpec | TensorPlace | Constant | Symbol | Items | Mapping | Instance


@dataclass(frozen=True, kw_only=True)
class Call:
    """Arguments of one call."""

    type: ClassVar[str] = "call"
    args: tuple[Argument, ...] = ()
    kwargs: dict[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Made:
    """Arguments that a function of the user's returns; `path` None is the program itself."""

    type: ClassVar[str] = "made"
    function: str
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pickled:
    """Arguments that such a function has returned, in a runner: base64 of a pickle with places
    for its tensors. Only runners open it. Of many calls whose pickles differ `data` is None."""

    type: ClassVar[str] = "pickled"
    data: str | None = None


GivenCall = Call | Pickled
"""The arguments that a runner builds."""
