"""Replay recorded candidates in the order of the table and in the one before it, on one clock.

    python experiments/ranking_replay.py      # writes assets/results/ranking-replay.json

The candidates of assets/results/scans-h100.json with the speedups and seconds that were measured,
one verifier with three times the minutes, as three shared the device. What a scan would do is done
by its own code (optimize/turns.py) with a clock that only candidates move. The order before took
targets one after the other, each with an equal share of what was left. Assumed for both: seconds
to look at a target (LOOK_S), to verify its reference again (CHECK_S), and of a confirmation that
was not recorded the mean of those that were. Each module is ranked by a table without what was
measured of it ("without itself"), and by the table of the package, which has seen it.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from ranking import CARDS, SCANS, of_card, of_scan

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize import target as searching
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.ranking import (
    Cell,
    Count,
    Forecast,
    Ranking,
    Situation,
    base_of,
    cells_of,
    shipped,
)
from cudal1_ci.optimize.run import review
from cudal1_ci.records import (
    Call,
    Candidate,
    Device,
    Edit,
    Evaluation,
    Measurement,
    Problem,
    Repetition,
    Target,
    TextProgram,
    Understanding,
    Verdict,
    Workload,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "assets" / "results" / "ranking-replay.json"
BUDGETS_S = (150.0, 300.0, 600.0)
VERIFIERS = 3
LOOK_S, CHECK_S = 25.0, 15.0
"""What the scans spent for each target besides its candidates, about: the first time, and again."""
H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3")
Operators = tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What was measured of a candidate."""

    operators: Operators
    status: str
    speedup: float | None
    seconds: float
    confirming_s: float


def modules() -> dict[str, tuple[dict[str, Any], list[Known]]]:
    """Return what is known of each module: its newest scan's candidates in their order, with those
    that were not reached then, if an older scan has them."""
    scans = json.loads(SCANS.read_text("utf-8"))["scans"]
    rows = [one for scan in scans for target in scan["targets"] for one in target["candidates"]]
    confirmed = [one["seconds"] for one in rows if one["phase"] == "confirmed"]
    mean_s = statistics.fmean(confirmed)
    found: dict[str, tuple[dict[str, Any], list[Known]]] = {}
    for file in sorted({one["file"] for scan in scans for one in scan["targets"]}):
        seen = [one for scan in scans for one in scan["targets"] if one["file"] == file]
        newest = next((one for one in reversed(seen) if one["candidates"]), None)
        if newest is None:
            continue
        names = [tuple(one["operators"]) for one in newest["candidates"]]
        names += [tuple(one.partition(":")[2].split("+")) for one in newest["not_tried"]]
        candidates = []
        for operators in dict.fromkeys(names):
            of = [
                row
                for target in reversed(seen)
                for row in target["candidates"]
                if tuple(row["operators"]) == operators
            ]
            if of:
                candidates.append(known_of(operators, of, mean_s))
        found[file] = newest, candidates
    return found


def known_of(operators: Operators, rows: Sequence[dict[str, Any]], mean_s: float) -> Known:
    """Return what scans measured of a candidate, the newest first."""
    screened = [one["seconds"] for one in rows if one["phase"] != "confirmed"]
    confirmed = [one["seconds"] for one in rows if one["phase"] == "confirmed"]
    return Known(
        operators,
        rows[0]["status"],
        rows[0]["speedup"],
        statistics.fmean(screened or [one / 2 for one in confirmed]),
        statistics.fmean(confirmed or [mean_s]),
    )


