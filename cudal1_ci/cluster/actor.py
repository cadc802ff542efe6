"""What runs in an actor of Ray: a Session, and what it says across."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from cudal1_ci import __version__
from cudal1_ci.cluster.seat import Broken
from cudal1_ci.cluster.sessions import SessionConfig, judged_by
from cudal1_ci.errors import UnsupportedError
from cudal1_ci.schema import Candidate, Device, Evaluation, Problem, Record


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
        self.session = self.config.session(device)
        self.number = number

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
