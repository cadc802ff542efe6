"""What a faster program costs that a trained policy writes: answers, tokens, seconds of one GPU.

    python benchmarks/proposal_cost.py benchmarks/results/training-h100-ninth/bucket \
        --tokenizer Qwen2.5-Coder-0.5B-Instruct

Of the evaluations of a training run: all answers to all tasks, those that gained nothing included,
and the tasks of which one is right and more than a twentieth faster. Sampling and judging have the
GPU in turns. A prompt counts once, as its answers share it. Needs the model's tokenizer alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from evaluations_again import answers_of
from text_trials import write
from transformers import AutoTokenizer

from model_training.report.run_folder import Judged, Run, read_run
from model_training.run_files import EVALUATION
from model_training.table import FASTER

OUTPUT = Path(__file__).parent / "results" / "proposal-cost.json"


def row_of(run: Run, name: str, tokenizer: Any) -> dict[str, Any]:
    """Of an evaluation, all its seeds together."""
    evaluations = [one for one in run.evaluations if one.name == name]
    answers: list[Judged] = [one for each in evaluations for one in answers_of(run, each)]
    metrics = [one.numbers for one in run.metrics if one.stage == f"{EVALUATION}{name}"]
    prompts = [
        tokenizer.apply_chat_template(one.messages, add_generation_prompt=True, tokenize=False)
        for one in answers
        if one.messages
    ]
    faster = {(one.seed, one.task) for one in answers if (one.speedup or 0.0) > FASTER}
    found = {
        "answers": len(answers),
        "prompt_tokens": sum(len(tokenizer(text)["input_ids"]) for text in prompts),
        "completion_tokens": sum(len(tokenizer(one.completion)["input_ids"]) for one in answers),
        "generate_s": round(sum(one["generate_s"] for one in metrics), 1),
        "judge_s": round(sum(one["score_s"] for one in metrics), 1),
    }
    return {
        "run": run.name,
        "evaluation": name,
        "policy": evaluations[0].policy,
        "tasks": len({(one.seed, one.task) for one in answers}),
        "faster": len(faster),
        **found,
        "each": {key: round(value / len(faster), 1) for key, value in found.items()}
        if faster
        else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    rows = []
    for folder in options.runs:
        run = read_run(folder)
        rows += [row_of(run, name, tokenizer) for name in sorted({e.name for e in run.evaluations})]
    for row in rows:
        print(row)
    gpus = sorted({gpu for folder in options.runs for gpu in gpus_of(read_run(folder))})
    write(options.output, {**provenance(), "gpus": gpus, "rows": rows})


def gpus_of(run: Run) -> list[str]:
    return [gpu for one in run.environments for gpu in one.get("gpus", ())]


if __name__ == "__main__":
    main()
