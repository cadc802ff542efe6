"""What the judge waited for its runners."""

from __future__ import annotations

import threading
import time

import pytest

from cudal1_ci.worker.spent import Spent


def test_what_was_waited_for_side_by_side_is_added_and_told_once():
    spent = Spent()

    def wait() -> None:
        with spent.over("load"):
            time.sleep(0.05)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times, seconds = spent.taken()["load"]
    assert times == 3
    assert 0.15 <= seconds < 5
    assert spent.taken() == {}


def test_what_fails_took_its_time_too():
    spent = Spent()
    with pytest.raises(RuntimeError), spent.over("call"):
        raise RuntimeError
    assert spent.taken()["call"][0] == 1
