"""Candidates an hour on up to 64 GPUs, simulated: where the bottleneck appears.

    python benchmarks/scaling_simulation.py

It is the schedule of the product (cudal1_ci/pool/schedule.py) that decides, under a clock that
is simulated. A candidate takes as long as one of those that were recorded on an H200
(results/throughput-before.json, throughput-cuda.json), drawn with a seed; a seat that comes to a
problem pays one of the recorded checks of a reference. The caller's process takes results one after
the other, for as long as one was measured to take (results/scaling-overhead.json). A seat that is
lost is back after a time, and what it was at is begun anew.

Not simulated: what judges of one host share (processor cores, memory, the disk), the network, and
compilers.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import text_trials
from discovery_speed import provenance

from cudal1_ci.pool.schedule import Schedule

RESULTS = Path(__file__).parent / "results"
OUTPUT = RESULTS / "scaling-simulation.json"
START_S = 20.0
"""A seat's start, or its return after a loss: an actor, a judge, torch."""


@dataclass(frozen=True)
class Durations:
    """Seconds, as they were recorded."""

    checks: tuple[float, ...]
    candidates: tuple[float, ...]
    """Without the check of the reference that the first one of a problem waited for."""


@dataclass(frozen=True)
class Work:
    name: str
    num_problems: int
    num_candidates: int
    """Of each problem."""


WORKS = (
    Work("a report card", 250, 6),
    Work("a step of training", 64, 8),
    Work("one problem in depth", 1, 500),
)


@dataclass
class Tally:
    """Seconds of all seats together."""

    checking_s: float = 0.0
    checking_again_s: float = 0.0
    judging_s: float = 0.0
    lost_s: float = 0.0
    waiting_for_caller_s: float = 0.0
    schedule_s: float = 0.0
    """Of this machine's processor, really."""
    num_takes: int = 0
    num_lost: int = 0


@dataclass(frozen=True, order=True)
class Event:
    """What happens to a seat. `join` and `lost` are its begin and end; `judged` is a candidate,
    whose result the caller has not taken yet; `free` is the moment at which it has the last one."""

    at_s: float
    order: int
    kind: str
    seat: str
    candidate: str = ""
    is_last: bool = False


