"""Format numbers, devices and statuses, the same in every output format.

A speedup is never shown without its interval, and both bounds are rounded away from the estimate:
what is printed claims no more than what was measured. What was not measured is a dash, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cudal1_ci.records import (
    Acceptance,
    AcceptanceLine,
    ContractCheck,
    Evaluation,
    Kernel,
    Measurement,
    NearMiss,
    NotTried,
    Operation,
    Target,
    TrainingStep,
    Understanding,
    Workload,
)
from cudal1_ci.records.call_text import call_text

NOT_MEASURED = "-"
NUM_NAMED = 3
"""Own kernels of a candidate."""

STATUS_WORDS = {
    "passed": "passed",
    "compile_error": "does not compile",
    "runtime_error": "raised an error",
    "timeout": "timed out",
    "incorrect_shape": "wrong shape",
    "incorrect_dtype": "wrong dtype",
    "incorrect_values": "wrong values",
    "precision": "less precise",
    "mutates_input": "changes its input",
    "reward_hack": "cheats the measurement",
    "degenerate": "degenerate",
    "invalid_reference": "reference fails",
    "inconclusive": "inconclusive",
    "harness_error": "verifier failed",
}

CONTRACT_WORDS = {
    "held": "held",
    "differs": "differs",
    "broken": "broken",
    "not_tried": "not tried",
}

ENDED_WORDS = {
    "budget": "Incomplete: the budget was too short to measure everything. Run again to resume.",
    "interrupted": "Incomplete: the run was interrupted. Run again to resume.",
}

KIND_WORDS = {
    "torch_module": "module",
    "torch_function": "function",
    "triton_kernel": "Triton kernel",
    "cuda_kernel": "CUDA kernel",
}


TIME_UNITS = (("s", 1e6), ("ms", 1e3), ("us", 1.0))
"""Largest first, each with its microseconds."""


class AnyDevice(Protocol):
    """A device, as a record or as published."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def num_threads(self) -> int | None: ...
    @property
    def software(self) -> dict[str, str]: ...
    @property
    def sandbox_missing(self) -> tuple[str, ...]: ...


def interval_text(estimate: float, low: float, high: float) -> str:
    """Format `2.31x [2.20, 2.42]`."""
    return f"{ratio_text(estimate)} [{_rounded_down(low)}, {_rounded_up(high)}]"


def kernels_text(kernels: Sequence[Kernel]) -> str:
    """Format ``own kernels: 93 % of the device time (`relu` 93 %); 2 other kernels``."""
    total_us = sum(kernel.device_us for kernel in kernels) or 1.0
    own = [kernel for kernel in kernels if kernel.is_own]
    share = sum(kernel.device_us for kernel in own) / total_us
    names = ", ".join(
        f"`{k.name[:60]}` {100 * k.device_us / total_us:.0f} %" for k in own[:NUM_NAMED]
    )
    others = count_text(len(kernels) - len(own), "other kernel")
    return f"own kernels: {100 * share:.0f} % of the device time" + (
        f" ({names}); {others}" if own else f"; {others}"
    )


def direction(measurement: Measurement) -> str:
    """Return `faster`, `slower`, or `unclear` where the interval holds 1 or is unknown."""
    if measurement.speedup_low is not None and measurement.speedup_low > 1:
        return "faster"
    if measurement.speedup_high is not None and measurement.speedup_high < 1:
        return "slower"
    return "unclear"


def change_text(ratio: float, low: float, high: float) -> str:
    """Format a ratio of times as `+12.0 % [+10.0, +14.0]`; bounds are rounded outward."""
    return f"{ratio_change_text(ratio)} [{_percent(low, math.floor)}, {_percent(high, math.ceil)}]"


def ratio_change_text(ratio: float) -> str:
    """Format a ratio of times as `+12.0 %`."""
    return f"{_percent(ratio, round)} %"


def _percent(ratio: float, rounded: Callable[[float], int]) -> str:
    """Format with a sign, and one decimal below 1000 %. What is a last bit next to a decimal counts
    as that decimal.
    """
    percent = 100 * (ratio - 1)
    tenths = rounded(round(10 * percent, 6))
    return f"{tenths / 10:+.1f}" if tenths < 10_000 else f"{rounded(percent):+,}"


def gain_text(measurement: Measurement) -> str:
    """Format the time of a candidate against the reference's: `-67.7 % [-68.2, -67.2]`."""
    speedup, low, high = measurement.speedup, measurement.speedup_low, measurement.speedup_high
    if speedup is None or low is None or high is None:
        return NOT_MEASURED
    return change_text(1 / speedup, 1 / high, 1 / low)


