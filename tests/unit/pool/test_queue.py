"""Leases, affinity and retries, without threads and under a clock of the test."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ConfigError, WorkerError
from cudal1_ci.pool.config import RetryLimits
from cudal1_ci.pool.queue import KIND_S, Outcome, WorkQueue

H100, CPU = "an H100", "a processor"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def a_queue(items="abcd", kinds=(H100, H100), *, limits=None, is_over=lambda: False, **named):
    """A queue whose slots have joined, those with None for a kind excepted."""
    queue: WorkQueue[str, str] = WorkQueue(
        items, range(len(kinds)), limits or RetryLimits(), is_over, **named
    )
    for slot, kind in enumerate(kinds):
        if kind is not None:
            queue.join(slot, kind)
    return queue


def leased(queue, slot):
    lease = queue.lease_now(slot)
    return lease and lease.item.value


def lose(queue, slot, kind=H100):
    """Lose a slot, which comes back."""
    queue.lose(slot, f"slot-{slot}", "killed")
    if queue.may_open(slot):
        queue.join(slot, kind)


def completed(queue, slot):
    """Complete the next item of a slot; which one it was."""
    lease = queue.lease_now(slot)
    if lease is None:
        return None
    queue.complete(lease, f"done {lease.item.value}")
    return lease.item.value


def test_items_are_leased_in_their_order_and_outcomes_are_in_it_too():
    queue = a_queue("abc")
    first, second = queue.lease_now(0), queue.lease_now(1)
    assert (first.item.value, second.item.value) == ("a", "b")
    queue.complete(second, "B")
    queue.complete(first, "A")
    assert leased(queue, 1) == "c"
    assert queue.num_left == 1
    assert queue.outcomes == [Outcome(result="A"), Outcome(result="B"), Outcome()]


def test_a_lost_slot_returns_its_lease_to_another_slot():
    queue = a_queue()
    assert leased(queue, 0) == "a"
    queue.lose(0, "slot-0", "killed")
    queue.join(0, H100)
    assert leased(queue, 0) == "b", "not with the one that was lost with it"
    assert leased(queue, 1) == "a"
    assert queue.last_loss == "slot-0: killed"


def test_where_there_is_no_other_slot_the_same_one_tries_again():
    queue = a_queue(kinds=(H100,))
    assert leased(queue, 0) == "a"
    lose(queue, 0)
    assert [completed(queue, 0) for _ in "abcd"] == list("abcd")
    assert queue.is_done()


def test_an_item_that_is_lost_too_often_is_given_up_with_its_reason():
    queue = a_queue("ab", kinds=(H100,))
    for _ in range(3):
        assert leased(queue, 0) == "a"
        lose(queue, 0)
    assert queue.outcomes[0].reason == "its verifier died 3 times: killed"
    assert completed(queue, 0) == "b"
    assert queue.error is None


def test_no_slot_is_blamed_for_an_item_that_is_given_up():
    queue = a_queue("abcd", kinds=(H100,), limits=RetryLimits(max_losses=4))
    for item in "abc":
        for _ in range(3):
            assert leased(queue, 0) == item
            lose(queue, 0)
    assert queue.num_losses[0] == 0
    assert completed(queue, 0) == "d"


def test_when_every_item_is_given_up_it_is_not_the_items():
    queue = a_queue("abcdefg", kinds=(H100,))
    while queue.error is None:
        assert leased(queue, 0)
        lose(queue, 0)
    assert isinstance(queue.error, WorkerError)
    assert str(queue.error) == "with 5 in a row its verifier died 3 times: killed"
    assert queue.is_done()
    assert [one.reason is not None for one in queue.outcomes] == [True] * 5 + [False] * 2


def test_a_completed_item_ends_the_row_of_those_that_are_given_up():
    queue = a_queue("abcd", kinds=(H100,), limits=RetryLimits(max_tries=1, max_given_up=2))
    for item in "abcd":
        if item in "bd":
            assert completed(queue, 0) == item
        else:
            assert leased(queue, 0) == item
            lose(queue, 0)
    assert queue.error is None


def test_a_slot_that_is_lost_in_a_row_is_not_opened_again():
    queue = a_queue(kinds=(H100, H100), limits=RetryLimits(max_losses=2))
    lose(queue, 0)
    assert queue.may_open(0)
    lose(queue, 0)
    assert not queue.may_open(0)
    queue.leave(0)
    assert [completed(queue, 1) for _ in "abcd"] == list("abcd")


def test_a_completed_item_clears_a_slot():
    queue = a_queue(kinds=(H100,), limits=RetryLimits(max_losses=2))
    lose(queue, 0)
    assert completed(queue, 0) == "a"
    lose(queue, 0)
    assert queue.may_open(0)


def test_a_held_result_counts_when_the_slot_is_there_again():
    queue = a_queue(kinds=(H100,))
    queue.hold(queue.lease_now(0), "half of a")
    assert queue.outcomes[0] == Outcome()
    queue.join(0, H100)
    assert queue.outcomes[0] == Outcome(result="half of a")
    assert leased(queue, 0) == "b"


def test_a_held_result_is_dropped_when_the_slot_is_lost():
    queue = a_queue()
    queue.hold(queue.lease_now(0), "half of a")
    queue.lose(0, "slot-0", "no such device")
    assert queue.outcomes[0] == Outcome()
    assert completed(queue, 1) == "a"
    assert queue.outcomes[0] == Outcome(result="done a")


def test_a_held_result_counts_rather_than_none():
    queue = a_queue(kinds=(H100,), limits=RetryLimits(max_tries=1))
    queue.hold(queue.lease_now(0), "half of a")
    queue.lose(0, "slot-0", "no such device")
    assert queue.outcomes[0] == Outcome(result="half of a")


def test_a_slot_that_leaves_returns_its_lease():
    queue = a_queue()
    assert leased(queue, 0) == "a"
    queue.leave(0)
    assert leased(queue, 1) == "a"


def test_an_item_goes_to_a_slot_of_the_kind_that_has_begun_it():
    queue = a_queue(
        kinds=(H100, CPU), begun_on=lambda item: frozenset([CPU] if item in "ab" else [])
    )
    assert leased(queue, 0) == "c"
    assert leased(queue, 1) == "a"


def test_an_item_waits_for_its_kind_only_while_a_slot_may_come():
    clock = Clock()
    queue = a_queue("a", (H100, None), begun_on=lambda item: frozenset([CPU]), clock=clock)
    assert leased(queue, 0) is None
    clock.now_s = KIND_S
    assert leased(queue, 0) == "a"


def test_an_item_whose_kind_does_not_come_goes_to_another():
    queue = a_queue("a", (H100, None), begun_on=lambda item: frozenset([CPU]))
    assert leased(queue, 0) is None
    queue.leave(1)
    assert leased(queue, 0) == "a"


def test_what_has_begun_an_item_is_asked_again_when_it_is_returned():
    begun = {"a": frozenset[str]()}
    queue = a_queue("a", (H100, CPU), begun_on=begun.__getitem__)
    assert leased(queue, 0) == "a"
    begun["a"] = frozenset([H100])
    lose(queue, 0)
    assert leased(queue, 1) is None
    assert leased(queue, 0) == "a"


def test_items_of_one_problem_go_to_the_slot_that_knows_it():
    items = ["p1", "p2", "q1", "p3", "r1", "q2"]
    queue = a_queue(items, problem_of=lambda item: item[0])
    first, second = queue.lease_now(0), queue.lease_now(1)
    assert (first.item.value, second.item.value) == ("p1", "q1"), "the other one knows p"
    queue.complete(second, "")
    assert completed(queue, 1) == "q2"
    queue.complete(first, "")
    assert [completed(queue, 0) for _ in "pp"] == ["p2", "p3"]
    assert completed(queue, 0) == "r1"


def test_a_slot_with_nothing_of_its_own_takes_part_in_a_problem_that_another_knows():
    queue = a_queue(["p1", "p2"], problem_of=lambda item: item[0])
    assert leased(queue, 0) == "p1"
    assert leased(queue, 1) == "p2"


def test_a_verifier_that_was_lost_knows_nothing_any_more():
    queue = a_queue(["p1", "q1", "p2"], problem_of=lambda item: item[0])
    assert completed(queue, 0) == "p1"
    lose(queue, 0)
    assert leased(queue, 0) == "q1", "in their order again"


def test_once_it_is_over_nothing_is_leased():
    queue = a_queue(is_over=lambda: True)
    assert queue.lease(0) is None
    assert not queue.may_open(0)


def test_whether_it_is_over_is_not_asked_where_nothing_is_left_out():
    asked = []
    queue = a_queue("a", (H100,), is_over=lambda: asked.append(1) is None)
    assert not asked
    lease = queue.lease_now(0)
    assert not queue.is_done(), "one is under way, and none waits"
    queue.complete(lease, "")
    assert queue.is_done()
    assert not asked


def test_the_first_failure_counts_and_ends_the_queue():
    queue = a_queue()
    first = WorkerError("first")
    queue.fail(first)
    queue.fail(WorkerError("second"))
    assert queue.error is first
    assert queue.lease(0) is None
    queue.wait()


def test_limits_are_at_least_one():
    with pytest.raises(ConfigError, match="max-tries: expected 1 or more, got 0"):
        RetryLimits(max_tries=0)


def test_what_is_worth_most_is_leased_first_and_an_open_item_waits_for_its_next_turn():
    worth = {"a": 1.0, "b": 3.0, "c": 2.0}
    queue = a_queue("abc", worth=lambda item: worth[item], is_open=lambda item: worth[item] > 0)
    assert completed(queue, 0) == "b"
    worth["b"] = 1.5
    assert [completed(queue, slot) for slot in (0, 1)] == ["c", "c"], "still worth 2"
    worth["c"] = 0.0
    lease = queue.lease_now(0)
    assert lease.item.value == "b", "c is not worth anything now, but was not done"
    assert leased(queue, 1) == "a"
    worth["b"] = 0.0
    queue.complete(lease, "done b")
    assert not queue.is_done() and queue.outcomes[1] == Outcome(result="done b")
    assert completed(queue, 0) == "c"
    assert queue.outcomes[2] == Outcome(result="done c")
