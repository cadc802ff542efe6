"""Claims against what was measured.

    contradictions(evaluation, problem, rows)

What is known: how long the reference takes, by the judge's clock; where the time of one call of it
goes, by a profiler in its process; what the device's memory could do at best, by its data sheet;
the interval of the speedup. What is not known: how many operations a call needs, and what it reads
beside its inputs. So nothing here says that a call is bound by arithmetic, and `memory-bound` is
only contradicted where the device idles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudal1_ci.propose.llm.claims.operators import share_of
from cudal1_ci.propose.llm.claims.sentences import (
    Bound,
    BoundClaim,
    OperatorClaim,
    SpeedupClaim,
    claims_in,
)
from cudal1_ci.propose.llm.measured import percent
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.propose.roofline import call_bytes, facts_of, roofline_share
from cudal1_ci.records import Contradiction, Evaluation, Measurement, Problem
from cudal1_ci.stats import speedups

LEAST_SHARE = 0.10
"""Of the profiled time, under which an operator is no bottleneck."""
IDLE = 0.5
"""A device that computes for less of a call's time waits for launches."""
BUSY = 0.9
"""One that computes for more does not."""
NEAR_MEMORY = 0.7
"""Of the time, that reading the inputs needs in any case: what is left is not arithmetic."""


def contradictions(
    evaluation: Evaluation, problem: Problem, rows: Sequence[ProfileRow]
) -> tuple[Contradiction, ...]:
    """The claims of a candidate's analysis that were measured to be otherwise. `rows` are the
    profile of the reference under the first workload, empty where there is none."""
    found = []
    for claim in claims_in(evaluation.candidate.analysis):
        match claim:
            case SpeedupClaim():
                otherwise = against_speedup(claim, evaluation)
            case OperatorClaim():
                otherwise = against_operator(claim, evaluation, problem, rows)
            case BoundClaim():
                otherwise = against_bound(claim.bound, evaluation, problem, rows)
        if otherwise is not None:
            found.append(
                Contradiction(
                    candidate_id=evaluation.candidate.id, claim=claim.sentence, measured=otherwise
                )
            )
    return tuple(found)


def against_speedup(claim: SpeedupClaim, evaluation: Evaluation) -> str | None:
    """Where no workload's interval comes near the number."""
    known = [
        (one.workload, one.device.name, found)
        for one in evaluation.measurements
        if (found := speedups.speedup(one)) is not None
    ]
    if not known:
        return None
    low = min(found.low for _, _, found in known)
    high = max(found.high for _, _, found in known)
    if claim.speedup + claim.half_unit >= low and claim.speedup - claim.half_unit <= high:
        return None
    said = [
        f"{found.estimate:.2f}x [{found.low:.2f}, {found.high:.2f}] on {device} ({workload})"
        for workload, device, found in known
    ]
    return f"measured {', '.join(said)}"


def against_operator(
    claim: OperatorClaim, evaluation: Evaluation, problem: Problem, rows: Sequence[ProfileRow]
) -> str | None:
    """Where the operator has next to nothing of the reference's profiled time."""
    share = share_of(claim.operator, [(row.name, row.time_us) for row in rows])
    if share is None or share >= LEAST_SHARE or evaluation.device is None:
        return None
    workload = problem.workloads[0].name
    return (
        f"{claim.operator} has at most {percent(share)} of the profiled time of one call of the "
        f"reference on {evaluation.device.name} ({workload})"
    )


def against_bound(
    bound: Bound, evaluation: Evaluation, problem: Problem, rows: Sequence[ProfileRow]
) -> str | None:
    """Where the device idles, or is as fast as its memory, and the claim is of something else."""
    workload = problem.workloads[0]
    measured = next((m for m in evaluation.measurements if m.workload == workload.name), None)
    if measured is None or measured.device.kind != "cuda":
        return None
    where = f"of the reference's time on {measured.device.name} ({workload.name})"
    for kind, said in known_bounds(measured, problem, rows):
        if kind == bound:
            return None
        if contradicts(kind, bound):
            return f"{said} {where}"
    return None


def contradicts(known: str, claimed: Bound) -> bool:
    """What is known against what is claimed: an idle device waits neither for memory nor for
    arithmetic, a busy one not for launches, and one at the limit of its memory for that alone."""
    return claimed in {
        "launch": ("memory", "compute"),
        "memory": ("compute", "launch"),
        "busy": ("launch",),
    }.get(known, ())


def known_bounds(
    measured: Measurement, problem: Problem, rows: Sequence[ProfileRow]
) -> Iterator[tuple[str, str]]:
    """What the reference is known to wait for, and in words how that is known."""
    time_us = speedups.reference_us(measured)
    facts = facts_of(measured.device.name)
    num_bytes = call_bytes(problem.workloads[0].call)
    if facts is not None and num_bytes is not None:
        share = roofline_share(time_us, num_bytes, facts)
        if share >= NEAR_MEMORY:
            yield "memory", f"to read the inputs at full bandwidth takes {percent(share)}"
    if rows and problem.workloads[0].mode == "infer":
        share = sum(row.time_us for row in rows) / time_us
        if share < IDLE:
            yield "launch", f"all kernels together take {percent(share)}"
        elif share >= BUSY:
            yield "busy", f"all kernels together take {percent(min(1.0, share))}"
