"""What the stages of a run share: its tasks, judges, archives, policy and who samples from it.

    with opened(config, is_resumed=False) as place:
        place.begin_at("supervised-120")
        place.rollouts.sample(...)

Each is made when it is first asked for: who only collects loads no weights. There is one policy and
one engine for all stages, which are given the weights that each begins with.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from model_training import evaluate
from model_training.config import MAY_DIFFER, STAGES, StageName, TrainingConfig
from model_training.judges import Jury, opened_jury
from model_training.policy import Policy, load_policy
from model_training.rehearsal import Rehearsal
from model_training.rollouts import Rollouts
from model_training.rollouts.opening import opened_rollouts
from model_training.run import Run
from model_training.scoring import Scorer
from model_training.tasks.prepared import prepared
from model_training.tasks.record import Task
from model_training.tasks.splits import Split

BASE, START = "base", "start"
ARCHIVE, TASKS = "archive.sqlite", "tasks"


class Workplace:
    """Of one run; see `opened`."""

    def __init__(self, config: TrainingConfig, run: Run, stack: ExitStack, jury: Jury) -> None:
        self.config, self.run, self._stack, self.jury = config, run, stack, jury
        run.judges_spent = jury.spent

    @cached_property
    def split(self) -> Split:
        return prepared(self.config.tasks, self.run.folder / TASKS)

    @cached_property
    def scorer(self) -> Scorer:
        """Of training, whose archive is the store of exemplars."""
        return self._scorer(ARCHIVE)

    @cached_property
    def evaluation_scorer(self) -> Scorer:
        """Of evaluation, whose verdicts no prompt of training shows."""
        return self._scorer(evaluate.ARCHIVE)

    def _scorer(self, name: str) -> Scorer:
        archive = self._stack.enter_context(Archive.open(self.run.folder / name))
        judge, environment = self.config.judge, self.config.contrastive.environment
        rehearsal = None
        if self.jury.rehearsers:
            rehearsal = Rehearsal(self.jury.rehearsers, archive, judge.rehearsal, self.run.go_on)
        return Scorer(
            self.jury.judges,
            archive,
            judge.policy,
            environment,
            self.run.go_on,
            judge.places,
            rehearsal,
            self.jury.homes,
        )

    @cached_property
    def policy(self) -> Policy:
        """With the weights that the run begins with. An adapter of them is kept in RUN/start: what
        is drawn at random is drawn once."""
        start = self.run.folder / START
        given = self.config.model.adapter
        known = start if start.exists() else Path(given).expanduser() if given else None
        policy = load_policy(self.config.model, known, seed=self.config.run.seed)
        if policy.config.tuning == "lora" and known != start and self.run.is_main:
            unfinished = start.with_name(f".{START}")
            shutil.rmtree(unfinished, ignore_errors=True)
            policy.save(unfinished)
            unfinished.rename(start)
        return policy

    @cached_property
    def rollouts(self) -> Rollouts:
        folder = self.run.folder / "rollouts"
        return self._stack.enter_context(
            opened_rollouts(self.config.rollouts, lambda: self.policy, folder)
        )

    def own_rollouts(self) -> Rollouts:
        """Of the policy itself. Raises: ConfigError where the rollouts are a server's."""
        if self.config.rollouts.kind == "server":
            raise ConfigError(
                "rollouts.kind: a server has the weights that it was started with; train with "
                "`transformers` or `vllm`"
            )
        return self.rollouts

    def begin_at(self, name: str) -> None:
        """Give the policy the weights of a checkpoint, or those of `base`."""
        if name == BASE and "policy" not in self.__dict__:
            self.policy  # noqa: B018 - it is loaded with them
            return
        is_full = self.config.model.tuning == "full"
        start = Path(self.config.model.path).expanduser() if is_full else self.run.folder / START
        policy = self.policy
        policy.load(start if name == BASE else self.run.checkpoints / name)
        if "rollouts" in self.__dict__:
            self.rollouts.renew()

    def weights_before(self, stage: StageName) -> str:
        """What a stage begins with: the result of the last stage before it that has one."""
        finished = self.run.finished()
        trained = STAGES[1:]
        before = trained[: trained.index(stage)]
        return next((finished[one] for one in reversed(before) if one in finished), BASE)

    def contrastive_tasks(self) -> list[Task]:
        return self.scorer.usable(self.split.training[: self.config.tasks.num_contrastive])


@contextmanager
def opened(
    config: TrainingConfig, *, is_resumed: bool, jury: Jury | None = None
) -> Iterator[Workplace]:
    """A run's folder and all that its stages need; everything that was started ends with it. A jury
    that is given goes on to other runs."""
    run = Run.open(
        Path(config.run.folder).expanduser(),
        config,
        seed=config.run.seed,
        weights=Path(config.model.path).expanduser(),
        is_resumed=is_resumed,
        max_minutes=config.run.max_minutes,
        ignored=MAY_DIFFER,
    )
    with ExitStack() as stack, run:
        yield Workplace(config, run, stack, jury or stack.enter_context(opened_jury(config.judge)))
