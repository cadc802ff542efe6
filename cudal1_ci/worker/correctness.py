"""The answer that counts: a candidate's outputs against what the judge expects.

Covered: raising, dying, hanging; state_dict keys; structure, shape, dtype, exact type, memory
shared with inputs; inputs, parameters and buffers written to; values against the oracle's budget;
outputs that change after they were returned (all are kept until the last call was made); settings
of the process.
Not covered here: the outputs of timed calls (clock.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cases import Answer, Case, Limits, Rejected
from .compare import Difference, difference, tolerance
from .inputs import same_bits
from .processes import RunnerFailure, RunnerHandle, Template


@dataclass(frozen=True)
class Examined:
    """A candidate that is right."""

    call: dict[str, Any]
    """What the first call returned, as the runner describes it."""
    max_abs_error: float
    max_rel_error: float
    findings: list[dict[str, Any]]


def examine(case: Case, template: Template, program: dict[str, Any], limits: Limits) -> Examined:
    """What is known of a candidate that is right.

    Raises:
        Rejected: It is not, and how.
    """
    try:
        with case.runner(template, program, limits) as runner:
            answer = case.answer(runner, limits)
            special = specialization(case, runner, limits)
    except RunnerFailure as failure:
        raise rejection_of_candidate(failure) from failure
    compare_form(case, answer)
    compare_mutations(case, answer)
    max_abs, max_rel = compare_values(case, answer)
    compare_settings(case, answer)
    findings = []
    if special is not None:
        message = f"it is made for this workload's batch alone: {special}"
        if program["type"] == "tree":  # what is merged is called with other batches too
            raise Rejected("incorrect_shape", "shape.specialized", message)
        findings.append({"rule": "shape.specialized", "message": message})
    return Examined(answer.calls[0], max_abs, max_rel, findings)


def specialization(case: Case, runner: RunnerHandle, limits: Limits) -> str | None:
    """How a candidate fails on a batch of fewer rows, which the reference takes; None where it
    does not."""
    if case.fewer_rows is None:
        return None
    inputs, expected = case.fewer_rows
    rows = inputs.tensors[0].shape[0]
    try:
        got = case.answer(runner, limits, sets=[inputs])
    except RunnerFailure as failure:
        return f"with {rows} rows, {failure.message[:300]}"
    for want, have in zip(expected.calls, got.calls, strict=True):
        if [s["shape"] for s in want["slots"]] != [s["shape"] for s in have["slots"]]:
            return f"with {rows} rows its outputs have other shapes"
    for ours, theirs in zip(expected.outputs[0], got.outputs[0], strict=True):
        if ours.dtype != theirs.dtype:
            return f"with {rows} rows its outputs have other dtypes"
        found = difference(theirs, ours, None, tolerance(ours, None, case.given))
        if found.excess > 1:
            return f"with {rows} rows it is off by {found.max_abs:.3g}"
    return None


def rejection_of_candidate(failure: RunnerFailure) -> Rejected:
    """How a candidate failed to answer."""
    if failure.kind == "timeout":
        return Rejected("timeout", "runner.timeout", failure.message, log=failure.log)
    if failure.kind == "died":
        return Rejected("runtime_error", "runner.died", failure.message, log=failure.log)
    if failure.error.get("stage") == "import":
        return Rejected("compile_error", "program.import", failure.message, log=failure.log)
    rule = "memory.exhausted" if is_out_of_memory(failure) else "program.raised"
    return Rejected("runtime_error", rule, failure.message, log=failure.log)


def is_out_of_memory(failure: RunnerFailure) -> bool:
    """torch's allocators raise RuntimeErrors that only their text tells apart."""
    text = failure.message.lower()
    return "memoryerror" in text or "can't allocate memory" in text or "out of memory" in text


