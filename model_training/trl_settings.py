"""The settings of stage 3 in TRL's words."""

from __future__ import annotations

from pathlib import Path

from trl.trainer.grpo_config import GRPOConfig

from cudal1_ci.errors import ConfigError
from model_training.contrastive_config import ContrastiveConfig
from model_training.objective.loss import Weighting
from model_training.policy import Policy

LOSS_TYPES: dict[Weighting, str] = {"completion": "grpo", "token": "dapo", "constant": "dr_grpo"}


def arguments(
    config: ContrastiveConfig, policy: Policy, num_done: int, scratch: Path
) -> GRPOConfig:
    """Our settings in TRL's words.

    Raises:
        ConfigError: TRL has no word for one of them.
    """
    grpo, sampling = config.grpo, config.sampling
    num_completions = config.prompts_per_step * config.group_size
    if num_completions % grpo.piece_size:
        raise ConfigError(
            f"contrastive.grpo.piece-size: expected a divisor of the {num_completions} completions "
            f"of a step for the engine trl, got {grpo.piece_size}"
        )
    if grpo.objective.ratio != "token":
        raise ConfigError(
            'contrastive.grpo.objective.ratio: the engine trl has "token" alone, got '
            f'"{grpo.objective.ratio}"; use contrastive.engine = "reference"'
        )
    if grpo.objective.weighting == "constant" and grpo.objective.max_tokens != sampling.max_tokens:
        raise ConfigError(
            "contrastive.grpo.objective.max-tokens: the engine trl divides by "
            f"contrastive.sampling.max-tokens, {sampling.max_tokens}, got "
            f"{grpo.objective.max_tokens}; make them alike"
        )
    num_pieces = num_completions // grpo.piece_size
    return GRPOConfig(
        output_dir=str(scratch),
        max_steps=(config.num_steps - num_done) * grpo.num_updates,
        per_device_train_batch_size=grpo.piece_size,
        gradient_accumulation_steps=num_pieces,
        steps_per_generation=num_pieces,
        num_iterations=grpo.num_updates,
        num_generations=config.group_size,
        max_completion_length=sampling.max_tokens,
        temperature=sampling.temperature or 1.0,
        top_p=sampling.top_p,
        top_k=0,
        shuffle_dataset=False,
        dataloader_num_workers=0,
        ignore_data_skip=True,
        remove_unused_columns=False,
        loss_type=LOSS_TYPES[grpo.objective.weighting],
        epsilon=grpo.objective.low,
        epsilon_high=grpo.objective.high,
        # TRL would load weights to compare with; those of the stage's start are given to it below.
        beta=0.0,
        use_bias_correction_kl=False,  # equation 5 has the estimate alone, without a ratio
        scale_rewards="group" if grpo.advantage == "group_normalized" else "none",
        mask_truncated_completions=config.masks_cut,
        max_grad_norm=grpo.max_grad_norm,
        learning_rate=config.learning_rate,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=policy.device.type == "cpu",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=config.stream.seed,
    )