class Clock:
    """Moves when something is verified."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Replayed:
    """A verifier that answers what was measured."""

    def __init__(self, clock: Clock, known: dict[tuple[str, Operators], Known]):
        self.clock, self.known, self.problem_id = clock, known, ""
        self.seen: set[str] = set()

    def device(self) -> Device:
        return H100

    def check(self, problem: Problem) -> Verdict:
        if problem.id != self.problem_id:
            self.clock.now_s += CHECK_S if problem.id in self.seen else LOOK_S
        self.problem_id = problem.id
        self.seen.add(problem.id)
        return Verdict(status="passed")

    def record(self, *_: object) -> str:
        return "replayed"

    def build_ahead(self, *_: object) -> None:
        pass

    def in_turn(self, candidates: Sequence[Candidate], *_: object) -> Sequence[Candidate]:
        return candidates

    def screen(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        self.check(problem)
        known = self.of(problem, candidate)
        seconds, status = known.seconds, known.status
        if status == "timeout" and most_s is not None and seconds > most_s:
            seconds, status = most_s, "inconclusive"
        self.clock.now_s += seconds
        return answer(candidate, known, status, "screened", seconds)

    def confirm(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        self.check(problem)
        known = self.of(problem, candidate)
        self.clock.now_s += known.confirming_s
        return answer(candidate, known, known.status, "confirmed", known.confirming_s)

    def examine_contract(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        return msgspec.structs.replace(evaluation, contract=())

    def of(self, problem: Problem, candidate: Candidate) -> Known:
        assert isinstance(problem.reference, TextProgram)
        return self.known[problem.reference.source, operators_of(candidate)]


def operators_of(candidate: Candidate) -> Operators:
    return tuple(one.operator for one in candidate.edits)


def answer(
    candidate: Candidate, known: Known, status: str, phase: str, seconds: float
) -> Evaluation:
    """Return an evaluation whose times say the speedup that was measured."""
    measurements: tuple[Measurement, ...] = ()
    if status == "passed" and known.speedup is not None:
        ours, theirs = (1e3,) * 6, (1e3 / known.speedup,) * 6
        one = Repetition(reference_us=ours, candidate_us=theirs, num_calls=1)
        number = 1 if phase == "screened" else 5
        measurements = (Measurement(workload="call", repetitions=(one,) * number, device=H100),)
    return Evaluation(
        candidate=candidate,
        verdict=Verdict(status=status),  # type: ignore[arg-type]
        measurements=measurements,
        device=H100,
        elapsed_s=seconds,
        phase=phase,  # type: ignore[arg-type]
    )


class Apart(Ranking):
    """A table for each target, without what was measured of it."""

    def __init__(self, files: Sequence[str]):
        scans = json.loads(SCANS.read_text("utf-8"))["scans"]
        cards = [json.loads(gzip.decompress(path.read_bytes())) for path in CARDS]
        counts = [count for card in cards for count in of_card(card)]
        self.current = files[0]
        self.tables = {file: Ranking(cells_of(counts + others(scans, file))) for file in files}

    def forecast(self, strategy: str, where: Situation) -> Forecast:
        return self.tables[self.current].forecast(strategy, where)

    def add(self, cells: Iterable[Cell]) -> None:
        for table in self.tables.values():
            table.add(cells)


def others(scans: Sequence[dict[str, Any]], file: str) -> list[Count]:
    """Return the counts of scans without a module."""
    kept = [
        scan | {"targets": [one for one in scan["targets"] if one["file"] != file]}
        for scan in scans
    ]
    return [count for scan in kept for count in of_scan(scan)]


class Recorded:
    """Proposes what was proposed: single edits first, then what is on top of what passed."""

    name = "recorded"

    def __init__(self, found: dict[str, list[Known]]):
        self.found = found

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        assert isinstance(problem.reference, TextProgram)
        all_known = self.found[problem.reference.source]
        logs = {
            operators_of(one.candidate): 0.0
            for one in evaluations
            if one.verdict.status == "passed"
        }
        some = [
            one
            for one in all_known
            if len(one.operators) == 1 or (evaluations and base_of(one.operators, logs) is not None)
        ]
        return [candidate_of(problem, one.operators) for one in some][:n]


def candidate_of(problem: Problem, operators: Operators) -> Candidate:
    edits = tuple(Edit(operator=one, technique="t", found=(), why="w") for one in operators)
    return Candidate(
        problem_id=problem.id,
        program=TextProgram(source="+".join(operators), entry="Model"),
        proposer="+".join(operators),
        edits=edits,
    )


def by_table(ranking: Ranking, budget_s: float) -> dict[str, float]:
    """Return the logs of the confirmed speedups that a scan reaches."""
    found = modules()
    clock = Clock()
    known = {(file, one.operators): one for file, (_, some) in found.items() for one in some}
    seen = {file: seen for file, (seen, _) in found.items()}

    def understand(search: searching.TargetSearch) -> None:
        """Give the search what was recorded of the module."""
        of = seen[search.target.path]
        if of["class"] is not None:
            search.understanding = Understanding(
                category=of["class"],
                bound="unknown",
                bound_us=None,
                total_us=of["total_us"],
                device_us=None,
                host_us=0.0,
                share=None,
                num_operations=1,
                num_syncs=0,
                operations=(),
            )

    own_forecast = searching.TargetSearch.forecast

    def forecast(search: searching.TargetSearch, candidate: Candidate) -> Forecast:
        """Forecast by the table for this target."""
        if isinstance(ranking, Apart):
            ranking.current = search.target.path
        return own_forecast(search, candidate)

    plan = Plan(root=ROOT, repository="replay", targets=tuple(map(planned, found)))
    before = time.monotonic, searching.TargetSearch.understand
    with (
        tempfile.TemporaryDirectory() as folder,
        Archive.open(Path(folder) / "archive.sqlite") as archive,
    ):
        time.monotonic = clock  # type: ignore[assignment]
        searching.TargetSearch.understand = understand  # type: ignore[method-assign]
        searching.TargetSearch.forecast = forecast  # type: ignore[method-assign]
        try:
            context = RunContext(
                session=Replayed(clock, known),  # type: ignore[arg-type]
                strategies=[Recorded({file: some for file, (_, some) in found.items()})],
                archive=archive,
                progress=SilentProgress(),
                config=ReviewConfig(budget_s=budget_s),
                policy="replay",
                started_s=0.0,
                ranking=ranking,
            )
            report = review(plan, context)
        finally:
            time.monotonic, searching.TargetSearch.understand = before  # type: ignore[method-assign]
            searching.TargetSearch.forecast = own_forecast  # type: ignore[method-assign]
    logs = {}
    for entry in report.entries:
        path = entry.target.path
        logs[path] = 0.0
        if entry.best is not None:
            operators = operators_of(entry.evaluations[entry.best].candidate)
            logs[path] = math.log(known[path, operators].speedup or 1.0)
    return logs


def planned(file: str) -> Planned:
    workloads = (Workload(name="call", call=Call(), provenance="declared"),)
    problem = Problem(reference=TextProgram(source=file, entry="Model"), workloads=workloads)
    target = Target(path=file, qualname="Model", kind="torch_module", first_line=1, last_line=1)
    return Planned(target=target, problem=problem, workloads=workloads)


def one_after_the_other(budget_s: float) -> dict[str, float]:
    """Return the same for the order before: of strategies, with an equal share of what is left for
    each target, a gain confirmed before the first compilation, and the best two at the end. What a
    target could not try in its turn was tried after all others."""
    clock, logs, later = 0.0, {}, []
    found = modules()
    for number, (file, (_, candidates)) in enumerate(found.items()):
        clock += LOOK_S
        ends_s = clock + max(0.0, budget_s - clock) / (len(found) - number)
        clock, logs[file], left = tried(candidates, clock, ends_s, budget_s)
        if left:
            later.append((file, left))
    for file, left in later:
        if clock < budget_s:
            clock, log, _ = tried(left, clock + CHECK_S, budget_s, budget_s)
            logs[file] = max(logs[file], log)
    return logs


def tried(
    candidates: Sequence[Known], clock: float, ends_s: float, budget_s: float
) -> tuple[float, float, list[Known]]:
    """Return the time after a target's turn, its best confirmed log, and what had no turn."""
    longest_s, screened = 0.0, list[Known]()
    confirmed: dict[Operators, float] = {}

    def confirm(some: Sequence[Known]) -> None:
        nonlocal clock
        for one in some:
            if clock < budget_s and one.operators not in confirmed:
                clock += one.confirming_s
                confirmed[one.operators] = math.log(one.speedup or 1.0)

    number, was_cut = 0, False
    for one in candidates:
        if clock + longest_s > ends_s or clock > budget_s:
            was_cut = ends_s >= budget_s  # the run is over then, and nothing is confirmed
            break
        if "compile" in one.operators and not confirmed:
            confirm(best_of(screened)[:1])
        clock += one.seconds
        longest_s = max(longest_s, one.seconds)
        screened.append(one)
        number += 1
    if was_cut:
        return budget_s, max([0.0, *confirmed.values()]), []
    confirm(best_of(screened)[:2])
    return clock, max([0.0, *confirmed.values()]), list(candidates[number:])