@dataclass
class Simulation:
    """One run."""

    durations: Durations
    work: Work
    num_seats: int
    max_batch: int
    """1 where candidates compile nothing."""
    caller_s: float
    life_s: float | None
    """Mean time until a seat is lost."""
    random: random.Random
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.schedule = Schedule(max_batch=self.max_batch)
        self.length: dict[str, float] = {}
        self.check: dict[str, float] = {}
        for problem in range(self.work.num_problems):
            name = f"{self.work.name}/{problem}"
            several = [f"{name}/{one}" for one in range(self.work.num_candidates)]
            self.length |= {one: self.random.choice(self.durations.candidates) for one in several}
            self.check[name] = self.random.choice(self.durations.checks)
            self.schedule.add(name, several, built=several if self.max_batch > 1 else ())
        self.order = itertools.count()
        self.events: list[Event] = []
        self.checked: set[str] = set()
        self.has: dict[str, str] = {}
        self.dies_s: dict[str, float] = {}
        self.idle: list[str] = []
        self.caller_free_s = 0.0

    def run(self) -> dict[str, Any]:
        for seat in range(self.num_seats):
            self.push(START_S, "join", f"seat {seat}")
        now = START_S
        while not self.schedule.is_finished:
            event = heapq.heappop(self.events)
            now = event.at_s
            getattr(self, event.kind)(event)
        return self.told(max(now, self.caller_free_s))

    def push(
        self, at_s: float, kind: str, seat: str, candidate: str = "", is_last: bool = False
    ) -> None:
        heapq.heappush(self.events, Event(at_s, next(self.order), kind, seat, candidate, is_last))

    def join(self, event: Event) -> None:
        self.schedule.join(event.seat, "kind")
        self.has.pop(event.seat, None)
        life_s = self.life_s
        lasts_s = self.random.expovariate(1 / life_s) if life_s else float("inf")
        self.dies_s[event.seat] = event.at_s + lasts_s
        self.free(event)

    def lost(self, event: Event) -> None:
        given_up = self.schedule.lost(event.seat)
        assert not given_up, "a seat is lost so often that candidates are given up"
        self.tally.num_lost += 1
        self.push(event.at_s + START_S, "join", event.seat)
        self.ask_again(event.at_s)

    def judged(self, event: Event) -> None:
        self.schedule.done(event.seat, event.candidate)
        self.caller_free_s = max(self.caller_free_s, event.at_s) + self.caller_s
        if event.is_last:
            self.tally.waiting_for_caller_s += self.caller_free_s - event.at_s
            self.push(self.caller_free_s, "free", event.seat)

    def free(self, event: Event) -> None:
        self.idle.append(event.seat)
        self.ask_again(event.at_s)

    def ask_again(self, now: float) -> None:
        """What waits may be for another seat now than for the one that is free."""
        self.idle = [seat for seat in self.idle if not self.take(seat, now)]

    def take(self, seat: str, now: float) -> bool:
        """Begin the next batch of a seat, where there is one."""
        begun = time.perf_counter()
        batch = self.schedule.take(seat)
        self.tally.schedule_s += time.perf_counter() - begun
        self.tally.num_takes += 1
        if batch is None:
            return False
        clock = now + self.check_s(seat, batch.problem_id)
        for one in batch.candidate_ids:
            ends_s = clock + self.length[one]
            if ends_s > self.dies_s[seat]:
                dies_s = max(now, self.dies_s[seat])
                self.tally.lost_s += max(0.0, dies_s - clock)
                self.push(dies_s, "lost", seat)
                return True
            self.tally.judging_s += self.length[one]
            self.push(ends_s, "judged", seat, one, one == batch.candidate_ids[-1])
            clock = ends_s
        return True

    def check_s(self, seat: str, problem: str) -> float:
        """What a seat pays for a problem whose reference its judge does not have."""
        if self.has.get(seat) == problem:
            return 0.0
        self.has[seat] = problem
        if problem in self.checked:
            self.tally.checking_again_s += self.check[problem]
        else:
            self.tally.checking_s += self.check[problem]
        self.checked.add(problem)
        return self.check[problem]

    def told(self, end_s: float) -> dict[str, Any]:
        elapsed_s = end_s - START_S
        seat_s = elapsed_s * self.num_seats
        tally, number = self.tally, len(self.length)
        least_s = max(
            (sum(self.length.values()) + sum(self.check.values())) / self.num_seats,
            max(self.length.values()) + min(self.check.values()),
        )
        busy_s = (
            tally.checking_s
            + tally.checking_again_s
            + tally.judging_s
            + tally.lost_s
            + tally.waiting_for_caller_s
        )
        return {
            "work": self.work.name,
            "num_seats": self.num_seats,
            "max_batch": self.max_batch,
            "caller_ms": round(1000 * self.caller_s, 2),
            "life_s": self.life_s,
            "elapsed_s": round(elapsed_s, 1),
            "per_hour": round(3600 * number / elapsed_s, 1),
            "least_s": round(least_s, 1),
            "share": {
                "judging": round(tally.judging_s / seat_s, 4),
                "first checks": round(tally.checking_s / seat_s, 4),
                "checks again": round(tally.checking_again_s / seat_s, 4),
                "lost": round(tally.lost_s / seat_s, 4),
                "waiting for the caller": round(tally.waiting_for_caller_s / seat_s, 4),
                "idle": round(max(0.0, 1 - busy_s / seat_s), 4),
            },
            "num_lost": tally.num_lost,
            "schedule_us_a_take": round(1e6 * tally.schedule_s / tally.num_takes, 1),
        }