def compare_form(case: Case, answer: Answer) -> None:
    """Structure, shapes, dtypes, types and sharing of memory."""
    assert case.expected is not None
    for number, (want, got) in enumerate(zip(case.expected.calls, answer.calls, strict=True)):
        on = f"on the inputs `{case.trials[number][0]}`"
        if want["structure"] != got["structure"]:
            raise Rejected(
                "incorrect_shape",
                "output.structure",
                f"the output's structure differs {on}",
                evidence=f"expected {want['structure'][:300]}, got {got['structure'][:300]}",
            )
        shapes = [slot["shape"] for slot in want["slots"]]
        if shapes != [slot["shape"] for slot in got["slots"]]:
            got_shapes = [slot["shape"] for slot in got["slots"]]
            message = f"expected outputs of shapes {shapes}, got {got_shapes} {on}"
            raise Rejected("incorrect_shape", "output.shape", message)
        dtypes = [slot["dtype"] for slot in want["slots"]]
        if dtypes != [slot["dtype"] for slot in got["slots"]]:
            got_dtypes = [slot["dtype"] for slot in got["slots"]]
            message = f"expected outputs of dtypes {dtypes}, got {got_dtypes} {on}"
            raise Rejected("incorrect_dtype", "output.dtype", message)
        if want["types"] != got["types"]:
            message = f"expected outputs of types {want['types']}, got {got['types']} {on}"
            raise Rejected("reward_hack", "output.type", message)
        for leaf, (ours, theirs) in enumerate(zip(want["aliases"], got["aliases"], strict=True)):
            if set(theirs) - set(ours):
                message = f"output {leaf} shares memory with an input; the reference's does not"
                raise Rejected("mutates_input", "output.aliases_input", message)


def compare_mutations(case: Case, answer: Answer) -> None:
    """Inputs and state must hold what was written, unless the reference changes them too, and then
    as it does."""
    assert case.expected is not None
    extra = sorted(set(answer.mutated) - set(case.expected.mutated))
    if extra:
        name = case.trials[extra[0]][0]
        message = f"the call changed its inputs `{name}`; the reference does not"
        raise Rejected("mutates_input", "input.mutated", message)
    if case.train:  # the state after each call is compared with the outputs
        return
    for slot, before, ours, theirs in zip(
        case.state_slots, case.state, case.expected.state, answer.state, strict=True
    ):
        if same_bits(ours, before) and not same_bits(theirs, before):
            message = f"the call changed the state `{slot['key']}`; the reference does not"
            raise Rejected("mutates_input", "state.mutated", message)
        found = difference(theirs, ours, None, tolerance(ours, None, case.given))
        if found.excess > 1:
            message = f"the state `{slot['key']}` is off by {found.max_abs:.3g} after the calls"
            raise Rejected("incorrect_values", "state.values", message, max_abs_error=found.max_abs)


def compare_values(case: Case, answer: Answer) -> tuple[float, float]:
    """Every output of every trial within its budget; the largest absolute and relative error."""
    differences = [
        (leaf_difference(case, number, leaf, output), number, leaf)
        for number, outputs in enumerate(answer.outputs)
        for leaf, output in enumerate(outputs)
    ]
    found, number, leaf = max(differences, key=lambda one: one[0].excess)
    if found.excess <= 1:
        return (
            max(one.max_abs for one, _, _ in differences),
            max(one.max_rel for one, _, _ in differences),
        )
    status, rule = "incorrect_values", "values.mismatch"
    if found.is_loose:
        status, rule = "precision", "values.precision"
    where = describe_leaf(case, number, leaf)
    raise Rejected(
        status,
        rule,
        f"{where} is off by {found.max_abs:.3g} at {found.where or 'its only element'} on the "
        f"inputs `{case.trials[number][0]}`: {found.excess:.3g} times the error budget",
        max_abs_error=found.max_abs,
        max_rel_error=found.max_rel,
    )


def leaf_difference(case: Case, number: int, leaf: int, output: Any) -> Difference:
    """One output against reference and oracle."""
    assert case.expected is not None
    return difference(
        output,
        case.expected.outputs[number][leaf],
        case.oracle[number][leaf] if case.oracle else None,
        case.tolerances[number][leaf],
    )


def describe_leaf(case: Case, number: int, leaf: int) -> str:
    """`output 0`, or which gradient or state tensor a compared leaf is."""
    assert case.expected is not None
    num_leaves = case.expected.calls[number]["num_leaves"]
    if leaf < num_leaves:
        return f"output {leaf}"
    num_states = len(case.state_slots)
    num_compared = len(case.expected.outputs[number])
    if leaf >= num_compared - num_states:
        return f"state `{case.state_slots[leaf - num_compared + num_states]['key']}` after the call"
    return f"gradient {leaf - num_leaves}"


def compare_settings(case: Case, answer: Answer) -> None:
    """Settings of the process after the calls, against those after the reference's."""
    assert case.expected is not None
    changed = {
        key: (value, answer.flags.get(key))
        for key, value in case.expected.flags.items()
        if answer.flags.get(key) != value
    }
    if changed:
        text = ", ".join(f"{key}: {a} -> {b}" for key, (a, b) in changed.items())
        message = f"it changes settings of the whole process ({text})"
        raise Rejected("reward_hack", "state.global", message)
