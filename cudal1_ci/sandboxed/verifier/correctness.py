"""Compare a candidate's outputs with what the verifier expects. This answer counts.

Covered: raising, dying, hanging; state_dict keys; structure, shape, dtype, device, exact type,
memory shared with inputs; inputs, parameters and buffers written to; values against the oracle's
budget; outputs that change after they were returned (all are kept until the last call was made);
settings of the process and the random state; other weights, loaded after the first calls; the order
of the caller's stream (stream_order.py); fewer rows; gradients through a patch (gradient_flow.py).
Not covered here: what timed calls return and leave (timed_checks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..wire.programs import Program, TreeProgram
from ..wire.runner import Called, Settings
from ..wire.verdicts import Finding, KernelTime, Status
from .cases import Answer, Case, Limits, Rejected, describe_leaf
from .changed_settings import is_refused, process_changes
from .compare import LOOSE, Difference, Tolerance, difference, is_inexact, loose
from .failures import rejection_of_candidate
from .gradient_flow import compare_reach
from .inputs import each_same_bits, same_bits
from .output_aliasing import compare_memory, left_to_the_reader
from .signs import aligned, learn_signs, words_on_signs
from .spread import MOST_JUMPS, explain
from .stream_order import compare_order
from .ties import Compared, compared_trials, settle_ties, with_ties

FEWER_ROWS, OTHER_STATE = -1, -2
"""Keys of ties beyond those of the trials."""


@dataclass(frozen=True)
class Examined:
    """A candidate that is right."""

    call: Called
    """The first call's result, as the runner describes it."""
    max_abs_error: float
    max_rel_error: float
    findings: list[Finding]
    rows: tuple[KernelTime, ...] | None = None
    """The profile of one call, where there is one."""


def examine(
    case: Case,
    template: Template,
    program: Program,
    limits: Limits,
    *,
    profiles: bool = False,
    follows_gradients: bool = True,
    hold: Callable[[str, RunnerHandle, ExitStack], None] | None = None,
) -> Examined:
    """Return what is known of a candidate that is right.

    `profiles` reads its kernels too, in the existing process. `follows_gradients` also looks which
    gradients a call for inference passes on (gradient_flow.py). `hold` takes over that process, by
    the workload's name, instead of its end; not a process in which a call has failed. `profiles`
    and `hold` exclude each other: a process that was profiled is not timed.

    Raises:
        Rejected: The candidate is wrong, with the reason.
    """
    try:
        with ExitStack() as stack:
            runner = stack.enter_context(case.runner(template, program, limits))
            answer = case.answer(
                runner, limits, before_copy=lambda calls, at: compare_form(case, calls, at)
            )
            compare_mutations(case, answer)
            max_abs, max_rel = compare_equivalent(case, template, answer, limits)
            compare_memory(case, answer)
            findings = compare_settings(case, answer, is_patch=isinstance(program, TreeProgram))
            findings += less_precise(case, answer)
            findings += compare_first_draw(case, answer)
            compare_other_state(case, template, runner, limits)
            findings += compare_order(case, template, runner, limits)
            special = specialization(case, template, runner, program, limits)
            rows = rows_of(case, runner, limits) if profiles else None
            lost = []
            if follows_gradients:
                lost = compare_reach(case, template, runner, program, limits)
            if hold is not None and not special and not lost:
                hold(case.name, runner, stack.pop_all())
    except RunnerFailure as failure:
        raise rejection_of_candidate(failure, program) from failure
    return Examined(answer.calls[0], max_abs, max_rel, findings + special + lost, rows)


def rows_of(case: Case, runner: RunnerHandle, limits: Limits) -> tuple[KernelTime, ...] | None:
    """Return the profile of one call; None where there is none, which is no fault of values."""
    try:
        return case.profiled(runner, limits)
    except RunnerFailure:
        return None


