#!/usr/bin/env bash
# Evaluates a model behind a vLLM server: some GPUs serve, others judge.
#
#   MODEL=weights ADAPTER=checkpoint CONFIG=run.toml bash evaluate_server.sh [options ...]
#
# The configuration has rollouts.kind = "server" and rollouts.server.model =
# "http://127.0.0.1:8000/v1"; with an adapter, rollouts.server.name = "adapter".
set -euo pipefail
here=$(dirname "$(realpath "$0")")
: "${CONFIG:?the configuration of the run}" "${MODEL:?a folder of weights}"
PORT=${PORT:-8000}
placement="$here/placements/${PLACEMENT:-node-8gpu-server}.toml"
assigned=$(python -m model_training.launch.placement "$placement" --config "$CONFIG")
eval "$assigned"

adapter=()
if [[ -n "${ADAPTER:-}" ]]; then
  adapter=(--enable-lora --max-lora-rank "${LORA_RANK:-16}" --lora-modules "adapter=$ADAPTER")
fi
CUDA_VISIBLE_DEVICES=$SERVE_GPUS vllm serve "$MODEL" --host 127.0.0.1 --port "$PORT" \
  --data-parallel-size "$NUM_SERVE" --max-model-len "${MAX_TOKENS:-8192}" "${adapter[@]}" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT
until curl --silent --fail "http://127.0.0.1:$PORT/health" >/dev/null; do
  kill -0 "$server" || { echo "the server ended before it was ready" >&2; exit 4; }
  sleep 2
done
CUDA_VISIBLE_DEVICES=$RUN_GPUS python -m model_training evaluate --config "$CONFIG" --resume "$@"
