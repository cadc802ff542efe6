"""Choose which target comes next. Pure.

Targets that no sweep has finished come first. Then come those whose code, device or software has
changed, then those whose look settled nothing, the oldest first. Settled and unchanged targets have
no turn: the archive knows them.

Within a class the largest possible gain comes first: the share of the recorded time of its calls,
or the last measured time of its calls where none was recorded. The two have different units, so a
share comes before a time, and both before an unknown one. Only the part above the memory roofline
counts, where the device's data sheet and the call's tensors are known: a copy at full bandwidth
leaves nothing to gain, however long it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from cudal1_ci.discover.plan import Planned
from cudal1_ci.optimize.sweep.memory import Look, code_of, name_of
from cudal1_ci.propose.roofline import DeviceFacts, call_bytes, facts_of, roofline_share
from cudal1_ci.records import Device, Workload


class Standing(IntEnum):
    """Classify a target by what is known of it, in the order of turns."""

    NEW = 0
    CHANGED = 1
    UNSETTLED = 2
    SETTLED = 3


class Looks:
    """Hold what earlier sweeps found, by target."""

    def __init__(self, looks: Sequence[Look], device: Device, means: str) -> None:
        self._here = {look.target: look for look in looks if look.device == device.name}
        self._anywhere = {look.target: look for look in looks}
        self._device_key, self._means = device.key, means
        self._facts = facts_of(device.name)

    def of(self, planned: Planned) -> Look | None:
        """Return the last look; one on this device is preferred."""
        name = name_of(planned.target)
        return self._here.get(name) or self._anywhere.get(name)

    def standing(self, planned: Planned) -> Standing:
        """Return what the last look is worth now."""
        look, problem = self.of(planned), planned.problem
        if look is None or problem is None:
            return Standing.NEW
        now = (code_of(problem), self._device_key, self._means)
        if (look.code, look.device_key, look.means) != now:
            return Standing.CHANGED
        return Standing.SETTLED if look.is_settled else Standing.UNSETTLED

    def is_as_it_was(self, planned: Planned) -> bool:
        """Return whether the last look saw the same code on such a device; its proofs then still
        hold.
        """
        look, problem = self.of(planned), planned.problem
        if look is None or problem is None:
            return False
        return (look.code, look.device_key) == (code_of(problem), self._device_key)

    def turns(self, targets: Sequence[Planned]) -> list[Planned]:
        """Return targets that have a turn, in order; targets without a problem come last."""
        having = [one for one in targets if self.standing(one) is not Standing.SETTLED]
        return sorted(having, key=self._place)

    def _place(self, planned: Planned) -> tuple[bool, Standing, float, int, float]:
        standing, look = self.standing(planned), self.of(planned)
        age = look.at if look is not None and standing is Standing.UNSETTLED else 0.0
        times_us = look.times_us if look is not None else {}
        worth = cost(planned.workloads, times_us, self._facts)
        return (planned.problem is None, standing, age, *worth)


def cost(
    workloads: Sequence[Workload], times_us: dict[str, float], facts: DeviceFacts | None = None
) -> tuple[int, float]:
    """Return a sort key, largest possible gain first: shares, then microseconds, then unknown ones.
    `times_us` is the measured time of one call, by workload.
    """
    rooms = [room(one, times_us.get(one.name, one.traced_us), facts) for one in workloads]
    shares = [
        one.share * free
        for one, free in zip(workloads, rooms, strict=True)
        if one.share is not None
    ]
    if shares:
        return 0, -sum(shares)
    known = [
        one.num_calls * times_us[one.name] * free
        for one, free in zip(workloads, rooms, strict=True)
        if one.num_calls is not None and one.name in times_us
    ]
    return (1, -sum(known)) if known else (2, 0.0)


def room(workload: Workload, time_us: float | None, facts: DeviceFacts | None) -> float:
    """Return the part of a call's time (0..1) that reading its inputs at full bandwidth would not
    take; 1 where that is not known.
    """
    num_bytes = call_bytes(workload.call)
    if not time_us or num_bytes is None or facts is None:
        return 1.0
    return max(0.0, 1.0 - roofline_share(time_us, num_bytes, facts))
