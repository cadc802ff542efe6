"""Measure a jump in speed again before it is believed.

Above 3 times, or twice the best so far, a speedup is more often a trick or an accident than a
discovery (CUDA-L1, arXiv 2507.14111, section 2.4.4: the rule and its numbers). The second trial
uses other processes and other inputs. Both trials must agree: within a tenth, as in the paper, or
within the uncertainty of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cudal1_ci.records import Evaluation, Finding, Problem, Verdict
from cudal1_ci.stats import speedups
from cudal1_ci.verification.cuda_l1 import AGREEMENT, agree, is_suspicious
from cudal1_ci.verification.protocol import Verifier

UNCONFIRMED = "jump.unconfirmed"


def is_jump(evaluation: Evaluation, best: float) -> bool:
    """Return whether a speedup is so large that it must be measured again. `best` is the largest
    that was believed before, 1 for the original."""
    return evaluation.verdict.status == "passed" and any(
        is_suspicious(one, best) for one in estimates(evaluation)
    )


def confirmed(session: Verifier, problem: Problem, first: Evaluation) -> Evaluation:
    """Measure a candidate again and return the first evaluation, or what the second makes of it. A
    second verdict other than passed replaces the first, and a screening is replaced in any case.
    The result is `inconclusive` when the two speedups differ.

    Raises:
        WorkerError: The verifier could not be started or died.
    """
    again = session.evaluate(problem, first.candidate)
    if again.verdict.status != "passed":
        return again
    one, other = estimates(first), estimates(again)
    if agree(one, other) or all_overlap(intervals(first), intervals(again)):
        return again if first.phase == "screened" else first
    times = ", ".join(f"{a:.2f}x and {b:.2f}x" for a, b in zip(one, other, strict=False))
    message = f"measured twice it is {times} as fast: more than {AGREEMENT:.0%} apart"
    finding = Finding(rule=UNCONFIRMED, message=message)
    verdict = Verdict(status="inconclusive", findings=(finding, *first.verdict.findings))
    return msgspec.structs.replace(first, verdict=verdict, measurements=(), kernels=())


def estimates(evaluation: Evaluation) -> list[float]:
    """Return the speedup of every workload that was measured."""
    return [one.estimate for one in intervals(evaluation)]


def intervals(evaluation: Evaluation) -> list[speedups.Interval]:
    found = [speedups.speedup(one) for one in evaluation.measurements]
    return [one for one in found if one is not None]


def all_overlap(one: Sequence[speedups.Interval], other: Sequence[speedups.Interval]) -> bool:
    return len(one) == len(other) and all(
        a.low <= b.high and b.low <= a.high for a, b in zip(one, other, strict=True)
    )
