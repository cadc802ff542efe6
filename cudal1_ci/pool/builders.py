"""Builders on those machines of a cluster of Ray that have no GPU.

A seat's judge has its builder on its own machine, and beside it an actor of Ray on a machine
without a GPU, where there is one: it takes processor cores that Ray grants, and none that anything
is timed beside. The seats share these machines evenly. An actor ends with its seat.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from cudal1_ci.errors import CudaL1Error, WorkerError
from cudal1_ci.pool.seat import SeatLost
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.pool.told import told
from cudal1_ci.processes import Local
from cudal1_ci.verification.prebuild import store_of

MORE_S = 10.0
"""For a message across, beyond what the builder may take."""


class Builder:
    """What runs in the actor: a builder, with that machine's own store."""

    def __init__(self, config: bytes, part: int, num_parts: int):
        read = msgspec.msgpack.decode(config, type=SessionConfig)
        cores = sorted(os.sched_getaffinity(0))
        cores = (
            cores[part * len(cores) // num_parts : (part + 1) * len(cores) // num_parts] or cores
        )
        self.own = {
            "store": store_of(read.builds),
            "cores": cores,
            "num_at_once": min(read.builds.num_processes or len(cores), len(cores)),
        }
        executor = Local(read.python) if read.python else Local()
        self.stack = contextlib.ExitStack()
        self.worker = self.stack.enter_context(
            executor.start("builder", num_threads=read.trial.threads, device="none")
        )

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        """As of `sandboxed/builds/builder.py`. Raises: WorkerError."""
        message: dict[str, Any] = msgspec.msgpack.decode(request)
        if message["op"] == "open":
            message |= self.own
        return msgspec.msgpack.encode(self.worker.ask(message, timeout_s))


class RemoteBuilder:
    """An actor, asked from another machine."""

    def __init__(self, ray: Any, actor: Any):
        self.ray, self.actor = ray, actor

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Raises: WorkerError, whatever it is that failed there."""
        try:
            with told(self.ray):
                begun = self.actor.ask.remote(msgspec.msgpack.encode(request), timeout_s)
                # Until Ray grants an actor its cores, which may be somebody else's, no longer.
                reply = self.ray.get(begun, timeout=timeout_s + MORE_S)
        except (SeatLost, CudaL1Error, self.ray.exceptions.RayError) as error:
            raise WorkerError(f"the builder elsewhere is gone: {error}") from error
        found: dict[str, Any] = msgspec.msgpack.decode(reply)
        return found

    def close(self) -> None:
        """End the actor and what it builds."""
        with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
            self.ray.kill(self.actor)


def builder_for(ray: Any, config: SessionConfig, number: int) -> RemoteBuilder | None:
    """One for the seat of that number; None where every machine has a GPU.

    Raises:
        WorkerError: Ray does not answer.
    """
    try:
        nodes = machines_without_gpu(ray.nodes())
        num_seats = max(1, int(ray.cluster_resources().get("GPU", 0)))
    except ray.exceptions.RayError as error:
        raise WorkerError(f"Ray does not answer: {error}") from error
    if not nodes or config.builds.num_processes == 0:
        return None
    node = nodes[number % len(nodes)]
    num_parts = -(-num_seats // len(nodes))
    num_cpus = max(1, int(node["Resources"]["CPU"]) // num_parts)
    actor = (
        ray.remote(Builder)
        .options(num_cpus=num_cpus, num_gpus=0, max_restarts=0, scheduling_strategy=on_node(node))
        .remote(msgspec.msgpack.encode(config), number // len(nodes) % num_parts, num_parts)
    )
    return RemoteBuilder(ray, actor)


def on_node(node: dict[str, Any]) -> Any:
    """There, or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)


def machines_without_gpu(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are there and have a processor core to give, always in the same order."""
    found = [
        node
        for node in nodes
        if node["Alive"]
        and not node.get("Resources", {}).get("GPU")
        and node.get("Resources", {}).get("CPU", 0) >= 1
    ]
    return sorted(found, key=lambda node: str(node["NodeID"]))
