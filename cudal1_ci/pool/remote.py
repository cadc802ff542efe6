"""A judge in an actor of Ray, asked as if it were a Session here.

What is asked and answered crosses as bytes. That the judge died is a WorkerError, as of a Session,
and the actor starts another one; that the actor or its machine is gone is a SeatLost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cudal1_ci.pool.told import told
from cudal1_ci.records import Candidate, Demand, Device, Evaluation, Problem, Verdict
from cudal1_ci.verification.prebuild import POLL_S, compiles


class RemoteSession:
    """What a `Session` is asked, of an actor (`actor.Judge`) that measures on that device."""

    def __init__(self, ray: Any, actor: Any, device: Device):
        self._ray, self._actor, self._device = ray, actor, device

    def device(self) -> Device:
        """What is measured on, as the actor said of itself when it began."""
        return self._device

    def check(self, problem: Problem) -> Verdict:
        """Raises: WorkerError, SeatLost."""
        verdict: Verdict = self._asked("check", problem, form=Verdict)
        return verdict

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        """Only what compiles anything is sent. Raises: WorkerError, SeatLost."""
        built = tuple(one for one in candidates if compiles(one.program))
        if built:
            self._asked("build_ahead", problem, built, form=bool)

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[Candidate]:
        """All of them, those last that are still being built. Once it `is_over` none is waited
        for; the actor, which may wait still, is asked nothing more then. Raises: SeatLost."""
        left = list(candidates)
        while left:
            is_built = any(compiles(one.program) for one in left)
            yield left.pop(self._first_ready(left, is_over) if is_built else 0)

    def _first_ready(self, candidates: Sequence[Candidate], is_over: Callable[[], bool]) -> int:
        with told(self._ray, is_judge_kept=True):
            asked = self._begun("first_ready", tuple(one.id for one in candidates))
            while not self._ray.wait([asked], timeout=POLL_S)[0]:
                if is_over():
                    return 0
            reply = self._ray.get(asked)
        return msgspec.msgpack.decode(reply, type=int)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Raises: WorkerError, SeatLost."""
        found: Evaluation = self._asked("evaluate", problem, candidate, form=Evaluation)
        return msgspec.structs.replace(found, candidate=candidate)

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        """Raises: WorkerError, SeatLost."""
        form = list[dict[str, Any]] | str
        found: list[dict[str, Any]] | str = self._asked(
            "profile", workload, is_candidate, form=form
        )
        return found

    def demand(self, workload: str) -> Demand | str:
        """Raises: WorkerError, SeatLost."""
        found: Demand | str = self._asked("demand", workload, form=Demand | str)
        return found

    def _asked(self, method: str, *arguments: Any, form: Any) -> Any:
        with told(self._ray, is_judge_kept=True):
            reply = self._ray.get(self._begun(method, *arguments))
        return msgspec.msgpack.decode(reply, type=form)

    def _begun(self, method: str, *arguments: Any) -> Any:
        """What Ray calls the answer that is to come."""
        encoded = [msgspec.msgpack.encode(one) for one in arguments]
        return getattr(self._actor, method).remote(*encoded)
