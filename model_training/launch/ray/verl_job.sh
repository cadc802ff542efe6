#!/usr/bin/env bash
# Stage 3 on verl as a job of a Ray cluster that is there, whose nodes were started with the GPUs
# that train alone (CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 ray start --num-gpus=6 ...).
#
#   RAY_API_SERVER_ADDRESS=http://head:8265 DATA=data MODEL=weights NODES=2 bash verl_job.sh
set -euo pipefail
here=$(dirname "$(realpath "$0")")
: "${DATA:?the folder that export verl has written}" "${MODEL:?a folder of weights}"
nodes=${NODES:-1}
exec ray job submit --runtime-env "$here/runtime_env.yaml" --entrypoint-num-cpus 1 -- \
  env DATA="$DATA" MODEL="$MODEL" RAY_ADDRESS=auto bash model_training/export/verl/launch.sh \
  trainer.nnodes="$nodes" reward.num_workers=$((2 * nodes)) "$@"
