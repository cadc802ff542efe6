"""Show where the time of a call goes, before a proposal and after it.

Before: the operations of one recorded call, by expression. Their shares are of a profile; the
length of the bar is the measured time of a call, so that both bars have one scale. After: the
kernels that the candidate launched, where a profiler saw them (on a GPU), else its time undivided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cudal1_ci.records import Evaluation, Kernel, Measurement, Operation, Understanding
from cudal1_ci.render.digest import Proposal
from cudal1_ci.render.wording import bytes_text, count_text, ratio_text, time_text

MAX_PARTS = 6
"""Of a bar, which have a color each; what is left is drawn as one."""
OTHERS = "other operations"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Describe a part of a bar and a row of its legend."""

    text: str
    line: int | None
    path: str
    share: float
    num_calls: int | None
    num_bytes: int | None
    color: str
    """A class of the style sheet."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Hold one call of a target before and after."""

    measurement: Measurement
    before: tuple[Part, ...]
    after: tuple[Part, ...]
    facts: tuple[tuple[str, str], ...]
    """Names and values: where the time goes, roofline, launches, memory."""
    bars: Markup


def profile_of(proposal: Proposal) -> Profile | None:
    """Return the profile of a proposal's first workload, which is the one that was recorded; None
    where nothing was, or where a backward pass takes part of the time.
    """
    understanding = proposal.entry.understanding
    names = [w.name for w in proposal.entry.workloads[:1] if w.mode == "infer"]
    measured = next((m for m in proposal.evaluation.measurements if m.workload in names), None)
    if understanding is None or measured is None or not understanding.operations:
        return None
    if measured.reference_us is None or measured.candidate_us is None:
        return None
    before = _operations(understanding.operations)
    after = _kernels(proposal.evaluation.kernels)
    return Profile(
        measurement=measured,
        before=before,
        after=after,
        facts=tuple(_facts(understanding, proposal.evaluation, measured)),
        bars=_bars(
            measured.reference_us, measured.candidate_us, before, after, understanding.bound_us
        ),
    )


def _operations(operations: Sequence[Operation]) -> tuple[Part, ...]:
    known = [one for one in operations if one.share]
    parts = [
        Part(
            text=one.code or one.name,
            line=one.line,
            path=one.path,
            share=one.share or 0.0,
            num_calls=one.num_calls,
            num_bytes=one.num_bytes,
            color=f"o{color}",
        )
        for color, one in enumerate(known[:MAX_PARTS])
    ]
    rest = 1 - sum(part.share for part in parts)
    if rest > 0.005:
        parts.append(_others(OTHERS, rest))
    return tuple(parts)


def _kernels(kernels: Sequence[Kernel]) -> tuple[Part, ...]:
    total_us = sum(one.device_us for one in kernels)
    if not total_us:
        return ()
    largest = sorted(kernels, key=lambda one: -one.device_us)[:MAX_PARTS]
    parts = [
        Part(
            text=one.name,
            line=None,
            path="",
            share=one.device_us / total_us,
            num_calls=one.num_launches,
            num_bytes=None,
            color=f"k{color}",
        )
        for color, one in enumerate(largest)
    ]
    rest = 1 - sum(part.share for part in parts)
    if rest > 0.005:
        parts.append(_others("other kernels", rest))
    return tuple(parts)


def _others(text: str, share: float) -> Part:
    return Part(
        text=text,
        line=None,
        path="",
        share=share,
        num_calls=None,
        num_bytes=None,
        color=f"o{MAX_PARTS}",
    )


def _facts(
    understanding: Understanding, evaluation: Evaluation, measured: Measurement
) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = [("Limited by", understanding.category)]
    bound_us = understanding.bound_us
    if bound_us and measured.reference_us and measured.candidate_us:
        before, after = (t / bound_us for t in (measured.reference_us, measured.candidate_us))
        said.append(
            (
                "Roofline",
                f"{ratio_text(before)} \N{RIGHTWARDS ARROW} {ratio_text(after)} the least time "
                f"of {time_text(bound_us)} ({understanding.bound})",
            )
        )
    launches = count_text(understanding.num_operations, "operation")
    if evaluation.kernels:
        num = sum(one.num_launches for one in evaluation.kernels)
        launches += f" \N{RIGHTWARDS ARROW} {count_text(num, 'kernel')}"
    if understanding.num_syncs:
        launches += f", {count_text(understanding.num_syncs, 'host sync')} before"
    said.append(("Launches", launches))
    num_bytes = sum(one.num_bytes or 0 for one in understanding.operations)
    if num_bytes:
        num_shown = sum(one.num_calls for one in understanding.operations)
        least = "at least " if num_shown < understanding.num_operations else ""
        said.append(("Memory", f"{least}{bytes_text(num_bytes)} read and written before"))
    return said


def _bars(
    before_us: float,
    after_us: float,
    before: Sequence[Part],
    after: Sequence[Part],
    bound_us: float | None,
) -> Markup:
    """Draw both times on one scale, split into parts, and the least time as a line."""
    longest = max(before_us, after_us)
    rows = []
    for y, time_us, parts in ((1, before_us, before), (13, after_us, after)):
        scale, x = 100 * time_us / longest, 0.0
        if not parts:
            rows.append(
                Markup('<rect class="whole" x="0" y="{}" width="{:.2f}" height="10"/>').format(
                    y, scale
                )
            )
        for part in parts:
            rows.append(
                Markup(
                    '<g class="part {}"><title>{}: {}</title>'
                    '<rect x="{:.2f}" y="{}" width="{:.2f}" height="10"/></g>'
                ).format(
                    part.color, part.text, time_text(time_us * part.share), x, y, scale * part.share
                )
            )
            x += scale * part.share
    if bound_us is not None and bound_us < longest:
        x = 100 * bound_us / longest
        rows.append(
            Markup('<g class="bound"><title>{}</title><path d="M{:.2f} 0V24"/></g>').format(
                f"the least time of the device: {time_text(bound_us)}", x
            )
        )
    label = f"{time_text(before_us)} before, {time_text(after_us)} after"
    return Markup(
        '<svg class="ops" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(label, Markup("").join(rows))
