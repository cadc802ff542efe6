"""Measure false alarms of equal code, and the smallest slowdown that is found, with raw rounds.

    python experiments/aa.py --runs 300 --output assets/results/aa-cpu.json
    python experiments/aa.py --device cuda --runs 300 --limit 540 --output aa-h100.json
    python experiments/aa.py --replay aa-h100.json
    python experiments/aa.py --replay one.json other.json --output both.json

A live run is a confirmed measurement of a program next to itself, or next to one with 2 % more work
(one run of `--slow-every`), in fresh processes. A result that exists is continued, so that the runs
may be spread over several calls of `--limit` seconds. Claims of equal code are counted with the
exact upper bound of their rate (Clopper & Pearson, one-sided, 95 %). Then measurements are drawn
from all recorded repetitions of a program: rounds are drawn again within each, and measuring stops
as the product stops. So rates of one in a thousand are seen, and a slowdown is found by the same
noise: the candidate's times are multiplied by it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import text_trials
from provenance import provenance
from sensitivity import rounded, sources

from cudal1_ci.records import (
    Call,
    Candidate,
    Device,
    Measurement,
    Problem,
    Repetition,
    TensorSpec,
    TextProgram,
    Workload,
)
from cudal1_ci.stats import speedups
from cudal1_ci.stats.spreads import learned
from cudal1_ci.stats.stopping import Settles, StopRule, is_settled
from cudal1_ci.verification import Session, TrialConfig

LENGTHS = {"cuda": ("10 us", "100 us", "1 ms"), "cpu": ("100 us", "1 ms")}
SLOWDOWN = 0.02
NUM_DRAWN = 10_000
CONFIDENCE = 0.95
Pair = tuple[Repetition, Repetition]
"""A repetition of the candidate, and that of the control in it."""


def problem_of(device: str, length: str) -> tuple[Problem, str]:
    """Return a problem whose call takes so long, and the text with 2 % more work."""
    reference, slower, elements = sources(device, length, SLOWDOWN)
    tensor = TensorSpec(shape=(elements,), dtype="float32")
    # The slower program computes something else on a CPU: one call more of `sin`.
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(),
        call=Call(args=(tensor,)),
        atol=math.inf,
        rtol=0.0,
    )
    problem = Problem(reference=TextProgram(source=reference, entry="Model"), workloads=(workload,))
    return problem, slower


def measured(session: Session, length: str, number: int, *, is_slow: bool) -> dict[str, Any]:
    """Run one confirmed measurement and return its row."""
    problem, slower = problem_of(session.device().kind, length)
    assert isinstance(problem.reference, TextProgram)
    text = slower if is_slow else problem.reference.source
    program = TextProgram(source=f"{text}# {number}\n", entry="Model")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="same")
    evaluation = session.evaluate(problem, candidate)
    row: dict[str, Any] = {
        "length": length,
        "is_slow": is_slow,
        "status": evaluation.verdict.status,
        "rules": [one.rule for one in evaluation.verdict.findings][:3],
        "elapsed_s": round(evaluation.elapsed_s, 2),
    }
    for one in evaluation.measurements:
        row |= claims(one) | {
            "prior_spread": one.prior_spread,
            "repetitions": rounded([msgspec.to_builtins(r) for r in one.repetitions]),
            "control": rounded([msgspec.to_builtins(r) for r in one.control]),
        }
    return row


def claims(measurement: Measurement) -> dict[str, Any]:
    """Return the interval and what is claimed from it."""
    found = speedups.speedup(measurement)
    assert found is not None
    return {
        "speedup": round(found.estimate, 5),
        "low": round(found.low, 5),
        "high": round(found.high, 5),
        "is_gain": speedups.is_gain(measurement),
        "is_slower": speedups.is_slower(measurement),
        "excludes_1": not found.low <= 1 <= found.high,
    }


def upper_bound(num_events: int, num_runs: int) -> float:
    """Return the largest rate that so few events leave possible (Clopper & Pearson 1934)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        at_most = sum(
            math.comb(num_runs, k) * rate**k * (1 - rate) ** (num_runs - k)
            for k in range(num_events + 1)
        )
        low, high = (rate, high) if at_most > 1 - CONFIDENCE else (low, rate)
    return high


