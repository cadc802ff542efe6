"""Measure what rounding alone may do to each output of the reference.

An oracle in float64 shows how far the reference is from the truth, and not how far another order of
its own operations may be. A frequency that is off in its last place moves an angle of 2,048 by
1e-4, and a source that casts to float32 has that frequency in the oracle too. So the reference is
called again while each operation's results are rounded up or down at random
(recorder/rounding.py). The deviations from its own answer are the spread.

A candidate may be off by `error_multiple` times the spread of an element (compare.py): 8 times for
float32, 4 times for short floats, as for the error against the oracle. The spread counts where it
is more than that budget. It is elementwise, since conditioning is: a window of neighbors in memory
counts together with the element, because few calls say little of one element. It is never more
than what counts as precision at all (`LOOSE`).

An element that jumps beyond that is at a threshold. It may be off by as much as it jumped, and its
neighbors by nothing. Whole numbers and truth values that change are ties, and may differ by as
much. Where more than a few elements jump, rounding explains too much, and the spread says nothing.
On inputs that the verifier made up a candidate then passes if no more of its elements are off than
have jumped: attention in bfloat16 chooses between large scores by their last bits.
Before a candidate is refused, each operation moves by 8 units too. What is smooth moves 8 times as
far, which was allowed already. A threshold that a sum in another order reaches is reached by these
calls, and one unit seldom finds it.

Most references never need it. It is learned once for each set of inputs: with few calls where
there is no oracle, and with many before a candidate is refused for its precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..wire.runner import WIDE_UNITS
from .cases import Case, Limits, Rejected
from .compare import Tolerance, allowance, is_inexact, loose, rounded_as, tolerance
from .failures import twice
from .glance import groups
from .magnitude import magnitude
from .oracle import known_errors
from .rounding_noise import is_stated, rounding_at

FEW_CALLS, MANY_CALLS = 3, 16
"""Calls for a set. Each operation moves by a whole unit in the last place, while a rounding to
nearest is off by 0.29 of one (root mean square). So 8 times the largest deviation is 25 times what
rounding does on average, or more. Two moves that cancel hide a factor that a whole row shares in
one call of two, and in one of 65,536 sets of many calls."""
WINDOW = 64
"""Neighbors in memory whose deviations count together: their root mean square."""
MOST_JUMPS = 0.01
"""Most share of an output's elements that jump."""
CHAOS = 0.5
"""Share of an output's elements from which on nothing can be said of a set of inputs."""
Deviations = list[torch.Tensor | None]
"""The largest deviations of the outputs of a trial; None for one whose form changes."""


def learn_missing(case: Case, template: Template, limits: Limits) -> None:
    """Learn the spread on sets of inputs for which there is no oracle."""
    assert case.expected is not None
    missing = [
        number
        for number in range(len(case.trials))
        if any(exact is None for exact in case.truth(number))
    ]
    if missing:
        learn_spread(case, template, limits, missing, FEW_CALLS)


def learn_spread(
    case: Case, template: Template, limits: Limits, numbers: Sequence[int], num_calls: int
) -> None:
    """Widen the budgets of some trials by what rounding alone may do, where the reference can be
    called so."""
    try:
        spread = twice(lambda _: deviations(case, template, limits, numbers, num_calls))
        wide: dict[int, Deviations] = {}
        if num_calls == MANY_CALLS:
            wide = twice(
                lambda _: deviations(case, template, limits, numbers, num_calls, WIDE_UNITS)
            )
    except (RunnerFailure, Rejected):
        return
    # Where something moves, what does not move is exact. Where nothing does, nothing is known.
    if not any(one is not None and bool(one.any()) for some in spread.values() for one in some):
        return
    for number, found in spread.items():
        shares = jumping(case, number, found)
        if any(share > CHAOS for share in shares.values()):
            case.unsettled |= {number}
        for leaf, share in shares.items():
            moved = found[leaf]
            assert moved is not None
            case.jumps[number, leaf] = share, float(moved.max())
    for tolerances in (case.tolerances, case.strict):
        for number, found in spread.items():
            for leaf, budget in enumerate(tolerances[number] if tolerances else ()):
                jumps = wide[number][leaf] if number in wide else None
                tolerances[number][leaf] = widened(case, number, leaf, budget, found[leaf], jumps)


def jumping(case: Case, number: int, found: Deviations) -> dict[int, float]:
    """Return the shares of elements that jump, by number of the output, where they are more than a
    few on inputs that the verifier made up, and float64 knows no better. Beyond `CHAOS` nothing is
    right or wrong: a solver that does not converge there."""
    assert case.expected is not None
    if is_stated(case, number) or case.given is not None:
        return {}
    shares = {
        leaf: share_of(one > most_of(ours, None, ours.dtype, one, case.cast))
        for leaf, (one, ours, exact) in enumerate(
            zip(found, case.expected.outputs[number], case.truth(number), strict=True)
        )
        if one is not None and one.numel() and is_inexact(ours) and exact is None
    }
    return {leaf: share for leaf, share in shares.items() if share > MOST_JUMPS}


