"""What Ray says of an actor, as what it means for a seat."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cudal1_ci.errors import CudaL1Error, WorkerError
from cudal1_ci.pool.seat import SeatLost

MAX_CHARS = 200


@contextlib.contextmanager
def told(ray: Any, *, is_judge_kept: bool = False) -> Iterator[None]:
    """Raises SeatLost for an actor that is gone, and what the actor raised itself. A judge that
    died there is a lost seat too, unless the actor is kept and starts another one."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, WorkerError) and not is_judge_kept:
            raise SeatLost(str(error.cause)) from error
        if isinstance(error.cause, CudaL1Error):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise SeatLost(" ".join(str(error).split())[:MAX_CHARS]) from error
