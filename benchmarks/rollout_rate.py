"""How fast a model writes many answers at once: the decode loop of training beside `generate`.

    python benchmarks/rollout_rate.py weights/qwen2.5-coder-0.5b-instruct --device cuda \
        --rows 128 --prompt 2000 --tokens 256 --output benchmarks/results/rollout-rate.json

Prompts of random tokens, none of them twice, and no token ends an answer, so that all rows go the
full length. A step is a token of each row after the first; the first is timed with reading the
prompts, by answers of one token. Each way is warmed up with a short answer. One that runs out of
memory is stated so, and the other one measured; after `--limit` seconds no more is begun.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from discovery_speed import provenance

from model_training.policy import Policy, PolicyConfig, load_policy
from model_training.rollouts import Sampling
from model_training.rollouts.decoding import decoded
from model_training.rollouts.transformers_rollouts import evaluating

OUTPUT = Path(__file__).parent / "results" / "rollout-rate.json"
NUM_WARM = 4
"""Tokens: more than it takes until a step is captured."""
Rows = Sequence[Sequence[int]]
Way = Callable[[Policy, Rows, int], int]


def by_loop(policy: Policy, rows: Rows, num_tokens: int) -> int:
    """Tokens that were written."""
    settings = Sampling(temperature=1.0, max_tokens=num_tokens)
    made = decoded(policy.base, rows, settings, (), int(policy.tokenizer.pad_token_id))
    return sum(map(len, made))


def by_generate(policy: Policy, rows: Rows, num_tokens: int) -> int:
    """With its dynamic cache, as it comes."""
    tokens = torch.tensor(rows, device=policy.device)
    made = policy.base.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        generation_config=transformers.GenerationConfig(
            max_new_tokens=num_tokens,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=policy.tokenizer.pad_token_id,
        ),
    )
    return int(made.shape[0] * (made.shape[1] - tokens.shape[1]))


WAYS: dict[str, Way] = {"decoded": by_loop, "generate": by_generate}


def timed_s(way: Way, policy: Policy, rows: Rows, num_tokens: int) -> float:
    """Seconds of answers that are as long as was asked."""
    synchronize(policy.device)
    began_s = time.perf_counter()
    written = way(policy, rows, num_tokens)
    synchronize(policy.device)
    elapsed_s = time.perf_counter() - began_s
    if written != len(rows) * num_tokens:
        raise SystemExit(f"expected {len(rows) * num_tokens} tokens, got {written}")
    return elapsed_s


def measured(
    name: str, policy: Policy, rows: Rows, options: argparse.Namespace, ends_s: float
) -> dict[str, Any]:
    """What one way takes, or why that is not known."""
    way = WAYS[name]
    is_cuda = policy.device.type == "cuda"
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(policy.device)
    whole_s: list[float] = []
    try:
        torch.manual_seed(0)
        way(policy, rows, NUM_WARM)
        prompts_s = timed_s(way, policy, rows, 1)
        for _ in range(options.repeat):
            if time.monotonic() > ends_s:
                break
            whole_s.append(timed_s(way, policy, rows, options.tokens))
    except torch.OutOfMemoryError as error:
        return {"way": name, "failed": f"out of memory: {str(error)[:200]}"}
    if not whole_s:
        return {"way": name, "failed": f"nothing was measured within {options.limit} s"}
    median_s = statistics.median(whole_s)
    return {
        "way": name,
        "prompts_s": round(prompts_s, 4),
        "whole_s": [round(one, 4) for one in whole_s],
        "tokens_per_s": round(len(rows) * options.tokens / median_s, 1),
        "step_ms": round(1e3 * (median_s - prompts_s) / (options.tokens - 1), 3),
        "peak_bytes": torch.cuda.max_memory_allocated(policy.device) if is_cuda else None,
    }


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("weights", nargs="?", help="a folder of transformers")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer, at least 2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--adapter", choices=["none", "merged", "beside"], default="merged")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds for a way")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.weights is None:
        print("no weights given: nothing is measured")
        return
    if options.tokens < 2:
        parser.error(f"--tokens: expected at least 2, got {options.tokens}")
    policy = load_policy(PolicyConfig(path=options.weights, device=options.device))
    if options.adapter == "none":
        policy.model = policy.model.unload()
    elif options.adapter == "merged":
        policy.model.merge_adapter()
    policy.base.generation_config = transformers.GenerationConfig()
    random = torch.Generator().manual_seed(0)
    size = policy.base.config.vocab_size
    rows = torch.randint(0, size, (options.rows, options.prompt), generator=random).tolist()
    found = []
    with evaluating(policy):
        for name in options.ways.split(","):
            found.append(measured(name, policy, rows, options, time.monotonic() + options.limit))
            print(json.dumps(found[-1]), flush=True)
            is_cuda = policy.device.type == "cuda"
            result = {
                **provenance(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "device": torch.cuda.get_device_name(policy.device) if is_cuda else "cpu",
                "weights": Path(options.weights).name,
                "num_rows": options.rows,
                "num_prompt_tokens": options.prompt,
                "num_tokens": options.tokens,
                "adapter": options.adapter,
                "ways": found,
            }
            options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
