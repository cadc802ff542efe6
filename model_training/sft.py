"""Run stage 1: learn to answer as the validated examples do.

    supervised(policy, examples, SupervisedConfig(), run, seed=0)

The loss is the mean negative log likelihood of an answer's tokens, which are those that sampling
would have to write (`Policy.example_ids`). An example that is too long is left out: one
that is cut teaches not to end. TRL's `SFTTrainer` trains; this adds curves, when to stop, and whole
checkpoints, which are the trainer's own, so that a resumed run has the same curve as one that never
stopped.

Source: CUDA-L1 (arXiv 2507.14111), section 2.2. It does not give the rate, the batch or the epochs.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive
from model_training.checkpoints import Checkpoint
from model_training.collect import EXAMPLES
from model_training.examples import Example, read_examples
from model_training.policy import Policy
from model_training.run import Run, Stopped
from model_training.trainer_callbacks import RunCallback, sound_attention

if TYPE_CHECKING:
    from model_training.run_setup import RunSetup

STAGE = "supervised"


class SupervisedConfig(Record, frozen=True, kw_only=True):
    """Configure one training on examples."""

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
    """Describe how a training ended."""

    step: int
    """The last of the stage."""
    stopped: str | None = None
    """Why before its end: a signal, `max-minutes`; None at its end."""
    loss: float | None = None
    """Of the last step."""


def main(setup: RunSetup) -> None:
    """Run stage 1 on what was collected."""
    examples = read_examples(setup.run.folder / EXAMPLES)
    setup.begin_at("base")
    found = supervised(
        setup.policy, examples, setup.config.supervised, setup.run, setup.config.run.seed
    )
    if found.stopped is not None:
        raise Stopped(found.stopped)


def supervised(
    policy: Policy, examples: Sequence[Example], config: SupervisedConfig, run: Run, seed: int
) -> Fit:
    """Run stage 1, from its last checkpoint where it has one."""
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
    """Train a policy on examples; write a checkpoint at the end and at each required stop.

    Args:
        first_step: Steps that the stage has had before; the run continues counting from there.
        state: What the stage's checkpoints note besides.
        resumed: A checkpoint of this training to resume from.

    Raises:
        ConfigError: No example is short enough.
    """
    rows = rows_of(policy, examples, config.max_tokens)
    if not rows:
        raise ConfigError(
            f"{stage}: expected examples of at most {config.max_tokens} tokens, got none among "
            f"{len(examples)}; raise {STAGE}.max-tokens or collect more"
        )
    folder = run.checkpoints / f".trainer-{stage}"
    if run.is_main:
        shutil.rmtree(folder, ignore_errors=True)
    watcher = RunCallback(run, stage, first_step, config.checkpoint_steps, dict(state or {}))
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
        loss=watcher.loss,
    )


def rows_of(policy: Policy, examples: Sequence[Example], limit: int) -> list[dict[str, Any]]:
    """Return tokens, and labels of those that count; without what is too long."""
    rows = []
    for one in examples:
        asked, answered = policy.example_ids(one.messages)
        if len(asked) + len(answered) <= limit:
            rows.append({"input_ids": asked + answered, "labels": [-100] * len(asked) + answered})
    return rows


def shuffled(rows: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Shuffle examples: those of a task follow one another, and should not share a batch."""
    found = list(rows)
    random.Random(seed).shuffle(found)
    return found


def arguments(config: SupervisedConfig, folder: Path, policy: Policy, seed: int) -> SFTConfig:
    """Return the trainer's settings."""
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
    # Other GPUs of the machine are the verifiers': without this the trainer would refuse to run,
    # as it thinks that it has them all.
    found._n_gpu = min(found.n_gpu, 1)
    return found


def restore_forward(policy: Policy, original: Any) -> None:
    """Take the trainer's `forward` away from the model; rounds of stage 2 would pile
    them."""
    if original is None:
        policy.base.__dict__.pop("forward", None)
    else:
        policy.base.forward = original
