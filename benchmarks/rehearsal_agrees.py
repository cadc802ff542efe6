"""What judges on the CPU would settle of the programs that a training run brought to a GPU, beside
what the GPU's judge said of each: none that passed there may be among them.

    python benchmarks/rehearsal_agrees.py benchmarks/results/training-h200-fourth

Reads the samples of a run and judges with its settings, on the CPU alone. A program that several
answers have counts once.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.records import Candidate, Problem
from cudal1_ci.records.archive import Archive
from model_training.judges import JudgeConfig, opened_rehearsers
from model_training.rehearsal import Found, Rehearsal, Tried
from model_training.report.rewrites import program_of
from model_training.report.run_folder import lines_of, read_run, samples_of
from model_training.tasks.record import Task

OUTPUT = Path(__file__).parent / "results" / "rehearsal-agrees.json"
PASSED = "passed"


def brought(folder: Path, stages: set[str]) -> tuple[list[Tried[str]], dict[tuple[str, str], str]]:
    """The programs that a GPU's judge has judged, by their tasks; and what it said of each."""
    tasks = {
        one.name: one
        for name in ("training", "evaluation")
        for one in lines_of(folder / "tasks" / f"{name}.jsonl", Task)
    }
    said: dict[tuple[str, str], str] = {}
    candidates: dict[str, list[Candidate]] = defaultdict(list)
    for one in samples_of(read_run(folder)):
        if one.stage not in stages or one.refused or one.is_known or one.was_rehearsed:
            continue
        task = tasks[one.task]
        program = program_of(one, task)
        if program is None:
            continue
        candidate = Candidate(problem_id=task.problem.id, program=program, proposer="policy")
        if (task.problem.id, candidate.id) not in said:
            said[task.problem.id, candidate.id] = one.status
            candidates[one.task].append(candidate)
    return [(name, tasks[name].problem, found) for name, found in candidates.items()], said


def counted(folder: Path, stages: set[str], num_judges: int) -> dict[str, Any]:
    tried, said = brought(folder, stages)
    problems: dict[str, Problem] = {name: problem for name, problem, _ in tried}
    settings = read_run(folder).config["config"]["judge"]
    config = msgspec.convert({**settings, "num_rehearsing": num_judges}, JudgeConfig)
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[dict[str, str]] = []
    lock = threading.Lock()

    def done(name: str, found: Found) -> bool:
        with lock:
            for key, one in found.items():
                status = said[problems[name].id, key]
                counts[status, one.evaluation.verdict.status] += 1
                if status == PASSED:
                    wrong.append({"task": name, "candidate": key})
        return True

    with (
        tempfile.TemporaryDirectory() as place,
        Archive.open(Path(place) / "archive.sqlite") as archive,
        opened_rehearsers(config) as judges,
    ):
        rehearsal = Rehearsal(judges, archive, config.rehearsal)
        rehearsal.each(tried, done)
    by_status = Counter(said.values())
    return {
        "run": folder.name,
        "stages": sorted(stages),
        "num_judges": num_judges,
        "took_s": round(rehearsal.took_s, 1),
        "rows": [
            {
                "on_the_gpu": status,
                "programs": number,
                "settled": {ours: n for (gpu, ours), n in sorted(counts.items()) if gpu == status},
            }
            for status, number in by_status.most_common()
        ],
        "passed_and_settled": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", action="append", help="of the samples; may be repeated")
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    stages = set(options.stage or ("self_supervised", "contrastive"))
    found = counted(options.run, stages, options.judges)
    write(options.output, {**provenance(), **found})
    for row in found["rows"]:
        told = ", ".join(f"{number} {status}" for status, number in row["settled"].items())
        print(f"{row['on_the_gpu']}: {row['programs']} programs, settled: {told or 'none'}")
    print(f"{len(found['passed_and_settled'])} passed on the GPU and would be worth nothing")


if __name__ == "__main__":
    main()
