"""Work spread over the GPUs of a host, and over the hosts of a cluster.

    with Archive.open(path) as archive:
        seats = LocalSeats(config, devices=("cuda:0", "cuda:1"))
        for judged in evaluate_all(tasks, seats, archive, config.trial.policy):
            judged.evaluation

A *seat* is a judge with a device for itself: a Session in a thread of this process (`local.py`), or
one in an actor of Ray (`ray.py`, `actor.py`). What is sent to a seat are candidates of one problem,
and not what is said to a judge: a judge keeps the reference that it has checked. `schedule.py`
decides what comes next where; it knows neither time nor threads nor Ray. `pool.py` has a thread for
each seat, `board.py` what they share, with the archive and what happens when a seat is lost.
`view.py` shows it.

Where what is tried next depends on what came before, as in `bench`, `scan` and `sweep`, a seat has
a whole task: `turns.py` lends its judge (`lent.py`; of an actor `remote.py`), `turn_queue.py` knows
who has which turn, `turns_view.py` shows it.

Not a part of `executor/`, which knows processes and nothing of what they compute: a seat is above
the trial, and whoever has an Executor can have a seat with it.
"""

from cudal1_ci.pool.board import Limits
from cudal1_ci.pool.local import LocalSeats
from cudal1_ci.pool.pool import evaluate_all
from cudal1_ci.pool.ray import RaySeats
from cudal1_ci.pool.seat import Broken, Seat, SeatLost, Seats
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.pool.turns import Row
from cudal1_ci.pool.work import Judged, Task

__all__ = [
    "Broken",
    "Judged",
    "Limits",
    "LocalSeats",
    "RaySeats",
    "Row",
    "Seat",
    "SeatLost",
    "Seats",
    "SessionConfig",
    "Task",
    "evaluate_all",
]
