"""Which target comes next. Pure.

First those that no sweep was done with, then those whose code, device or software is another one
now, then those that were looked at and settled nothing, the oldest first. Targets that were settled
and are unchanged have no turn: the archive knows them.

Within a class the dearest comes first: the share of the recorded time that its calls took; where
none was recorded, the time of its calls as it was measured the last time. These two are not in one
unit, so that a share comes before a time, and both before nothing known.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from cudal1_ci.schema import Device, Workload
from cudal1_ci.survey import Planned
from cudal1_ci.sweep.memory import Look, code_of, name_of


class Standing(IntEnum):
    """What is known of a target, in the order of turns."""

    NEW = 0
    CHANGED = 1
    UNSETTLED = 2
    SETTLED = 3


class Looks:
    """What earlier sweeps found, by target."""

    def __init__(self, looks: Sequence[Look], device: Device, means: str) -> None:
        self._here = {look.target: look for look in looks if look.device == device.name}
        self._anywhere = {look.target: look for look in looks}
        self._device_key, self._means = device.key, means

    def of(self, planned: Planned) -> Look | None:
        """The last look, on this device before others."""
        name = name_of(planned.target)
        return self._here.get(name) or self._anywhere.get(name)

    def standing(self, planned: Planned) -> Standing:
        """What the last look is worth now."""
        look, problem = self.of(planned), planned.problem
        if look is None or problem is None:
            return Standing.NEW
        now = (code_of(problem), self._device_key, self._means)
        if (look.code, look.device_key, look.means) != now:
            return Standing.CHANGED
        return Standing.SETTLED if look.is_settled else Standing.UNSETTLED

    def turns(self, targets: Sequence[Planned]) -> list[Planned]:
        """Those that have a turn, in order; what poses no problem comes last."""
        having = [one for one in targets if self.standing(one) is not Standing.SETTLED]
        return sorted(having, key=self._place)

    def _place(self, planned: Planned) -> tuple[bool, Standing, float, int, float]:
        standing, look = self.standing(planned), self.of(planned)
        age = look.at if look is not None and standing is Standing.UNSETTLED else 0.0
        times_us = look.times_us if look is not None else {}
        return (planned.problem is None, standing, age, *cost(planned.workloads, times_us))


def cost(workloads: Sequence[Workload], times_us: dict[str, float]) -> tuple[int, float]:
    """A key that sorts the dearest first: shares, then microseconds, then what is not known."""
    shares = [one.share for one in workloads if one.share is not None]
    if shares:
        return 0, -sum(shares)
    known = [
        one.num_calls * times_us[one.name]
        for one in workloads
        if one.num_calls is not None and one.name in times_us
    ]
    return (1, -sum(known)) if known else (2, 0.0)
