"""Answers of vLLM before and after an adapter changed: for an interpreter that has vLLM.

python tests/training/vllm_story.py WEIGHTS FOLDER          # FOLDER/story.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from cudal1_ci.propose.llm.servers import Message
from model_training.policy import Policy, PolicyConfig, load_policy
from model_training.rollouts import Rollouts, Sampling
from model_training.rollouts.transformers_rollouts import TransformersRollouts
from model_training.rollouts.vllm_rollouts import VllmRollouts

STORY = "story.json"
PROMPTS = [
    (Message(role="user", content="Count from one to ten in words, separated by commas."),),
    (Message(role="user", content="Name three colors."),),
]


def texts(rollouts: Rollouts, settings: Sampling, n: int = 1) -> list[list[str]]:
    return [[one.text for one in some] for some in rollouts.sample(PROMPTS, n, settings, seed=3)]


@torch.no_grad()
def change(policy: Policy, spread: float) -> None:
    """Of an adapter as it is drawn these are 0, and it changes nothing."""
    torch.manual_seed(0)
    for name, weight in policy.model.named_parameters():
        if "lora_B" in name:
            weight.normal_(std=spread)


def main(weights: str, folder: str) -> None:
    policy = load_policy(PolicyConfig(path=weights, lora_rank=14, device="cpu"), None, seed=0)
    greedy, drawn = Sampling(temperature=0.0, max_tokens=12), Sampling(max_tokens=12)
    found = {}
    found["transformers"] = texts(TransformersRollouts(policy), greedy)
    rollouts = VllmRollouts(policy, Path(folder), max_model_tokens=512, gpu_memory_share=0.2)
    found["start"] = texts(rollouts, greedy)
    found["drawn"], found["drawn again"] = (texts(rollouts, drawn, n=2) for _ in range(2))
    change(policy, 0.02)
    found["not handed over"] = texts(rollouts, greedy)
    rollouts.renew()
    found["changed"] = texts(rollouts, greedy)
    change(policy, 0.0)
    rollouts.renew()
    found["back"] = texts(rollouts, greedy)
    (Path(folder) / STORY).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
