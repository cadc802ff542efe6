"""Widen budgets where a user allows less precision than the reference's.

The verifier's own rule is that of the reference. Computing in TF32 what the reference computes in
float32 is less precise, whatever torch's flags allow. `tf32` allows float32 outputs `MULTIPLE`
times the reference's own error under cut values. Its inputs, parameters and buffers are cut to
TF32's ten bits of mantissa, as tensor cores read them. Tensor cores also cut values between the
layers, which the multiple allows for. `kernelbench` allows what KernelBench did when CUDA-L1 was
trained, 1e-2 of an element and 1e-2. What is right only by such an allowance is reported.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..wire.verdicts import Finding
from .calls import answer_of
from .cases import Case, Limits, Rejected
from .compare import Tolerance, largest_error
from .inputs import InputSet
from .magnitude import measure

MULTIPLE = 4.0
DROPPED_BITS = 13
"""Number of float32's 23 bits of mantissa that TF32 drops."""
KERNELBENCH = Tolerance(1e-2, 1e-2)
UNKNOWN = "precision.unknown"


def allow(case: Case, template: Template, limits: Limits) -> None:
    """Widen the budgets of a case by its `precision`. The user's own tolerance stays."""
    if case.precision == "strict" or case.given is not None:
        return
    case.strict = case.tolerances
    if case.precision == "kernelbench":
        case.tolerances = [[wider(one, KERNELBENCH) for one in some] for some in case.strict]
        return
    try:
        errors = cut_errors(case, template, limits)
    except (RunnerFailure, Rejected) as failure:
        message = f"with TF32's bits the reference fails, and float32's count: {failure}"
        case.findings.append(Finding(rule=UNKNOWN, message=message[:500]))
        return
    case.tolerances = [
        [wider(one, Tolerance(MULTIPLE * error, 0.0)) for one, error in zip(*pair, strict=True)]
        for pair in zip(case.strict, errors, strict=True)
    ]


def wider(one: Tolerance, other: Tolerance) -> Tolerance:
    relative = max(one.relative, other.relative)
    return Tolerance(max(one.absolute, other.absolute), relative, one.scale, one.local)


def cut_errors(case: Case, template: Template, limits: Limits) -> list[list[float]]:
    """Return the error of the reference's float32 outputs on every trial, with inputs and state
    cut; 0 for other outputs.

    Raises:
        RunnerFailure: A call failed.
        Rejected: Its answer has no form that can be compared.
    """
    assert case.expected is not None
    trials = [(name, InputSet([cut(t) for t in s.tensors], s.data)) for name, s in case.trials]
    shorter = replace(case, trials=trials, state=[cut(tensor) for tensor in case.state])
    found = answer_of(shorter, template, limits)
    return [
        [error_of(case, one, other) for one, other in zip(ours, theirs, strict=True)]
        if len(ours) == len(theirs)
        else [0.0] * len(theirs)
        for ours, theirs in zip(found.outputs, case.expected.outputs, strict=True)
    ]


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """Cut toward zero to TF32's precision; a tensor of another dtype stays unchanged."""
    if tensor.dtype != torch.float32:
        return tensor
    bits = tensor.view(torch.int32) >> DROPPED_BITS << DROPPED_BITS
    return torch.where(torch.isfinite(tensor), bits.view(torch.float32), tensor)


def error_of(case: Case, one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of float32 outputs of one shape."""
    if one.dtype != torch.float32 or one.shape != other.shape:
        return 0.0
    device = case.accelerator.device
    return largest_error(one, other, device, measure(other, device).below)
