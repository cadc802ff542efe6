"""How fast a training run's judges get through answers that a run has recorded, and what they wait
for, by how many of them share a device.

    python benchmarks/scoring_rate.py benchmarks/results/training-h200-fifth/bucket --device cuda \
        --judges 1 --judges 4 --steps 1,2 --rehearsing 10 --rounds 2

The answers of each step are judged as stage 3 judges them, with an archive that knows nothing: by
`scoring.Scorer`, with the run's settings. References are learned in the first step that asks about
their task; in a second round, with another archive, judges know them as far as they have kept
them. Seconds of what is asked and waited for are sums over the judges; what a judge in turn asked
of its runners is beside it (`check: load`), the rest of its time is its own. How many processor
cores of the machine were busy, and for how much of the time the GPU, is of the whole round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from unittest import mock

import msgspec
import pynvml
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.processes import lock
from cudal1_ci.records.archive import Archive
from cudal1_ci.sandboxed.timing.wait_times import Spent
from cudal1_ci.verification import Session
from model_training.asking import first_prompt
from model_training.bench import Answered
from model_training.environment import EnvironmentConfig, Outcome
from model_training.judges import JudgeConfig, opened_rehearsers
from model_training.rehearsal import Rehearsal
from model_training.report.run_folder import Judged, lines_of, read_run, samples_of
from model_training.scoring import Scorer
from model_training.tasks.record import Task

OUTPUT = Path(__file__).parent / "results" / "scoring-rate.json"
STAGE = "contrastive"


class Watch(Spent):
    """Seconds and times by what was done, of all threads."""

    @contextlib.contextmanager
    def held(self, how: str, device: str) -> Iterator[None]:
        """The device's lock, as `executor.lock` gives it."""
        with contextlib.ExitStack() as stack:
            with self.over(f"wait {how}"):
                stack.enter_context(getattr(lock, how)(device))
            with self.over(f"hold {how}"):
                yield

    def told(self, judges: Sequence[Session]) -> dict[str, dict[str, float]]:
        """Since it was asked the last time, with what judges say."""
        for judge in judges:
            for what, (times, seconds) in judge.spent().items():
                self.add(what, times, seconds)
        return {
            name: {"times": times, "seconds": round(seconds, 2)}
            for name, (times, seconds) in sorted(self.taken().items())
        }


class Load:
    """How busy the machine is over a time: cores of the processor, and the share of it in which the
    first GPU has something to do."""

    def __enter__(self) -> Self:
        self._started_s, self._cores_s = time.monotonic(), busy_s()
        self._shares: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        took_s = time.monotonic() - self._started_s
        self.cores = round((busy_s() - self._cores_s) / took_s, 2)
        self.gpu = round(statistics.fmean(self._shares), 3) if self._shares else None

    def _look(self) -> None:
        try:
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        except pynvml.NVMLError:  # there is none
            return
        while not self._is_over.wait(0.1):
            self._shares.append(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100)