def drawn(
    pool: Sequence[Pair],
    kind: speedups.Kind,
    prior_spread: float,
    rng: random.Random,
    slowdown: float,
    settles: Settles,
) -> Measurement:
    """Return a measurement made of recorded repetitions, as the product stops it."""
    ours: list[Repetition] = []
    control: list[Repetition] = []
    rule = StopRule(TrialConfig().half_width, settles)
    while not is_settled(ours, control, kind, prior_spread, rule):
        one, other = rng.choice(pool)
        if rng.random() < 0.5:  # equal code: either process may be the candidate
            one, other = other, one
        rounds = [rng.randrange(len(one.reference_us)) for _ in one.reference_us]
        ours.append(redrawn(one, rounds, 1 + slowdown))
        control.append(redrawn(other, rounds, 1.0))
    return Measurement(
        workload="w",
        repetitions=tuple(ours),
        control=tuple(control),
        prior_spread=prior_spread,
        device=Device(kind=kind, name="drawn"),
    )


def redrawn(one: Repetition, rounds: Sequence[int], factor: float) -> Repetition:
    """Return a repetition with rounds drawn again, and a candidate that takes longer."""
    return Repetition(
        reference_us=tuple(one.reference_us[n] for n in rounds),
        candidate_us=tuple(one.candidate_us[n] * factor for n in rounds),
        num_calls=one.num_calls,
    )


