"""What a run asks of a trainer of transformers: its numbers, whole checkpoints, an end in time, and
no step along a gradient that is no number."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from model_training import checkpoints
from model_training.gradients import Watch, norm_of
from model_training.run import Run

LOGGED = {
    "loss": "loss",
    "mean_token_accuracy": "token_accuracy",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
}
"""Names that the trainer logs, and those that a run's metrics have."""


class SoundSteps(TrainerCallback):
    """For a trainer of transformers, whose optimizer leaves a weight without a gradient alone."""

    def __init__(self) -> None:
        self.gradients = Watch()

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        parameters = list(kwargs["model"].parameters())
        if not self.gradients.is_sound(norm_of(parameters)):
            for one in parameters:
                one.grad = None


class Watcher(SoundSteps):
    """Writes the trainer's numbers to the run, and says when it saves and when it stops."""

    def __init__(
        self, run: Run, stage: str, first_step: int, every: int, state: dict[str, Any]
    ) -> None:
        super().__init__()
        self.run, self.stage, self.first_step, self.every = run, stage, first_step, every
        self.noted = state
        self.stopped: str | None = None
        self.loss: float | None = None
        self._began_s = time.monotonic()
        self._num_tokens = 0.0

    def on_step_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        self._began_s = time.monotonic()

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        took_s = time.monotonic() - self._began_s
        is_last = state.global_step >= state.max_steps
        # Time for this step once more, and for what ends a run.
        stopped = None if is_last else agreed(self.run.must_stop(reserve_s=2 * took_s))
        if stopped is not None:
            self.stopped = stopped
            control.should_training_stop = True
        if stopped is not None or is_last or state.global_step % self.every == 0:
            control.should_save = True

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, float] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        said = logs or {}
        if "loss" not in said:  # the summary at the end
            return
        self.loss = said["loss"]
        took_s = max(time.monotonic() - self._began_s, 1e-9)
        # The trainer counts tokens from where this process began.
        num_tokens = said.get("num_tokens", self._num_tokens) - self._num_tokens
        self._num_tokens += num_tokens
        self.run.log(
            self.stage,
            self.first_step + state.global_step,
            **{ours: said[theirs] for theirs, ours in LOGGED.items() if theirs in said},
            epoch=state.epoch or 0.0,
            skipped=self.gradients.num_skipped,
            train_s=took_s,
            tokens_per_s=num_tokens / took_s,
        )

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """The trainer has written a checkpoint, each process its own random state; as a whole it
        becomes one of the run's."""
        if is_distributed():
            torch.distributed.barrier()
        if self.run.is_main:
            written = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            step = self.first_step + state.global_step
            noted = {**self.noted, "is_finished": state.global_step >= state.max_steps}
            checkpoints.adopt(self.run.checkpoints, written, self.stage, step, noted)
        if is_distributed():
            torch.distributed.barrier()


def agreed(stopped: str | None) -> str | None:
    """Whether any of the processes that train together must stop: then all of them do."""
    if not is_distributed():
        return stopped
    said: list[str | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(said, stopped)
    return next((one for one in said if one is not None), None)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
