"""Check that a call keeps its place among the other work of the caller's stream.

A module's caller continues as if its outputs were there. Later kernels on the same stream read
them, and kernels that have not run yet may write its inputs. A call that works on its own stream
and waits for neither returns the right values later, or reads inputs too early. Times do not show
it: they last until the whole device is done.

So a call is put between two pieces of work of the caller's stream. The stream is busy for some
milliseconds, then writes the inputs, and copies the outputs at once (subject.py). Until they are
written the inputs are NaN. The outputs are compared with those of an ordinary call on the same
inputs by the same process. On a GPU only.
"""

from __future__ import annotations

from ..forkserver.client import Template
from ..forkserver.handles import RunnerHandle
from ..wire.verdicts import Finding
from .cases import Case, Limits, Rejected
from .inputs import InputSet, each_same_bits, scaled

UNORDERED = "values.unordered"
SCALE = 0.875
"""Factor for the first trial's inputs: no memory holds an answer to the result yet."""


def compare_order(
    case: Case, template: Template, runner: RunnerHandle, limits: Limits
) -> list[Finding]:
    """Check the order of a candidate's call. Where the reference does not keep its place either,
    the candidate need not, and the result is reported.

    Raises:
        Rejected: The candidate does not, and the reference does.
        RunnerFailure: A call failed.
    """
    if case.accelerator.kind != "cuda" or changes_state(case) or is_large(case):
        return []
    if not differs(case, runner, limits, is_between=True):
        return []
    if differs(case, runner, limits, is_between=False):
        return []  # the cause is not the order
    with case.runner(template, case.program, limits, is_trusted=True) as reference:
        is_alike = differs(case, reference, limits, is_between=True)
    if is_alike:
        message = "the reference works on a stream that its caller's does not wait for"
        return [Finding(rule="reference.unordered", message=message)]
    message = (
        "between other work of the caller's stream its output is another one: it works on a stream "
        "that does not wait for the inputs, or that nothing waits for"
    )
    raise Rejected("incorrect_values", UNORDERED, message)


def changes_state(case: Case) -> bool:
    """Return whether a second call on the same inputs may have another answer."""
    assert case.expected is not None
    return case.train or not all(
        each_same_bits(list(zip(case.expected.state, case.state, strict=True)))
    )


def is_large(case: Case) -> bool:
    """Return whether a second copy of a call's inputs and outputs may not fit into memory."""
    assert case.expected is not None
    num_bytes = sum(t.nbytes for t in (*case.trials[0][1].tensors, *case.expected.outputs[0]))
    return num_bytes > case.accelerator.memory_bytes() // 4


def differs(case: Case, runner: RunnerHandle, limits: Limits, *, is_between: bool) -> bool:
    """Return whether a call, between other work or not, and an ordinary one after it differ."""
    device, base = case.accelerator.device, case.trials[0][1]
    # It may be in the host's memory, where it takes a second for each gigabyte.
    inputs = scaled(InputSet([one.to(device) for one in base.tensors], base.data), SCALE)
    first = case.answer(runner, limits, sets=[inputs], is_between=is_between).outputs[0]
    second = case.answer(runner, limits, sets=[inputs]).outputs[0]
    return any(one.excess > 1 for one in case.differences(first, second))
