"""Measure what the verifier finds: rates of claims over the length of a call and the true effect.

A candidate does a known amount of work more than the reference: on a GPU a kernel that spins for a
number of clock cycles, on a CPU a number of equal operators. Each cell is measured in many launches
(three fresh processes each, as in every trial). Trials are then drawn from a cell's launches in
random order and go through the product's own rules: looks after 5, 8 and 12 launches, the stopping
rule, the t interval. So a rate over a thousand trials costs the time of some dozens of launches; it
holds for the noise that these launches had, and a drift that is slower than the run is not in it.

    python experiments/sensitivity.py --device cuda --launches 40 --output FILE
    python experiments/sensitivity.py --table FILE
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from provenance import provenance

from cudal1_ci.processes.lock import exclusive
from cudal1_ci.records import (
    Call,
    Candidate,
    Problem,
    Repetition,
    TensorSpec,
    TextProgram,
    Workload,
)
from cudal1_ci.sandboxed.wire.verifier import (
    Dismiss,
    Examine,
    LeftOut,
    Repeat,
    Repeated,
    Times,
)
from cudal1_ci.stats import speedups
from cudal1_ci.stats.spreads import learned
from cudal1_ci.stats.stopping import MOST, StopRule, is_settled
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.crossing import program_on_wire, verdict_of
from cudal1_ci.verification.repetitions import clock_of, repetition_of

GPU_SOURCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        torch.cuda._sleep({work})
        return x + 1
"""
CPU_SOURCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range({work}):
            x = torch.sin(x)
        return x
"""
LENGTHS = {
    "cuda": {"10 us": 18_000, "100 us": 180_000, "1 ms": 1_800_000},
    "cpu": {"100 us": (1024, 100), "1 ms": (16384, 100)},
}
"""Clock cycles; or elements and the number of operators."""
EFFECTS = (0.0, 0.01, 0.02, 0.05)
"""Of work that the candidate does more."""
NUM_TRIALS = 1000
MARGINS = (0.0, 0.01, 0.02, 0.05)
"""A slowdown is claimed where the whole interval lies below one less the margin, a gain where it
lies above one and the margin."""


def sources(device: str, length: str, effect: float) -> tuple[str, str, int]:
    """Return reference and candidate, and the elements of the input."""
    if device == "cuda":
        cycles = LENGTHS["cuda"][length]
        more = round(cycles * (1 + effect))
        return GPU_SOURCE.format(work=cycles), GPU_SOURCE.format(work=f"{more}"), 1024
    elements, count = LENGTHS["cpu"][length]
    more = round(count * (1 + effect))
    return CPU_SOURCE.format(work=count), CPU_SOURCE.format(work=more), elements


class Launches(Session):
    """Launches as they come, without a rule that ends them."""

    def of(self, problem: Problem, candidate: Candidate, count: int) -> Iterator[Times]:
        """Yield times of a program pair. Raises SystemExit when there is a verdict against either
        program.
        """
        said = self.check(problem)
        if said.status == "passed":
            examined = self._ask(Examine(program=program_on_wire(candidate.program)), 300)
            said = verdict_of(examined.verdict)
        clock = clock_of(self._seat(), self.config)
        for number in range(count if said.status == "passed" else 0):
            with exclusive(self._lock()):
                if number % speedups.LOOKS[0] == 0:  # as many as a trial has before it is looked at
                    self._ask(Dismiss(goes_on=False), 120)
                reply = self._ask(Repeat(workload="w", clock=clock), 120)
            assert not isinstance(reply, LeftOut)
            if not isinstance(reply, Repeated):
                said = verdict_of(reply.verdict)
                break
            yield reply.times
        if said.status != "passed":
            raise SystemExit(f"{said}")


def measured(session: Launches, length: str, effect: float, count: int) -> dict[str, Any]:
    """Measure the repetitions of one cell, straight from the verifier."""
    device = session.device().kind
    reference, candidate, elements = sources(device, length, effect)
    tensor = TensorSpec(shape=(elements,), dtype="float32")
    call = Call(args=(tensor,))
    workload = Workload(
        name="w", provenance="declared", init=Call(), call=call, atol=math.inf, rtol=0
    )
    problem = Problem(reference=TextProgram(source=reference, entry="Model"), workloads=(workload,))
    program = TextProgram(source=f"{candidate}# candidate\n", entry="Model")
    other = Candidate(problem_id=problem.id, program=program, proposer="known")
    started_s = time.monotonic()
    found = list(session.of(problem, other, count))
    launches = [
        msgspec.to_builtins(repetition_of(one, one.reference_us, one.candidate_us)) for one in found
    ]
    control = [
        msgspec.to_builtins(repetition_of(one, one.reference_us, one.control_us)) for one in found
    ]
    phases_s = [one.phases_s for one in found]
    return {
        "length": length,
        "effect": effect,
        "elapsed_s": round(time.monotonic() - started_s, 1),
        "phases_s": {
            phase: round(statistics.median(one[phase] for one in phases_s), 3)
            for phase in phases_s[0]
        },
        "launches": rounded(launches),
        "control": rounded(control),
    }


def rounded(launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Round times to four digits, far below their noise. A raw result holds half a million."""
    times = ("reference_us", "candidate_us")
    return [one | {key: [float(f"{t:.4g}") for t in one[key]] for key in times} for one in launches]


