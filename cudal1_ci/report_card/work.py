"""What a run works with: the judge, who proposes, the memory, and how much there is time for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.pool import Pool
from cudal1_ci.propose import Proposer
from cudal1_ci.records import Candidate, Evaluation, Record, Target, content_hash
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.progress import Progress
from cudal1_ci.report_card.shape import Policy
from cudal1_ci.report_card.solvers import BEST, CONTRASTIVE, GIVEN
from cudal1_ci.report_card.tasks import Task
from cudal1_ci.verification.config import Precision
from cudal1_ci.verification.protocol import Judge


class RunConfig(Record, frozen=True, kw_only=True):
    """How much to try."""

    columns: tuple[str, ...]
    policy: Policy = "strict"
    precision: Precision = "strict"
    num_rounds: int = 2
    """Of proposals; from the second on proposers see what passed before."""
    num_candidates: int = 12
    """Of one proposer for one task in one round."""
    budget_s: float | None = None


@dataclass
class Bench:
    """What a run works with."""

    session: Judge
    proposers: dict[str, Proposer]
    """By column; without `contrastive` and `best`."""
    archive: Archive
    given: Archive
    """Of published kernels."""
    progress: Progress
    config: RunConfig
    judge: str
    """Hash of the judge's settings."""
    since: float
    """When the run began, in seconds since the epoch; earlier than now where it goes on."""
    may_reuse: bool = True
    """Whether what earlier runs found stands in for a trial."""
    optimizer: Optimizer | None = None
    started_s: float = field(default_factory=time.monotonic)
    ending: Ending = field(default_factory=Ending)
    pool: Pool | None = None
    """Several judges, of which `session` is the first; None where that is the only one."""
    made: set[tuple[str, str, str]] = field(default_factory=set)
    """Problem, column and candidate of each trial that this leg of the run made: of a seat that was
    lost they are known, and were not before."""

    def is_over(self) -> bool:
        """Asked before each thing that is tried, so what was not is known to be missing."""
        budget_s = self.config.budget_s
        if budget_s is not None and time.monotonic() - self.started_s > budget_s:
            self.ending.was_cut = True
        return self.ending.is_early

    def with_judge(self, judge: Judge) -> Bench:
        """The same for one of several judges, in a thread of its own."""
        return replace(self, session=judge, optimizer=self.optimizer and self.optimizer.apart())

    def archive_of(self, column: str) -> Archive:
        return self.given if column == GIVEN else self.archive

    def known(self, archive: Archive, candidate: Candidate, judge: str) -> Evaluation | None:
        """What this run found before it was cut short, or an earlier one that still holds."""
        key = (candidate.problem_id, candidate.id, self.session.device().key, judge)
        found = archive.newest(*key, self.since)
        if found is None and self.may_reuse:
            found = archive.lookup(*key)
        return found

    def begun_on(self, task: Task) -> frozenset[str]:
        """The kinds of devices on which this run has found something of a task."""
        ours, given = (
            one.devices(task.problem.id, self.since) for one in (self.archive, self.given)
        )
        return frozenset(ours | given)

    @property
    def check_key(self) -> str:
        """Under which verdicts on references are kept: the `eager` column's are on the same
        program."""
        return content_hash(["reference", self.judge])


def missing_because(bench: Bench) -> str:
    return (
        f"not reached: {'interrupted' if bench.ending.was_interrupted else 'the budget was spent'}"
    )


def target_of(task: Task) -> Target:
    """As progress names it."""
    return Target(path=task.name, qualname="Model", kind="torch_module", first_line=1, last_line=1)


def judged_columns(columns: Sequence[str]) -> list[str]:
    """Those that are asked, the model's after the playbook's, whose finds it is shown, and then
    `best`, which puts together what all of ours found. Published kernels come last: most bring CUDA
    sources, which are built meanwhile."""
    last = (CONTRASTIVE, BEST, GIVEN)
    return [*(one for one in columns if one not in last), *(one for one in last if one in columns)]
