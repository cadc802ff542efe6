"""Writes folders of runs as the training programs do, for tests of what reads them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from model_training.table import Sample, table

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
    "<!--<script>{{7*7}} \u2028 &lt;b&gt; \\u003c ]]> `x` | **y**"
)


def write_run(
    folder: Path,
    *,
    metrics: Iterable[dict[str, Any]] = (),
    samples: Iterable[dict[str, Any]] = (),
    evaluations: Iterable[dict[str, Any]] = (),
    seed: int = 0,
) -> Path:
    """A run with what is given."""
    (folder / "samples").mkdir(parents=True)
    (folder / "evaluations").mkdir()
    write_json(folder / "config.json", {"hash": "0123456789abcdef", "config": {"seed": seed}})
    write_json(
        folder / "environment.json",
        {
            "python": "3.11.9",
            "torch": "2.13.0",
            "gpus": ["Fake GPU"],
            "commit": "f" * 40,
            "seed": seed,
            "weights": "weights/tiny",
            "weights_sha256": {"model.safetensors": "a" * 64},
            "triton": None,
            "resumed": [{"python": "3.12.1", "gpus": ["Fake GPU"], "seed": seed}],
        },
    )
    write_lines(folder / "metrics.jsonl", metrics)
    stages: dict[str, list[dict[str, Any]]] = {}
    for one in samples:
        stages.setdefault(one["stage"], []).append(one)
    for stage, some in stages.items():
        write_lines(folder / "samples" / f"{stage}.jsonl", some)
    for one in evaluations:
        write_json(folder / "evaluations" / f"{one['name']}-{one['seed']}.json", one)
    return folder


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.encode(value))


def write_lines(path: Path, values: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in values), encoding="utf-8")


def evaluation(
    name: str,
    correct: float,
    speedup: float,
    *,
    seed: int = 0,
    policy: str | None = None,
    num_tasks: int = 20,
    num_samples: int = 8,
    k: int = 4,
) -> dict[str, Any]:
    """Of a policy that is right with a chance and then about that fast."""
    rng = random.Random(f"{name} {seed}")
    samples = []
    for task in range(num_tasks):
        for _ in range(num_samples):
            is_right = rng.random() < correct
            worth = rng.uniform(0.9, 1.1) * speedup
            status = (
                "passed" if is_right else rng.choice(["no_code", "runtime_error", "reward_hack"])
            )
            samples.append(
                Sample(task=f"diagonal-{task}", status=status, speedup=worth if is_right else None)
            )
    return {
        "name": name,
        "policy": policy or f"{name}-weights",
        "k": k,
        "temperature": 0.8,
        "seed": seed,
        "samples": samples,
        "table": table(samples, k),
    }


def metrics(stage: str, num_steps: int, **last: float) -> list[dict[str, Any]]:
    """Lines from zero to the last value of each number."""
    return [
        {
            "stage": stage,
            "step": step,
            "seconds": 10.0 * (step + 1),
            "generate_s": 4.0,
            "score_s": 3.0,
            "train_s": 2.0,
            **{key: value * step / max(1, num_steps - 1) for key, value in last.items()},
        }
        for step in range(num_steps)
    ]


def judged(
    stage: str, num_groups: int, *, group: int = 4, completion: str = "## Code\n...", seed: int = 0
) -> list[dict[str, Any]]:
    """Samples in groups, of which the first has the prompt."""
    rng = random.Random(seed)
    found = []
    for number in range(num_groups):
        prompt = f"Make task {number} faster. {HOSTILE}"
        for place in range(group):
            status = rng.choice(["passed", "no_code", "incorrect_values", "copy", "reward_hack"])
            speedup = round(rng.uniform(0.8, 2.5), 3) if status == "passed" else None
            one: dict[str, Any] = {
                "stage": stage,
                "step": number,
                "task": f"loop-{number % 7}",
                "prompt_sha": hashlib.sha256(prompt.encode()).hexdigest(),
                "exemplar_ids": ["e1", "e2"],
                "completion": f"{completion}\n{number} {place}",
                "status": status,
                "speedup": speedup,
                "reward": speedup or 0.0,
                "refused": "unchanged" if status == "copy" else None,
                "is_known": False,
                "was_confirmed": (speedup < 2.15) if speedup and speedup > 2 else None,
                "findings": [f"cache: {HOSTILE}"] if status == "reward_hack" else [],
                "seed": seed,
            }
            if place == 0:
                one["messages"] = [
                    {"role": "system", "content": "You write fast code."},
                    {"role": "user", "content": prompt},
                ]
            found.append(one)
    return found
