"""Estimate what all proposals together save in a month: hours of GPUs, energy and money.

    saving(impact, device, ReportConfig(calls_per_day=2_000_000, gpu_hour_price=2.5))

Rates are configured, never guessed: `report.calls-per-day` of each root, and
`report.steps-per-month`. A GPU is assumed to make one call after the other.
"""

from __future__ import annotations

import msgspec

from cudal1_ci.records import Device, Impact
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.render.step import US_PER_HOUR

DAYS_PER_MONTH = 365.25 / 12
JOULES_PER_KWH = 3.6e6


def saving(impact: Impact, device: Device | None, config: ReportConfig | None) -> Impact:
    """Return an impact with what it saves in a month, where its rate is known and it was measured
    on a GPU."""
    calls = None if config is None else calls_per_month(impact, config)
    if calls is None or config is None or device is None or device.kind != "cuda":
        return impact
    hours = calls * (impact.before_us - impact.after_us) / US_PER_HOUR
    price = config.gpu_hour_price
    return msgspec.structs.replace(
        impact,
        gpu_hours_saved=hours,
        money_saved=None if price is None else price * hours,
        energy_saved_kwh=energy_kwh(impact, calls),
    )


def calls_per_month(impact: Impact, config: ReportConfig) -> float | None:
    """Return how often a call or a step is made; calls that train are part of steps."""
    if impact.kind == "step":
        return config.steps_per_month
    if impact.mode == "train" or config.calls_per_day is None:
        return None
    return config.calls_per_day * DAYS_PER_MONTH


def energy_kwh(impact: Impact, calls: float) -> float | None:
    """Return the energy that so many calls save."""
    if impact.before is None or impact.after is None:
        return None
    before_j, after_j = impact.before.energy_j, impact.after.energy_j
    if before_j is None or after_j is None:
        return None
    return calls * (before_j - after_j) / JOULES_PER_KWH
