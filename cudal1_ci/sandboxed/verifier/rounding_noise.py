"""Find outputs of training that are only the reference's own rounding.

The gradient of a bias before a batch normalization in train mode is zero in truth, as is that of an
attention's keys. float32 or bfloat16 leaves 1e-6 or 1e-2 of it, other numbers in every order of the
sum. There the oracle is close to the truth, the reference is not. Such an output is noise. A
candidate may return zeros, or anything as small as the reference's rounding, and no more.

On inputs that the workload does not state the same happens to others (rows of equal numbers have no
variance to divide by). There, too, a candidate may be as far from the oracle as the reference.

Only reference and oracle decide, before any candidate is seen. What a call returns is never noise,
since zeros would be right as the whole answer. Inference has no noise either.
"""

from __future__ import annotations

import torch

from .cases import Case
from .compare import Tolerance, difference, is_near, largest_error, loose

TRUTH_SHARE = 1e-3
"""Most share of the reference's largest error that the oracle's largest element has where it is
zero in truth. Rounding follows the epsilon. What float64 leaves of a zero is 2e-9 of what
float32 leaves and 3e-14 of bfloat16's, or 1e-5 where a reference of bfloat16 goes through
float32 in both. Any other output is a hundred times its error, or eight times in bfloat16
(compare.py, `loose`): thousands of times more."""
NOISE_MULTIPLE = 8.0
"""Multiple of the reference's largest error that a candidate may be off by. It holds for short
floats too, where the last rounding of a number is not most of the error. On drawn inputs, on a
CPU, library kernels and sums by hand in float32 came to 1.9 times, channels-last convolutions of
bfloat16 to 4.5. A batch normalization that rounds every operation to bfloat16 came to 38, and is
less precise."""
Outputs = list[list[torch.Tensor]]
"""Outputs of all trials."""


def fitting(case: Case) -> list[tuple[int, list[torch.Tensor], list[torch.Tensor]]]:
    """Return number, outputs and oracle of each trial that has one."""
    assert case.expected is not None
    both = zip(case.expected.outputs, case.oracle, strict=True)
    return [(n, ours, theirs) for n, (ours, theirs) in enumerate(both) if theirs is not None]


def usual_errors(case: Case) -> list[float]:
    """Return, for every output of a training workload, the reference's largest error on what it
    states; none where trials have other numbers of outputs."""
    pairs = fitting(case)
    if not case.train or len({len(ours) for _, ours, _ in pairs}) != 1:
        return []
    return [
        max(
            error_at(case, number, leaf, ours[leaf], theirs[leaf])
            for number, ours, theirs in pairs
            if is_stated(case, number)
        )
        for leaf in range(len(pairs[0][1]))
    ]


def is_stated(case: Case, number: int) -> bool:
    """Return whether the inputs of a trial are such as the workload states."""
    return case.trials[number][0].startswith("drawn")


def find_noise(case: Case, usual: list[float]) -> dict[int, float]:
    """Return the outputs beyond those of the call that are noise on the inputs of all trials, by
    number, and how large they may be on stated inputs. The oracle of noise is a rounding itself.
    An oracle that is zero everywhere has lost a gradient."""
    assert case.expected is not None
    first = max(call.num_leaves for call in case.expected.calls)
    found = {}
    for leaf in range(first, len(usual)):
        pairs = [(number, ours[leaf], theirs[leaf]) for number, ours, theirs in fitting(case)]
        if (
            pairs[0][1].is_floating_point()
            and all(is_zero(case, n, leaf, ours, exact, usual[leaf]) for n, ours, exact in pairs)
            and any(bool(exact.any()) for _, _, exact in pairs)
        ):
            found[leaf] = NOISE_MULTIPLE * usual[leaf]
    return found


def error_at(case: Case, number: int, leaf: int, ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the reference's largest error in an output of a trial."""
    seen = case.glances.get((number, leaf))
    return largest_error(ours, exact, case.accelerator.device) if seen is None else seen.error


def is_zero(
    case: Case, number: int, leaf: int, ours: torch.Tensor, exact: torch.Tensor, usual: float
) -> bool:
    """Return whether an output of a trial is zero in truth. A sum of few numbers may be exact by
    chance: the `usual` error counts where it is larger."""
    device, seen = case.accelerator.device, case.glances.get((number, leaf))
    if seen is None:
        largest = largest_error(exact, exact.new_zeros(()).expand_as(exact), device)
    else:
        largest = seen.largest
    return largest <= TRUTH_SHARE * max(error_at(case, number, leaf, ours, exact), usual)


def is_explained(
    case: Case, number: int, leaf: int, ours: torch.Tensor, exact: torch.Tensor
) -> bool:
    """Return whether floats of the reference are near the oracle's."""
    near, device = loose(ours.dtype, case.cast), case.accelerator.device
    if is_near(ours, exact, near, device, case.glances.get((number, leaf))):
        return True
    return difference(ours, exact, None, Tolerance(0.0, 0.0), device, near).is_loose


def may_be_rounding(case: Case, number: int, leaf: int) -> bool:
    """Return whether the oracle need not explain an output of a trial."""
    return leaf in case.noise or (bool(case.usual) and not is_stated(case, number))


def rounding_at(
    case: Case, number: int, leaf: int, ours: torch.Tensor, exact: torch.Tensor | None
) -> float:
    """Return how far off an output of a trial may be where it is mostly rounding, or exactly
    zero on inputs that the workload does not state; 0 where it is more."""
    if exact is None or not ours.is_floating_point() or not may_be_rounding(case, number, leaf):
        return 0.0
    if (
        leaf not in case.noise
        and bool(exact.any())
        and is_explained(case, number, leaf, ours, exact)
    ):
        return 0.0
    error = error_at(case, number, leaf, ours, exact)
    return NOISE_MULTIPLE * max(case.usual[leaf], error)
