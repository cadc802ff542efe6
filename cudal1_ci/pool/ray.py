"""Open slots on a cluster: a Session in an actor of Ray for each GPU, on whichever machine that is.

    with RayBackend(config, address="auto") as backend: ...

Ray grants each actor a GPU, which is the only one that it sees, and finds another machine for it
when its own is gone. On that GPU the verifier still waits for others of the machine
(processes/lock.py): what Ray grants is known to Ray alone. Without GPUs there is one slot for each
machine, since two on one processor would only take turns.

Every machine of the cluster has the same version of this package, and of Ray and Python. Records
cross as bytes. Where an actor is gone, such as one whose machine was taken away, Ray raises an
exception, which becomes a `SlotLost`; how often is tried again is the pool's.

Not covered: programs of a checkout need it at the same path on every machine. Anyone who reaches a
cluster of Ray can run anything on it: it belongs into a network of its own (docs/cluster.md).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Self

import msgspec

from cudal1_ci import __version__
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.pool.actor import (
    Introduction,
    RemoteVerifier,
    VerifierActor,
    ray_module,
    translated_errors,
)
from cudal1_ci.pool.config import SessionConfig
from cudal1_ci.pool.slots import SlotLost

OWN_CLUSTER = (
    "RAY_USAGE_STATS_ENABLED",
    "RAY_worker_niceness",
    "RAY_prestart_worker_first_driver",
)
"""Switched off in a cluster that is started here: what it reports, that verifiers give way to
others, and workers for each processor core before there is work, which wake up again and again
while something is timed."""
START_S = 600.0
"""Until an actor has a device and a verifier. A cluster that grows by itself starts a machine."""
POLL_S = 1.0
NICE = (
    "verifiers here have the niceness {}, so that what else runs disturbs their times: start Ray "
    "with RAY_worker_niceness=0 in its environment"
)


class RayBackend:
    """Connect to a cluster, and disconnect if this process was not connected before."""

    actor_class: type = VerifierActor

    def __init__(
        self,
        config: SessionConfig,
        *,
        address: str = "auto",
        device: str = "auto",
        num_slots: int | None = None,
    ):
        """
        Args:
            address: `auto` is the cluster that this machine belongs to, `host:6379` one of several;
                `local` starts one on this machine alone.
            device: `cuda`, `cpu`, or `auto`: `cuda` where the cluster has a GPU.
            num_slots: None is one for each GPU of the cluster as it is now, or for each machine.
        """
        if device not in ("auto", "cuda", "cpu"):
            raise ConfigError(
                f"device: expected cuda, cpu or auto, as Ray chooses which GPU, got {device}"
            )
        self.config, self.address, self.device = config, address, device
        self.num_wanted = num_slots
        self.num_slots = 0
        self.ray = ray_module()
        self.is_ours = False

    def __enter__(self) -> Self:
        ray = self.ray
        if not ray.is_initialized():
            for name in OWN_CLUSTER:
                os.environ.setdefault(name, "0")
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # of a node that does not start, Ray raises just that
                raise UnsupportedError(
                    f"address {self.address}: no cluster of Ray answers ({error}); start one with "
                    "`ray start --head`, or give the address of its head"
                ) from error
            self.is_ours = True
            silence(ray)
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        if self.device == "auto":
            self.device = "cuda" if num_gpus else "cpu"
        num_machines = sum(node["Alive"] for node in ray.nodes())
        num_there = num_gpus if self.device == "cuda" else num_machines
        self.num_slots = self.num_wanted or num_there
        if not self.num_slots:
            self.__exit__()
            raise UnsupportedError(f"the cluster at {self.address} has no GPU; use --device cpu")
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_ours:
            self.ray.shutdown()
            self.is_ours = False

    def open(self, number: int, is_over: Callable[[], bool]) -> RaySlot:
        """Start an actor. Raises: SlotLost, UnsupportedError, ConfigError."""
        is_gpu = self.device == "cuda"
        actor = (
            self.ray.remote(self.actor_class)
            .options(num_cpus=1, num_gpus=int(is_gpu), max_restarts=0, scheduling_strategy="SPREAD")
            .remote(msgspec.msgpack.encode(self.config), self.device, number)
        )
        try:
            said = self._introduction(actor, is_over)
        except BaseException:
            end(self.ray, actor)
            raise
        return RaySlot(self.ray, actor, said)

    def _introduction(self, actor: Any, is_over: Callable[[], bool]) -> Introduction:
        """Wait until it says what it is."""
        reference = actor.introduce.remote()
        deadline_s = time.monotonic() + START_S
        while not self.ray.wait([reference], timeout=POLL_S)[0]:
            if is_over() or time.monotonic() > deadline_s:
                raise SlotLost(f"no machine had a device for it within {START_S:.0f} s")
        with translated_errors(self.ray):
            reply = self.ray.get(reference)
        said = msgspec.msgpack.decode(reply, type=Introduction)
        # As it was read there: 20 in a field of seconds is 20.0 then, and has another hash.
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(self.config), type=SessionConfig)
        ours = (__version__, read.trial.policy)
        if (said.version, said.policy) != ours:
            raise ConfigError(
                f"{said.name}: expected cudal1-ci {__version__}, as here, got {said.version} or "
                "other rules; install the same version on every machine of the cluster"
            )
        return said


class RaySlot:
    """An actor that has said what it is."""

    def __init__(self, ray: Any, actor: Any, said: Introduction):
        self.ray, self.actor = ray, actor
        self.name, self.device = said.name, said.device
        self.verifier = RemoteVerifier(ray, actor, said.device)
        self.remark = NICE.format(said.niceness) if said.niceness > 0 else None

    def close(self) -> None:
        """End the actor and all that it has started."""
        end(self.ray, self.actor)


def end(ray: Any, actor: Any) -> None:
    """Kill an actor, which may be gone already."""
    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor)


def silence(ray: Any) -> None:
    """Keep Ray from printing what has become of its processes: it takes stdout for that, which is
    the result's, and the switch is the one that its own debugger uses."""
    with contextlib.suppress(AttributeError):
        ray._private.worker._worker_logs_enabled = False
