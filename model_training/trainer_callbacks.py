"""Connect a trainer of transformers to a run: its gradients, numbers, checkpoints and end.

A step along a gradient that is no number leaves weights that no later step repairs, so none is
made. One may be a backend's mistake; three in a row are an error.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cudal1_ci.errors import UnsupportedError
from model_training import checkpoints
from model_training.run import Run

LOGGED = {
    "loss": "loss",
    "mean_token_accuracy": "token_accuracy",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
}
"""Names that the trainer logs, and those that a run's metrics have."""
MAX_IN_A_ROW = 3


@contextlib.contextmanager
def sound_attention() -> Iterator[None]:
    """Turn off cuDNN's attention, whose gradient of the queries holds NaN on an H100 and H200 where
    there is a mask, a row has 64 more than a multiple of 128 tokens, and scores are small, as those
    of a Qwen2.5 are (since torch 2.11; https://github.com/pytorch/pytorch/issues/196678)."""
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


def norm_of(parameters: Iterable[torch.nn.Parameter]) -> float:
    """Return the norm of their gradients, of all processes' parts where those are sharded; 0 where
    there are none."""
    found = [one.grad for one in parameters if one.grad is not None]
    if not found:
        return 0.0
    norm = torch.nn.utils.get_total_norm(found)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


class SoundSteps(TrainerCallback):
    """Drop gradients that are no numbers: the optimizer leaves a weight without one alone."""

    def __init__(self) -> None:
        self.num_skipped = 0
        self._in_a_row = 0

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Drop gradients that are not finite.

        Raises: UnsupportedError where it is the third in a row.
        """
        parameters = list(kwargs["model"].parameters())
        if math.isfinite(norm_of(parameters)):
            self._in_a_row = 0
            return
        self.num_skipped += 1
        self._in_a_row += 1
        for one in parameters:
            one.grad = None
        if self._in_a_row == MAX_IN_A_ROW:
            raise UnsupportedError(
                f"the gradient of {MAX_IN_A_ROW} steps in a row is no number (nan or infinite); no "
                "step was made along them. Resume from the last checkpoint with a lower "
                "learning-rate or max-grad-norm, or another version of torch"
            )


class RunCallback(SoundSteps):
    """Write the trainer's numbers to the run, and decide when it saves and when it stops."""

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

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
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

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        state, said = args[1], kwargs["logs"]
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
            skipped=self.num_skipped,
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
        """Make what the trainer has written, each process its own random state, a checkpoint."""
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
    """Return why any of the processes that train together must stop: then all of them do."""
    if not is_distributed():
        return stopped
    said: list[str | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(said, stopped)
    return next((one for one in said if one is not None), None)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