def compare_other_state(
    case: Case, template: Template, runner: RunnerHandle, limits: Limits
) -> None:
    """Check that weights loaded after the first calls count: training continues, checkpoints are
    loaded."""
    if case.other_state is None:
        return
    state, expected = case.other_state
    case.load_state(runner, state, limits)
    inputs = case.trials[0][1]
    got = case.answer(runner, limits, sets=[inputs])
    one = Compared(OTHER_STATE, inputs, expected.outputs[0], got.outputs[0])
    worst = worst_difference(case, one)
    if worst is not None and worst.excess > 1 and settle_ties(case, template, [one], limits, state):
        worst = worst_difference(case, one)
    if worst is None or worst.excess > 1:
        how = "has another form" if worst is None else f"is off by {worst.max_abs:.3g}"
        message = (
            f"the output {how} when other weights are loaded after the first calls: it continues "
            "with the old ones, or does without some"
        )
        most = None if worst is None else worst.max_abs
        raise Rejected("incorrect_values", "state.baked", message, max_abs_error=most)


def worst_difference(case: Case, one: Compared) -> Difference | None:
    """Return the worst difference of a call's outputs, without an oracle; None where their forms
    differ."""
    ours, theirs = list(one.expected), list(one.got)
    if [(t.shape, t.dtype) for t in ours] != [(t.shape, t.dtype) for t in theirs]:
        return None
    theirs = with_ties(case.ties.get(one.key), aligned(case.signs, theirs, ours), ours)
    return max(case.differences(theirs, ours), key=lambda one: one.excess)


def specialization(
    case: Case, template: Template, runner: RunnerHandle, program: Program, limits: Limits
) -> list[Finding]:
    """Check a candidate on a batch of fewer rows, which the reference accepts. A text may refuse
    it, because a text is made for given shapes. A patch of code that is called with other shapes
    may not. A wrong answer is wrong in both.

    Raises:
        Rejected: It is wrong there, or a patch that fails there.
        RunnerFailure: It did not answer in time.
    """
    if case.fewer_rows is None:
        return []
    inputs, expected = case.fewer_rows
    rows = inputs.tensors[0].shape[0]
    try:
        got = case.answer(runner, limits, sets=[inputs])
    except RunnerFailure as failure:
        if failure.kind == "timeout":  # it may compile again, or the budget ends
            raise
        message = f"it is made for one number of rows: with {rows}, {failure.message[:300]}"
        if isinstance(program, TreeProgram):
            raise Rejected("incorrect_shape", "shape.specialized", message) from failure
        return [Finding(rule="shape.specialized", message=message)]
    one = Compared(FEWER_ROWS, inputs, expected.outputs[0], got.outputs[0])
    worst = worst_difference(case, one)
    if worst is not None and worst.excess > 1 and settle_ties(case, template, [one], limits):
        worst = worst_difference(case, one)
    if worst is None or worst.excess > 1:
        how = "has another form" if worst is None else f"is off by {worst.max_abs:.3g}"
        message = f"the output {how} with {rows} rows instead of those of the workload"
        raise Rejected("incorrect_values", "shape.specialized", message)
    return []


