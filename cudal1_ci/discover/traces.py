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
from typing import Any, get_args

import msgspec

from cudal1_ci.discover.declared import shapes_name
from cudal1_ci.discover.scripts import KINDS
from cudal1_ci.records import Call, Notice, Target, TracedSteps, Workload, content_hash
from cudal1_ci.records.workload import Autocast, Floats, Provenance

MAX_FILE_BYTES = 64 * 2**20


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one line of a trace; unknown fields are those of a newer tracer."""

    target: str
    mode: str = "infer"
    source: str | None = None
    provenance: str = "traced"
    init: Call | None = None
    call: Call | None = None
    dtype: str | None = None
    default_dtype: str | None = None
    autocast: str | None = None
    reason: str | None = None
    num_calls: int
    num_in_steps: int = 0
    """Of the calls, those between two steps of an optimizer."""
    total_s: float
    roots: dict[str, tuple[float, float]] = {}
    """By outermost module, ` train` where it trained: the time inside its later calls, and inside
    its first ones."""


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
    roots: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Time of each outermost module's later calls, and of its first ones."""
    hint: str | None = None
    """What brings calls of targets that have none."""
    failed_defaults: Mapping[str, str] = field(default_factory=dict)
    """Why a call by the defaults of a constructor failed, by `path:line` of the target."""

    def workloads(self, target: Target) -> tuple[Workload, ...]:
        """Return how the target was called, most time first. What was only called in training is
        also called in inference, last."""
        found = self.calls.get(target.address, ())
        called = [call for call in found if call.call is not None]
        inferred = {signature(call) for call in called if call.mode != "train"}
        derived = [
            in_inference(call)
            for call in called
            if call.mode == "train" and signature(in_inference(call)) not in inferred
        ]
        seen: Counter[str] = Counter()
        workloads = []
        for call in (*called, *derived):
            assert call.call is not None
            shapes = shapes_name(call.call) or "call"
            seen[shapes] += 1
            name = shapes if seen[shapes] == 1 else f"{shapes} #{seen[shapes]}"
            workloads.append(workload_of(call, name, self))
        return tuple(workloads)

    def place(self, call: TracedCall) -> tuple[str | None, float | None]:
        """Return the root that contains most of a call's time, and the share of it; without one,
        the share of the whole time."""
        shares = []
        for name, times in call.roots.items():
            whole = self.roots.get(name, (0.0, 0.0))
            is_first = whole[0] <= 0
            if whole[is_first] > 0:
                shares.append((times[is_first], name, min(1.0, times[is_first] / whole[is_first])))
        if shares:
            _, name, share = max(shares)
            return name.removesuffix(" train"), share
        return None, call.total_s / self.total_s if self.total_s > 0 else None

    @property
    def train_share(self) -> float | None:
        """Return the share of the distinct calls that was recorded in training; None of none."""
        modes = [call.mode == "train" for calls in self.calls.values() for call in calls]
        return sum(modes) / len(modes) if modes else None

    def reason(self, target: Target) -> str | None:
        """Return why calls of the target could not be recorded; None when it was not called."""
        found = self.calls.get(target.address, ())
        reasons = Counter(call.reason for call in found if call.reason)
        return reasons.most_common(1)[0][0] if reasons else None


def in_inference(call: TracedCall) -> TracedCall:
    """Return the same call in inference, which was not made."""
    source = f"{call.source}, in inference" if call.source else "in inference"
    return msgspec.structs.replace(call, mode="infer", source=source, num_calls=0, num_in_steps=0)


