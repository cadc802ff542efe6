"""What the expected outputs are worth: the reference in float64, and the budget of every output."""

from __future__ import annotations

from .called import answer_of
from .cases import Answer, Case, Limits, Rejected
from .compare import Tolerance, difference, loose, magnitude, tolerance
from .processes import RunnerFailure, Template

MOST_KNOWN = 0.05
"""Of an output's magnitude: other weights are other by a tenth, and who goes on with the old ones
is to be seen. (Where the dtype alone explains more, more.)"""


def learn_oracle(case: Case, template: Template, limits: Limits) -> None:
    """The reference in float64, where it runs so and agrees with itself."""
    assert case.expected is not None
    reason = None
    if case.uses_rng:
        reason = "it draws random numbers, which differ between precisions"
    else:
        try:
            answer = answer_of(case, template, limits, "float64")
            reason = oracle_mismatch(case, answer)
            case.oracle = answer.outputs if reason is None else None
        except (RunnerFailure, Rejected) as failure:
            reason = str(failure)
    if reason is not None:
        message = f"the reference was not run in float64 ({reason[:300]}): the dtype's tolerance"
        case.findings.append({"rule": "oracle.absent", "message": message})


def oracle_mismatch(case: Case, oracle: Answer) -> str | None:
    """Why an oracle's answer cannot be the truth of the expected one; None when it can."""
    assert case.expected is not None
    for ours, theirs in zip(case.expected.outputs, oracle.outputs, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape or one.is_floating_point() != other.is_floating_point():
                return "its outputs have other shapes in float64"
            near = loose(one.dtype) if one.is_floating_point() else 0.0
            budget = Tolerance(0.0, near)
            found = difference(one, other, None, budget, case.accelerator.device, near)
            if not one.is_floating_point() and found.excess > 1:
                return "its integer outputs differ in float64"
            if one.is_floating_point() and not found.is_loose and found.max_abs:
                return f"its outputs differ by {found.max_abs:.3g} in float64"
    return None


def settle_tolerances(case: Case) -> None:
    """The budget of every output of every trial."""
    assert case.expected is not None
    for number, outputs in enumerate(case.expected.outputs):
        truth = case.oracle[number] if case.oracle else [None] * len(outputs)
        case.tolerances.append(
            [
                tolerance(ours, exact, case.given, case.accelerator.device)
                for ours, exact in zip(outputs, truth, strict=True)
            ]
        )


def known_errors(case: Case) -> list[float]:
    """Of every output, what is allowed on the drawn trials as a share of its magnitude: as much is
    right on inputs and weights for which there is no oracle."""
    assert case.expected is not None
    shares = [0.0] * len(case.expected.outputs[0])
    for (name, _), outputs, budgets in zip(
        case.trials, case.expected.outputs, case.tolerances, strict=True
    ):
        if not name.startswith("drawn") or len(outputs) != len(shares):
            continue
        for leaf, (output, budget) in enumerate(zip(outputs, budgets, strict=True)):
            scale = magnitude(output, case.accelerator.device)
            if output.is_floating_point() and scale:
                most = max(MOST_KNOWN, loose(output.dtype))
                shares[leaf] = max(shares[leaf], min(budget.absolute / scale, most))
    return shares
