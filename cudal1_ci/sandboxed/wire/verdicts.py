"""Describe what was found of a program, as `cudal1_ci.records.evaluation` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from .codec import AtMost, Within
from .tensors import Count, Name

Status = Literal[
    "passed",
    "compile_error",
    "runtime_error",
    "timeout",
    "incorrect_shape",
    "incorrect_dtype",
    "incorrect_values",
    "precision",
    "mutates_input",
    "reward_hack",
    "degenerate",
    "invalid_reference",
    "inconclusive",
    "harness_error",
]
MOST_US = 1e12
MAX_EVENTS = 600
"""Events of a profiled call that are kept: the longest."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An observation, with the rule's name."""

    rule: str
    message: str
    line: int | None = None
    evidence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A decision whether a candidate is the same function, honestly computed."""

    status: Status
    findings: tuple[Finding, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    log: str = ""


ContractResult = Literal["held", "differs", "broken", "not_applicable", "not_tried"]


@dataclass(frozen=True, kw_only=True)
class ContractCheck:
    """A line of a contract: a way to use the reference, and whether the candidate bears it."""

    group: str
    aspect: str
    result: ContractResult
    detail: str


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """A kernel, or on a CPU an operator, of a call: how often it ran and for how long in total."""

    name: Name
    num_calls: Annotated[int, Within(1, 2**40 - 1)]
    time_us: Annotated[float, Within(0, MOST_US)]


@dataclass(frozen=True, kw_only=True)
class TimelineEvent:
    """An operation of the host or a kernel of the device; its name is a place in `names`."""

    name: Annotated[int, Within(0, MAX_EVENTS - 1)]
    on_device: bool
    start_us: Annotated[float, Within(0, MOST_US)]
    duration_us: Annotated[float, Within(0, MOST_US)]


@dataclass(frozen=True, kw_only=True)
class CallCost:
    """What a profiled call takes besides its time."""

    host_us: Annotated[float, Within(0, MOST_US)]
    device_us: Annotated[float, Within(0, MOST_US)] | None
    num_launches: Count
    peak_bytes: Count | None
    energy_j: Annotated[float, Within(0, 1e12)] | None = None
    names: Annotated[tuple[Name, ...], AtMost(MAX_EVENTS)]
    events: Annotated[tuple[TimelineEvent, ...], AtMost(MAX_EVENTS)]
    is_cut: bool


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Least demand of a call of a reference on any device."""

    num_bytes: Count
    product_flops: Count
    convolution_flops: Count
    dtype: Name
