"""How many generated tasks have hand-made variants, whether these compute the same, and how they
compare on a CPU by a simple timing, which is not the judge's and is not trusted.

    python benchmarks/training_variants.py --tasks 300
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from discovery_speed import provenance

from cudal1_ci.propose.llm.fingerprint import fingerprint
from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct
from model_training.tasks.record import Task
from model_training.variants import variants_of

OUTPUT = Path(__file__).parent / "results" / "training-variants.json"
SCALE = Scale(min_elements=2**13, max_elements=2**15, max_loop=16)
RTOL, ATOL = 1e-7, 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    making_s = 0.0
    started_s = time.monotonic()
    for task in itertools.islice(distinct(list(FAMILIES), SCALE), options.tasks):
        begun_s = time.perf_counter()
        variants = variants_of(task)
        making_s += time.perf_counter() - begun_s
        kinds = collections.Counter(one.kind for one in variants)
        written = [one for one in variants if one.kind == "torch"]
        rows.append(
            {
                "task": task.name,
                "family": task.family,
                "kinds": dict(kinds),
                "num_forms": len({fingerprint(one.text) for one in written}),
                "techniques": sorted({name for one in variants for name in one.techniques}),
                **compared(task, [one.text for one in written]),
            }
        )
    result: dict[str, Any] = {
        **provenance(),
        "torch": torch.__version__,
        "tolerance": {"rtol": RTOL, "atol": ATOL},
        "seconds": round(time.monotonic() - started_s, 1),
        "making_s": round(making_s, 1),
        "all": summary(rows),
        "per_family": {
            family: summary([row for row in rows if row["family"] == family]) for family in FAMILIES
        },
        "untrusted_timing": "least of 5 calls each, one thread, no gradients",
        "tasks": rows,
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in result.items() if k != "tasks"}, indent=1))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [row["best_ratio"] for row in rows if row["best_ratio"] is not None]
    return {
        "num_tasks": len(rows),
        "num_with_torch": sum("torch" in row["kinds"] for row in rows),
        "num_with_two_forms": sum(row["num_forms"] > 1 for row in rows),
        "num_with_triton": sum("triton" in row["kinds"] for row in rows),
        "num_variants": sum(sum(row["kinds"].values()) for row in rows),
        "num_compared": sum(row["num_compared"] for row in rows),
        "num_equal": sum(row["num_equal"] for row in rows),
        "untrusted_best_ratio": {
            "median": round(statistics.median(ratios), 2) if ratios else None,
            "geometric_mean": round(math.exp(statistics.fmean(map(math.log, ratios))), 2)
            if ratios
            else None,
            "share_above_1.05": round(statistics.fmean(one > 1.05 for one in ratios), 2)
            if ratios
            else None,
        },
    }


@torch.no_grad()
def compared(task: Task, texts: list[str]) -> dict[str, Any]:
    """Equality in double precision, and untrusted times in single precision."""
    reference, inputs = built(task.text, "Model", task.text)
    singles = [one.float() if one.is_floating_point() else one for one in inputs]
    wanted = reference(*(one.clone() for one in inputs))
    state = reference.state_dict()
    num_equal, ratios = 0, []
    for text in texts:
        candidate, _ = built(text, "ModelNew", task.text)
        candidate.load_state_dict(state)
        found = candidate(*(one.clone() for one in inputs))
        num_equal += found.shape == wanted.shape and torch.allclose(found, wanted, RTOL, ATOL)
        single, _ = built(text, "ModelNew", task.text)
        ratios.append(
            seconds(built(task.text, "Model", task.text)[0].float(), singles)
            / seconds(single.float(), singles)
        )
    return {
        "num_compared": len(texts),
        "num_equal": num_equal,
        "ratios": [round(one, 3) for one in ratios],
        "best_ratio": round(max(ratios), 3) if ratios else None,
    }


def built(text: str, entry: str, task: str) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    names: dict[str, Any] = {}
    given: dict[str, Any] = {}
    exec(compile(text, "<program>", "exec"), names)
    exec(compile(task, "<task>", "exec"), given)
    torch.manual_seed(0)
    model = names[entry](*given["get_init_inputs"]()).double().eval()
    for value in model.state_dict().values():
        if value.is_floating_point():  # what begins as zeros and ones would hide mistakes
            value.add_(torch.rand_like(value) * 0.5)
    inputs = given["get_inputs"]()
    return model, [one.double() if one.is_floating_point() else one for one in inputs]


def seconds(model: torch.nn.Module, inputs: list[torch.Tensor]) -> float:
    """Of a call, the least of five after one that does not count."""
    model(*inputs)
    least = math.inf
    for _ in range(5):
        start_s = time.perf_counter()
        model(*inputs)
        least = min(least, time.perf_counter() - start_s)
    return least


if __name__ == "__main__":
    main()