def busy_s() -> float:
    """Seconds of all cores together since the machine was started, without those in which they
    idled or waited for a disk."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle, waiting = ticks[3:5]
    guests = ticks[8:]  # counted as ticks of users already
    return (sum(ticks) - idle - waiting - sum(guests)) / os.sysconf("SC_CLK_TCK")


def answers(folder: Path, steps: Sequence[int]) -> tuple[dict[str, Task], dict[int, list[Judged]]]:
    """Tasks by name, and of each step the answers in which there was something to judge."""
    tasks = {one.name: one for one in lines_of(folder / "tasks" / "training.jsonl", Task)}
    found: dict[int, list[Judged]] = defaultdict(list)
    for one in samples_of(read_run(folder)):
        if one.stage == STAGE and one.step in steps and one.refused is None:
            found[one.step].append(one)
    return tasks, found


def rows_of(
    config: JudgeConfig, tasks: dict[str, Task], steps: dict[int, list[Judged]], num_rounds: int
) -> Iterator[dict[str, Any]]:
    """All steps, by the judges that a configuration has; a row for each round."""
    with contextlib.ExitStack() as stack:
        watch = Watch()
        for module, how in (("session", "shared"), ("measuring", "exclusive")):
            way = lambda device, how=how: watch.held(how, device)  # noqa: E731
            stack.enter_context(mock.patch(f"cudal1_ci.verification.{module}.{how}", way))
        judges = [stack.enter_context(Session(config.trial, device=one)) for one in config.places]
        rehearsers = stack.enter_context(opened_rehearsers(config))
        for number in range(num_rounds):
            with Load() as load:
                found = judged(config, judges, rehearsers, tasks, steps)
            num_judged = sum(one["judged"] + one["rehearsed"] for one in found)
            took_s = sum(one["seconds"] for one in found)
            yield {
                "judges": len(judges),
                "rehearsing": len(rehearsers),
                "memory_bytes": config.trial.memory_bytes,
                "device": judges[0].device().name,
                "round": number + 1,
                "per_minute": round(60 * num_judged / took_s, 1),
                "seconds": round(took_s, 2),
                "busy_cores": load.cores,
                "busy_gpu": load.gpu,
                "steps": found,
                "spent": watch.told(judges),
            }


def judged(
    config: JudgeConfig,
    judges: Sequence[Session],
    rehearsers: Sequence[Session],
    tasks: dict[str, Task],
    steps: dict[int, list[Judged]],
) -> list[dict[str, Any]]:
    """One step after the other, with an archive of their own."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive.open(Path(folder) / "archive.sqlite") as archive,
    ):
        rehearsal = Rehearsal(rehearsers, archive, config.rehearsal) if rehearsers else None
        scorer = Scorer(
            judges,
            archive,
            config.policy,
            EnvironmentConfig(),
            places=config.places,
            rehearsal=rehearsal,
        )
        device = scorer.device()
        for number, said in sorted(steps.items()):
            asked: list[Answered] = [
                (first_prompt(tasks[one.task], archive, device), one.completion, False)
                for one in said
            ]
            started_s = time.monotonic()
            outcomes = scorer.outcomes(asked)
            rows.append(step_of(number, outcomes, time.monotonic() - started_s, scorer.rehearse_s))
    return rows


def step_of(
    number: int, outcomes: Sequence[Outcome], took_s: float, rehearse_s: float
) -> dict[str, Any]:
    """Different programs, by who judged them."""
    new = [one for one in outcomes if one.evaluation is not None and not one.is_known]
    return {
        "step": number,
        "tasks": len({one.sample.task for one in outcomes}),
        "judged": sum(not one.was_rehearsed for one in new),
        "rehearsed": sum(one.was_rehearsed for one in new),
        "passed": sum(one.sample.status == "passed" for one in new),
        "measured_again": sum(one.was_confirmed is not None for one in new),
        "seconds": round(took_s, 2),
        "rehearse_s": round(rehearse_s, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--judges", type=int, action="append", help="of the device; repeatable")
    parser.add_argument("--rehearsing", type=int, default=0, help="judges on the CPU")
    parser.add_argument("--memory-bytes", type=int, help="for the tensors of a judge's trials")
    parser.add_argument("--steps", default="1,2", help="of stage 3")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    tasks, steps = answers(options.run, [int(one) for one in options.steps.split(",")])
    settings = msgspec.convert(read_run(options.run).config["config"]["judge"], JudgeConfig)
    if options.memory_bytes:
        trial = msgspec.structs.replace(settings.trial, memory_bytes=options.memory_bytes)
        settings = msgspec.structs.replace(settings, trial=trial)
    rows = []
    for number in options.judges or [1]:
        config = msgspec.structs.replace(
            settings,
            devices=(options.device,),
            num_per_device=number,
            num_rehearsing=options.rehearsing,
        )
        for row in rows_of(config, tasks, steps, options.rounds):
            rows.append(row)
            write(options.output, {**provenance(), "run": options.run.name, "rows": rows})
            words = f"{number} judges, round {row['round']}"
            load = f"{row['busy_cores']} cores and {row['busy_gpu']} of the GPU busy"
            print(f"{words}: {row['per_minute']} a minute, {row['seconds']} s; {load}", flush=True)
            for name, spent in row["spent"].items():
                print(f"  {name}: {spent['times']} times, {spent['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
