"""What comes next, and where: pure, so each test is a list of moves."""

from __future__ import annotations

import pytest

from cudal1_ci.pool.line import weight
from cudal1_ci.pool.schedule import Schedule

KIND = "h200"


def a_schedule(*seats: str, **limits: int) -> Schedule:
    schedule = Schedule(**limits)
    for seat in seats:
        schedule.join(seat, KIND)
    return schedule


def ids(problem: str, number: int) -> list[str]:
    return [f"{problem}{index}" for index in range(number)]


def built(problem: str, number: int) -> dict:
    """The same, which compile something and so are taken together."""
    return {"candidate_ids": ids(problem, number), "built": ids(problem, number)}


def finish(schedule: Schedule, seat: str) -> list[str]:
    """Take one batch, and be done with it."""
    batch = schedule.take(seat)
    assert batch is not None
    for one in batch.candidate_ids:
        assert schedule.done(seat, one)
    return list(batch.candidate_ids)


def owned_by(seat: str, others: list[str], number: int) -> list[str]:
    """Problems that are the seat's own."""
    found = (f"problem-{index}" for index in range(10_000))
    own = (one for one in found if all(weight(one, seat) > weight(one, two) for two in others))
    return [next(own) for _ in range(number)]


def test_every_candidate_is_taken_once_by_whoever_asks():
    schedule = a_schedule("a", "b", "c")
    for problem in "xyz":
        schedule.add(problem, ids(problem, 7))
    done: list[str] = []
    while not schedule.is_finished:
        for seat in "abc":
            batch = schedule.take(seat)
            for one in batch.candidate_ids if batch else ():
                assert schedule.done(seat, one)
                done.append(one)
    assert sorted(done) == sorted(ids("x", 7) + ids("y", 7) + ids("z", 7))
    assert (schedule.num_waiting, schedule.num_running) == (0, 0)


def test_a_candidate_that_was_added_before_is_no_second_one():
    schedule = a_schedule("a")
    schedule.add("x", ["x0", "x0", "x1"])
    assert sorted(finish(schedule, "a") + finish(schedule, "a")) == ["x0", "x1"]
    schedule.add("x", ["x0", "x1"])
    assert schedule.take("a") is None
    assert schedule.is_finished


def test_a_second_verdict_is_told_apart_from_the_first():
    schedule = a_schedule("a")
    schedule.add("x", ["x0"])
    schedule.take("a")
    assert schedule.done("a", "x0")
    assert not schedule.done("a", "x0")


def test_a_seat_stays_with_the_problem_whose_reference_it_knows():
    schedule = a_schedule("a", max_batch=2)
    schedule.add("x", **built("x", 6))
    first = finish(schedule, "a")[0][0]
    schedule.add("y", **built("y", 60))
    others = [finish(schedule, "a")[0][0] for _ in range(2)]
    assert {first, *others} == {"x"}
    assert finish(schedule, "a")[0][0] == "y"


def test_a_problem_comes_to_the_same_seat_in_each_run():
    own = owned_by("b", ["a", "c"], 3)
    for order in ("abc", "cba"):
        schedule = a_schedule(*order)
        for problem in own:
            schedule.add(problem, [f"{problem}/0"])
        assert {schedule.take("b").problem_id} <= set(own)


def test_who_leaves_moves_no_problem_of_the_others():
    own = owned_by("b", ["a", "c"], 1)[0]
    schedule = a_schedule("a", "b", "c")
    schedule.add(own, [f"{own}/0"])
    theirs = owned_by("a", ["b", "c"], 1)[0]
    schedule.add(theirs, [f"{theirs}/0"])
    schedule.lost("c")
    assert schedule.take("b").problem_id == own


def test_a_seat_without_own_problems_takes_one_of_the_busiest():
    seats = ["a", "b", "c"]
    schedule = a_schedule(*seats)
    few, many = owned_by("b", ["a", "c"], 1), owned_by("c", ["a", "b"], 3)
    for problem in (*few, *many):
        schedule.add(problem, [f"{problem}/0", f"{problem}/1"])
    assert schedule.take("a").problem_id in many


def test_candidates_of_a_problem_that_is_begun_are_shared_last():
    schedule = a_schedule("a", "b", max_batch=2)
    schedule.add("x", **built("x", 5))
    assert schedule.take("a").candidate_ids == ("x0", "x1")
    assert schedule.take("b").candidate_ids == ("x2",)


