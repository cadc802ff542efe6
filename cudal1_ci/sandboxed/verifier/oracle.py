"""Establish the expected outputs: the reference in float64, and the budget of every output."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..wire.verdicts import Finding
from .calls import answer_of
from .cases import Case, Limits, Rejected, describe_leaf
from .compare import Tolerance, as_bools, difference, is_inexact, is_near, loose, tolerance
from .glance import Glance, glances
from .magnitude import magnitude, pieces
from .rounding_noise import (
    Outputs,
    find_noise,
    is_stated,
    may_be_rounding,
    rounding_at,
    usual_errors,
)

MOST_KNOWN = 0.05
"""Most share of an output's magnitude. Other weights differ by a tenth, and a program that still
uses the old ones must be seen. (Where the dtype explains more, more is allowed.)"""


def learn_oracle(case: Case, template: Template, limits: Limits) -> str | None:
    """Learn the outputs in float64, where the reference runs so and agrees with itself. Return
    why there are none for some inputs."""
    assert case.expected is not None
    try:
        reason = accept(case, answer_of(case, template, limits, "float64").outputs)
    except (RunnerFailure, Rejected) as failure:
        return str(failure)
    if reason is not None and case.uses_rng:
        return "it draws random numbers, which differ between precisions"
    return reason


def accept(case: Case, oracle: Outputs) -> str | None:
    """Take an oracle's outputs as the truth of the expected ones. One output that does not fit
    rejects all outputs of its trial, since another branch taken in float64 may affect others, and
    no other trial. Return why the first of such trials has none. Rounding of the reference is no
    misfit (rounding_noise.py)."""
    assert case.expected is not None
    expected, device = case.expected.outputs, case.accelerator.device
    reasons: dict[int, str] = {}
    case.oracle = []
    for number, (ours, theirs) in enumerate(zip(expected, oracle, strict=True)):
        if forms_of(ours) != forms_of(theirs):
            reasons[number] = "its outputs have other shapes in float64"
            case.oracle.append(None)
        else:
            exact = list(theirs)
            for leaf, seen in enumerate(glances(ours, theirs, device)):
                if seen is None:
                    exact[leaf] = with_the_largest(ours[leaf], theirs[leaf], device)
                else:
                    case.glances[number, leaf] = seen
            case.oracle.append(exact)
    while True:
        if not any(one and is_stated(case, number) for number, one in enumerate(case.oracle)):
            case.oracle = [None] * len(expected)
            case.lost = {}
        case.usual = usual_errors(case)
        case.noise = find_noise(case, case.usual)
        misfits = find_misfits(case)
        if not misfits:
            return reasons[min(reasons)] if reasons else None
        reasons |= misfits
        keep_lost(case, misfits)
        # What is noise on the other trials is found again without these.
        case.oracle = [None if n in misfits else one for n, one in enumerate(case.oracle)]


def keep_lost(case: Case, numbers: Iterable[int]) -> None:
    """Keep what float64 holds on inputs that the workload does not state, where the reference is
    far from it: a layer normalization by hand in float16, whose squares overflow, returns zeros
    there, and a fused one the truth. Both are right."""
    if case.given is not None:
        return
    for number in numbers:
        exact = case.oracle[number]
        if exact is not None and not is_stated(case, number):
            case.lost[number] = exact


def find_misfits(case: Case) -> dict[int, str]:
    """Return the trials whose oracle cannot be the truth, each with the reason."""
    assert case.expected is not None
    found = {}
    for number, (ours, theirs) in enumerate(zip(case.expected.outputs, case.oracle, strict=True)):
        if theirs is None:
            continue
        for leaf, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            is_rounding = may_be_rounding(case, number, leaf)
            seen = case.glances.get((number, leaf))
            reason = mismatch(case, one, other, is_rounding, seen)
            if reason is not None and number not in found:
                found[number] = f"{describe_leaf(case, number, leaf)} {reason}"
    return found


def with_the_largest(
    ours: torch.Tensor, exact: torch.Tensor, device: torch.device | None = None
) -> torch.Tensor:
    """Return an oracle's output with the reference's value where the dtype's largest number is:
    masks are filled with `torch.finfo(scores.dtype).min`. Few outputs hold it, and the search
    for it is on `device`, where the tensors need not be."""
    if not ours.is_floating_point() or ours.dtype == exact.dtype:
        return exact
    most = torch.finfo(ours.dtype).max
    if not any(as_bools([(one.abs() == most).any() for one in pieces(ours, device)])):
        return exact
    said = ours.to(exact.device, exact.dtype)
    is_largest = said.abs() == most
    is_largest &= exact == said.sign() * torch.finfo(exact.dtype).max
    return torch.where(is_largest, said, exact) if is_largest.any() else exact


def forms_of(outputs: list[torch.Tensor]) -> list[tuple[torch.Size, bool]]:
    """Return what must be the same in float64."""
    return [(one.shape, is_inexact(one)) for one in outputs]


def mismatch(
    case: Case,
    one: torch.Tensor,
    other: torch.Tensor,
    is_rounding: bool,
    seen: Glance | None = None,
) -> str | None:
    """Return why an output of the oracle cannot be the truth of the reference's. Of rounding it
    can, unless one of them is no number."""
    near = loose(one.dtype, case.cast) if is_inexact(one) else 0.0
    near, device = math.inf if is_rounding else near, case.accelerator.device
    if is_near(one, other, near, device, seen):
        return None
    found = difference(one, other, None, Tolerance(0.0, 0.0), device, near)
    if not is_inexact(one) and found.excess > 1:
        return "holds other integers in float64"
    # Below the smallest normal float the dtype holds nothing.
    smallest = torch.finfo(one.dtype).tiny if is_inexact(one) else 0.0
    if is_inexact(one) and not found.is_loose and found.max_abs > smallest:
        return f"differs by {found.max_abs:.3g} in float64"
    return None


def settle_tolerances(case: Case) -> None:
    """Settle the budget of every output of every trial."""
    assert case.expected is not None
    for number, outputs in enumerate(case.expected.outputs):
        budgets, device = [], case.accelerator.device
        for leaf, pair in enumerate(zip(outputs, case.truth(number), strict=True)):
            noise, seen = rounding_at(case, number, leaf, *pair), case.glances.get((number, leaf))
            budgets.append(
                tolerance(*pair, case.given, device, noise=noise, glance=seen, cast=case.cast)
            )
        case.tolerances.append(budgets)


def report_unknown(case: Case, reason: str | None) -> None:
    """Report trials for which there is neither an oracle, with the `reason`, nor a spread."""
    assert case.expected is not None
    if reason is None or case.given is not None:
        return
    unknown = [
        f"`{name}`"
        for number, (name, _) in enumerate(case.trials)
        if any(
            budget.is_guessed and (number, leaf) not in case.jumps
            for leaf, budget in enumerate(case.tolerances[number])
        )
    ]
    if unknown:
        message = (
            f"the reference was not run in float64 on {', '.join(unknown)} ({reason[:300]}), and "
            "random rounding shows no error there: the dtype's tolerance"
        )
        case.findings.append(Finding(rule="oracle.absent", message=message))


def known_errors(case: Case) -> list[float]:
    """Return, for every output, the allowance on the drawn trials as a share of its magnitude.
    The same is allowed on inputs and weights for which there is no oracle."""
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
                most = max(MOST_KNOWN, loose(output.dtype, case.cast))
                shares[leaf] = max(shares[leaf], min(budget.most_absolute / scale, most))
    return shares
