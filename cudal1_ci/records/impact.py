"""Hold what all proposals together do to the calls that contain them."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.record import (
    Count,
    Name,
    NotNegative,
    Positive,
    Published,
    Text,
    refuse_disorder,
)


class TimelineEvent(Published, frozen=True, kw_only=True):
    """An operation or a kernel of one call."""

    name: Count
    """Its place in `names`."""
    on_device: bool
    start_us: NotNegative
    duration_us: NotNegative


class CallCost(Published, frozen=True, kw_only=True):
    """What one profiled call takes besides its time; None is what is not known."""

    host_us: NotNegative
    """From its start until the host had issued everything."""
    device_us: NotNegative | None = None
    """Of all kernels."""
    num_launches: Count
    """Kernels; on a CPU operators."""
    peak_bytes: Count | None = None
    """Most device memory that was allocated at once, the weights included. On a CPU most memory of
    tensors, beyond what was there before the call."""
    energy_j: NotNegative | None = None
    """Joules of the whole GPU, idle power included."""
    names: tuple[Name, ...] = ()
    events: tuple[TimelineEvent, ...] = ()
    """In order; where there are more than a report keeps, the longest."""
    is_cut: bool = False
    """Whether there were more events."""

    def __post_init__(self) -> None:
        if any(one.name >= len(self.names) for one in self.events):
            raise ValueError(f"expected names of {len(self.names)} events, got a further one")


class Baseline(Published, frozen=True, kw_only=True):
    """A call of the root that was made faster in another way, against the same reference."""

    name: Name
    """`torch.compile`."""
    speedup: Positive | None = None
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None
    reason: Text | None = None
    """Why there is no speedup."""

    def __post_init__(self) -> None:
        refuse_disorder(self, "speedup")


class Impact(Published, frozen=True, kw_only=True):
    """Hold what all proposals together do to a program that calls them."""

    root: Name
    """`path:qualname` of what was called."""
    kind: Literal["call", "step"] = "call"
    """A call, or a training step: forward, backward and optimizer."""
    workload: Name = ""
    mode: Literal["infer", "train"] = "infer"
    optimizer: Name | None = None
    before_us: Positive
    after_us: Positive
    low: Positive
    high: Positive
    """Interval of how many times faster it is."""
    is_confirmed: bool = True
    """Whether it was measured in fresh processes; else once, for want of time."""
    before: CallCost | None = None
    after: CallCost | None = None
    compiled: Baseline | None = None
    """`torch.compile` of the whole root instead of the proposals."""
    own: Baseline | None = None
    """The proposals where the project compiles the root itself, against the root so compiled."""
    gpu_hours_saved: float | None = None
    """In a month, at the configured rate."""
    money_saved: float | None = None
    energy_saved_kwh: float | None = None

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"expected low <= high, got {self.low} and {self.high}")

    @property
    def speedup(self) -> float:
        return self.before_us / self.after_us


class LeftOut(Published, frozen=True, kw_only=True):
    """Name what is not part of the patch of all proposals, or was not measured."""

    what: Name
    reason: Text


class Together(Published, frozen=True, kw_only=True):
    """Hold all proposals as one patch."""

    patch: Text
    included: tuple[Name, ...] = ()
    """`path:qualname` of each target."""
    left_out: tuple[LeftOut, ...] = ()
    """Proposals that change the same lines as a better one, or that fail together with others."""
    not_reached: tuple[LeftOut, ...] = ()
    """What was not measured, for want of time or because it cannot be."""


class InRoot(Published, frozen=True, kw_only=True):
    """A target's part of one call of a root."""

    root: Name
    time_us: NotNegative
    """Of the call that the target takes, before any change."""
    share: NotNegative
