"""Spread work over device slots: the GPUs of this host, or those of a Ray cluster.

    with Pool(LocalBackend(config, ("cuda:0", "cuda:1")), notice=print) as pool:
        outcomes = pool.map(tasks, work, is_over=is_over, run_status=run_status)

A *slot* is a device with a verifier of its own. Work is what needs one verifier from its beginning
to its end, such as all that is tried on one target: what is tried next depends on what came before.
`queue.py` leases items to slots, by the kind of device that has begun them and by the slot that
knows their problem; a lost slot returns its lease, and the item is tried again elsewhere.
`pool.py` has a thread for each slot. There are two backends: verifiers in threads of this process
(`local.py`), and actors of Ray (`ray.py`, `actor.py`). Neither the queue nor the pool knows which.
"""

from cudal1_ci.pool.config import RetryLimits, SessionConfig
from cudal1_ci.pool.local import LocalBackend
from cudal1_ci.pool.pool import Pool
from cudal1_ci.pool.queue import Outcome
from cudal1_ci.pool.ray import RayBackend
from cudal1_ci.pool.slots import Backend, DeviceSlot, SlotLost

__all__ = [
    "Backend",
    "DeviceSlot",
    "LocalBackend",
    "Outcome",
    "Pool",
    "RayBackend",
    "RetryLimits",
    "SessionConfig",
    "SlotLost",
]