def test_the_last_candidate_of_a_problem_is_left_to_who_knows_its_reference():
    schedule = a_schedule("a", "b", max_batch=1)
    schedule.add("x", ids("x", 2))
    schedule.take("a")
    assert schedule.take("b") is None
    schedule.done("a", "x0")
    assert schedule.take("a").candidate_ids == ("x1",)


def test_batches_get_smaller_towards_the_end():
    schedule = a_schedule("a", "b", max_batch=8)
    schedule.add("x", **built("x", 40))
    sizes = []
    while not schedule.is_finished:
        sizes.append(len(finish(schedule, "a")))
    assert sizes[:2] == [8, 8]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


def test_a_seat_has_no_more_than_one_batch():
    schedule = a_schedule("a", max_batch=3)
    schedule.add("x", **built("x", 9))
    assert len(schedule.take("a").candidate_ids) == 3
    with pytest.raises(ValueError, match="a has 3 candidates already"):
        schedule.take("a")


def test_what_compiles_nothing_is_taken_alone():
    schedule = a_schedule("a", max_batch=4)
    schedule.add("x", ids("x", 6), built=["x1", "x3", "x4"])
    batches = []
    while (batch := schedule.take("a")) is not None:
        batches.append(batch.candidate_ids)
        for one in batch.candidate_ids:
            schedule.done("a", one)
    assert batches == [("x0",), ("x1", "x3", "x4"), ("x2",), ("x5",)]


def test_what_a_lost_seat_had_is_taken_by_another_one_by_one():
    schedule = a_schedule("a", "b", max_batch=3)
    schedule.add("x", **built("x", 9))
    had = schedule.take("a").candidate_ids
    schedule.done("a", had[0])
    assert schedule.lost("a") == []
    again: list[str] = []
    while (batch := schedule.take("b")) is not None:
        if set(batch.candidate_ids) & set(had):
            assert len(batch.candidate_ids) == 1
        again += batch.candidate_ids
        for one in batch.candidate_ids:
            schedule.done("b", one)
    assert sorted(again) == sorted(set(ids("x", 9)) - {had[0]})
    assert schedule.is_finished


def test_a_candidate_that_loses_its_seat_again_and_again_is_given_up():
    schedule = a_schedule("a", max_batch=1, num_tries=3)
    schedule.add("x", ["x0"])
    ends = []
    for _ in range(3):
        assert schedule.take("a").candidate_ids == ("x0",)
        ends.append(schedule.lost("a"))
        schedule.join("a", KIND)
    assert ends == [[], [], ["x0"]]
    assert schedule.take("a") is None
    assert schedule.is_finished


def test_a_loss_with_several_counts_for_none_of_them():
    schedule = a_schedule("a", max_batch=4, num_tries=1)
    schedule.add("x", **built("x", 8))
    assert len(schedule.take("a").candidate_ids) == 4
    assert schedule.lost("a") == []
    assert schedule.num_waiting == 8


def test_a_candidate_with_which_a_judge_died_is_tried_elsewhere():
    schedule = a_schedule("a", "b", max_batch=1, num_tries=2)
    schedule.add("x", ["x0"])
    schedule.take("a")
    assert not schedule.broken("a", "x0")
    assert schedule.take("a") is None
    assert schedule.take("b").candidate_ids == ("x0",)
    assert schedule.broken("b", "x0")
    assert schedule.is_finished


def test_where_it_failed_everywhere_it_is_tried_where_it_failed():
    schedule = a_schedule("a", "b", max_batch=1, num_tries=3)
    schedule.add("x", ["x0"])
    for seat in "ab":
        schedule.take(seat)
        schedule.broken(seat, "x0")
    assert schedule.take("a").candidate_ids == ("x0",)


def test_a_problem_stays_on_devices_of_one_kind_while_there_is_one():
    schedule = Schedule(max_batch=2)
    schedule.join("old", "a100")
    schedule.join("new", "h200")
    schedule.add("x", ids("x", 20))
    assert schedule.take("old") is not None
    assert schedule.take("new") is None
    schedule.lost("old")
    assert schedule.take("new").problem_id == "x"


def test_a_problem_that_an_earlier_run_judged_on_a_kind_is_for_that_kind():
    schedule = Schedule()
    schedule.join("old", "a100")
    schedule.join("new", "h200")
    schedule.add("x", ids("x", 4), kind="h200")
    assert schedule.take("old") is None
    assert schedule.take("new") is not None


def test_it_wants_no_more_than_keeps_its_seats_busy():
    schedule = a_schedule("a", "b", max_batch=4)
    schedule.add("x", ids("x", 15))
    assert schedule.wants()
    schedule.add("y", ids("y", 1))
    assert not schedule.wants()
