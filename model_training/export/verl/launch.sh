#!/usr/bin/env bash
# Stage 3 on verl 0.9.1, on one node of eight GPUs of which the last two score.
#
#   DATA=folder of `export verl`  MODEL=weights after stage 2  bash launch.sh [verl settings ...]
#
# Ray sees the GPUs that train and generate, six of them; the judges take the other two by number.
set -euo pipefail
: "${DATA:?the folder that export verl has written}" "${MODEL:?a folder of weights}"
TRAIN_GPUS=${TRAIN_GPUS:-0,1,2,3,4,5}
SCORE_GPUS=${SCORE_GPUS:-6,7}
num_train=$(tr ',' '\n' <<<"$TRAIN_GPUS" | wc -l)
num_score=$(tr ',' '\n' <<<"$SCORE_GPUS" | wc -l)
for gpu in ${SCORE_GPUS//,/ }; do
  if [[ ",$TRAIN_GPUS," == *",$gpu,"* ]]; then
    echo "GPU $gpu: expected TRAIN_GPUS and SCORE_GPUS apart, what trains disturbs what is timed" >&2
    exit 2
  fi
done

CUDA_VISIBLE_DEVICES=$TRAIN_GPUS CUDA_DEVICE_ORDER=PCI_BUS_ID python -m verl.trainer.main_ppo \
  data.train_files="$DATA/train.parquet" \
  data.val_files="$DATA/test.parquet" \
  data.custom_cls.path=pkg://model_training.export.verl.dataset \
  data.custom_cls.name=ContrastiveDataset \
  data.dataloader_num_workers=0 \
  +data.contrastive.archive="$DATA/archive.sqlite" \
  +data.contrastive.device="$DATA/device.json" \
  data.train_batch_size=24 \
  data.max_prompt_length=4096 \
  data.max_response_length=1024 \
  data.truncation=error \
  reward.custom_reward_function.path=pkg://model_training.export.verl.reward \
  reward.custom_reward_function.name=compute_score \
  +reward.custom_reward_function.reward_kwargs.archive="$DATA/archive.sqlite" \
  "+reward.custom_reward_function.reward_kwargs.gpus=[$SCORE_GPUS]" \
  reward.num_workers="$num_score" \
  algorithm.adv_estimator=grpo \
  algorithm.norm_adv_by_std_in_grpo=true \
  algorithm.use_kl_in_reward=false \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.model.lora_rank=14 \
  actor_rollout_ref.model.lora_alpha=32 \
  actor_rollout_ref.actor.optim.lr=2e-5 \
  actor_rollout_ref.actor.ppo_mini_batch_size=24 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.actor.clip_ratio_low=0.2 \
  actor_rollout_ref.actor.clip_ratio_high=0.28 \
  actor_rollout_ref.actor.use_kl_loss=false \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.load_format=safetensors \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.temperature=1.0 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \
  trainer.n_gpus_per_node="$num_train" \
  trainer.nnodes=1 \
  trainer.total_epochs=1 \
  "$@"