def best_of(screened: Sequence[Known]) -> list[Known]:
    gains = [one for one in screened if one.status == "passed" and (one.speedup or 0) > 1.1]
    return sorted(gains, key=lambda one: -(one.speedup or 0))


def main() -> None:
    """Write what each order reaches."""
    document: dict[str, Any] = {}
    known = json.loads(SCANS.read_text("utf-8"))
    for budget_s in BUDGETS_S:
        spent_s = VERIFIERS * budget_s
        rows = {
            "one after the other": one_after_the_other(spent_s),
            "by the table without itself": by_table(Apart([*modules()]), spent_s),
            "by the table": by_table(Ranking(shipped()), spent_s),
        }
        for name, logs in rows.items():
            document[f"{budget_s:.0f} s, {name}"] = summary(logs)
    best = {
        file: max([0.0, *(math.log(one.speedup) for one in best_of(some) if one.speedup)])
        for file, (_, some) in modules().items()
    }
    document["all candidates"] = summary(best)
    about = {"device": known["device"], "command": "python experiments/ranking_replay.py"}
    OUTPUT.write_text(json.dumps(about | {"orders": document}, indent=1) + "\n", encoding="utf-8")
    for name, one in document.items():
        print(name, one["geometric_mean"], *one["speedups"].values())


def summary(logs: dict[str, float]) -> dict[str, Any]:
    """Return the geometric mean of speedups, and each."""
    return {
        "geometric_mean": round(math.exp(statistics.fmean(logs.values())), 2),
        "speedups": {file: round(math.exp(log), 2) for file, log in logs.items()},
    }


if __name__ == "__main__":
    main()
