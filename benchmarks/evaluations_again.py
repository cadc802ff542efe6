"""The right answers of several evaluations, judged once more, all by the same judge.

    python benchmarks/evaluations_again.py judge RUN... --device cuda --rounds 2 --output again.json
    python benchmarks/evaluations_again.py table RUN... --again again.json --output table.json

A judge measures each program once and every policy that answers with it has that verdict, so that
policies that were evaluated by different judges differ by what these measured too. Here a judge has
the programs of all policies, task by task, in each round with an archive that knows nothing. The
table is that of `python -m model_training report`, where a program that has passed is worth what it
is in the geometric mean of all rounds of all files; one that fails in most of them is no longer
right.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.records.archive import Archive
from model_training.asking import first_prompt
from model_training.bench import Answered
from model_training.environment import EnvironmentConfig
from model_training.judges import JudgeConfig, opened_judges
from model_training.report import markdown
from model_training.report.rewrites import program_of
from model_training.report.rows import rows_of
from model_training.report.run_folder import (
    Judged,
    PolicyEvaluation,
    Run,
    lines_of,
    read_run,
)
from model_training.run_files import EVALUATION
from model_training.scoring import PASSED, Scorer
from model_training.table import Sample
from model_training.tasks.record import Task

Key = tuple[str, str]
"""A task's name, and the text of an answer's program."""


def tasks_of(run: Run) -> dict[str, Task]:
    return {one.name: one for one in lines_of(run.folder / "tasks" / "evaluation.jsonl", Task)}


def answers_of(run: Run, evaluation: PolicyEvaluation) -> Iterator[Judged]:
    """In the order of the evaluation's samples."""
    path = run.folder / "samples" / f"{EVALUATION}{evaluation.name}.jsonl"
    return (one for one in lines_of(path, Judged) if one.seed == evaluation.seed)


def key_of(judged: Judged, tasks: Mapping[str, Task]) -> Key:
    program = program_of(judged, tasks[judged.task])
    assert program is not None, "what passed has a program"
    return judged.task, program.source


def right_answers(runs: Sequence[Run]) -> dict[Key, Judged]:
    """An answer for each different program that has passed, one task after another."""
    found = {
        key_of(judged, tasks): judged
        for run in runs
        for tasks in [tasks_of(run)]
        for evaluation in run.evaluations
        for judged in answers_of(run, evaluation)
        if judged.status == PASSED
    }
    return dict(sorted(found.items()))


def judge(runs: Sequence[Run], device: str, num_rounds: int, output: Path) -> None:
    """A file of what each round has found; written after every task."""
    tasks, answers = tasks_of(runs[0]), right_answers(runs)
    of_task: dict[str, list[Key]] = defaultdict(list)
    for key in answers:
        of_task[key[0]].append(key)
    settings = msgspec.convert(runs[0].config["config"]["judge"], JudgeConfig)
    config = msgspec.structs.replace(settings, devices=(device,), num_per_device=1)
    rows: list[dict[str, Any]] = []
    with opened_judges(config) as judges:
        for number in range(num_rounds):
            with (
                tempfile.TemporaryDirectory() as folder,
                Archive.open(Path(folder) / "archive.sqlite") as archive,
            ):
                scorer = Scorer(judges, archive, config.policy, EnvironmentConfig())
                for name, keys in of_task.items():
                    asked: list[Answered] = [
                        (
                            first_prompt(tasks[name], archive, scorer.device()),
                            answers[key].completion,
                            False,
                        )
                        for key in keys
                    ]
                    rows += [
                        {
                            "round": number,
                            "task": name,
                            "program": key[1],
                            "status": outcome.sample.status,
                            "speedup": outcome.sample.speedup,
                        }
                        for key, outcome in zip(keys, scorer.outcomes(asked), strict=True)
                    ]
                    write(
                        output,
                        {**provenance(), "device": scorer.device().name, "answers": rows},
                    )
            print(f"round {number}: {len(answers)} programs of {len(of_task)} tasks", flush=True)


def worths(rows: Sequence[dict[str, Any]]) -> dict[Key, float | None]:
    """The speedup of each program over all rounds; None of what fails in half of them or more."""
    found: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["task"], row["program"]].append(row)
    return {key: worth(several) for key, several in found.items()}


def worth(rows: Sequence[dict[str, Any]]) -> float | None:
    passed = [math.log(row["speedup"]) for row in rows if row["status"] == PASSED]
    return math.exp(statistics.fmean(passed)) if 2 * len(passed) > len(rows) else None


def judged_again(run: Run, found: Mapping[Key, float | None]) -> Run:
    """With the speedups that were found; a right answer that nobody judged again is left."""
    tasks = tasks_of(run)
    evaluations = []
    for one in run.evaluations:
        samples = tuple(again(judged, tasks, found) for judged in answers_of(run, one))
        assert [two.task for two in samples] == [two.task for two in one.samples]
        evaluations.append(msgspec.structs.replace(one, samples=samples, greedy=None))
    return msgspec.structs.replace(run, evaluations=tuple(evaluations))


def again(judged: Judged, tasks: Mapping[str, Task], found: Mapping[Key, float | None]) -> Sample:
    speedup = judged.speedup
    if judged.status == PASSED:
        speedup = found.get(key_of(judged, tasks), speedup)
        if speedup is None:
            return Sample(task=judged.task, status="failed_again")
    return Sample(task=judged.task, status=judged.status, speedup=speedup)


def spread(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How far two measurements of one program are from each other: the larger over the smaller."""
    found: dict[Key, list[float]] = defaultdict(list)
    for row in rows:
        if row["status"] == PASSED:
            found[row["task"], row["program"]].append(math.log(row["speedup"]))
    apart = sorted(
        abs(one - two)
        for several in found.values()
        for place, one in enumerate(several)
        for two in several[:place]
    )
    if not apart:
        return {}
    return {
        "num_pairs": len(apart),
        "median": round(math.exp(statistics.median(apart)), 4),
        "ninth_decile": round(math.exp(apart[len(apart) * 9 // 10]), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["judge", "table"])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--again", type=Path, action="append", default=[], help="of `judge`")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    runs = [read_run(one) for one in options.runs]
    if options.what == "judge":
        judge(runs, options.device, options.rounds, options.output)
        return
    files = [msgspec.json.decode(one.read_bytes()) for one in options.again]
    rows = [row for file in files for row in file["answers"]]
    found = worths(rows)
    table = rows_of([judged_again(run, found) for run in runs])
    print(markdown.results(table))
    print()
    print(markdown.differences(table))
    document = {
        **provenance(),
        "devices": [file["device"] for file in files],
        "num_programs": len(found),
        "num_failed_again": sum(one is None for one in found.values()),
        "apart": spread(rows),
        "rows": [msgspec.to_builtins(msgspec.structs.replace(one, samples=())) for one in table],
    }
    print(f"\n{document['num_failed_again']} of {len(found)} failed; {document['apart']}")
    write(options.output, document)


if __name__ == "__main__":
    main()
