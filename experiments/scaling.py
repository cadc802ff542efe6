"""Candidates an hour on 1, 2, 4 seats, and that nothing is lost with one that is killed.

    python experiments/scaling.py --device cuda --seats 1 2 4 --copies 4 --kill 60
    python experiments/scaling.py --device cuda --seats 1 2 4 --copies 4 --kill 60 --local
    python experiments/scaling.py --sleep 0.5 --seats 1 2 --candidates 120

The candidates are those of throughput.py, in copies that differ in a comment. With `--sleep` a
trial is that many seconds of sleep in an actor: what remains is the cost of the schedule, of Ray
and of the archive. With `--kill` one more run has the last number of seats, and the process of one
actor is killed (SIGKILL) when that many seconds have passed since the seats were there.
Each run has a new archive, nothing compiled, and a Ray of its own on this machine; with `--local`
the seats are threads, and what is killed is a judge. `--append` goes on with an earlier result, for
a machine that is lent for minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import text_trials
import throughput
from provenance import provenance

from cudal1_ci.pool import Limits, LocalSeats, RaySeats, Task, evaluate_all
from cudal1_ci.pool.actor import Introduction, Judge, Said
from cudal1_ci.pool.local import LocalSeat
from cudal1_ci.pool.ray import RaySeat
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.pool.view import PlainView, Tally
from cudal1_ci.records import Candidate, Device, Evaluation, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import BuildsConfig

OUTPUT = Path(__file__).parents[1] / "assets" / "results" / "scaling.json"
SLEEP = "SCALING_SLEEP_S"
CANDIDATES_OF_A_PROBLEM = 6


class Actor(Judge):
    """One that says which process it is."""

    def pid(self) -> int:
        return os.getpid()


class Sleeper:
    """One in which a trial is a sleep."""

    def __init__(self, config: bytes, device: str, number: int):
        self.policy = msgspec.msgpack.decode(config, type=SessionConfig).trial.policy
        self.number = number
        self.device = Device(kind="cpu", name="sleep")

    def pid(self) -> int:
        return os.getpid()

    def introduce(self) -> bytes:
        from cudal1_ci import __version__

        said = Introduction(
            version=__version__,
            policy=self.policy,
            name=f"sleeper {self.number}",
            device=self.device,
            niceness=0,
        )
        return msgspec.msgpack.encode(said)

    def judge(self, problem: bytes, candidates: bytes) -> Iterator[bytes]:
        for one in msgspec.msgpack.decode(candidates, type=tuple[Candidate, ...]):
            time.sleep(float(os.environ[SLEEP]))
            verdict = Verdict(status="incorrect_values")
            found = Evaluation(candidate=one, verdict=verdict, device=self.device)
            yield msgspec.msgpack.encode(Said(evaluation=found))


class Seats(RaySeats):
    """Ray's, with the processes of those that are open and the moment at which all were."""

    def __init__(self, *arguments: Any, actor: type, **settings: Any):
        super().__init__(*arguments, **settings)
        self.actor_class = actor
        self.pids: dict[int, int] = {}
        self.num_opened = 0
        self.are_there = threading.Event()
        self.there_s = 0.0

    def open(self, number: int, is_over: Any) -> RaySeat:
        seat = super().open(number, is_over)
        self.pids[number] = self.ray.get(seat.actor.pid.remote())
        self.num_opened += 1
        if len(self.pids) == self.num_seats and not self.are_there.is_set():
            self.there_s = time.monotonic()
            self.are_there.set()
        return seat


class Threads(LocalSeats):
    """The same without Ray: a thread for each of the first devices."""

    def __init__(self, config: SessionConfig, device: str, num_seats: int):
        names = [f"cuda:{index}" if device == "cuda" else device for index in range(num_seats)]
        super().__init__(config, names)
        self.pids: dict[int, int] = {}
        self.num_opened = 0
        self.are_there = threading.Event()
        self.there_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def open(self, number: int, is_over: Any) -> LocalSeat:
        seat = super().open(number, is_over)
        self.pids[number] = seat.session._worker.pid
        self.num_opened += 1
        if len(self.pids) == self.num_seats and not self.are_there.is_set():
            self.there_s = time.monotonic()
            self.are_there.set()
        return seat


def tasks(options: argparse.Namespace) -> list[Task]:
    if options.sleep is not None:
        number = options.candidates // CANDIDATES_OF_A_PROBLEM
        texts = [
            (f"{index}", [f"{index} {one}" for one in range(CANDIDATES_OF_A_PROBLEM)])
            for index in range(number)
        ]
    else:
        of_problem: dict[str, list[str]] = {}
        for one in throughput.candidates(options.only, options.rows):
            of_problem.setdefault(one.reference, []).append(one.source)
        texts = [
            (f"{reference}\n# {copy}\n", [f"{one}\n# {copy}\n" for one in several])
            for copy in range(options.copies)
            for reference, several in of_problem.items()
        ]
    found = []
    for reference, several in texts:
        problem = text_trials.problem_of(reference)
        candidates = tuple(text_trials.candidate_of(problem, source) for source in several)
        found.append(Task(problem=problem, candidates=candidates, name=f"problem {len(found)}"))
    return found


