"""Stage 1: learning to answer as the validated examples do.

    supervised(policy, examples, SupervisedConfig(), run)

The loss is the mean negative log likelihood of an answer's tokens; those of the question do not
count. The tokens are those that sampling asks with and would have to write (`Policy.example_ids`).
An example that is longer than it may be is left out and counted: one that is cut teaches not to
end. TRL's `SFTTrainer` does the training; this adds what a run needs: its curves, when to stop, and
checkpoints that are whole. A run that is taken up again has the same curve as one that never
stopped: weights, optimizer, schedule, random numbers and the place in the data are the trainer's
own checkpoint (`optimizer.pt`, `scheduler.pt`, `rng_state.pth`, `trainer_state.json`).

Source: CUDA-L1 (arXiv 2507.14111), section 2.2. It does not give the rate, the batch or the epochs.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from model_training.checkpoints import Checkpoint
from model_training.collection import Example
from model_training.gradients import sound_attention
from model_training.policy import Policy
from model_training.run import Run
from model_training.watcher import Watcher

STAGE = "supervised"


class SupervisedConfig(Record, frozen=True, kw_only=True):
    """Of one training on examples."""

    learning_rate: float = 2e-4
    """With LoRA; a tenth or less where all weights are trained."""
    epochs: float = 3.0
    batch_size: int = 16
    """Examples of a step, over all micro-batches of all processes."""
    micro_batch_size: int = 4
    """Examples at once on one device."""
    max_tokens: int = 2048
    """Of a question and its answer."""
    warmup_share: float = 0.05
    """Of the steps; the rate then falls to zero as a cosine."""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    has_gradient_checkpointing: bool = False
    """Less memory for a third more time."""
    checkpoint_steps: int = 50

    def __post_init__(self) -> None:
        at_least(
            self,
            "supervised",
            1,
            "batch_size",
            "micro_batch_size",
            "max_tokens",
            "checkpoint_steps",
        )
        positive(self, "supervised", "learning_rate", "epochs", "max_grad_norm")


class Fit(Record, frozen=True, kw_only=True):
    """How a training ended."""

    step: int
    """The last of the stage."""
    stopped: str | None = None
    """Why before its end: a signal, `max-minutes`; None at its end."""
    num_left_out: int = 0
    """Examples that are too long."""
    loss: float | None = None
    """Of the last step."""


def supervised(
    policy: Policy, examples: Sequence[Example], config: SupervisedConfig, run: Run, seed: int
) -> Fit:
    """Stage 1, from its last checkpoint where it has one."""
    checkpoint = run.newest(STAGE)
    run.rewind(STAGE, checkpoint.step if checkpoint else 0)
    found = fit(policy, examples, config, run, seed=seed, resumed=checkpoint)
    if found.stopped is None:
        run.finish(STAGE, f"{STAGE}-{found.step}")
    return found


def fit(
    policy: Policy,
    examples: Sequence[Example],
    config: SupervisedConfig,
    run: Run,
    *,
    seed: int,
    stage: str = STAGE,
    first_step: int = 0,
    state: Mapping[str, Any] | None = None,
    resumed: Checkpoint | None = None,
) -> Fit:
    """Train a policy on examples, with a checkpoint at the end of it and wherever it must stop.

    Args:
        first_step: Steps that the stage has had before; the run counts on from there.
        state: What the stage's checkpoints note besides.
        resumed: A checkpoint of this very training, to go on from.

    Raises:
        ConfigError: No example is short enough.
    """
    rows = rows_of(policy, examples, config.max_tokens)
    if not rows:
        raise ConfigError(
            f"{stage}: expected examples of at most {config.max_tokens} tokens, got none among "
            f"{len(examples)}; raise {STAGE}.max-tokens or collect more"
        )
    num_left_out = len(examples) - len(rows)
    folder = run.checkpoints / f".trainer-{stage}"
    if run.is_main:
        shutil.rmtree(folder, ignore_errors=True)
    watcher = Watcher(run, stage, first_step, config.checkpoint_steps, dict(state or {}))
    original = policy.base.__dict__.get("forward")
    trainer = SFTTrainer(
        model=policy.model,
        args=arguments(config, folder, policy, seed),
        train_dataset=Dataset.from_list(shuffled(rows, seed)),
        processing_class=policy.tokenizer,
        callbacks=[watcher],
    )
    trainer.remove_callback(PrinterCallback)  # the run's own files have the numbers
    try:
        with sound_attention():
            trainer.train(resume_from_checkpoint=str(resumed.folder) if resumed else None)
    finally:
        if run.is_main:
            shutil.rmtree(folder, ignore_errors=True)
        restore_forward(policy, original)
    return Fit(
        step=first_step + trainer.state.global_step,
        stopped=watcher.stopped,
        num_left_out=num_left_out,
        loss=watcher.loss,
    )


def rows_of(policy: Policy, examples: Sequence[Example], limit: int) -> list[dict[str, Any]]:
    """Tokens, and labels of those that count; without what is too long."""
    rows = []
    for one in examples:
        asked, answered = policy.example_ids(one.messages)
        if len(asked) + len(answered) <= limit:
            rows.append({"input_ids": asked + answered, "labels": [-100] * len(asked) + answered})
    return rows


def shuffled(rows: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Examples of a task lie beside one another; batches of the first epoch should not."""
    found = list(rows)
    random.Random(seed).shuffle(found)
    return found


def arguments(config: SupervisedConfig, folder: Path, policy: Policy, seed: int) -> SFTConfig:
    """The trainer's settings."""
    # Of the launcher: the trainer's settings begin the processes' group, and are not there yet.
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    micro = max(1, min(config.micro_batch_size, config.batch_size // processes))
    found = SFTConfig(
        output_dir=str(folder),
        learning_rate=config.learning_rate,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=max(1, config.batch_size // (micro * processes)),
        lr_scheduler_type="cosine",
        warmup_steps=config.warmup_share,
        max_grad_norm=config.max_grad_norm,
        weight_decay=config.weight_decay,
        gradient_checkpointing=config.has_gradient_checkpointing,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",  # the watcher says when
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        data_seed=seed,
        use_cpu=policy.device.type == "cpu",
        bf16=policy.device.type == "cuda",
        dataloader_pin_memory=policy.device.type == "cuda",
    )
    # Other GPUs of the machine are the judges': without this the trainer would refuse to run, as it
    # thinks that it has them all.
    found._n_gpu = min(found.n_gpu, 1)
    return found


def restore_forward(policy: Policy, original: Any) -> None:
    """The trainer puts its own `forward` around the model's; rounds of stage 2 would pile them."""
    if original is None:
        policy.base.__dict__.pop("forward", None)
    else:
        policy.base.forward = original