def explain(case: Case, template: Template, limits: Limits, numbers: Sequence[int]) -> bool:
    """Learn all that rounding may do on the inputs of trials where an answer is off; return whether
    that was not known of the first, the worst. Most wrong answers are refused after that one, so it
    is learned alone before any other."""
    if numbers[0] in case.explained:
        return False
    some = [number for number in numbers if number not in case.explained]
    some = some if case.explained else some[:1]
    case.explained |= set(some)
    learn_spread(case, template, limits, some, MANY_CALLS)
    case.known = known_errors(case)
    return True


def deviations(
    case: Case,
    template: Template,
    limits: Limits,
    numbers: Sequence[int],
    num_calls: int,
    num_units: int = 1,
) -> dict[int, Deviations]:
    """Return by how much outputs of some trials deviate in calls with random rounding
    by some units.

    Raises:
        RunnerFailure: A call failed.
        Rejected: Its answer has no form that can be compared.
    """
    assert case.expected is not None
    expected = case.expected.outputs
    spread: dict[int, Deviations] = {
        number: [torch.zeros(one.shape, dtype=dtype_of(one), device=one.device) for one in some]
        for number, some in enumerate(expected)
        if number in numbers
    }
    # Random numbers, and what calls leave, depend on the calls before.
    depends = case.uses_rng or case.leaves_traces
    called = list(range(max(numbers) + 1)) if depends else list(numbers)
    sets = [case.trials[number][1] for number in called]
    with case.runner(template, case.program, limits) as runner:
        for call in range(num_calls):
            if call and case.state_slots:
                case.load_state(runner, case.state, limits)
            answer = case.answer(
                runner, limits, sets=sets, rounding=case.seed + call, num_units=num_units
            )
            for number, outputs in zip(called, answer.outputs, strict=True):
                if number in spread:
                    extend(spread[number], expected[number], outputs)
    return spread