def compare_form(case: Case, calls: Sequence[Called], first: int) -> None:
    """Compare structure, shapes, dtypes, devices, types, sharing of memory, and use of random
    numbers, of some trials from the `first` on."""
    assert case.expected is not None
    for number, got in enumerate(calls, first):
        want = case.expected.calls[number]
        on = f"on the inputs `{case.trials[number][0]}`"
        if want.structure != got.structure:
            raise Rejected(
                "incorrect_shape",
                "output.structure",
                f"the output's structure differs {on}",
                evidence=f"expected {want.structure[:300]}, got {got.structure[:300]}",
            )
        shapes = [list(slot.shape) for slot in want.slots]
        if shapes != [list(slot.shape) for slot in got.slots]:
            got_shapes = [list(slot.shape) for slot in got.slots]
            message = f"expected outputs of shapes {shapes}, got {got_shapes} {on}"
            raise Rejected("incorrect_shape", "output.shape", message)
        dtypes = [slot.dtype for slot in want.slots]
        if dtypes != [slot.dtype for slot in got.slots]:
            got_dtypes = [slot.dtype for slot in got.slots]
            message = f"expected outputs of dtypes {dtypes}, got {got_dtypes} {on}"
            raise Rejected("incorrect_dtype", "output.dtype", message)
        devices = [slot.device for slot in want.slots]
        if devices != [slot.device for slot in got.slots]:
            got_devices = [slot.device for slot in got.slots]
            message = f"expected outputs on {devices}, got them on {got_devices} {on}"
            raise Rejected("incorrect_shape", "output.device", message)
        if want.types != got.types:
            message = f"expected outputs of types {list(want.types)}, got {list(got.types)} {on}"
            raise Rejected("reward_hack", "output.type", message)
        if lazy := sorted(set(got.lazy) - set(want.lazy)):
            raise left_to_the_reader(lazy[0], on)
        if got.is_rewritten and not want.is_rewritten:
            message = f"a later call changed what the list or dict that it returned holds {on}"
            raise Rejected("reward_hack", "output.rewritten", message)
        for leaf, (ours, theirs) in enumerate(zip(want.aliases, got.aliases, strict=True)):
            if set(theirs) - set(ours):
                message = f"output {leaf} shares memory with an input; the reference's does not"
                raise Rejected("mutates_input", "output.aliases_input", message)
        if got.seeded and not want.seeded:
            message = f"it seeds the global generator {on}; the reference does not"
            raise Rejected("reward_hack", "state.rng", message)
        if number > 0 and draws_alone(want, got):
            message = f"it draws from the global generator {on}; the reference does not"
            raise Rejected("incorrect_values", "state.rng", message)


def draws_alone(want: Called, got: Called) -> bool:
    """Return whether a call takes random numbers, which others then do not get, and the
    reference's call does not."""
    return got.used_rng and not want.used_rng


def compare_first_draw(case: Case, answer: Answer) -> list[Finding]:
    """Report a first call that draws random numbers. A warm-up with them, once, is no error;
    users who merge it must know."""
    assert case.expected is not None
    if not draws_alone(case.expected.calls[0], answer.calls[0]):
        return []
    message = "its first call draws from the global generator: random numbers after it are others"
    return [Finding(rule="state.rng", message=message)]


def compare_mutations(case: Case, answer: Answer) -> None:
    """Check that inputs and state hold what was written. Where the reference changes them, the
    candidate must change them equally."""
    assert case.expected is not None
    extra = sorted(answer.mutated.keys() - case.expected.mutated.keys())
    if extra:
        name = case.trials[extra[0][0]][0]
        message = f"the call changed its input {extra[0][1]} of `{name}`; the reference does not"
        raise Rejected("mutates_input", "input.mutated", message)
    for which, ours in case.expected.mutated.items():
        theirs = answer.mutated.get(which)
        if theirs is None:
            message = f"the call leaves its input {which[1]} as it was; the reference changes it"
            raise Rejected("incorrect_values", "input.values", message)
        found = case.difference(theirs, ours)
        if found.excess > 1:
            message = f"the call leaves its input {which[1]} off by {found.max_abs:.3g}"
            raise Rejected("incorrect_values", "input.values", message)
    if case.train:  # the state after each call is compared with the outputs
        return
    pairs = list(zip(case.expected.state, answer.state, strict=True))
    same = each_same_bits(pairs)
    for slot, before, (ours, theirs), is_same in zip(
        case.state_slots, case.state, pairs, same, strict=True
    ):
        if is_same:
            continue
        if same_bits(ours, before) and not same_bits(theirs, before):
            message = f"the call changed the state `{slot.key}`; the reference does not"
            raise Rejected("mutates_input", "state.mutated", message)
        found = case.difference(theirs, ours)
        if found.excess > 1:
            message = f"the state `{slot.key}` is off by {found.max_abs:.3g} after the calls"
            raise Rejected("incorrect_values", "state.values", message, max_abs_error=found.max_abs)


