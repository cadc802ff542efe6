"""Made-up histories: reports of a line of commits as `compare` and `scan` leave them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from cudal1_ci.records import (
    Call,
    Comparison,
    Device,
    Entry,
    Evaluation,
    Report,
    Target,
    Workload,
)
from tests import reports

H200 = Device(kind="cuda", name="NVIDIA H200", driver="570.86.15", software={"torch": "2.12.1"})
L40S = Device(kind="cuda", name="NVIDIA L40S", driver="570.86.15", software={"torch": "2.12.1"})
NEWER = {"driver": "580.12.01", "software": {"torch": "2.13.0"}}
START = datetime(2026, 9, 1, 9, 0, tzinfo=UTC)


def sha(number: int) -> str:
    return f"{number:04x}" + "c0ffee" * 6


def date(number: int) -> datetime:
    return START + timedelta(hours=20 * number)


def a_comparison(
    base_us: float, head_us: float, device: Device, verdict: str | None = None
) -> Comparison:
    ratio = head_us / base_us
    said = "regression" if ratio > 1.02 else "improvement" if ratio < 0.98 else "same"
    low, high = ratio * 0.99, ratio * 1.01
    row = reports.a_row(
        verdict or said,
        base_us,
        head_us,
        device=device,
        slowdown_low=low,
        slowdown_high=high,
    )
    return Comparison(verdict=row.verdict, rows=(row,))


def a_target(qualname: str, path: str = "pkg/model.py") -> Target:
    return reports.a_target(qualname, path)


def an_evaluation(reference_us: float, speedup: float, device: Device, **fields) -> Evaluation:
    return reports.a_proof(reference_us, speedup, device, **fields)


def an_entry(target: Target, **fields) -> Entry:
    workloads = (Workload(name="base", provenance="declared", call=Call()),)
    return Entry(**{"target": target, "workloads": workloads, "evaluations": ()} | fields)


def a_report(number: int, *entries: Entry, **fields) -> Report:
    known = {
        "repository": "acme/slowformer",
        "base_sha": sha(number - 1) if number else None,
        "head_sha": sha(number),
        "device": None,
        "devices": (H200,),
        "generated_at": date(number),
    }
    return reports.a_report(*entries, **(known | fields))


def a_device(device: Device, number: int, changed_at: int) -> Device:
    return msgspec.structs.replace(device, **NEWER) if number >= changed_at else device


def a_line(
    num_commits: int = 30,
    names: tuple[str, ...] = ("Attention", "RMSNorm", "Rotary", "SwiGLU", "Conv", "pool"),
    seed: int = 7,
    noise: float = 0.006,
) -> Iterator[Report]:
    """Attention gets slower at commit 8 and is as before at 16; Rotary gets slower at 22; the
    driver changes at 12, and all is a little faster with it; `pool` gets faster at 19."""
    generator = random.Random(seed)
    levels = {name: 20.0 * 1.9**i for i, name in enumerate(names)}
    scale = num_commits / 30
    for number in range(num_commits):
        at = number / scale
        for device, speed in ((H200, 1.0), (L40S, 2.3)):
            now = a_device(device, number, math.ceil(12 * scale))
            entries = []
            for name in names:
                drift = (0.93 if at >= 12 else 1.0) * speed
                ratio = level(name, at) / level(name, max(0.0, (number - 1) / scale))
                head = levels[name] * drift * level(name, at) * math.exp(generator.gauss(0, noise))
                measured = ratio * math.exp(generator.gauss(0, 0.002))
                path = "pkg/pooling.py" if name == "pool" else f"pkg/{name.lower()}.py"
                comparison = a_comparison(head / measured, head, now)
                entries.append(an_entry(a_target(name, path), comparison=comparison))
            yield a_report(number, *entries, devices=(now,))


def level(name: str, at: float) -> float:
    if name == "Attention":
        return 1.14 if 8 <= at < 16 else 1.0
    if name == "Rotary":
        return 1.09 if at >= 22 else 1.0
    if name == "pool":
        return 0.4 if at >= 19 else 1.0
    return 1.0
