#!/usr/bin/env bash
# Stage 1 on all GPUs of a node; nothing is judged while it trains.
#
#   CONFIG=run.toml bash supervised.sh [options of the command ...]
#   ACCELERATE=deepspeed_zero3_8gpu.yaml CONFIG=run.toml bash supervised.sh
set -euo pipefail
here=$(dirname "$(realpath "$0")")
: "${CONFIG:?the configuration of the run}"
exec accelerate launch --config_file "$here/accelerate/${ACCELERATE:-fsdp2_8gpu.yaml}" \
  --module model_training supervised --config "$CONFIG" --resume "$@"
