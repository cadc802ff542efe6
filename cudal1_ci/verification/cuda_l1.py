"""Apply CUDA-L1's rules for counting a speedup (`--policy cuda-l1`), to compare with its paper.

Source: arXiv 2507.14111 and score.cuda_l1_speedup. A speedup above 3x, or twice the best so far, is
measured again and believed within ten percent.
Departures: the paper measures for half an hour, this tool as long as the trial is configured to.
The paper repeats on another GPU of the same kind, this tool on the same GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.records import Candidate, Evaluation, Finding, Problem, Verdict
from cudal1_ci.stats.speedups import cuda_l1_speedup
from cudal1_ci.verification.protocol import Verifier

SUSPICIOUS_SPEEDUP = 3.0
SUSPICIOUS_RATIO = 2.0
AGREEMENT = 0.10


def evaluate(
    session: Verifier, problem: Problem, candidate: Candidate, best: float | None = None
) -> Evaluation:
    """Return the verifier's evaluation, inconclusive where the paper would discard its times.
    `best` is the largest speedup that was believed before.

    Raises:
        WorkerError: The verifier could not be started or died.
    """
    first = session.evaluate(problem, candidate)
    finding = doubt(session, problem, first, best)
    if finding is None:
        return first
    verdict = Verdict(status="inconclusive", findings=(finding, *first.verdict.findings))
    return msgspec.structs.replace(first, verdict=verdict, measurements=())


def doubt(
    session: Verifier, problem: Problem, first: Evaluation, best: float | None = None
) -> Finding | None:
    """Return why the paper would discard the times of an evaluation. Return None where it would
    count them, or where there are none.

    Raises:
        WorkerError: The verifier could not be started or died.
    """
    found = speedups(first)
    if None in found:
        return said("policy.variance", "its bucket means vary too much, or there are too few pairs")
    if any(is_suspicious(one, best) for one in found if one is not None):
        again = speedups(session.evaluate(problem, first.candidate))
        if not agree(found, again):
            return said("policy.unverified", f"measured again it is {again} and not {found}")
    return None


def said(rule: str, message: str) -> Finding:
    return Finding(rule=rule, message=f"by CUDA-L1's rules: {message}")


def speedups(evaluation: Evaluation) -> list[float | None]:
    """Return the speedup of each measurement."""
    return [cuda_l1_speedup(measurement) for measurement in evaluation.measurements]


def is_suspicious(one: float, best: float | None) -> bool:
    """Return whether a speedup must be measured again before it counts."""
    return one > SUSPICIOUS_SPEEDUP or (best is not None and one > SUSPICIOUS_RATIO * best)


def agree(found: Sequence[float | None], again: Sequence[float | None]) -> bool:
    """Return whether every speedup was found again."""
    return len(found) == len(again) and all(
        one is not None and other is not None and abs(other - one) <= AGREEMENT * one
        for one, other in zip(found, again, strict=True)
    )