def replayed(rows: Sequence[dict[str, Any]], kind: speedups.Kind, count: int) -> dict[str, Any]:
    """Return rates of claims in measurements that are drawn from a program's repetitions."""
    pool: list[Pair] = [
        pair
        for row in rows
        if "repetitions" in row and not row["is_slow"]
        for pair in zip(
            msgspec.convert(row["repetitions"], list[Repetition]),
            msgspec.convert(row["control"], list[Repetition]),
            strict=True,
        )
    ]
    if not pool:
        return {"num_repetitions": 0}
    past = [speedups.log_ratio(other, kind) for _, other in pool]
    spread = learned(kind, speedups.typical_us(pool[0][0].reference_us), past)
    rng = random.Random(0)
    same = [claims(drawn(pool, kind, spread, rng, 0.0, "gain")) for _ in range(count)]
    either = [claims(drawn(pool, kind, spread, rng, 0.0, "difference")) for _ in range(count // 10)]
    slow = [
        claims(drawn(pool, kind, spread, rng, SLOWDOWN, "difference")) for _ in range(count // 10)
    ]
    return {
        "num_repetitions": len(pool),
        "prior_spread": spread,
        "gains": sum(one["is_gain"] for one in same) / count,
        "slower": sum(one["is_slower"] for one in same) / count,
        "excludes_1": sum(one["excludes_1"] for one in same) / count,
        "differences": sum(one["excludes_1"] for one in either) / len(either),
        "slowdown_found": sum(one["high"] < 1 for one in slow) / len(slow),
    }


def by_length(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the live runs of each program."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in document["rows"]:
        found[row["length"]].append(row)
    return found


def replay(document: dict[str, Any], count: int) -> None:
    """Draw measurements from the repetitions of each program, and keep what was claimed."""
    kind = document["device"]["kind"]
    document["replayed"] = {
        name: replayed(some, kind, count) for name, some in by_length(document).items()
    }


def table(document: Mapping[str, Any]) -> list[str]:
    """Return two tables as Markdown: live runs, and what was drawn from them; and the source."""
    rows: list[dict[str, Any]] = document["rows"]
    lines = [
        "| equal code | live runs | gains | slowdowns | interval without 1 | accused "
        "| inconclusive | bound of false claims | 2 % found | seconds, repetitions (median) |",
        "|---" * 10 + "|",
    ]
    for name, some in {**by_length(document), "all": rows}.items():
        same = [row for row in some if not row["is_slow"]]
        slow = [row for row in some if row["is_slow"] and "high" in row]
        timed = [row for row in same if "high" in row]
        accused = sum(row["status"] not in ("passed", "inconclusive") for row in same)
        false = sum(row["is_gain"] or row["is_slower"] for row in timed) + accused
        found = sum(row["high"] < 1 for row in slow)
        lines.append(
            f"| {name} | {len(same)} | {sum(row['is_gain'] for row in timed)} "
            f"| {sum(row['is_slower'] for row in timed)} "
            f"| {sum(row['excludes_1'] for row in timed)} of {len(timed)} | {accused} "
            f"| {len(same) - len(timed) - accused} "
            f"| {upper_bound(false, len(same)):.2%} | {found} of {len(slow)} "
            f"| {median([row['elapsed_s'] for row in same]):.1f}, "
            f"{median([len(row['repetitions']) for row in timed]):.0f} |"
            if same
            else f"| {name} | 0 |"
        )
    lines += [
        "",
        "| drawn | repetitions | spread | gains | slowdowns | interval without 1 "
        "| differences | 2 % found |",
        "|---" * 8 + "|",
    ]
    for name, one in document["replayed"].items():
        if one["num_repetitions"]:
            lines.append(
                f"| {name} | {one['num_repetitions']} | {one['prior_spread']:.4f} "
                f"| {one['gains']:.3%} | {one['slower']:.3%} | {one['excludes_1']:.2%} "
                f"| {one['differences']:.2%} | {one['slowdown_found']:.1%} |"
            )
    device, note = document["device"], document.get("note", "")
    threads = f", {device['num_threads']} thread" if device["kind"] == "cpu" else ""
    torch, date = device["software"]["torch"], document["date"][:10]
    source = f"{device['name']}{threads}, torch {torch}, {date}, commit `{document['commit']}`"
    lines += ["", f"{source}: `{document['command']}`. {note}".strip()]
    return lines


def joined(files: Sequence[Path]) -> dict[str, Any]:
    """Return the results of runs side by side on one machine as one."""
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    devices = [one["device"] for one in documents]
    if any(one != devices[0] for one in devices):
        raise SystemExit(f"results of different devices: {', '.join(map(str, files))}")
    return {**documents[0], "rows": [row for one in documents for row in one["rows"]]}


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=sorted(LENGTHS), default="cpu")
    parser.add_argument("--runs", type=int, default=300, help="in all, with those of earlier calls")
    parser.add_argument(
        "--slow-every", type=int, default=5, help="one of so many has 2 %% more work"
    )
    parser.add_argument("--limit", type=float, default=1e9, help="seconds of this call")
    parser.add_argument("--settles", choices=("gain", "difference"), default="difference")
    parser.add_argument("--drawn", type=int, default=NUM_DRAWN, help="measurements to draw")
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="draw from results, run nothing"
    )
    options = parser.parse_args()
    if options.replay is not None:
        document = joined(options.replay)
        replay(document, options.drawn)
        print("\n".join(table(document)))
        if options.output is not None:
            text_trials.write(options.output, document)
        return
    document = {**provenance(), "rows": []}
    if options.output is not None and options.output.exists():
        document["rows"] = json.loads(options.output.read_text(encoding="utf-8"))["rows"]
    started_s = time.monotonic()
    lengths = LENGTHS[options.device]
    with Session(TrialConfig(settles=options.settles), device=options.device) as session:
        document["device"] = msgspec.to_builtins(session.device())
        while len(document["rows"]) < options.runs:
            if time.monotonic() - started_s > options.limit:
                break
            number = len(document["rows"])
            turn, place = divmod(number, len(lengths))
            is_slow = turn % options.slow_every == options.slow_every - 1
            row = measured(session, lengths[place], number, is_slow=is_slow)
            document["rows"].append(row)
            shown = {key: row.get(key) for key in ("speedup", "low", "high", "elapsed_s")}
            print(number, row["length"], is_slow, row["status"], shown, file=sys.stderr)
            if options.output is not None:
                text_trials.write(options.output, document)
    replay(document, options.drawn)
    print("\n".join(table(document)))
    if options.output is not None:
        text_trials.write(options.output, document)


if __name__ == "__main__":
    main()
