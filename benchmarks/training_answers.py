"""What a training run's examples and answers are: recordings, what the judge knew, what failed, and
whether they leave any of the task's statements as they are.

    python benchmarks/training_answers.py benchmarks/results/training-h200-third

Reads the folder of a run, compressed or not. A recording is the task itself as a CUDA graph, and
what is faster is so by more than a twentieth, as the report counts it.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write

from model_training.collection import Example
from model_training.exchanges import exchanges
from model_training.recorded import is_recording
from model_training.report.rewrites import program_of
from model_training.report.run_folder import Judged, lines_of, read_run, samples_of
from model_training.table import FASTER
from model_training.tasks.record import Task

EXTENTS = ("leaves some", "leaves none")
OUTPUT = Path(__file__).parent / "results" / "training-answers.json"


def kind_of(judged: Judged, task: Task) -> str:
    """Of an answer: no program, a recording, what has a graph and is more, or plain."""
    program = program_of(judged, task)
    if program is None:
        return "none"
    if is_recording(task.problem, program):
        return "recording"
    return "graph" if "CUDAGraph" in program.source else "plain"


def extent_of(judged: Judged, task: Task) -> str | None:
    """Whether a program leaves statements of the task's `forward` as they are, besides what it
    returns; None for a copy, and where one of the two cannot be read."""
    program = program_of(judged, task)
    found = exchanges(task.text, program.source) if program else None
    return None if found is None else "leaves some" if found[1] else "leaves none"


def as_judged(example: Example) -> Judged:
    """An example as the answer that it is."""
    answer = example.messages[-1].content
    return Judged(stage="collect", step=0, task=example.task, completion=answer, status="passed")


def how(judged: Judged) -> str:
    """Where the verdict comes from."""
    if judged.refused is not None:
        return "nothing to judge"
    return "known" if judged.is_known else "rehearsed" if judged.was_rehearsed else "judged"


def counted(folder: Path) -> dict[str, Any]:
    tasks = {
        one.name: one
        for name in ("training", "evaluation")
        for one in lines_of(folder / "tasks" / f"{name}.jsonl", Task)
    }
    has_examples = any(folder.glob("examples.jsonl*"))
    examples = list(lines_of(folder / "examples.jsonl", Example)) if has_examples else []
    kinds = Counter(kind_of(as_judged(one), tasks[one.task]) for one in examples)
    extents = Counter(extent_of(as_judged(one), tasks[one.task]) for one in examples)
    kinds.update({one: extents[one] for one in EXTENTS})
    steps: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for one in samples_of(read_run(folder)):
        task, found = tasks[one.task], steps[one.stage, one.step]
        for word in (kind_of(one, task), extent_of(one, task)):
            if word is None:
                continue
            found[word] += 1
            if one.status == "passed":
                found[f"{word}, right"] += 1
            if one.speedup is not None and one.speedup > FASTER:
                found[f"{word}, faster"] += 1
        found[how(one)] += 1
        if one.was_confirmed is not None:
            found.update(["jumps", *(["not confirmed"] if not one.was_confirmed else [])])
    rows = [{"stage": key[0], "step": key[1], **dict(found)} for key, found in steps.items()]
    return {"run": folder.name, "examples": dict(kinds), "steps": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the answers of a training run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found = counted(options.run)
    write(options.output, {**provenance(), **found})
    print("examples:", found["examples"])
    for row in found["steps"]:
        print(row)


if __name__ == "__main__":
    main()