def extend(found: Deviations, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    """Extend the deviations of a trial's outputs by those of another call."""
    if len(ours) != len(theirs):
        found[:] = [None] * len(ours)
        return
    together = set()
    for group in groups(ours, theirs, ours[0].device) if ours else ():
        numbers = [n for n in group if found[n] is not None and is_float32(ours[n], theirs[n])]
        mosts = [most for n in numbers if (most := found[n]) is not None]
        if extend_at_once(mosts, [ours[n] for n in numbers], [theirs[n] for n in numbers]):
            together.update(numbers)
    for leaf, (one, other, most) in enumerate(zip(ours, theirs, found, strict=True)):
        if leaf in together:
            continue
        if most is None or one.shape != other.shape:
            found[leaf] = None
        else:
            torch.maximum(most, deviation(one, other.to(one.device)), out=most)


def extend_at_once(
    mosts: list[torch.Tensor], ours: list[torch.Tensor], theirs: list[torch.Tensor]
) -> bool:
    """Extend the deviations of outputs of float32, which takes a few launches for hundreds of
    gradients. Return whether all of them are finite."""
    if not mosts:
        return True
    gaps = torch._foreach_sub(ours, theirs)
    torch._foreach_abs_(gaps)
    if not bool(torch.isfinite(torch.stack(torch._foreach_norm(gaps, torch.inf))).all()):
        return False
    torch._foreach_maximum_(mosts, gaps)
    return True


def is_float32(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether both outputs are of float32."""
    return one.dtype == other.dtype == torch.float32


def dtype_of(output: torch.Tensor) -> torch.dtype:
    """Return the dtype of an output's deviations."""
    return torch.float64 if output.dtype in (torch.float64, torch.complex128) else torch.float32


def deviation(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return differences; infinite where only one is a number, and zero where neither is."""
    if one.dtype == torch.bool:
        return (one != other).to(torch.float32)
    dtype = dtype_of(one) if not one.is_complex() else one.dtype
    gap = (one.to(dtype) - other.to(dtype)).abs()
    alike = (one == other) | ((one != one) & (other != other))
    return torch.where(alike, 0.0, gap.nan_to_num(torch.inf, torch.inf))


def widened(
    case: Case,
    number: int,
    leaf: int,
    budget: Tolerance,
    found: torch.Tensor | None,
    wide: torch.Tensor | None = None,
) -> Tolerance:
    """Return the budget of an output with what its spread allows beyond it, and the deviations of
    `wide`, where each operation moves by 8 units."""
    assert case.expected is not None
    ours = case.expected.outputs[number][leaf]
    if found is None or case.given is not None or not found.numel():
        return budget
    if not is_inexact(ours):
        if wide is not None and share_of(wide > 0) <= MOST_JUMPS:
            found = torch.maximum(found, wide)
        return budget if share_of(found > 0) > MOST_JUMPS else replace(budget, local=found)
    exact, scale = case.truth(number)[leaf], budget.scale
    largest = max(float(one.max()) for one in (found, wide) if one is not None)
    dtype = rounded_as(ours.dtype, case.cast, largest, scale or 0.0)
    if scale is not None and largest <= loose(dtype) * scale:  # nothing jumps
        budget = known(case, number, leaf, budget)
        if allowance(dtype).error_multiple * largest <= budget.absolute:
            return budget
    # A large oracle may be in the host's memory where the outputs are not.
    truth = (ours if exact is None else exact).to(found.device)
    most = most_of(truth, scale, ours.dtype, found, case.cast)
    found = with_wide(found, wide, most)
    if share_of(found > most) > MOST_JUMPS:
        return guessed(case, ours, budget, dtype)
    return with_spread(known(case, number, leaf, budget), dtype, truth, found, most)


def guessed(case: Case, ours: torch.Tensor, budget: Tolerance, dtype: torch.dtype) -> Tolerance:
    """Return a guess for the `dtype` that autocast rounds an output to, where the output holds
    float32 and neither float64 nor its spread says more."""
    if not budget.is_guessed or dtype == ours.dtype:
        return budget
    share = torch.finfo(dtype).eps
    return tolerance(ours, None, None, case.accelerator.device, share, cast=case.cast)


def known(case: Case, number: int, leaf: int, budget: Tolerance) -> Tolerance:
    """Return a budget that is no guess, as the output's spread is known."""
    if not budget.is_guessed:
        return budget
    assert case.expected is not None
    pair = case.expected.outputs[number][leaf], case.truth(number)[leaf]
    noise = rounding_at(case, number, leaf, *pair)
    device = case.accelerator.device
    return tolerance(*pair, None, device, noise=noise, has_spread=True, cast=case.cast)


def with_wide(found: torch.Tensor, wide: torch.Tensor | None, most: torch.Tensor) -> torch.Tensor:
    """Return deviations with those of `wide`, where each operation moves by more units. Those of
    more than `most` are jumps, which units only find; others grow with the units."""
    if wide is None or share_of(wide > most) > MOST_JUMPS:
        return found
    return torch.maximum(found, torch.where(wide > most, wide, wide / WIDE_UNITS))


def with_spread(
    budget: Tolerance,
    dtype: torch.dtype,
    truth: torch.Tensor,
    found: torch.Tensor,
    most: torch.Tensor,
) -> Tolerance:
    """Return the budget of an output of floats with what deviations allow beyond it. Those of
    more than `most` are jumps."""
    is_jump = found > most
    steady = torch.where(is_jump, 0.0, found)
    multiple = allowance(dtype).error_multiple
    allowed = multiple * torch.maximum(steady, in_windows(steady))
    jumped = torch.where(torch.isfinite(found), found, 0.0)
    allowed = torch.where(is_jump, jumped, torch.minimum(allowed, most))
    is_beyond = allowed > budget.absolute + budget.relative * truth.abs()
    return replace(budget, local=allowed) if bool(is_beyond.any()) else budget


def most_of(
    truth: torch.Tensor,
    scale: float | None,
    dtype: torch.dtype,
    found: torch.Tensor,
    cast: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the largest deviation of each element that counts as precision."""
    scale = magnitude(truth) if scale is None else scale
    return (loose(dtype, cast) * (truth.abs() + scale)).to(found.dtype)


def share_of(flags: torch.Tensor) -> float:
    """Return the share of true elements."""
    return float(flags.sum()) / flags.numel()


def in_windows(found: torch.Tensor) -> torch.Tensor:
    """Return the root mean square over the window of each element."""
    flat = found.reshape(-1)
    largest = flat.max().clamp_min(torch.finfo(flat.dtype).tiny)
    num_windows = -(-flat.numel() // WINDOW)
    squares = flat.new_zeros(num_windows * WINDOW)
    squares[: flat.numel()] = (flat / largest).square()
    counts = squares.new_full((num_windows,), WINDOW)
    counts[-1] = flat.numel() - (num_windows - 1) * WINDOW
    means = (squares.view(num_windows, WINDOW).sum(1) / counts).sqrt() * largest
    return means.repeat_interleave(WINDOW)[: flat.numel()].view(found.shape)
