"""Hold what a comparison works with, and do something to each pair on the slots that there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from cudal1_ci.compare.config import CompareConfig
from cudal1_ci.compare.looks import Looks
from cudal1_ci.pool import Pool
from cudal1_ci.processes.device_wait import BESIDE_OTHERS_S, NOTICED_S, patient_until
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.progress import Progress
from cudal1_ci.verification.protocol import Verifier


@dataclass
class Bench:
    """Hold what a comparison works with."""

    session: Verifier
    archive: Archive
    progress: Progress
    config: CompareConfig
    policy: str
    """Hash of the verifier's settings."""
    budget_s: float | None = None
    may_reuse: bool = True
    examines: bool = True
    """Whether other uses than the workloads' are tried."""
    pool: Pool | None = None
    """Several slots; `session` is the first one's verifier. None where that is all."""
    clock: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    was_cut: bool = False
    """Whether something was left out for want of time."""

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def is_over(self, reserved_s: float = 0.0) -> bool:
        """Return whether no more than this is left of the budget."""
        if self.budget_s is None:
            return False
        return self.clock() - self.started_s + reserved_s > self.budget_s

    def patient(self, is_over: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        """Let this thread wait for a device until the budget is spent; report a long wait."""
        noticed_s = NOTICED_S if self.pool is None else BESIDE_OTHERS_S
        return patient_until(is_over or self.is_over, self.progress.waiting, noticed_s)

    def has_time(self, reserved_s: float = 0.0) -> bool:
        """Return whether more than this is left. Where it is not, something was left out."""
        has = not self.is_over(reserved_s)
        self.was_cut = self.was_cut or not has
        return has


def each(
    looks: Sequence[Looks],
    work: Callable[[Looks, Verifier], None],
    lost: Callable[[Looks, str], None],
    bench: Bench,
    is_over: Callable[[], bool],
) -> list[Looks]:
    """Do something to each pair, on one slot each; return those that were not reached. `lost` gets
    the reason where a slot was lost.

    Raises:
        KeyboardInterrupt: Also where it came while several slots were at work.
    """
    if bench.pool is None:
        for place, one in enumerate(looks):
            if is_over():
                return list(looks[place:])
            work(one, bench.session)
        return []
    run_status = Ending()

    def done(one: Looks, verifier: Verifier) -> bool:
        work(one, verifier)
        return True

    outcomes = bench.pool.map(looks, done, is_over=is_over, run_status=run_status)
    if run_status.was_interrupted:
        raise KeyboardInterrupt
    unreached = []
    for one, outcome in zip(looks, outcomes, strict=True):
        if outcome.reason is not None:
            lost(one, outcome.reason)
        elif outcome.result is None:
            unreached.append(one)
    return unreached


def policy_of(number: int, bench: Bench) -> str:
    """Return the policy under which a look is kept."""
    return f"{bench.policy} look {number}"
