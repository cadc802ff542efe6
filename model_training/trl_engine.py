"""The engine `trl` of stage 3: TRL's GRPOTrainer, asked by our prompts and paid by our judge.

Its data loader reads one batch ahead, so that the prompts of a step are made when the one before
begins: they show what was known after the step before that (`StepPrompts.lag`), and so does a run
that goes on. With a shuffled data set a buffer would read ahead of everything; the stream refuses
to be read that far, and tasks are shuffled by itself.

What is added to the trainer, each where it has no setting for it:

- groups that say nothing leave the batch, and nothing moves where all of them do;
- the policy that training began with is the one of this stage's start, with its adapter;
- what is random in a step is seeded by its number, so that a killed run makes the same steps again.

It samples with transformers and not with the stage's rollouts, and trains in one process.
`ratio = "sequence"` is refused: TRL's is that of GSPO, a mean over tokens and not the paper's
product. The divergence to the start is measured where it has a weight.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import IterableDataset
from torch import Tensor
from transformers import PrinterCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from cudal1_ci.errors import UnsupportedError
from model_training.contrastive_config import learning_rate
from model_training.course import STAGE, Course, ends_before
from model_training.engines import OPTIMIZER, optimizer_of
from model_training.gradients import sound_attention
from model_training.measures import Judged
from model_training.objective.advantage import is_silent
from model_training.rollouts.transformers_rollouts import completion
from model_training.run import Stopped
from model_training.supervised import restore_forward
from model_training.token_scores import copied
from model_training.trl_settings import LOSS_TYPES, arguments
from model_training.watcher import SoundSteps

if TYPE_CHECKING:
    from model_training.contrastive import Checkpoint, Stage, Trained

WATCHED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "clip_ratio/region_mean": "clipped_share",
    "kl": "divergence",
}
"""What the trainer logs, and what it is called here."""


def train(stage: Stage, checkpoint: Checkpoint | None) -> Trained:
    """As `contrastive.train`."""
    from model_training.contrastive import Trained  # here, as each knows the other

    done = checkpoint.step if checkpoint else 0
    if done >= stage.config.num_steps:
        return Trained(num_done=done)
    original = stage.policy.base.__dict__.get("forward")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            optimizer = optimizer_of(stage.policy, stage.config)
            trainer = ContrastiveTrainer(stage, stage.course(done), done, optimizer, Path(scratch))
            if checkpoint is not None:
                stage.policy.load(checkpoint.folder)
                path, device = checkpoint.folder / OPTIMIZER, stage.policy.device
                optimizer.load_state_dict(torch.load(path, map_location=device, weights_only=True))
            trainer.stopped = stage.run.must_stop()
            if trainer.stopped is None:
                try:
                    with sound_attention():
                        trainer.train()
                except Stopped as reason:  # while answers were judged: no weight has moved yet
                    trainer.stopped = str(reason)
            trainer.save_last()
            return Trained(num_done=trainer.done, stopped=trainer.stopped)
    finally:
        # TRL has put its own forward into the model, which would keep the trainer.
        restore_forward(stage.policy, original)


class ContrastiveTrainer(GRPOTrainer):
    """A trainer whose data and rewards are a course, and whose steps are the run's."""

    def __init__(
        self,
        stage: Stage,
        course: Course,
        num_done: int,
        optimizer: torch.optim.Optimizer,
        scratch: Path,
    ) -> None:
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise UnsupportedError(
                "contrastive.engine: trl trains in one process here; start it without a launcher"
            )
        self.stage, self.course, self.done, self.saved = stage, course, num_done, num_done
        self.judged: list[Judged] = []
        self.stopped: str | None = None
        self._prompts: dict[int, Any] = {}
        self._plain, self._share_kept = optimizer, 1.0
        self.sound = SoundSteps()
        self._seconds: dict[str, float] = {}
        self._began_s, self._longest_s = time.monotonic(), 0.0
        config, first = stage.config, num_done + 1
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda update: (
                learning_rate(config, first + update // config.grpo.num_updates)
                / config.learning_rate
            ),
        )
        super().__init__(
            model=stage.policy.model,
            reward_funcs=self.rewards,
            args=arguments(config, stage.policy, num_done, scratch),
            train_dataset=IterableDataset.from_generator(Rows(self)),
            processing_class=stage.policy.tokenizer,
            optimizers=(optimizer, schedule),
        )
        self.remove_callback(PrinterCallback)
        self.add_callback(self.sound)
        if config.grpo.objective.beta:
            self.beta = config.grpo.objective.beta
            start: Any = StartModel(stage.policy.model, stage.policy.parameters())
            self.ref_model = start

    # --- what is asked and paid --------------------------------------------------------------

    def rows(self) -> Iterator[dict[str, Any]]:
        """Prompts of one step after another, for as long as they are asked for."""
        step = self.done
        while step < self.stage.config.num_steps:
            step += 1
            for prompt in self.course.prompts(step):
                self._prompts[prompt.cursor] = prompt
                messages = [{"role": one.role, "content": one.content} for one in prompt.messages]
                yield {"prompt": messages, "cursor": prompt.cursor}

    def rewards(
        self,
        completion_ids: Sequence[Sequence[int]],
        cursor: Sequence[int],
        **_: Any,
    ) -> list[float | None]:
        """Of the completions of a step, a group of them after another."""
        config, policy, ends = self.stage.config, self.stage.policy, set(self.stage.policy.ends)
        answers = [
            completion(policy, ids, ends, config.sampling.max_tokens) for ids in completion_ids
        ]
        size = config.group_size
        prompts = [self._prompts.pop(one) for one in cursor[::size]]
        groups = [answers[start : start + size] for start in range(0, len(answers), size)]
        self.judged = self.course.judged(prompts, groups)
        # The mean of the others, by the mean of all of them.
        factor = size / (size - 1) if config.grpo.advantage == "left_out" else 1.0
        return [factor * one for group in self.judged for one in group.rewards]

    def _generate(self, prompts: Any) -> Any:
        started_s = time.monotonic()
        self._began_s = started_s
        torch.manual_seed(self.course.seed(self.done + 1))
        found = super()._generate(prompts)
        self._seconds["generate_s"] = time.monotonic() - started_s
        return found

    # --- what is learned ---------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        found = super()._generate_and_score_completions(inputs)
        self._share_kept = 1.0
        if self.stage.config.grpo.drops_silent:
            kept = [not is_silent(group.rewards) for group in self.judged]
            rows = torch.tensor(kept, device=found["completion_mask"].device)
            rows = rows.repeat_interleave(self.stage.config.group_size).unsqueeze(1)
            found["completion_mask"] = found["completion_mask"] * rows
            found["num_items_in_batch"] = found["completion_mask"].sum()
            self._share_kept = sum(kept) / len(kept)
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        if self.loss_type == LOSS_TYPES["token"] or not self._share_kept:
            return loss
        return loss / self._share_kept  # it is a mean over the dropped completions too

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)  # type: ignore[no-untyped-call]
        if not self._share_kept:
            # An optimizer with a memory would move on by itself; without gradients it stays.
            self._plain.zero_grad(set_to_none=True)
        return loss

    # --- what is written down ----------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "loss" in logs and self.state.global_step % self.stage.config.grpo.num_updates == 0:
            self._finish({ours: logs.get(theirs) for theirs, ours in WATCHED.items()})

    def _finish(self, watched: dict[str, float | None]) -> None:
        """A step of ours is over: one of the trainer's, or several updates of it."""
        self.done += 1
        took_s = time.monotonic() - self._began_s
        self._longest_s = max(self._longest_s, took_s)
        sampling_s = self._seconds["generate_s"]
        num_tokens = sum(len(one.token_ids) for group in self.judged for one in group.completions)
        seconds = {
            **self._seconds,
            "score_s": self.course.scoring_s,
            "train_s": took_s - sampling_s - self.course.scoring_s,
            "tokens_per_s": num_tokens / sampling_s,
            "learning_rate": learning_rate(self.stage.config, self.done),
            "skipped": self.sound.gradients.num_skipped,
        }
        self.course.finish(self.done, self.judged, {**watched, **seconds})
        if self.done % self.stage.config.checkpoint_every == 0:
            self.save_last()
        stage = self.stage
        ends, self.stopped = ends_before(stage.run, stage.config, self.done, self._longest_s)
        self.control.should_training_stop = ends

    def save_last(self) -> None:
        """A checkpoint of the steps that are done, if there is none."""
        if self.saved != self.done:
            self.stage.run.save(STAGE, self.done, self._write, self.course.state(self.done))
            self.saved = self.done

    def _write(self, folder: Path) -> None:
        self.stage.policy.save(folder)
        torch.save(self._plain.state_dict(), folder / OPTIMIZER)


class Rows:
    """The rows of a trainer, for `datasets`, which names a generator after its pickle: of a course
    with an open archive there is none."""

    def __init__(self, trainer: ContrastiveTrainer) -> None:
        self._trainer = trainer

    def __call__(self) -> Iterator[dict[str, Any]]:
        return self._trainer.rows()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (f"rows {id(self)}",)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        return self


class StartModel(torch.nn.Module):
    """A model that answers with the weights that it had when this was made."""

    def __init__(self, model: Any, trained: Sequence[torch.nn.Parameter]) -> None:
        super().__init__()
        self._now = [model]  # in a list, so that its weights are not this module's
        self._trained = list(trained)
        self._start = [one.detach().clone() for one in trained]

    @torch.no_grad()
    def forward(self, **inputs: Any) -> Any:
        now = [one.detach().clone() for one in self._trained]
        copied(self._start, self._trained)
        try:
            return self._now[0](**inputs)
        finally:
            copied(now, self._trained)
