"""Move the weights of stage 3 with TRL's GRPOTrainer and the paper's loss.

    num_done, stopped = train(loop, checkpoint_folder)

TRL has the loop over batches and updates, the log probabilities (without all logits at once) and
the optimizer's steps. The subclass replaces

- rollouts: a step of ours (`StepLoop.roll_out`), with the rewards of our verifier, so that all
  stages sample the same way, with transformers or with vLLM;
- advantages and loss: those of `objective/`. A group whose rewards are equal leaves the batch, and
  nothing moves where all groups do;
- logging and checkpoints: those of the run.

The rows of TRL's data set are place holders: its loader reads one batch ahead, and the prompts of
a step must show what the step before found.

Shapes: B completions, T tokens.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from model_training.asking import Asked
from model_training.objective.advantage import advantages, is_silent
from model_training.objective.loss import objective, token_weights
from model_training.run import Stopped
from model_training.sft import restore_forward
from model_training.step_loop import StepLoop
from model_training.trainer_callbacks import SoundSteps, sound_attention

OPTIMIZER = "optimizer.pt"
PLACE_HOLDER = "prompt"


def train(loop: StepLoop, checkpoint: Path | None = None) -> tuple[int, str | None]:
    """Train up to the last step, or while there is time, and leave a checkpoint. Returns: The
    number of steps, those before the checkpoint among them, and why it stopped before the last
    one."""
    if loop.num_done >= loop.config.num_steps:
        return loop.num_done, None
    original = loop.policy.base.__dict__.get("forward")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            trainer = ContrastiveTrainer(loop, Path(scratch))
            if checkpoint is not None:
                trainer.resume(checkpoint)
            trainer.stopped = loop.run.must_stop()
            if trainer.stopped is None:
                try:
                    with sound_attention():
                        trainer.train()
                except Stopped as reason:  # while answers were verified: no weight has moved yet
                    trainer.stopped = str(reason)
            trainer.save_last()
            return trainer.done, trainer.stopped
    finally:
        # TRL has put its own forward into the model, which would keep the trainer.
        restore_forward(loop.policy, original)


class ContrastiveTrainer(GRPOTrainer):
    """Train with the rollouts, the loss and the checkpoints of a step loop."""

    def __init__(self, loop: StepLoop, scratch: Path) -> None:
        self.loop, self.done, self.saved = loop, loop.num_done, loop.num_done
        self.asked: Asked | None = None
        self.paid: list[list[float]] = []
        self.stopped: str | None = None
        self._sums: dict[str, float] = {}
        self._began_s, self._longest_s = time.monotonic(), 0.0
        self._sound = SoundSteps()
        config, policy, first = loop.config, loop.policy, loop.num_done
        # Without weight decay: an adapter decays to the base, not to where the stage began.
        self._adam = torch.optim.AdamW(
            policy.parameters(), lr=config.learning_rate, weight_decay=0.0
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            self._adam, lambda update: warmup(first + 1 + update // config.grpo.num_updates, config)
        )
        num_rows = (config.num_steps - first) * config.prompts_per_step
        super().__init__(
            model=policy.model,
            reward_funcs=self.rewards,
            args=arguments(loop, scratch),
            train_dataset=Dataset.from_list([{"prompt": PLACE_HOLDER}] * num_rows),
            processing_class=policy.tokenizer,
            optimizers=(self._adam, schedule),
        )
        self.rollout_func = self.roll_out  # as an argument it brings a warning
        self.remove_callback(PrinterCallback)  # the run's own files have the numbers
        self.add_callback(self._sound)
        self._start = StartWeights(policy.parameters()) if config.grpo.objective.beta else None

    def resume(self, folder: Path) -> None:
        """Take up weights and optimizer of a checkpoint."""
        policy = self.loop.policy
        policy.load(folder)
        self.loop.rollouts.renew()
        state = torch.load(folder / OPTIMIZER, map_location=policy.device, weights_only=True)
        self._adam.load_state_dict(state)

    # --- what is asked and paid --------------------------------------------------------------

    def roll_out(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:  # noqa: ARG002
        """Sample and score the next step; TRL asks once a step."""
        loop, step = self.loop, self.done + 1
        self._began_s = time.monotonic()
        torch.manual_seed(loop.seed(step))
        self.asked = loop.roll_out(step)
        self.paid = loop.rewards(self.asked.groups)
        rows = [(group.prompt, one) for group in self.asked.groups for one in group.completions]
        return {
            "prompt_ids": [loop.policy.prompt_ids(prompt.messages) for prompt, _ in rows],
            "completion_ids": [list(one.token_ids) for _, one in rows],
            "logprobs": None,
        }

    def rewards(self, completions: Sequence[Any], **_: Any) -> list[float | None]:  # noqa: ARG002
        """Return the rewards of the step that was rolled out."""
        return [one for group in self.paid for one in group]

    # --- what is learned ---------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Replace TRL's advantages by ours, and add the mask and the weights of the loss."""
        found = super()._generate_and_score_completions(inputs)
        assert self.asked is not None
        config, mask_BT = self.loop.config, found["completion_mask"]
        is_learned, worth = [], []
        for group, paid in zip(self.asked.groups, self.paid, strict=True):
            worth += advantages(paid)
            is_learned += [
                not is_silent(paid) and not (config.masks_cut and one.is_cut)
                for one in group.completions
            ]
        mask_BT = mask_BT * torch.tensor(is_learned, device=mask_BT.device).unsqueeze(1)
        num_kept = config.group_size * sum(not is_silent(paid) for paid in self.paid)
        found["advantages"] = torch.tensor(worth, device=mask_BT.device)
        found["loss_mask"] = mask_BT
        found["loss_weights"] = token_weights(mask_BT, config.grpo.objective, num_kept)
        if self._start is not None:
            with torch.no_grad(), self._start.restored():
                found["start_logps"] = self._logps(self.model, found)[0]
        self._num_tokens = int(mask_BT.sum())
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        """Return the paper's loss (equation 5) of some completions of the batch."""
        logp_BT, entropy_BT = self._logps(model, inputs)
        mask_BT = inputs["loss_mask"]
        part = objective(
            logp_BT,
            inputs.get("old_per_token_logps", logp_BT),
            inputs["advantages"],
            mask_BT,
            inputs["loss_weights"],
            self.loop.config.grpo.objective,
            inputs.get("start_logps"),
        )
        num_tokens = float(mask_BT.sum())
        for name, value in {
            "loss": part.loss.item(),
            "clipped_share": part.clipped_share * num_tokens,
            "divergence": part.divergence * num_tokens,
            "ratio": part.ratio * num_tokens,
            "entropy": float((entropy_BT * mask_BT).sum()),
        }.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        return part.loss

    def _logps(self, model: Any, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return log probabilities and entropies of the tokens of completions."""
        completion_BT = inputs["completion_ids"]
        ids = torch.cat([inputs["prompt_ids"], completion_BT], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        logp_BT, entropy_BT, _ = self._get_per_token_logps_and_entropies(
            model,
            ids,
            mask,
            completion_BT.size(1),
            batch_size=self.loop.config.grpo.piece_size,
            compute_entropy=True,
        )
        return logp_BT, entropy_BT.detach()

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)  # type: ignore[no-untyped-call]
        if not self._num_tokens:
            # An optimizer with a memory would move on by itself; without gradients it stays.
            self._adam.zero_grad(set_to_none=True)
        return loss

    # --- what is written down ----------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "loss" not in logs:  # the summary at the end
            return
        if self.state.global_step % self.loop.config.grpo.num_updates == 0:
            self._finish(logs.get("grad_norm"))
        self._sums.clear()

    def _finish(self, grad_norm: float | None) -> None:
        """End a step: one update of the trainer, or several."""
        loop, asked = self.loop, self.asked
        assert asked is not None
        loop.rollouts.renew()
        self.done += 1
        took_s = time.monotonic() - self._began_s
        self._longest_s = max(self._longest_s, took_s)
        num_tokens = self._num_tokens
        means: dict[str, float | None] = {
            name: value if name == "loss" else value / max(num_tokens, 1)
            for name, value in self._sums.items()
        }
        numbers: dict[str, float | None] = {
            **(means if num_tokens else dict.fromkeys(means)),
            "grad_norm": grad_norm if num_tokens else None,
            "num_tokens": num_tokens,
            "learning_rate": loop.config.learning_rate * warmup(self.done, loop.config),
            "skipped": self._sound.num_skipped,
            "train_s": took_s - asked.generate_s - asked.score_s,
        }
        loop.finish(self.done, asked, self.paid, numbers)
        if self.done % loop.config.checkpoint_every == 0:
            self.save_last()
        ends, self.stopped = loop.must_end(self.done, self._longest_s)
        self.control.should_training_stop = ends

    def save_last(self) -> None:
        """Write a checkpoint of the steps that are done, if there is none."""
        if self.saved != self.done:
            self.loop.save(self.done, self._write)
            self.saved = self.done

    def _write(self, folder: Path) -> None:
        self.loop.policy.save(folder)
        torch.save(self._adam.state_dict(), folder / OPTIMIZER)


def warmup(step: int, config: Any) -> float:
    """Return the share of the learning rate in a step, which counts from 1."""
    return float(min(1.0, step / (config.num_warmup_steps + 1)))


def arguments(loop: StepLoop, scratch: Path) -> GRPOConfig:
    """Return our settings in TRL's words."""
    config, grpo = loop.config, loop.config.grpo
    num_pieces = config.prompts_per_step * config.group_size // grpo.piece_size
    return GRPOConfig(
        output_dir=str(scratch),
        max_steps=(config.num_steps - loop.num_done) * grpo.num_updates,
        per_device_train_batch_size=grpo.piece_size,
        gradient_accumulation_steps=num_pieces,
        steps_per_generation=num_pieces,
        num_iterations=grpo.num_updates,
        num_generations=config.group_size,
        max_completion_length=config.sampling.max_tokens,
        temperature=config.sampling.temperature or 1.0,
        shuffle_dataset=False,
        dataloader_num_workers=0,
        beta=0.0,  # TRL would load weights to compare with; the start is kept here
        max_grad_norm=grpo.max_grad_norm,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=loop.policy.device.type == "cpu",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=config.stream.seed,
    )


class StartWeights:
    """Keep the weights that training began with."""

    def __init__(self, trained: Sequence[torch.nn.Parameter]) -> None:
        self._trained = list(trained)
        self._start = [one.detach().clone() for one in trained]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put them back while no gradient is under way."""
        now = [one.detach().clone() for one in self._trained]
        copy(self._start, self._trained)
        try:
            yield
        finally:
            copy(now, self._trained)


@torch.no_grad()
def copy(values: Sequence[Tensor], into: Sequence[torch.nn.Parameter]) -> None:
    """Copy values into weights."""
    for value, weight in zip(values, into, strict=True):
        weight.copy_(value)
