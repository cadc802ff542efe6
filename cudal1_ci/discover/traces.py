"""Read traces of the user's own commands as workloads.

Reads the files that `sandboxed/tracer` wrote, of all processes of a run. Joins equal calls and
ranks them by their total time. A damaged line (a process was killed while it wrote) is left out
with a notice. Optimizer steps of all processes are joined too, each with its own calls.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cudal1_ci.discover.declared import shapes_name
from cudal1_ci.records import Call, Notice, Target, TracedSteps, Workload, content_hash

MAX_FILE_BYTES = 64 * 2**20


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one line of a trace; unknown fields are those of a newer tracer."""

    target: str
    mode: str = "infer"
    source: str | None = None
    provenance: str = "traced"
    init: Call | None = None
    call: Call | None = None
    reason: str | None = None
    num_calls: int
    num_in_steps: int = 0
    """Of the calls, those between two steps of an optimizer."""
    total_s: float


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the line of a process whose optimizers made steps."""

    durations_s: list[float]
    device: str | None = None
    optimizer: str | None = None


@dataclass(frozen=True)
class Traces:
    """Hold all calls of a run. `total_s` is the time of all of them together."""

    calls: Mapping[str, tuple[TracedCall, ...]] = field(default_factory=dict)
    """By `path:qualname`; equal calls joined, those that took the most time first."""
    total_s: float = 0.0
    steps: TracedSteps | None = None
    notices: tuple[Notice, ...] = ()

    def workloads(self, target: Target) -> tuple[Workload, ...]:
        """Return how the target was called, most time first."""
        found = self.calls.get(f"{target.path}:{target.qualname}", ())
        seen: Counter[str] = Counter()
        workloads = []
        for call in found:
            if call.call is not None:
                shapes = shapes_name(call.call) or "call"
                seen[shapes] += 1
                name = shapes if seen[shapes] == 1 else f"{shapes} #{seen[shapes]}"
                workloads.append(workload_of(call, name, self.total_s, self.steps))
        return tuple(workloads)

    def reason(self, target: Target) -> str | None:
        """Return why calls of the target could not be recorded; None when it was not called."""
        found = self.calls.get(f"{target.path}:{target.qualname}", ())
        reasons = Counter(call.reason for call in found if call.reason)
        return reasons.most_common(1)[0][0] if reasons else None


def workload_of(
    call: TracedCall, name: str, total_s: float, steps: TracedSteps | None = None
) -> Workload:
    """Turn a traced call into a workload."""
    assert call.call is not None
    is_in_steps = steps is not None and call.num_in_steps > 0
    return Workload(
        name=name,
        provenance="benchmark" if call.provenance == "benchmark" else "traced",
        source=call.source,
        init=call.init,
        call=call.call,
        mode="train" if call.mode == "train" else "infer",
        num_calls=call.num_calls,
        share=call.total_s / total_s if total_s > 0 else None,
        traced_us=1e6 * call.total_s / call.num_calls if call.num_calls > 0 else None,
        calls_per_step=(
            call.num_in_steps / len(steps.durations_us) if steps and is_in_steps else None
        ),
        steps=steps if is_in_steps else None,
    )


def read_traces(folder: Path) -> Traces:
    """Return the traces of a folder; empty where there is none."""
    notices: list[Notice] = []
    lines: list[TracedCall] = []
    times: list[StepTimes] = []
    for path in sorted(folder.glob("trace-*.jsonl")):
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                notices.append(Notice(path=str(path), message="left out: the trace is too large"))
                continue
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            notices.append(Notice(path=str(path), message=f"cannot be read: {error}"))
            continue
        for line in read_lines(text, path, notices):
            if isinstance(line, StepTimes):
                times.append(line)
            else:
                lines.append(line)
    joined = join(lines)
    total_s = sum(call.total_s for call in lines)
    return Traces(joined, total_s, joined_steps(times), tuple(notices))


def joined_steps(times: Iterable[StepTimes]) -> TracedSteps | None:
    """Return the steps of all processes; None where no optimizer made two."""
    durations_us: list[float] = []
    devices, optimizers = set(), set()
    for one in times:
        durations_us += (1e6 * one_s for one_s in one.durations_s if 0 < one_s < math.inf)
        devices.add(one.device)
        optimizers.add(one.optimizer)
    if not durations_us:
        return None
    device = devices.pop() if len(devices) == 1 else None
    optimizer = optimizers.pop() if len(optimizers) == 1 else None
    return TracedSteps(durations_us=tuple(durations_us), device=device, optimizer=optimizer)


def read_lines(text: str, path: Path, notices: list[Notice]) -> Iterable[TracedCall | StepTimes]:
    """Yield the complete lines of a file."""
    damaged = 0
    for line in text.splitlines():
        try:
            found = json.loads(line)
            if isinstance(found, dict) and "steps" in found:
                yield msgspec.convert(found["steps"], StepTimes)
            else:
                yield msgspec.convert(found, TracedCall)
        except (ValueError, msgspec.ValidationError):
            damaged += 1
    if damaged:
        notices.append(Notice(path=str(path), message=f"{damaged} damaged lines were left out"))


def join(lines: Iterable[TracedCall]) -> dict[str, tuple[TracedCall, ...]]:
    """Join equal calls of all processes; the first call's value ranges stand for all."""
    by_key: dict[tuple[str, str], TracedCall] = {}
    for line in lines:
        key = (line.target, signature(line))
        known = by_key.get(key)
        if known is None:
            by_key[key] = line
            continue
        by_key[key] = msgspec.structs.replace(
            known,
            num_calls=known.num_calls + line.num_calls,
            num_in_steps=known.num_in_steps + line.num_in_steps,
            total_s=known.total_s + line.total_s,
            provenance="benchmark"
            if "benchmark" in (known.provenance, line.provenance)
            else "traced",
        )
    grouped: dict[str, list[TracedCall]] = {}
    for call in by_key.values():
        grouped.setdefault(call.target, []).append(call)
    return {
        target: tuple(sorted(calls, key=lambda call: -call.total_s))
        for target, calls in grouped.items()
    }


def signature(line: TracedCall) -> str:
    """Return what makes calls equal: everything but the ranges of the values."""

    def without_ranges(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_ranges(v) for k, v in value.items() if k not in ("low", "high")}
        if isinstance(value, list | tuple):
            return [without_ranges(item) for item in value]
        return value

    parts = msgspec.to_builtins([line.init, line.call, line.mode, line.reason])
    return content_hash(without_ranges(parts))