def compare_values(
    case: Case, answer: Answer, explain: Callable[[list[int]], bool] = lambda _: False
) -> tuple[float, float]:
    """Compare every output of every trial with its budget. Return the largest absolute and
    relative error. Where rounding may be why outputs are off, `explain` learns what rounding may do
    on the inputs of those trials, the worst first, and returns whether that one was not known."""
    assert case.expected is not None
    differences = differences_of(case, answer, case.tolerances)
    found, number, leaf = max(differences, key=lambda one: one[0].excess)
    if found.excess <= 1:
        return (
            max(one.max_abs for one, _, _ in differences),
            max(one.max_rel for one, _, _ in differences),
        )
    if rounding_may_explain(case, found, answer.outputs[number], number, leaf):
        off = {trial for one, trial, _ in differences if one.excess > 1}
        if explain([number, *sorted(off - {number})]):
            return compare_values(case, answer, explain)
    status: Status = "incorrect_values"
    rule = "values.mismatch"
    if found.is_loose:
        status, rule = "precision", "values.precision"
    raise Rejected(
        status,
        rule,
        off_by(case, found, number, leaf)
        + words_on_signs(case, answer.outputs[number], case.expected.outputs[number], leaf),
        evidence=None if found.is_loose else share_of(found, answer.outputs[number][leaf].numel()),
        max_abs_error=found.max_abs,
        max_rel_error=found.max_rel,
    )


def compare_equivalent(
    case: Case, template: Template, answer: Answer, limits: Limits
) -> tuple[float, float]:
    """Compare as `compare_values` does. Where a candidate is off, learn which ties and signs are
    free (ties.py, signs.py), and compare again. Raises Rejected."""

    def explained(numbers: list[int]) -> bool:
        return explain(case, template, limits, numbers)

    try:
        return compare_values(case, answer, explained)
    except Rejected:
        has_ties = settle_ties(case, template, compared_trials(case, answer), limits)
        has_signs = case.signs is None and learn_signs(case, template, limits)
        if not (has_ties or has_signs):
            raise
    return compare_values(case, answer, explained)


def rounding_may_explain(
    case: Case, found: Difference, outputs: list[torch.Tensor], number: int, leaf: int
) -> bool:
    """Return whether few elements of an output are further off than rounding may be. In training in
    bfloat16 that is an eighth of a number, and any of them may be off by a hundredth (`loose`): a
    loss and its gradients are sums of what was rounded before."""
    assert case.expected is not None
    most = MOST_JUMPS * outputs[leaf].numel()
    if found.num_far <= most:
        return True
    if not case.train:
        return False
    expected, truth = case.expected.outputs[number][leaf], case.truth(number)[leaf]
    if not is_inexact(expected) or (near := loose(expected.dtype, case.cast)) <= LOOSE:
        return False
    device, budget = case.accelerator.device, case.tolerances[number][leaf]
    got = settled(case, number, outputs)[leaf]
    return difference(got, expected, truth, budget, device, near).num_far <= most


def less_precise(case: Case, answer: Answer) -> list[Finding]:
    """Report what is right only by the allowed precision and not by the reference's."""
    if not case.strict:
        return []
    differences = differences_of(case, answer, case.strict)
    found, number, leaf = max(differences, key=lambda one: one[0].excess)
    if found.excess <= 1:
        return []
    message = f"{off_by(case, found, number, leaf)}; `precision = {case.precision}` allows it"
    return [Finding(rule="values.precision", message=message)]


Place = tuple[Difference, int, int]
"""A difference, and the numbers of the trial and of the output."""


def differences_of(case: Case, answer: Answer, tolerances: list[list[Tolerance]]) -> list[Place]:
    """Return the difference of every output of every trial."""
    assert case.expected is not None
    return [
        (case.leaf_difference(number, leaf, output, tolerances[number][leaf]), number, leaf)
        for number, outputs in enumerate(answer.outputs)
        if number not in case.unsettled
        for leaf, output in enumerate(settled(case, number, outputs))
    ]


