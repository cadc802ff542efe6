"""Work that comes while workers are at it."""

from __future__ import annotations

import zlib

import pytest

from model_training.work_queue import WorkQueue, at_work

ALL = [str(number) for number in range(40)]
OWN = [one for one in ALL if zlib.crc32(one.encode()) % 2 == 0]


def test_all_that_comes_is_worked_on_once():
    pieces, done = WorkQueue(3, str), []
    pieces.put(ALL[0])
    with at_work(pieces, "abc", lambda _, piece: done.append(piece)):
        for one in ALL[1:]:
            pieces.put(one)
    assert sorted(done) == sorted(ALL)


def test_a_piece_that_waits_alone_is_left_to_its_worker_while_more_may_come():
    pieces = WorkQueue(2, str)
    for one in OWN[:3]:
        pieces.put(one)
    assert pieces.take(1) == OWN[2] and pieces.take(1) == OWN[1]
    pieces.put(OWN[3])
    assert pieces.take(0) == OWN[0]
    pieces.close()
    assert pieces.take(1) == OWN[3] and pieces.take(1) is None


def test_the_first_error_of_a_worker_ends_it_all():
    pieces, done = WorkQueue(1, str), []

    def work(worker, piece):
        done.append(piece)
        raise KeyError(piece)

    for one in ALL:
        pieces.put(one)
    with pytest.raises(KeyError, match="'0'"), at_work(pieces, "a", work):
        pass
    assert done == ["0"]


def test_an_error_of_who_brings_the_pieces_ends_it_too():
    pieces = WorkQueue(2, str)
    with pytest.raises(RuntimeError, match="no more"), at_work(pieces, "ab", lambda *_: None):
        raise RuntimeError("no more")
    assert pieces.take(0) is None


def test_a_key_comes_back_to_who_had_it_last_wherever_that_was():
    homes: dict[str, int] = {}
    pieces = WorkQueue(2, str, homes)
    for one in OWN[:3]:
        pieces.put(one)
    assert pieces.take(1) == OWN[2], "another has taken it"
    assert [pieces.take(0), pieces.take(0)] == OWN[:2]
    again = WorkQueue(2, str, homes)
    for one in OWN[:3]:
        again.put(one)
    again.close()
    assert again.take(1) == OWN[2]
    assert again.take(0) == OWN[0]


def test_what_nobody_has_learned_of_is_taken_over_first():
    pieces = WorkQueue(2, str, {OWN[1]: 0, OWN[3]: 0})
    for one in OWN[:4]:
        pieces.put(one)
    pieces.close()
    assert [pieces.take(1) for _ in range(4)] == [OWN[2], OWN[0], OWN[3], OWN[1]]
    assert set(pieces.homes.values()) == {1}