def summary(several: Sequence[dict[str, Any]], alone: Sequence[float]) -> dict[str, Any]:
    """Runs of several seeds as one row. `alone` is what one seat did with the work of each seed.
    `of_the_possible`: the time that no schedule could be below, which is the longest candidate's
    or an even share of everything, by the time that it took."""
    number = several[0]["num_seats"]
    same = ("work", "num_seats", "max_batch", "caller_ms", "life_s")
    return {
        **{name: several[0][name] for name in same},
        "per_hour": round(statistics.median(one["per_hour"] for one in several), 1),
        "efficiency": round(
            statistics.median(
                one["per_hour"] / first / number for one, first in zip(several, alone, strict=True)
            ),
            3,
        ),
        "of_the_possible": round(
            statistics.median(one["least_s"] / one["elapsed_s"] for one in several), 3
        ),
        "share": {
            name: round(statistics.fmean(one["share"][name] for one in several), 4)
            for name in several[0]["share"]
        },
        "num_lost": [one["num_lost"] for one in several],
        "schedule_us_a_take": max(one["schedule_us_a_take"] for one in several),
        "elapsed_s": [one["elapsed_s"] for one in several],
    }


def recorded(paths: Sequence[Path]) -> Durations:
    checks, candidates = [], []
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["ours"]["rows"]:
            check = row["seconds_by_request"].get("check")
            if check is not None:
                checks.append(check)
            candidates.append(row["seconds"] - (check or 0.0))
    return Durations(tuple(checks), tuple(candidates))


def measured_caller_s(path: Path) -> float:
    """Seconds of one result in trials that take no time, on one seat."""
    first = json.loads(path.read_text(encoding="utf-8"))["runs"][0]
    return float(first["elapsed_s"] / first["num_candidates"])


def plans(seats: Sequence[int], caller_s: float) -> Iterator[tuple[Work, int, int, float, Any]]:
    """Work, seats, batch, the caller's seconds, a seat's life."""
    for work in WORKS:
        for number in seats:
            yield work, number, 1, caller_s, None
    for work in WORKS:
        yield work, seats[-1], 8, caller_s, None
    for times in (10, 100):
        yield WORKS[0], seats[-1], 1, times * caller_s, None
    yield WORKS[0], seats[-1], 1, caller_s, 3600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seats", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--repeats", type=int, default=5, help="seeds of each")
    parser.add_argument(
        "--durations",
        type=Path,
        nargs="+",
        default=[RESULTS / "throughput-before.json", RESULTS / "throughput-cuda.json"],
    )
    parser.add_argument("--overhead", type=Path, default=RESULTS / "scaling-overhead.json")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    durations = recorded(options.durations)
    caller_s = measured_caller_s(options.overhead)
    rows: list[dict[str, Any]] = []
    alone: dict[str, list[float]] = {}
    for work, number, max_batch, each_s, life_s in plans(options.seats, caller_s):
        several = [
            Simulation(
                durations, work, number, max_batch, each_s, life_s, random.Random(seed)
            ).run()
            for seed in range(options.repeats)
        ]
        first = alone.setdefault(work.name, [one["per_hour"] for one in several])
        row = summary(several, first)
        rows.append(row)
        print(
            f"{work.name:22} {number:3} seats, batch {max_batch:2}, caller {1000 * each_s:6.1f} ms"
            f"{', losses' if life_s else '':8} {row['per_hour']:9.0f}/h {row['efficiency']:6.1%} "
            f"of the possible {row['of_the_possible']:6.1%} "
            + ", ".join(f"{name} {share:.1%}" for name, share in row["share"].items())
        )
    mean_s = statistics.fmean(durations.candidates)
    document = {
        **provenance(),
        "durations": [path.name for path in options.durations],
        "num_recorded": len(durations.candidates),
        "mean_candidate_s": round(mean_s, 2),
        "mean_check_s": round(statistics.fmean(durations.checks), 2),
        "caller_ms": round(1000 * caller_s, 3),
        "seats_that_keep_the_caller_busy": int(mean_s / caller_s),
        "rows": rows,
    }
    text_trials.write(options.output, document)


if __name__ == "__main__":
    main()
