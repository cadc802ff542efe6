"""Whose failure a failure is."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure
from cudal1_ci.sandboxed.verifier.failures import (
    rejection_of_candidate,
    rejection_of_launch,
    rejection_of_reference,
    side_by_side,
    twice,
)
from tests.unit.sandboxed.messages import text


@pytest.mark.parametrize(
    ("kind", "candidate", "reference"),
    [
        ("died", ("runtime_error", "runner.died"), "reference.died"),
        ("timeout", ("timeout", "runner.timeout"), "reference.timeout"),
        ("raised", ("runtime_error", "program.raised"), "reference.raised"),
    ],
)
def test_a_failure_of_the_reference_names_the_reference(kind, candidate, reference):
    failure = RunnerFailure(kind, "why", log="its last words")
    rejected = rejection_of_candidate(failure, text())
    assert (rejected.status, rejected.finding.rule) == candidate
    for rejected, status in (
        (rejection_of_reference(failure), "invalid_reference"),
        (rejection_of_launch(failure), "inconclusive"),
    ):
        assert (rejected.status, rejected.finding.rule) == (status, reference)
        assert "why" in rejected.finding.message
        assert rejected.log == "its last words"


def failing(*kinds: str | None):
    """An attempt that fails in these ways, one after the other, and the list of its calls."""
    ways, calls = iter(kinds), []

    def attempt(is_last: bool) -> str:
        calls.append(is_last)
        kind = next(ways)
        if kind is not None:
            raise RunnerFailure(kind, kind)
        return "answer"

    return attempt, calls


def test_a_reference_that_died_is_tried_once_more():
    attempt, calls = failing("died", None)
    assert twice(attempt) == "answer"
    assert calls == [False, True]


@pytest.mark.parametrize("kinds", [("died", "died"), ("died", "timeout")])
def test_a_reference_that_fails_again_has_failed(kinds):
    attempt, calls = failing(*kinds)
    with pytest.raises(RunnerFailure, match=kinds[1]):
        twice(attempt)
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["raised", "timeout", "malformed"])
def test_a_reference_that_does_not_die_is_not_tried_again(kind):
    attempt, calls = failing(kind)
    with pytest.raises(RunnerFailure):
        twice(attempt)
    assert calls == [False]


@pytest.mark.parametrize("order", [("candidate", "reference"), ("reference", "candidate")])
def test_where_both_fail_the_failure_is_the_references(order):
    together = threading.Barrier(2, timeout=10)

    def ask(name: str) -> str:
        together.wait()
        raise RunnerFailure("died", name, is_trusted=name == "reference")

    with pytest.raises(RunnerFailure, match="reference"):
        side_by_side(ask, order)


def test_answers_come_in_the_order_of_the_questions_and_one_failure_is_raised():
    assert side_by_side(str.upper, ["a", "b"]) == ["A", "B"]

    def ask(name: str) -> str:
        if name == "candidate":
            raise RunnerFailure("died", name)
        return name

    with pytest.raises(RunnerFailure, match="candidate"):
        side_by_side(ask, ["reference", "candidate", "control"])


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_failure_keeps_nothing_alive(is_trusted):
    class Memory:
        """Of a runner."""

    def ask(number: int) -> None:
        segment = Memory()
        seen.append(weakref.ref(segment))
        if number:
            raise RunnerFailure("died", "why", is_trusted=is_trusted)

    seen: list[weakref.ref[Memory]] = []
    gc.disable()
    try:
        with pytest.raises(RunnerFailure):
            side_by_side(ask, [0, 1, 2])
        assert [segment() for segment in seen] == [None, None, None]
    finally:
        gc.enable()
