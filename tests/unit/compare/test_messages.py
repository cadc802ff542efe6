"""The author of a change reads of base and head."""

from __future__ import annotations

import msgspec

from cudal1_ci.compare.messages import refusal, said
from cudal1_ci.records import Evaluation, Finding, Verdict
from tests.fakes import a_candidate, a_problem, an_evaluation


def found(status: str, message: str) -> Evaluation:
    evaluation = an_evaluation(a_candidate(a_problem()), "incorrect_values")
    verdict = Verdict(status=status, findings=(Finding(rule="x", message=message),))
    return msgspec.structs.replace(evaluation, verdict=verdict)


def test_reference_and_candidate_are_base_and_head() -> None:
    one = found("mutates_input", "the call changed its input 0; the reference does not")
    assert said(one) == "the call changed its input 0; the base does not"
    assert refusal(one).reason == "the head: the call changed its input 0; the base does not"


def test_outputs_of_another_shape_are_named_with_what_that_means() -> None:
    one = refusal(found("incorrect_shape", "expected outputs of shapes [[2]], got [[3]]"))
    assert one.verdict == "inconclusive"
    assert one.reason == (
        "expected outputs of shapes [[2]], got [[3]]: calls that return other things are not "
        "timed against each other"
    )


def test_a_machine_that_was_too_busy_is_not_one_that_did_not_measure() -> None:
    one = found("inconclusive", "this machine is too busy to measure on")
    assert refusal(one).cause == "unmeasured"
    verdict = Verdict(
        status="inconclusive", findings=(Finding(rule="timing.noisy", message="too busy"),)
    )
    assert refusal(msgspec.structs.replace(one, verdict=verdict)).cause == "noisy"


def test_without_a_finding_there_is_a_reason_still() -> None:
    one = found("runtime_error", "x")
    one = msgspec.structs.replace(one, verdict=Verdict(status="runtime_error"))
    assert refusal(one).reason == "the head fails with what the base takes: it could not be run"
