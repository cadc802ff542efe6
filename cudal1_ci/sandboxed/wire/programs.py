"""Describe programs and the problem that a reference poses, as `cudal1_ci.records` does.

The host makes them of its records, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .arguments import Call, Made


@dataclass(frozen=True, kw_only=True)
class TextProgram:
    """A text that defines a class `entry`."""

    type: ClassVar[str] = "text"
    source: str
    entry: str


@dataclass(frozen=True, kw_only=True)
class OverlayFile:
    """A file of a checkout as a candidate would have it."""

    path: str
    text: str
    base_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class TreeProgram:
    """`pkg.mod:Qual.Name` of a checkout, with changed files laid over it."""

    type: ClassVar[str] = "tree"
    root: str
    import_root: str
    import_path: str
    digest: str
    overlay: tuple[OverlayFile, ...] = ()


Program = TextProgram | TreeProgram


Floats = Literal["float16", "bfloat16", "float64"]
Autocast = Literal["float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One way in which a target is called."""

    name: str
    init: Call | Made | None = None
    call: Call | Made
    mode: Literal["infer", "train"] = "infer"
    dtype: Floats | None = None
    default_dtype: Floats | None = None
    autocast: Autocast | None = None
    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reference and its workloads."""

    reference: Program
    workloads: tuple[Workload, ...]
