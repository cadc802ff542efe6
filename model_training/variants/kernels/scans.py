"""Loops along time as one Triton kernel: a program for each block of sequences and columns goes
through the steps with its state in registers, where the loop launches kernels for every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from model_training.variants.patterns import filled
from model_training.variants.rule import Match
from model_training.variants.rules.loops import RECURRENCE
from model_training.variants.source import Statement

WHY = "Every step in time launches kernels of its own, and waits for the step before."
DESIGN = "One Triton kernel goes through time with its state in registers."
KERNEL = """@triton.jit
def scan_kernel(
    {pointers}, out_pointer,
    size, length, width, BLOCK: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    start = column // width * length * width + column % width
    state = {start}
    for t in range(length):
{loads}
{steps}
{stores}


def scan({arguments}):
{contiguous}
    batch, length, width = {first}.shape
    out = {out}
    size = batch * width
    grid = (triton.cdiv(size, 128),)
    scan_kernel[grid]({arguments}, out, size, length, width, BLOCK=128)
    return out"""
EVERY = "        tl.store(out_pointer + start + t * width, {result}, mask=inside)"
LAST = "    tl.store(out_pointer + column, {result}, mask=inside)"
ZERO = "tl.zeros([BLOCK], dtype=tl.float32)"


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a rule's loop is as a scan: statements before it, and the lines of its kernel."""

    prepare: str = ""
    inputs: tuple[str, ...] = ("x",)
    start: str = ZERO
    steps: tuple[str, ...]
    result: str = "state"
    keeps_states: bool = True
    """Or the last one alone."""

    @property
    def definition(self) -> str:
        first = self.inputs[0]
        return KERNEL.format(
            pointers=", ".join(f"{one}_pointer" for one in self.inputs),
            arguments=", ".join(self.inputs),
            first=first,
            start=self.start,
            steps="\n".join(f"        {one}" for one in self.steps),
            loads="\n".join(
                f"        {one} = tl.load({one}_pointer + start + t * width, mask=inside, other=0)"
                for one in self.inputs
            ),
            stores=(EVERY if self.keeps_states else LAST).format(result=self.result),
            contiguous="\n".join(f"    {one} = {one}.contiguous()" for one in self.inputs),
            out=f"torch.empty_like({first})"
            if self.keeps_states
            else f"{first}.new_empty(batch, width)",
        )

    def shaped(self, *given: torch.Tensor) -> torch.Tensor:
        """As `scan` would be shaped."""
        return torch.empty_like(given[0] if self.keeps_states else given[0][:, 0])


SCANS = (
    ("0.9 * state", Scan(steps=("state = 0.9 * state + 0.1 * x",))),
    ("total / (t + 1)", Scan(steps=("state = state + x",), result="state / (t + 1)")),
    (
        "torch.maximum(best",
        Scan(
            start="tl.full([BLOCK], float('-inf'), dtype=tl.float32)",
            steps=("state = tl.maximum(state, x)",),
        ),
    ),
    (
        "torch.tanh(P(x[:, t]) + state)",
        Scan(
            prepare="steps = P(x)",
            inputs=("steps",),
            steps=("state = libdevice.tanh(steps + state)",),
            keeps_states=False,
        ),
    ),
    (
        "gate * state + (1 - gate)",
        Scan(
            prepare="gates, updates = A(x), B(x)",
            inputs=("gates", "updates"),
            steps=(
                "gate = tl.sigmoid(gates)",
                "state = gate * state + (1 - gate) * libdevice.tanh(updates)",
            ),
        ),
    ),
)
"""By a part of the loop's pattern that no other has."""


def scan_of(match: Match) -> Scan | None:
    """None for what is no loop along time, or has no state."""
    if match.rule not in RECURRENCE:
        return None
    return next((scan for part, scan in SCANS if part in match.rule.before), None)


def statements(match: Match, scan: Scan) -> list[Statement]:
    """What takes the place of the loop."""
    call = f"x = scan({', '.join(scan.inputs)})"
    return Statement.of(f"{filled(scan.prepare, match.bound)}\n{call}".strip())