def at_least_gain_text(ratio: float) -> str:
    """Format the lower bound of a speedup: `at least 67.2 % less time`; never rounded up."""
    return f"at least {_percent(1 / ratio, math.ceil).removeprefix('-')} % less time"


def is_within_noise(measurement: Measurement) -> bool:
    """Return whether unchanged code showed as large a difference in the same session (A/A)."""
    spread, speedup = measurement.control_spread, measurement.speedup
    return spread is not None and speedup is not None and 1 <= speedup <= 1 + spread


def ratio_text(ratio: float) -> str:
    """Format `2.31x`."""
    return f"{ratio:.{_decimals(ratio)}f}x"


def at_most_text(ratio: float) -> str:
    """Format an upper bound, or what a lower bound must exceed, as `2.32x`; never rounded down."""
    return f"{_rounded_up(ratio)}x"


def speedup_text(measurement: Measurement) -> str:
    """Format the speedup with its interval; a dash where there were too few repetitions."""
    if (
        measurement.speedup is None
        or measurement.speedup_low is None
        or measurement.speedup_high is None
    ):
        return NOT_MEASURED
    return interval_text(measurement.speedup, measurement.speedup_low, measurement.speedup_high)


def _decimals(ratio: float) -> int:
    """Return decimals: three significant digits for a ratio above one, two decimals below."""
    return 2 if ratio < 10 else 1 if ratio < 100 else 0


def _rounded_down(ratio: float) -> str:
    """Round down; a product that is a last bit below a whole number counts as that number."""
    decimals = _decimals(ratio)
    return f"{math.floor(ratio * 10**decimals + 1e-9) / 10**decimals:.{decimals}f}"


def _rounded_up(ratio: float) -> str:
    decimals = _decimals(ratio)
    return f"{math.ceil(ratio * 10**decimals - 1e-9) / 10**decimals:.{decimals}f}"


def time_text(time_us: float | None) -> str:
    """Format `12.3 us`, `4.56 ms`, `1.20 s`."""
    if time_us is None:
        return NOT_MEASURED
    # 0.9995: what rounds to a thousand of one unit is one of the next.
    unit, size_us = next(
        ((unit, size_us) for unit, size_us in TIME_UNITS if time_us >= 0.9995 * size_us),
        TIME_UNITS[-1],
    )
    number = time_us / size_us
    return f"{number:.0f} {unit}" if number >= 999.5 else f"{number:#.3g}".rstrip(".") + f" {unit}"


