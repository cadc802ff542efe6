"""Format a task's facts and measurements as lines: workloads, device, profile.

Shapes and names come from the repository, so they are shown in a fence.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ci.propose.llm.quoting import Shown, line, named
from cudal1_ci.propose.llm.task import ProfileRow, ReferenceTime, Task
from cudal1_ci.propose.roofline import DeviceFacts, call_bytes, lower_bound_us, roofline_share
from cudal1_ci.records import Workload
from cudal1_ci.records.call_text import call_text
from cudal1_ci.source.kernel_names import brief

SOFTWARE = ("torch", "cuda", "triton", "python")
"""Software whose version decides what code may be written."""
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def workload_text(task: Task, workloads: Sequence[Workload]) -> str:
    """Return how the target is called, with the memory bound if it is known."""
    times = {time.workload: time for time in task.times}
    return "\n".join(_workload(one, times.get(one.name), task.facts) for one in workloads)


def _workload(workload: Workload, time: ReferenceTime | None, facts: DeviceFacts | None) -> str:
    mode = "inference" if workload.mode == "infer" else "training: forward and backward"
    if workload.autocast is not None:
        mode += f", under torch.autocast in {workload.autocast}"
    share = f", {percent(workload.share)} of the traced time" if workload.share else ""
    lines = [f"{line(workload.name)}: {mode}{share}"]
    if workload.init is not None:
        lines.append(f"  constructed with {line(call_text(workload.init))}")
    lines.append(f"  called with {line(call_text(workload.call))}")
    bound = _bound(workload, time, facts)
    if bound:
        lines.append(f"  {bound}")
    return "\n".join(lines)


def _bound(workload: Workload, time: ReferenceTime | None, facts: DeviceFacts | None) -> str:
    """Return a line like `inputs 4.2 MB, at least 0.9 us; the reference takes 35 us: 3% of the
    roofline of memory`.
    """
    num_bytes = call_bytes(workload.call)
    said = []
    if num_bytes is not None:
        of_what = "inputs"
        if time is not None and time.output_bytes is not None:
            num_bytes += time.output_bytes
            of_what = "inputs and outputs"
        least = f", at least {number(lower_bound_us(num_bytes, facts))} us" if facts else ""
        said.append(f"{of_what} {size(num_bytes)}{least}")
    if time is not None:
        taken = f"the reference takes {number(time.time_us)} us"
        if num_bytes is not None and facts is not None:
            share = roofline_share(time.time_us, num_bytes, facts)
            taken += f": {percent(share)} of the roofline of memory"
        said.append(taken)
    return "; ".join(said)


def device_text(task: Task) -> Shown:
    """Return the device with its peak rates."""
    device, facts = task.device, task.facts
    said = [named(device.name)]
    if device.kind == "cpu":
        threads = f" with {device.num_threads} threads" if device.num_threads else ""
        said.append(Shown(f"a CPU{threads}: there is no CUDA and no Triton"))
    if facts is not None:
        rates = [f"fp32 {facts.fp32_tflop_s:g}"]
        rates += [f"TF32 {facts.tf32_tflop_s:g}"] if facts.tf32_tflop_s else []
        rates += [f"bf16 {facts.bf16_tflop_s:g}"] if facts.bf16_tflop_s else []
        said += [
            Shown(f"memory {facts.bandwidth_gb_s:g} GB/s"),
            Shown(f"{', '.join(rates)} TFLOP/s"),
            Shown(f"{facts.num_sms} SMs with {facts.shared_kib_per_sm} KiB of shared memory each"),
        ]
    versions = [f"{name} {device.software[name]}" for name in SOFTWARE if name in device.software]
    if versions:
        said.append(named(", ".join(versions)))
    return Shown("; ".join(said))


def profile_text(task: Task, max_rows: int) -> str:
    """Return the longest rows with their shares, and the sum of the others."""
    assert not isinstance(task.profile, str)
    rows = brief_rows(task.profile)
    total_us = sum(row.time_us for row in rows)
    lines = [_row(row, total_us, line(row.name), task) for row in rows[:max_rows]]
    others = rows[max_rows:]
    if others:
        together = ProfileRow(
            name="",
            num_calls=sum(row.num_calls for row in others),
            time_us=sum(row.time_us for row in others),
        )
        lines.append(_row(together, total_us, f"{len(others)} others together", task))
    return "\n".join(lines)


def brief_rows(profile: Sequence[ProfileRow]) -> list[ProfileRow]:
    """Return the longest rows first, with readable names; rows of one name are merged."""
    found: dict[str, ProfileRow] = {}
    for row in profile:
        name = brief(row.name)
        known = found.get(name)
        found[name] = ProfileRow(
            name=name,
            num_calls=row.num_calls + (known.num_calls if known else 0),
            time_us=row.time_us + (known.time_us if known else 0.0),
        )
    return sorted(found.values(), key=lambda row: (-row.time_us, row.name))


def _row(row: ProfileRow, total_us: float, name: str, task: Task) -> str:
    what = "launch" if task.device.kind == "cuda" else "call"
    plural = "" if row.num_calls == 1 else "es" if what == "launch" else "s"
    share = percent(row.time_us / total_us) if total_us else "0%"
    return f"{number(row.time_us)} us, {share}, {row.num_calls} {what}{plural}: {name}"


def number(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share in whole percents."""
    return "under 1%" if 0 < share < 0.01 else f"{share:.0%}"


def size(num_bytes: int) -> str:
    """Return bytes in decimal units, as bandwidth is."""
    for unit, name in UNITS:
        if num_bytes >= unit:
            return f"{number(num_bytes / unit)} {name}"
    return f"{num_bytes} bytes"