def workload_of(call: TracedCall, name: str, traces: Traces) -> Workload:
    """Turn a traced call into a workload."""
    assert call.call is not None
    steps = traces.steps
    is_in_steps = steps is not None and call.num_in_steps > 0
    root, share = traces.place(call)
    return Workload(
        name=name,
        provenance=PROVENANCE.get(call.provenance, "traced"),
        source=call.source,
        init=call.init,
        call=call.call,
        mode="train" if call.mode == "train" else "infer",
        dtype=FLOATS.get(call.dtype or ""),
        default_dtype=FLOATS.get(call.default_dtype or ""),
        autocast=AUTOCASTS.get(call.autocast or ""),
        num_calls=call.num_calls or None,
        share=share,
        root=root,
        traced_us=1e6 * call.total_s / call.num_calls if call.num_calls > 0 else None,
        calls_per_step=(
            call.num_in_steps / len(steps.durations_us) if steps and is_in_steps else None
        ),
        steps=steps if is_in_steps else None,
    )


PROVENANCE: dict[str, Provenance] = {one: one for one in get_args(Provenance)}
FLOATS: dict[str, Floats] = {one: one for one in get_args(Floats)}
AUTOCASTS: dict[str, Autocast] = {one: one for one in get_args(Autocast)}
RANKS = ("benchmark", "traced", *(one for one in KINDS if one != "benchmark"))
"""Of equal calls the one that comes first here gives its place."""


def whole_roots(lines: Iterable[TracedCall]) -> dict[str, tuple[float, float]]:
    """Return the time of each outermost module: of its later calls, and of its first ones."""
    whole: dict[str, tuple[float, float]] = {}
    for line in lines:
        for name, (later_s, first_s) in line.roots.items():
            before = whole.get(name, (0.0, 0.0))
            whole[name] = (before[0] + later_s, before[1] + first_s)
    return whole


def read_traces(*folders: Path) -> Traces:
    """Return the traces of some folders; empty where there is none."""
    notices: list[Notice] = []
    lines: list[TracedCall] = []
    times: list[StepTimes] = []
    for path in sorted(path for one in folders for path in one.glob("trace-*.jsonl")):
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
    return Traces(joined, total_s, joined_steps(times), tuple(notices), whole_roots(lines))


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
        notices.append(Notice(path=str(path), message=f"left out: {damaged} of the lines, damaged"))


def join(lines: Iterable[TracedCall]) -> dict[str, tuple[TracedCall, ...]]:
    """Join equal calls of all processes; the first call's value ranges stand for all."""
    by_key: dict[tuple[str, str], TracedCall] = {}
    for line in lines:
        key = (line.target, signature(line))
        known = by_key.get(key)
        if known is None:
            by_key[key] = line
            continue
        first, other = sorted((known, line), key=lambda call: rank(call.provenance))
        roots = {
            name: (
                first.roots.get(name, NO_TIME)[0] + other.roots.get(name, NO_TIME)[0],
                first.roots.get(name, NO_TIME)[1] + other.roots.get(name, NO_TIME)[1],
            )
            for name in {**known.roots, **line.roots}
        }
        by_key[key] = msgspec.structs.replace(
            first,
            num_calls=known.num_calls + line.num_calls,
            num_in_steps=known.num_in_steps + line.num_in_steps,
            total_s=known.total_s + line.total_s,
            roots=roots,
        )
    grouped: dict[str, list[TracedCall]] = {}
    for call in by_key.values():
        grouped.setdefault(call.target, []).append(call)
    return {
        target: tuple(sorted(calls, key=lambda call: -call.total_s))
        for target, calls in grouped.items()
    }


NO_TIME = (0.0, 0.0)


def rank(provenance: str) -> int:
    """Return which of equal calls is named: a benchmark's before all others."""
    return RANKS.index(provenance) if provenance in RANKS else len(RANKS)


def signature(line: TracedCall) -> str:
    """Return what makes calls equal: everything but the ranges of the values."""

    def without_ranges(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_ranges(v) for k, v in value.items() if k not in ("low", "high")}
        if isinstance(value, list | tuple):
            return [without_ranges(item) for item in value]
        return value

    kind = [line.mode, line.dtype, line.default_dtype, line.autocast, line.reason]
    parts = msgspec.to_builtins([line.init, line.call, *kind])
    return content_hash(without_ranges(parts))