def trials(
    launches: Sequence[Repetition], control: Sequence[Repetition], kind: speedups.Kind
) -> Iterator[speedups.Interval]:
    """Yield intervals of trials that are drawn from repetitions, stopped as `compare` stops."""
    rng = random.Random(0)
    rule = StopRule(TrialConfig().half_width, "difference")
    call_us = speedups.typical_us(launches[0].reference_us)
    spread = learned(kind, call_us, [speedups.log_ratio(one, kind) for one in control])
    pairs = list(zip(launches, control, strict=True))
    for _ in range(NUM_TRIALS):
        order = rng.sample(pairs, min(MOST, len(pairs)))
        ours, beside = [one for one, _ in order], [one for _, one in order]
        settled = (
            n for n in range(1, len(order)) if is_settled(ours[:n], beside[:n], kind, spread, rule)
        )
        used = next(settled, len(order))
        found = speedups.interval(ours[:used], kind, spread, beside[:used])
        assert found is not None
        yield found


def rates(found: Sequence[speedups.Interval], margin: float) -> tuple[float, float]:
    """Return the shares of trials in which a slowdown and a gain is claimed."""
    slower = sum(one.high < 1 - margin for one in found)
    return slower / len(found), sum(one.low > 1 + margin for one in found) / len(found)


def table(document: dict[str, Any]) -> str:
    """Render Markdown: a row for each cell, and a column for each margin."""
    kind = document["device"]["kind"]
    heads = [f"slower by > {margin:.0%}" for margin in MARGINS]
    lines = [
        f"| call | true effect | launches | measured | spread of a launch | {' | '.join(heads)} |",
        "|---|---|---|---|---|" + "---|" * len(MARGINS),
    ]
    for cell in document["cells"]:
        launches = msgspec.convert(cell["launches"], list[Repetition])
        ratios = [speedups.log_ratio(launch, kind) for launch in launches]
        found = list(trials(launches, msgspec.convert(cell["control"], list[Repetition]), kind))
        claims = [rates(found, margin) for margin in MARGINS]
        shown = [
            f"{slower:.1%}" + (f" (faster {faster:.1%})" if faster else "")
            for slower, faster in claims
        ]
        call_us = statistics.median(speedups.typical_us(one.reference_us) for one in launches)
        lines.append(
            f"| {call_us:.1f} us | {cell['effect']:.0%} more work | {len(launches)} "
            f"| {math.exp(statistics.fmean(ratios)) - 1:+.2%} | {statistics.stdev(ratios):.2%} "
            f"| {' | '.join(shown)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=sorted(LENGTHS), default="cpu")
    parser.add_argument("--launches", type=int, default=40, help="of each cell")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds; later cells are left")
    parser.add_argument("--lengths", nargs="*", help="of calls; all by default")
    parser.add_argument("--effects", nargs="*", type=float, default=EFFECTS, help="of more work")
    parser.add_argument(
        "--batch-us", type=float, help="length of a batch; the product's by default"
    )
    parser.add_argument("--rounds", type=int, default=TrialConfig().num_rounds, help="of a launch")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path, metavar="FILE", help="print a result's table")
    options = parser.parse_args()
    if options.table is not None:
        print(table(json.loads(options.table.read_text())))
        return
    cells: list[dict[str, Any]] = []
    started_s = time.monotonic()
    document: dict[str, Any] = {**provenance()}
    config = TrialConfig(batch_us=options.batch_us, num_rounds=options.rounds)
    with Launches(config, device=options.device) as session:
        document["device"] = msgspec.to_builtins(session.device())
        for effect in options.effects:
            for length in options.lengths or LENGTHS[options.device]:
                if time.monotonic() - started_s > options.limit:
                    break
                cells.append(measured(session, length, effect, options.launches))
                document["cells"] = cells
                if options.output is not None:  # what is measured is kept, whatever comes next
                    options.output.write_text(json.dumps(document) + "\n", encoding="utf-8")
                print(length, effect, cells[-1]["elapsed_s"], cells[-1]["phases_s"], flush=True)
    print(table(document))


if __name__ == "__main__":
    main()
