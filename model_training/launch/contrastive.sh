#!/usr/bin/env bash
# Stage 3 (or STAGE=self-supervised, stage 2): one GPU trains and samples, the others judge.
#
#   CONFIG=run.toml bash contrastive.sh [options of the command ...]
set -euo pipefail
here=$(dirname "$(realpath "$0")")
: "${CONFIG:?the configuration of the run}"
placement="$here/placements/${PLACEMENT:-node-8gpu-contrastive}.toml"
assigned=$(python -m model_training.launch.placement "$placement" --config "$CONFIG")
eval "$assigned"
CUDA_VISIBLE_DEVICES=$RUN_GPUS exec python -m model_training "${STAGE:-contrastive}" --config "$CONFIG" --resume "$@"
