"""Open what the stages of a run share: tasks, verifiers, archives, policy, rollouts.

    with open_setup(config, is_resumed=False) as setup:
        setup.begin_at("supervised-120")
        setup.rollouts.sample(...)

Each is made when it is first needed: a collection loads no weights. All stages share one policy,
which is given the weights that each begins with.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from model_training import evaluate
from model_training.config import MAY_DIFFER, STAGES, StageName, TrainingConfig
from model_training.cpu_prefilter import CpuPrefilter
from model_training.judges import Jury
from model_training.policy import Policy, load_policy
from model_training.rollouts import Rollouts
from model_training.rollouts.server_rollouts import ServerRollouts
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.rollouts.vllm_rollouts import VllmRollouts
from model_training.run import Run
from model_training.scoring import Scorer
from model_training.tasks.prepared import prepared
from model_training.tasks.record import Task
from model_training.tasks.splits import Split

BASE, START = "base", "start"
ARCHIVE, TASKS = "archive.sqlite", "tasks"


class RunSetup:
    """Hold what a run needs; see `open_setup`."""

    def __init__(self, config: TrainingConfig, run: Run, stack: ExitStack, jury: Jury) -> None:
        self.config, self.run, self._stack, self.jury = config, run, stack, jury
        run.judges_spent = jury.spent

    @cached_property
    def split(self) -> Split:
        return prepared(self.config.tasks, self.run.folder / TASKS)

    @cached_property
    def scorer(self) -> Scorer:
        """Return the scorer of training, whose archive is the store of exemplars."""
        return self._scorer(ARCHIVE)

    @cached_property
    def evaluation_scorer(self) -> Scorer:
        """Return the scorer of evaluation, whose verdicts no prompt of training shows."""
        return self._scorer(evaluate.ARCHIVE)

    def _scorer(self, name: str) -> Scorer:
        archive = self._stack.enter_context(Archive.open(self.run.folder / name))
        judge, environment = self.config.judge, self.config.contrastive.environment
        prefilter = None
        if self.jury.prefilters:
            prefilter = CpuPrefilter(self.jury.prefilters, archive, judge.prefilter, self.run.go_on)
        return Scorer(
            self.jury.judges,
            archive,
            judge.policy,
            environment,
            self.run.go_on,
            judge.places,
            prefilter,
            self.jury.homes,
        )

    @cached_property
    def policy(self) -> Policy:
        """Load the weights that the run begins with. An adapter of them is kept in RUN/start: what
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
        """Open what samples. For a server no policy is loaded; a server that was started ends with
        the run."""
        config = self.config.rollouts
        if config.kind == "server":
            return self._stack.enter_context(closing(ServerRollouts(config.server)))
        if config.kind == "transformers":
            return TransformersRollouts(self.policy, config.batch_size)
        folder = self.run.folder / "rollouts"
        return VllmRollouts(self.policy, folder, config.max_model_tokens, config.gpu_memory_share)

    def own_rollouts(self) -> Rollouts:
        """Return rollouts of the policy itself. Raises: ConfigError where the rollouts are a
        server's."""
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
        """Return what a stage begins with: the result of the last stage before it that has one."""
        finished = self.run.finished()
        trained = STAGES[1:]
        before = trained[: trained.index(stage)]
        return next((finished[one] for one in reversed(before) if one in finished), BASE)

    def weights_of(self, name: str) -> str:
        """Return the name of a stage's weights.

        Raises:
            ConfigError: The stage is not finished.
        """
        if self.config.rollouts.kind == "server":
            return self.config.rollouts.server.model or ""
        finished = self.run.finished()
        if name != BASE and name not in finished:
            raise ConfigError(
                f"--name: {name!r} is not finished in {self.run.folder}; expected "
                f"{', '.join([BASE, *(one for one in STAGES[1:] if one in finished)])}"
            )
        return BASE if name == BASE else finished[name]

    def contrastive_tasks(self) -> list[Task]:
        return self.scorer.usable(self.split.training[: self.config.tasks.num_contrastive])


@contextmanager
def open_setup(config: TrainingConfig, *, is_resumed: bool) -> Iterator[RunSetup]:
    """Open a run's folder and all that its stages need; what was started ends with the block."""
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
        yield RunSetup(config, run, stack, Jury(config.judge, stack))
