"""What runs in an actor of Ray: a Session, and what it says across."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from cudal1_ci import __version__
from cudal1_ci.errors import UnsupportedError
from cudal1_ci.pool.builders import builder_for
from cudal1_ci.pool.seat import Broken
from cudal1_ci.pool.sessions import SessionConfig, judged_by
from cudal1_ci.processes import Executor
from cudal1_ci.processes.elsewhere import BuildsElsewhere
from cudal1_ci.records import Candidate, Device, Evaluation, Problem, Record

T = TypeVar("T")


class Introduction(Record, frozen=True, kw_only=True):
    """What an actor says of itself."""

    version: str
    policy: str
    name: str
    device: Device
    niceness: int
    """Of its process and so of the judge's; above 0 others of the machine go first."""


class Said(Record, frozen=True, kw_only=True):
    """One of the two."""

    evaluation: Evaluation | None = None
    broken: Broken | None = None


class Judge:
    """What runs in the actor: a Session."""

    def __init__(self, config: bytes, device: str, number: int):
        self.config = msgspec.msgpack.decode(config, type=SessionConfig)
        self.number = number
        self.session = self.config.session(device, around=self.around)
        self._problem_id: str | None = None
        self._built: dict[str, Candidate] = {}
        """What of that problem was given to be built, by its id."""

    def around(self, executor: Executor) -> Executor:
        """Builds of a judge with a GPU are made on machines of the cluster that have none."""
        ray = ray_module()
        if not ray.get_gpu_ids():
            return executor
        return BuildsElsewhere(executor, partial(builder_for, ray, self.config, self.number))

    def introduce(self) -> bytes:
        """Starts the judge. Raises: WorkerError, UnsupportedError."""
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray's workers give way to others, unasked
        device = self.session.device()
        ray = ray_module()
        gpus = ray.get_gpu_ids()
        place = f"GPU {gpus[0]}" if gpus else f"CPU #{self.number}"
        said = Introduction(
            version=__version__,
            policy=self.config.trial.policy,
            name=f"{ray.util.get_node_ip_address()} {place}",
            device=device,
            niceness=os.getpriority(os.PRIO_PROCESS, 0),
        )
        return msgspec.msgpack.encode(said)

    # --- for RemoteSession, one question at a time ---

    def check(self, problem: bytes) -> bytes:
        """Raises: WorkerError."""
        return encoded(self.session.check(decoded(problem, Problem)))

    def build_ahead(self, problem: bytes, candidates: bytes) -> bytes:
        """Raises: WorkerError."""
        of, several = decoded(problem, Problem), decoded(candidates, tuple[Candidate, ...])
        if of.id != self._problem_id:
            self._problem_id, self._built = of.id, {}
        self._built |= {one.id: one for one in several}
        self.session.build_ahead(of, several)
        return encoded(True)

    def first_ready(self, candidate_ids: bytes) -> bytes:
        """The place of the first that need not be waited for; waits where there is none."""
        ids = decoded(candidate_ids, tuple[str, ...])
        unbuilt = [place for place, one in enumerate(ids) if one not in self._built]
        if unbuilt:
            return encoded(unbuilt[0])
        first = next(iter(self.session.in_turn([self._built[one] for one in ids])))
        return encoded(ids.index(first.id))

    def evaluate(self, problem: bytes, candidate: bytes) -> bytes:
        """Raises: WorkerError."""
        return encoded(
            self.session.evaluate(decoded(problem, Problem), decoded(candidate, Candidate))
        )

    def profile(self, workload: bytes, is_candidate: bytes) -> bytes:
        """Raises: WorkerError."""
        found = self.session.profile(
            decoded(workload, str), is_candidate=decoded(is_candidate, bool)
        )
        return encoded(found)

    def demand(self, workload: bytes) -> bytes:
        """Raises: WorkerError."""
        return encoded(self.session.demand(decoded(workload, str)))

    # --- for the pool ---

    def judge(self, problem: bytes, candidates: bytes) -> Iterator[bytes]:
        """What becomes of each candidate, as it does."""
        several = msgspec.msgpack.decode(candidates, type=tuple[Candidate, ...])
        for found in judged_by(
            self.session, msgspec.msgpack.decode(problem, type=Problem), several
        ):
            is_broken = isinstance(found, Broken)
            yield msgspec.msgpack.encode(
                Said(broken=found) if is_broken else Said(evaluation=found)  # type: ignore[arg-type]
            )


def encoded(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def decoded(data: bytes, form: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=form)


def ray_module() -> Any:
    """Raises: UnsupportedError."""
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError(
            "Ray is not installed here: `pip install 'cudal1-ci[ray]'`; GPUs of one machine need "
            "none of it"
        ) from error
    return ray
