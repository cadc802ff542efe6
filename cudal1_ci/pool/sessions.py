"""What a seat is made of: a Session, in whichever process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.seat import Broken
from cudal1_ci.processes import EXECUTORS, ContainerConfig, Executor, ExecutorName
from cudal1_ci.records import Candidate, Evaluation, Problem, Record
from cudal1_ci.verification import BuildsConfig, Session, TrialConfig


class SessionConfig(Record, frozen=True, kw_only=True):
    """How a Session is opened, on this machine or on another one."""

    trial: TrialConfig = TrialConfig()
    builds: BuildsConfig = BuildsConfig()
    executor: ExecutorName = "local"
    container: ContainerConfig = ContainerConfig()
    python: str | None = None
    """Interpreter with the project's torch; None is the one of the seat's own process."""
    checkouts: tuple[str, ...] = ()
    """Folders that programs are read from, at the same path on every machine."""
    require_sandbox: bool = False
    require_kernel: bool = False

    def session(
        self,
        device: str,
        num_sharing: int = 1,
        around: Callable[[Executor], Executor] = lambda executor: executor,
    ) -> Session:
        """One that is not started yet, of so many on its device; `around` its executor there may be
        another one."""
        python = self.python or sys.executable
        checkouts = tuple(map(Path, self.checkouts))
        return Session(
            self.trial,
            python=python,
            device=device,
            num_sharing=num_sharing,
            require_sandbox=self.require_sandbox,
            require_kernel=self.require_kernel,
            builds=self.builds,
            executor=around(EXECUTORS[self.executor](self.container, python, checkouts)),
            recalls=False,  # a target has its whole turn
        )


def judged_by(
    session: Session, problem: Problem, candidates: Sequence[Candidate]
) -> Iterator[Evaluation | Broken]:
    """Each candidate once, what is being built last."""
    with contextlib.suppress(WorkerError):  # then nothing is built ahead, and the judge does it
        session.build_ahead(problem, candidates)
    for candidate in session.in_turn(candidates):
        try:
            found: Evaluation | Broken = session.evaluate(problem, candidate)
        except WorkerError as error:
            found = Broken(candidate_id=candidate.id, message=str(error))
        yield found