def duration_text(duration_s: float) -> str:
    """Format `0.4 s`, `92 s`, `12 min`, `3 h 05 min`."""
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    minutes = round(duration_s / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def percent_text(fraction: float | None) -> str:
    """Format `1.2 %`."""
    return NOT_MEASURED if fraction is None else f"{100 * fraction:.1f} %"


def share_text(workload: Workload) -> str:
    """Format `42 % of the traced time of Model`; empty for an untraced workload."""
    if workload.share is None:
        return ""
    percent = 100 * workload.share
    share = f"{percent:.0f} %" if percent >= 1 else "less than 1 %"
    return f"{share} {traced_time_text(workload.root)}"


def traced_time_text(root: str | None) -> str:
    """Format `of the traced time of Model`: shares of several roots do not add up."""
    return f"of the traced time of {root.rpartition(':')[2]}" if root else "of the traced time"


def bytes_text(num_bytes: int | None) -> str:
    """Format `640 B`, `1.3 kB`, `25 MB`; empty for none."""
    if not num_bytes:
        return ""
    power = min(int(math.log10(num_bytes)) // 3, 4)
    return f"{num_bytes / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def expression_text(operation: Operation) -> str:
    """Format ``42 % `q @ k` (line 12)``."""
    code = operation.code or operation.name
    place = f" (line {operation.line})" if operation.line else ""
    return f"{100 * (operation.share or 0.0):.0f} % `{code}`{place}"


def understanding_text(understanding: Understanding | None, most: int = 3) -> str:
    """Format class, bound and the most expensive expressions of a target; empty where nothing was
    recorded.
    """
    if understanding is None:
        return ""
    shown = "; ".join(map(expression_text, understanding.operations[:most]))
    return ": ".join(one for one in (class_text(understanding), shown) if one)


def class_text(understanding: Understanding) -> str:
    """Format `launch-bound, 93.1 us in 12 operations, 1 host sync (bound 2.00 us by launches)`, or
    `at the floor: 9.10 us of 8.70 us by memory, in 1 operation`."""
    total, bound_us = understanding.total_us, understanding.bound_us
    if understanding.category == "at the floor" and bound_us is not None:
        count = count_text(understanding.num_operations, "operation")
        times = f"{time_text(total)} of {time_text(bound_us)}"
        return f"at the floor: {times} by {understanding.bound}, in {count}"
    parts: list[str] = [understanding.category]
    if understanding.total_us is not None:
        count = count_text(understanding.num_operations, "operation")
        parts.append(f"{time_text(understanding.total_us)} in {count}")
    if understanding.num_syncs:
        parts.append(count_text(understanding.num_syncs, "host sync"))
    bound = ""
    if understanding.bound_us is not None:
        bound = f" (bound {time_text(understanding.bound_us)} by {understanding.bound})"
    return ", ".join(parts) + bound


def near_miss_text(miss: NearMiss) -> str:
    """Format ``attention at model.py:41, `scores.softmax(-1)`: not proposed, since ...``."""
    rule = miss.rule.replace("_", " ")
    return f"{rule} at {miss.path}:{miss.line}, `{miss.code}`: not proposed, since {miss.fact}"


def not_tried_text(one: NotTried) -> str:
    """Format `playbook:silu: the budget was spent`."""
    return f"{one.proposer}: {one.reason}"


def step_text(step: TrainingStep | None) -> str:
    """Format `12.0 % [11.5, 12.6] of a training step on an H200 (4 calls a step, 20 steps traced)`
    and the hours saved; empty where neither is known.
    """
    parts = []
    if step and step.share is not None:
        low, high = (100 * (bound or 0.0) for bound in (step.share_low, step.share_high))
        parts.append(
            f"{percent_text(step.share)} [{math.floor(10 * low) / 10:.1f}, "
            f"{math.ceil(10 * high) / 10:.1f}] of a training step on {step.device} "
            f"({step.calls_per_step:.3g} calls a step, {count_text(step.num_steps, 'step')} traced)"
        )
    if step and step.gpu_hours_saved is not None:
        low, high = (
            bound or 0.0 for bound in (step.gpu_hours_saved_low, step.gpu_hours_saved_high)
        )
        parts.append(
            f"at {step.steps_per_month:,} steps a month about {step.gpu_hours_saved:.3g} "
            f"[{low:.3g}, {high:.3g}] GPU hours of {step.device} less, if steps wait for it"
        )
    return "; ".join(parts)


def error_text(error: float | None) -> str:
    """Format `1.2e-06`."""
    return NOT_MEASURED if error is None else f"{error:.1e}"


class HasErrors(Protocol):
    """An evaluation, as verified or as documented."""

    @property
    def max_abs_error(self) -> float | None: ...
    @property
    def max_rel_error(self) -> float | None: ...


def error_short(evaluation: HasErrors) -> str:
    """Format `1.9e-06` of the output's magnitude, or `0.2 absolute` where that is not known."""
    if evaluation.max_rel_error is None and evaluation.max_abs_error is not None:
        return f"{error_text(evaluation.max_abs_error)} absolute"
    return error_text(evaluation.max_rel_error)


def error_long(evaluation: HasErrors) -> str:
    """Format the largest error over all tested inputs. Some inputs are magnified, so an absolute
    error means little and stands only where the other one is not known.
    """
    if evaluation.max_rel_error is None:
        return error_short(evaluation)
    return f"{error_text(evaluation.max_rel_error)} of the output's magnitude"


def device_text(device: AnyDevice) -> str:
    """Format `AMD EPYC 9B14, 1 thread`."""
    if device.num_threads is None:
        return device.name
    return f"{device.name}, {count_text(device.num_threads, 'thread')}"


def devices_text(devices: Sequence[AnyDevice]) -> str:
    """Name all devices of a report, with torch's version, the verifier's container and missing
    sandbox parts.
    """
    texts = [
        device_text(d)
        + (f", torch {d.software['torch']}" if "torch" in d.software else "")
        + (f", in a container of {image_name(d)}" if "container" in d.software else "")
        + (f", sandbox without {', '.join(d.sandbox_missing)}" if d.sandbox_missing else "")
        for d in devices
    ]
    return " and ".join(dict.fromkeys(texts))


def image_name(device: AnyDevice) -> str:
    """Return `debian:bookworm-slim`, the image of the verifier's container."""
    return device.software["container"].partition(" ")[0]


def count_text(number: int, noun: str) -> str:
    """Format `1 proposal`, `2 proposals`, `3 launches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def recorded_text(num_calls: int, num_callables: int) -> str:
    """Format `recorded 3 distinct calls of 2 modules and functions`."""
    callables = (
        "1 module or function" if num_callables == 1 else f"{num_callables} modules and functions"
    )
    return f"recorded {count_text(num_calls, 'distinct call')} of {callables}"


def target_text(target: Target) -> str:
    """Format `pkg/model.py:12 Block`."""
    return f"{target.path}:{target.first_line} {target.qualname}"


def technique_text(evaluation: Evaluation) -> str:
    """Name the techniques of a candidate, or its proposer where it has none."""
    return ", ".join(evaluation.candidate.techniques) or evaluation.candidate.proposer


def one_line(text: str) -> str:
    """Replace line breaks and runs of spaces by one space each."""
    return " ".join(text.split())


def reason_text(reason: str | None) -> str:
    """Return the first line of a skipped target's reason; further lines are the end of a
    traceback.
    """
    lines = (reason or "").strip().splitlines()
    return one_line(lines[0]) if lines else "no reason was given"


def contract_text(checks: Sequence[ContractCheck]) -> str:
    """Format `31 held, 0 broken, 4 not tried`, and how many differ if any do. What the reference
    refuses is no line of it."""
    counts = {name: sum(one.result == name for one in checks) for name in CONTRACT_WORDS}
    said = [f"{counts[name]} {word}" for name, word in CONTRACT_WORDS.items()]
    return ", ".join(one for one in said if one != "0 differs")


def contract_differences(checks: Sequence[ContractCheck]) -> list[str]:
    """Format what differs, which a reader must not have to look for."""
    return [f"{one.aspect} ({one.detail})" for one in checks if one.result == "differs"]


def contract_lines(checks: Sequence[ContractCheck]) -> list[str]:
    """Format the lines that a reader must know: broken ones, those that differ, those that were not
    tried, then the aspects that were held in each group."""
    said = [
        f"{CONTRACT_WORDS[name]}: {one.aspect}" + (f" ({one.detail})" if one.detail else "")
        for name in ("broken", "differs", "not_tried")
        for one in checks
        if one.result == name
    ]
    groups: dict[str, list[str]] = {}
    for one in checks:
        if one.result == "held":
            groups.setdefault(one.group, []).append(one.aspect)
    said += [f"held, {group}: {', '.join(names)}" for group, names in groups.items()]
    return said


def acceptance_text(found: Acceptance) -> str:
    """Format `Accepted: 14 tests and 3 blocks give the same`, or what refuses a patch."""
    if found.broken:
        more = len(found.broken) - 1
        return f"Refused: {line_text(found.broken[0])}" + (f" and {more} more" if more else "")
    ran = [
        count_text(number, word)
        for number, word in ((found.num_tests, "test"), (found.num_blocks, "block"))
        if number
    ]
    missing = sum(one.result == "not_run" for one in found.lines)
    rest = f"; {count_text(missing, 'program')} not run" if missing else ""
    if not ran:
        files = count_text(found.num_files, "file")
        return f"Accepted: nothing in {files} relies on what it leaves out{rest}"
    verb = "gives" if found.num_tests + found.num_blocks == 1 else "give"
    return f"Accepted: {' and '.join(ran)} {verb} the same{rest}"


def line_text(line: AcceptanceLine) -> str:
    """Format ``vit_pytorch/recorder.py:28 hooks `attend`, which the patch no longer calls``."""
    return f"{place_text(line)} {one_line(line.detail)}".strip()


def acceptance_lines(found: Acceptance) -> list[str]:
    """Format what is broken and what to know, line by line, and what was not run, by reason."""
    words = {"broken": "broken: ", "stated": ""}
    missing: dict[str, list[str]] = {}
    for one in found.lines:
        if one.result == "not_run":
            missing.setdefault(one.detail, []).append(place_text(one))
    return [
        *(words[one.result] + line_text(one) for one in found.lines if one.result != "not_run"),
        *(
            f"not run ({one_line(why)}): {', '.join(filter(None, places))}"
            for why, places in missing.items()
            if any(places)
        ),
        *(f"not run: {one_line(why)}" for why, places in missing.items() if not any(places)),
    ]


def place_text(line: AcceptanceLine) -> str:
    return one_line(line.path + (f":{line.line}" if line.line else ""))


FILTERS: dict[str, Callable[..., Any]] = {
    "acceptance": acceptance_text,
    "acceptance_lines": acceptance_lines,
    "at_least": at_least_gain_text,
    "bytes": bytes_text,
    "call": call_text,
    "contract": contract_text,
    "contract_differences": contract_differences,
    "contract_lines": contract_lines,
    "count": count_text,
    "device": device_text,
    "direction": direction,
    "duration": duration_text,
    "error": error_text,
    "error_long": error_long,
    "error_short": error_short,
    "gain": gain_text,
    "is_within_noise": is_within_noise,
    "one_line": one_line,
    "percent": percent_text,
    "share": share_text,
    "speedup": speedup_text,
    "step": step_text,
    "target": target_text,
    "technique": technique_text,
    "time": time_text,
    "understanding": understanding_text,
    "near_miss": near_miss_text,
    "not_tried": not_tried_text,
}
"""The same words under the names that templates call them by."""