def run(options: argparse.Namespace, num_seats: int, kill_s: float | None) -> dict[str, Any]:
    """One run; how long it took from the moment at which the seats were there."""
    several = tasks(options)
    ids = [one.id for task in several for one in task.candidates]
    started_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        archive = stack.enter_context(Archive.open(Path(folder) / "archive.sqlite"))
        builds = BuildsConfig(folder=f"{folder}/builds")
        config = SessionConfig(trial=text_trials.MODES[options.mode], builds=builds)
        seats = stack.enter_context(seats_of(options, config, num_seats))
        begun_s = time.monotonic()
        killed: list[float] = []
        if kill_s is not None:
            threading.Thread(target=kill, args=(seats, kill_s, killed), daemon=True).start()
        moments, on_seat = [], Counter[str]()
        view = PlainView(sys.stderr, Tally(len(ids)))
        limits = Limits(max_batch=options.max_batch)
        for found in evaluate_all(
            several, seats, archive, config.trial.policy, limits=limits, view=view
        ):
            moments.append(time.monotonic())
            on_seat[str(found.seat)] += 1
        recorded = [one for _, one in archive.recorded()]
        elapsed_s, per_hour = rate(moments, seats.there_s if seats.are_there.is_set() else None)
        found_ids = Counter(one.candidate.id for one in recorded)
        devices = {one.device.key: one.device for one in recorded if one.device}
    return {
        "command": " ".join(["python", *sys.argv]),
        "num_seats": num_seats,
        "num_candidates": len(ids),
        "num_problems": len(several),
        "ray_starts_s": round(begun_s - started_s, 2),
        "seats_start_s": round(seats.there_s - begun_s, 2),
        "elapsed_s": round(elapsed_s, 3),
        "per_hour": round(per_hour, 1),
        "judged_by_seat": dict(on_seat),
        "trial_s": round(statistics.fmean(one.elapsed_s or 0.0 for one in recorded), 3),
        "statuses": dict(Counter(one.verdict.status for one in recorded)),
        "devices": [f"{one.kind} {one.name}" for one in devices.values()],
        "killed_after_s": [round(one - seats.there_s, 2) for one in killed],
        "num_seats_opened": seats.num_opened,
        "num_lost": len(set(ids) - set(found_ids)),
        "num_judged_twice": sum(number > 1 for number in found_ids.values()),
    }


def rate(moments: Sequence[float], there_s: float | None) -> tuple[float, float]:
    """Seconds from the moment at which all seats were there, and candidates an hour since then:
    what the first seats have judged by that time took none of them.

    Raises:
        SystemExit: There was never a moment with all seats and something to do.
    """
    counted = [] if there_s is None else [one for one in moments if one > there_s]
    if there_s is None or not counted:
        raise SystemExit("all was judged before every seat was there: ask for more candidates")
    elapsed_s = counted[-1] - there_s
    return elapsed_s, 3600 * len(counted) / elapsed_s


def seats_of(options: argparse.Namespace, config: SessionConfig, num_seats: int) -> Seats | Threads:
    if options.local:
        return Threads(config, options.device, num_seats)
    actor = Actor if options.sleep is None else Sleeper
    return Seats(config, address="local", device=options.device, num_seats=num_seats, actor=actor)


def kill(seats: Seats | Threads, after_s: float, killed: list[float]) -> None:
    seats.are_there.wait()
    time.sleep(after_s)
    killed.append(time.monotonic())
    os.kill(seats.pids[0], signal.SIGKILL)


def table(document: dict[str, Any]) -> list[str]:
    """Return a row of Markdown for each run."""
    lines = [
        "| seats | candidates | an hour | times | seconds a trial | killed after, s | lost "
        "| judged twice |",
        "|---" * 8 + "|",
    ]
    for run in document["runs"]:
        cells = [
            str(run["num_seats"]),
            f"{run['num_candidates']:,} of {run['num_problems']}",
            f"{run['per_hour']:,.0f}",
            f"{run['speedup']:.2f}",
            f"{run['trial_s']:.2f}" if "trial_s" in run else "–",
            ", ".join(f"{one:.0f}" for one in run["killed_after_s"]) or "–",
            str(run["num_lost"]),
            str(run["num_judged_twice"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seats", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sleep", type=float, help="seconds of a trial that only sleeps")
    parser.add_argument("--candidates", type=int, default=120, help="with --sleep")
    parser.add_argument("--only", default="*/pytorch*,*/triton*", help="as of throughput.py")
    parser.add_argument("--rows", type=int, help="as of throughput.py")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--mode", choices=text_trials.MODES, default="default")
    parser.add_argument("--max-batch", type=int, default=Limits().max_batch)
    parser.add_argument("--kill", type=float, help="seconds")
    parser.add_argument("--local", action="store_true", help="threads, not actors of Ray")
    parser.add_argument("--append", action="store_true", help="keep the runs of the output")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.sleep is not None:
        os.environ[SLEEP] = str(options.sleep)
    here = Path(__file__).resolve().parent  # actors are imported from it, and Ray may be elsewhere
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here.parent), str(here), *filter(None, known)])
    document: dict[str, Any] = {
        **provenance(),
        "trial": "sleep" if options.sleep is not None else "real",
        "sleep_s": options.sleep,
        "seats": "threads" if options.local else "ray",
        "runs": [],
    }
    if options.append and options.output.exists():
        document["runs"] = json.loads(options.output.read_text(encoding="utf-8"))["runs"]
    plans = [(number, None) for number in options.seats]
    if options.kill is not None:
        plans.append((options.seats[-1], options.kill))
    for number, kill_s in plans:
        row = run(options, number, kill_s)
        row["speedup"] = round(row["per_hour"] / [*document["runs"], row][0]["per_hour"], 3)
        document["runs"].append(row)
        text_trials.write(options.output, document)
        print(msgspec.json.encode(row).decode())


if __name__ == "__main__":
    main()
