"""Recognize elements at which the reference itself jumps.

The gradient of a ReLU changes at zero. A maximum, a clamp and a rounding to steps behave so too. Of
the millions of elements of a timed batch, some are so close to such a place that a sum in another
order is on the other side. A candidate is off there by as much as the output is large, and is not
wrong. The reference on inputs that differ by rounding distinguishes it from a wrong one. An element
that is off must be within what the reference returns for some of these.

Not covered: jumps that depend only on inputs of whole numbers, or on parameters. The trials are not
covered either; they have fewer elements, and an oracle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .compare import SHORT_EPS, Tolerance
from .inputs import InputSet
from .magnitude import pieces, root_mean_square, widen

MOST_NEARBY = 48
"""Batches of the reference on nearby inputs. Each is on the other side of a jump one time in
three or more, where a candidate is: one jump in 10^8 is never seen. With sixteen batches it is one
in 600, and a timed round of a sort of half precision numbers has dozens."""
NEARBY_EPS = 8.0
"""Distance between inputs (standard deviation), in units of their last place: as much as a sum
of some hundred products in another order, and an eighth of what an output may be off."""
MOST_TIES_LEFT = 0.01
"""Most share of ties that stay as they are on all nearby inputs. Of many equal numbers some
never take the place that a candidate gives them."""
SHAKEN_EPS = 2.0
"""The same, in units of the last place of the element or of a usual one, whatever is larger."""
MOST_ELEMENTS = 2**22
"""Most elements that are checked. Behind a normalization one jump moves all of a call's
elements. No more than a few calls of a batch have one."""


@dataclass
class Strays:
    """The elements of a tensor that are off."""

    numbers: list[torch.Tensor]
    """Numbers of the elements in each of its pieces."""
    got: torch.Tensor
    slack: torch.Tensor
    """Error that is allowed in any case."""
    low: torch.Tensor
    high: torch.Tensor
    """Largest values that the reference has returned for nearby inputs."""
    most_unexplained: float = 0.0
    """Most share of the elements that may be outside of it."""

    def look(self, values: torch.Tensor) -> None:
        """Extend the range by what the reference returns for other inputs."""
        found = picked(values, self.numbers)
        self.low, self.high = torch.minimum(self.low, found), torch.maximum(self.high, found)

    @property
    def num_left(self) -> int:
        """Return how many elements are not explained, of those that have to be."""
        is_within = (self.low - self.slack <= self.got) & (self.got <= self.high + self.slack)
        num_outside = int((~is_within).sum())
        return 0 if num_outside <= self.most_unexplained * len(self.got) else num_outside


def strays_of(got: torch.Tensor, expected: torch.Tensor, budget: Tolerance) -> Strays | None:
    """Return the elements that are beyond a budget; None where they are complex, not finite, or
    too many. Whole numbers are places in an order, or choices: those of equal numbers are free."""
    if expected.is_complex():
        return None
    numbers = [
        is_near.logical_not().flatten().nonzero().flatten()
        for is_near in each_near(got, expected, budget)
    ]
    if not 0 < sum(map(len, numbers)) <= MOST_ELEMENTS:  # whole numbers that float64 does not hold
        return None
    values, truth = picked(got, numbers), picked(expected, numbers)
    if not (values.isfinite().all() and truth.isfinite().all()):
        return None
    slack = budget.absolute + budget.relative * truth.abs()
    if budget.local is not None:
        slack = torch.maximum(slack, picked(local_of(budget.local, expected), numbers))
    most = 0.0 if expected.is_floating_point() else MOST_TIES_LEFT
    return Strays(numbers, values, slack, truth, truth, most)


def each_near(
    got: torch.Tensor, expected: torch.Tensor, budget: Tolerance
) -> Iterator[torch.Tensor]:
    """Yield which elements of each piece are within a budget. Its allowance for single elements
    is that of one call; of several calls each has it."""
    local: Iterator[torch.Tensor | None] = itertools.repeat(None)
    if budget.local is not None:
        local = pieces(local_of(budget.local, expected))
    for one, other, allowed in zip(pieces(got), pieces(expected), local, strict=False):
        ours, theirs = widen(one), widen(other)
        is_near = torch.isclose(
            ours, theirs, rtol=budget.relative, atol=budget.absolute, equal_nan=True
        )
        yield is_near if allowed is None else is_near | ((ours - theirs).abs() <= allowed)


def local_of(allowed: torch.Tensor, calls: torch.Tensor) -> torch.Tensor:
    """Return the allowance of each element of stacked calls, where they are."""
    return allowed.to(calls.device).expand_as(calls)


def picked(tensor: torch.Tensor, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return elements by their numbers in its pieces, in float64."""
    found = zip(pieces(tensor), numbers, strict=True)
    return torch.cat([widen(piece.flatten()[some]) for piece, some in found])


def are_jumps(
    strays: dict[int, Strays], nearby: Callable[[int], Any], values: Callable[[int], torch.Tensor]
) -> bool:
    """Return whether the reference explains them all. `nearby` takes how many elements are left
    and makes the reference answer again for other inputs; `values` returns these answers by the
    tensor's number."""
    num_left = sum(some.num_left for some in strays.values())
    for _ in range(MOST_NEARBY):
        nearby(num_left)
        for number, some in strays.items():
            some.look(values(number))
        num_left = sum(some.num_left for some in strays.values())
        if not num_left:
            return True
    return False


def shaken(one: InputSet, generator: torch.Generator, dtype: torch.dtype | None = None) -> InputSet:
    """Return a set whose floats differ by rounding, zeros and equal numbers among them too."""
    return replace(one, tensors=[shake(tensor, generator, dtype) for tensor in one.tensors])


def shake(
    tensor: torch.Tensor, generator: torch.Generator, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return numbers that differ by rounding of numbers as large as the tensor's; of a `dtype` to
    which they will be cast where that is shorter."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor.clone()
    values = widen(tensor)
    noise = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    sizes = values.abs().clamp_min(root_mean_square(tensor) or 1.0)
    eps = max(torch.finfo(one).eps for one in (tensor.dtype, dtype or tensor.dtype))
    changed = values + SHAKEN_EPS * eps * sizes * noise
    return torch.empty_like(tensor).copy_(changed)


def nudge(
    tensor: torch.Tensor,
    generator: torch.Generator,
    *,
    is_rigid: bool,
    dtype: torch.dtype | None = None,
) -> None:
    """Change values by rounding, in place; all by one factor where elements cannot be changed
    one by one. Floats that will be cast to a shorter `dtype` change by its rounding."""
    if not (tensor.is_floating_point() and tensor.numel()):
        return
    eps = max(torch.finfo(one).eps for one in (tensor.dtype, dtype or tensor.dtype))
    shape = [1] * tensor.dim() if is_rigid else tensor.shape
    step = eps * (1.0 if eps > SHORT_EPS else NEARBY_EPS)
    noise = torch.randn(shape, generator=generator, device=tensor.device)
    tensor.mul_(1 + step * noise.to(torch.float64 if eps < 1e-10 else torch.float32))