def settled(
    case: Case,
    number: int,
    outputs: list[torch.Tensor],
    expected: list[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """Return outputs of a trial with the reference's choice where signs or ties are free. It is in
    the answer on the trial, or in another one that is `expected`."""
    assert case.expected is not None
    expected = case.expected.outputs[number] if expected is None else expected
    return with_ties(case.ties.get(number), aligned(case.signs, outputs, expected), expected)


def off_by(case: Case, found: Difference, number: int, leaf: int) -> str:
    return (
        f"{describe_leaf(case, number, leaf)} is off by {found.max_abs:.3g} at "
        f"{found.where or 'its only element'} on the inputs `{case.trials[number][0]}`: "
        f"{found.excess:.3g} times the error budget"
    )


def share_of(found: Difference, num_elements: int) -> str:
    """Return how much of an output is wrong: a few elements are an edge case, all of them
    another function."""
    return f"{found.num_far} of {num_elements} elements are further off than any precision explains"


def compare_settings(case: Case, answer: Answer, *, is_patch: bool) -> list[Finding]:
    """Compare settings of the process after the calls with those after the reference's.

    Return changes that are no cheat but affect users who merge the candidate. A text that tunes
    torch's libraries is one: what it gains by less precision is seen in the values. A patch is for
    code that shares a process with other code.

    Raises:
        Rejected: The candidate may not change a setting that it changes.
    """
    assert case.expected is not None
    ours, theirs = (values_of(one.flags) for one in (case.expected, answer))
    changed = {
        key: (value, theirs[key])
        for key, value in ours.items()
        if theirs[key] != value and key != "process"
    }
    shown = [
        Finding(rule=f"state.{key}", message=f"{words}{of_what(*changed[key])}")
        for key, words in SHOWN.items()
        if key in changed
    ]
    flags = {key: pair for key, pair in changed.items() if key in LIBRARY_FLAGS and not is_patch}
    if flags:
        message = (
            f"it changes flags of torch's libraries for the whole process ({shown_changes(flags)})"
        )
        shown.append(Finding(rule="state.flags", message=message))
    rest = {k: pair for k, pair in changed.items() if k not in SHOWN and k not in flags}
    assert case.expected.flags is not None
    assert answer.flags is not None
    own = process_changes(case.expected.flags.process, answer.flags.process)
    refused = {name for name in own if is_refused(name, is_patch=is_patch)}
    if rest or refused:
        text = shown_changes({**rest, **own})
        message = f"it changes settings of the whole process ({text[:1500]})"
        raise Rejected("reward_hack", "state.global", message)
    if own:
        message = f"it changes settings of the whole process ({shown_changes(own)[:1500]})"
        shown.append(Finding(rule="state.process", message=message))
    return shown


def values_of(settings: Settings | None) -> dict[str, Any]:
    """Return settings by name, as they are shown."""
    assert settings is not None
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(settings).items()
    }


def of_what(before: Any, after: Any) -> str:
    """Return names of what was added, removed or changed, as `: A, B and 3 more`; empty where a
    setting has no names. The values of variables are left out: a report is published."""
    if not isinstance(before, list):
        return ""
    differing = sorted({str(one).partition("=")[0] for one in {*before} ^ {*after}})
    more = len(differing) - MOST_NAMES
    said = ", ".join(one[:60] for one in differing[:MOST_NAMES])
    return f": {said} and {more} more" if more > 0 else f": {said}"


def shown_changes(changed: dict[str, tuple[Any, Any]]) -> str:
    """Return changes as `cudnn_benchmark: False -> True`."""
    return ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in changed.items())


LIBRARY_FLAGS = {
    "cudnn_benchmark",
    "cudnn_tf32",
    "deterministic",
    "float32_matmul_precision",
    "mkldnn",
}
MOST_NAMES = 8
SHOWN = {
    "threads": "it leaves threads behind",
    "environment": "it changes environment variables",
    "silences_warnings": "it silences all warnings of the process",
}
