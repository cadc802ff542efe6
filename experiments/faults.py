"""Inject faults into trials and scans, and look at what they leave.

    python experiments/faults.py --repeat 14 --limit 2400 --output faults-cpu.json
    python experiments/faults.py --device cuda --repeat 2 --limit 420 --output faults-cuda.json
    python experiments/faults.py --only segfault
    python experiments/faults.py --table faults-cuda.json

After each injection: is the verdict or the exception the right one; is the next evaluation of the
same session right (of a scan, that of `--resume`); does the archive hold every evaluation that was
finished; and is anything left: a process, also one that detached itself, a folder, a descriptor, a
mapping of shared memory, memory of the GPU. One injection in four gets a session of its own, which
confirms; the others are screened in one that lives on, and the next trial confirms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from fault_programs import FAULTS, HARMLESS, Fault, candidate_of, problem_of
from fault_remains import (
    MORE_AT_END_BYTES,
    MORE_AT_REST_BYTES,
    GpuMemory,
    files_of,
    holdings,
    processes,
    scratch_of,
    settled,
)
from fault_scans import kill_and_resume
from fault_strikes import judge_of, small_disk, strike_of
from provenance import provenance

import cudal1_ci.verification.session
from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Device, Evaluation, Problem
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.config import BuildsConfig

CONFIGS = {
    "cpu": TrialConfig(call_s=2, load_s=60, num_rounds=3, launch_s=0.3, measure_s=0.3),
    "cuda": TrialConfig(call_s=5, load_s=60, num_rounds=3, launch_s=0.3, measure_s=0.3),
}
NO_BUILDS = BuildsConfig(keep=False)
"""The locks of folders with builds are held on purpose."""
POLICY = "faults"
FRESH_EVERY = 4
HOST_EVERY = 2
"""A scan and its continuation take as long as ten trials."""
MOST_TRIES = 5
"""An injection that came too late is made again."""
MOST_NOISY = 3
WRONG = Fault("return self.fc(x) + 1", ("incorrect_values values.mismatch",))
NOT_RECORDED = ("inconclusive", "harness_error", "invalid_reference")


@dataclass
class Row:
    """One injection."""

    fault: str
    session: str
    verdict: str = ""
    is_right: bool = False
    is_next_right: bool = False
    next_verdict: str = ""
    is_nothing_lost: bool = False
    left: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0


class Lane:
    """A running session and an archive, in one process."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder = folder
        self.where = device
        self.random = random.Random(folder.name)
        self.numbers = iter(range(10**9))
        self.problem = problem_of(0)
        self.recorded: list[tuple[str, str]] = []
        self.archive_path = folder.parent / f"{folder.name}.state" / "archive.sqlite"
        self.session: Session | None = None
        self.idle: dict[str, Any] = {}
        self.outside: set[int] = set(processes(folder))
        self.device: dict[str, Any] = {}
        self.gpu = GpuMemory() if device == "cuda" else None
        if self.gpu:
            # What NVML opens when a session reads it is kept for the next one.
            with self.fresh() as session:
                self.evaluate(session, self.problem, None)
        self.host = holdings(os.getpid())

    @contextmanager
    def fresh(self) -> Iterator[Session]:
        with Session(CONFIGS[self.where], device=self.where, builds=NO_BUILDS) as session:
            yield session

    @contextmanager
    def running(self) -> Iterator[Session]:
        """Return the session that lives on, with what it holds at rest."""
        if self.session is None:
            self.session = Session(CONFIGS[self.where], device=self.where, builds=NO_BUILDS)
            self.evaluate(self.session, self.problem, None)
            self.device = msgspec.to_builtins(self.session.device())
            self.idle = self.at_rest(self.session)
        yield self.session

    def close(self) -> list[str]:
        """End the running session; what is left of it."""
        if self.session is not None:
            self.session.__exit__(None, None, None)
            self.session = None
        return settled(self.after_end)

    def at_rest(self, session: Session) -> dict[str, Any]:
        pid = judge_of(session)
        host, judge = holdings(os.getpid()), holdings(pid)
        number = len(set(processes(self.folder)) - self.outside)
        gpu = self.gpu.read() if self.gpu else None
        return {"processes": number, "host": host, "judge": judge, "gpu": gpu}

    def after_end(self) -> list[str]:
        """Return what is left where no session is open."""
        left = [f"process {name}" for pid, name in processes(self.folder).items() if self.own(pid)]
        left += [f"file {name}" for name in files_of(self.folder)]
        if (now := holdings(os.getpid())) != self.host:
            left.append(f"host's descriptors and mappings {self.host} -> {now}")
        if self.gpu:
            left += self.gpu.left(self.gpu.before, MORE_AT_END_BYTES)
        return left

    def own(self, pid: int) -> bool:
        return pid not in self.outside

    def in_between(self) -> list[str]:
        """Return what is left in a session that goes on."""
        assert self.session is not None
        now = self.at_rest(self.session)
        keys = ("processes", "host", "judge")
        left = [
            f"{key} {self.idle[key]} -> {now[key]}" for key in keys if self.idle[key] != now[key]
        ]
        if self.gpu:
            left += self.gpu.left(self.idle["gpu"], MORE_AT_REST_BYTES)
        return left + [f"scratch {name}" for name in scratch_of(self.folder)]

    def evaluate(self, session: Session, problem: Problem, fault: Fault | None) -> str:
        """Return the verdict in words; what was finished is recorded."""
        candidate = candidate_of(problem, f"{self.folder.name} {next(self.numbers)}", fault)
        try:
            # What a screening keeps for the next one is ended by the trial that follows.
            screens = fault is not None and fault is not WRONG and session is self.session
            judge = session.screen if screens else session.evaluate
            evaluation = judge(problem, candidate)
        except WorkerError:
            return "WorkerError"
        with Archive.open(self.archive_path) as archive:
            archive.record(evaluation, POLICY)
        if evaluation.verdict.status not in NOT_RECORDED:
            self.recorded.append((candidate.problem_id, candidate.id))
        return in_words(evaluation)

    def is_nothing_lost(self) -> bool:
        """Return whether the archive holds all that was recorded."""
        key = str(msgspec.convert(self.device, Device).key)
        with Archive.open(self.archive_path) as archive:
            return all(archive.lookup(*one, key, POLICY) for one in self.recorded)


def is_good(row: dict[str, Any]) -> bool:
    """Return whether everything is as it should be after an injection."""
    return bool(
        row["is_right"] and row["is_next_right"] and row["is_nothing_lost"] and not row["left"]
    )


def made(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without those that never came in time."""
    return [row for row in rows if row["verdict"] != "not injected"]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a row of Markdown for each fault."""
    lines = [
        "| fault | injected | right verdict | next trial right | nothing lost "
        "| nothing left behind | verdicts |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {name: [row for row in rows if row["fault"] == name] for name in FAULTS}
    for name, own in [*groups.items(), ("**all**", list(rows))]:
        done = made(own)
        if not done:
            continue
        verdicts = Counter(row["verdict"] for row in done).most_common() if name in FAULTS else []
        cells = [
            name,
            len(done),
            sum(row["is_right"] for row in done),
            sum(row["is_next_right"] for row in done),
            sum(row["is_nothing_lost"] for row in done),
            sum(not row["left"] for row in done),
            ", ".join(f"`{verdict}` {number}" for verdict, number in verdicts),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def in_words(evaluation: Evaluation) -> str:
    """Status and first rule."""
    verdict = evaluation.verdict
    if verdict.status == "passed":
        return "passed" if evaluation.measurements else "passed without a measurement"
    return " ".join([verdict.status, *(finding.rule for finding in verdict.findings[:1])])


def injected(lane: Lane, session: Session, fault: Fault, problem: Problem) -> str | None:
    """Return the verdict of a trial with the fault in it; None when it came too late."""
    if not fault.strike:
        return lane.evaluate(session, problem, fault)
    if not fault.strike.endswith("learned"):
        session.check(problem)
    with strike_of(session, fault.strike, lane.folder, lane.random, lane.where) as strike:
        verdict = lane.evaluate(session, problem, fault)
    return verdict if strike.num_hits else None


def following(lane: Lane, session: Session, problem: Problem, fault: Fault | None) -> str:
    """Return the verdict of the next trial, again while it is too noisy."""
    verdict = ""
    for _ in range(MOST_NOISY):
        verdict = lane.evaluate(session, problem, fault)
        if verdict != "inconclusive timing.noisy":
            break
    return verdict


def trial(lane: Lane, name: str, number: int) -> Row:
    """Return one injection into a session, and all that is looked at afterwards."""
    fault, is_fresh = FAULTS[name], number % FRESH_EVERY == 0
    row, started_s = Row(name, "fresh" if is_fresh else "running"), time.monotonic()
    if is_fresh:
        row.left += [f"of the session before: {one}" for one in lane.close()]
    with lane.fresh() if is_fresh else lane.running() as session:
        for attempt in range(MOST_TRIES):
            problem = lane.problem
            if fault.strike.endswith("learned"):
                problem = problem_of(f"{name} {number} {attempt}")
            verdict = injected(lane, session, fault, problem)
            if verdict is not None:
                break
        row.verdict = verdict or "not injected"
        row.is_right = row.verdict in fault.right
        is_honest = number % 5 in (0, 1)
        row.next_verdict = following(lane, session, problem, None if is_honest else WRONG)
        row.is_next_right = row.next_verdict in (HARMLESS if is_honest else WRONG.right)
        lane.device = lane.device or msgspec.to_builtins(session.device())
        if not is_fresh:
            following(lane, session, problem, None)  # it keeps what it kept at first
            row.left += settled(lane.in_between)
    row.left += settled(lane.after_end) if is_fresh else []
    row.is_nothing_lost = lane.is_nothing_lost()
    row.elapsed_s = round(time.monotonic() - started_s, 2)
    return row


def host(lane: Lane, name: str, number: int) -> Row:
    """Return the host is that of a scan, in a process of its own."""
    row, started_s = Row(name, "scan"), time.monotonic()
    row.left += [f"of the session before: {one}" for one in lane.close()]
    with tempfile.TemporaryDirectory(dir=lane.folder.parent) as place:
        found = kill_and_resume(Path(place), number // HOST_EVERY % 3, lane.random, lane.own)
    row.verdict = "killed" if found.is_killed else "not injected"
    row.is_right, row.next_verdict = found.is_killed, found.ended
    row.is_next_right, row.is_nothing_lost = found.is_next_right, found.is_nothing_lost
    row.left += found.left
    row.elapsed_s = round(time.monotonic() - started_s, 2)
    return row


def run_lane(
    names: Sequence[str], rounds: range, folder: Path, until_s: float, device: str
) -> tuple[list[Row], dict[str, Any]]:
    """Return the faults of one lane, round after round, so that one session meets many of them."""
    # A text can be written in another way: what is tested is what its run does.
    cudal1_ci.verification.session.screen = lambda *_: ()  # type: ignore[assignment]
    folder.mkdir()
    if folder.name[-1] in "13579":
        # The runners of a verifier share the last core: without this, those of all lanes would.
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    if any(FAULTS[name].strike == "fill disk" for name in names):
        small_disk(folder)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    lane, rows = Lane(folder, device), []
    for number in rounds:
        for name in names:
            if time.time() > until_s:
                break
            is_host = FAULTS[name].strike == "kill host"
            if is_host and number % HOST_EVERY:
                continue
            row = (host if is_host else trial)(lane, name, number)
            rows.append(row)
            if not is_good(asdict(row)):
                print("  not as it should be:", json.dumps(asdict(row)), flush=True)
                lane.close()  # so that it is counted once
        if time.time() > until_s:
            break
        print(f"{folder.name}: {len(rows)} injections", flush=True)
    for one in lane.close():
        rows[-1].left.append(f"at the end: {one}")
    memory = (lane.gpu.before[0], lane.gpu.read()[0]) if lane.gpu else None
    return rows, {"device": lane.device, "gpu_memory_bytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=sorted(CONFIGS), default="cpu")
    parser.add_argument("--repeat", type=int, default=14)
    parser.add_argument("--only", choices=sorted(FAULTS), help="one fault")
    parser.add_argument("--lanes", type=int, help="processes that inject side by side")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all of them")
    parser.add_argument("--start", type=int, default=0, help="number of the first round")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--append", action="store_true", help="to what that file holds")
    parser.add_argument("--table", type=Path, help="print what a result holds")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))["rows"]))
        return
    names = [name for name, fault in FAULTS.items() if options.device in fault.devices]
    names = [options.only] if options.only else names
    # What is in use is reported for a GPU, not of a process.
    lanes = min(options.lanes or (1 if options.device == "cuda" else 2), len(names))
    folder, started_s = Path(tempfile.mkdtemp(prefix="faults-")), time.monotonic()
    here = provenance()  # the code may change before they are over
    until_s = time.time() + options.limit
    rounds = range(options.start, options.start + options.repeat)
    try:
        with ProcessPoolExecutor(lanes, mp_context=get_context("spawn")) as pool:
            asked = [
                pool.submit(
                    run_lane,
                    names[at::lanes],
                    rounds,
                    folder / f"lane{at}",
                    until_s,
                    options.device,
                )
                for at in range(lanes)
            ]
            done = [one.result() for one in asked]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [row for found, _ in done for row in found]
    facts = next((facts for found, facts in done if found), {})
    document = {
        **here,
        **facts,
        "config": msgspec.to_builtins(CONFIGS[options.device]),
        "wall_s": round(time.monotonic() - started_s, 1),
        "rows": [asdict(row) for row in rows],
    }
    if options.append:
        document = appended(json.loads(options.output.read_text()), document)
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(table(document["rows"]))


def appended(before: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the results of two runs on one machine as those of one.

    Raises:
        SystemExit: They are of other devices or settings.
    """
    for key in ("device", "config"):
        if before[key] != document[key]:
            raise SystemExit(f"--append: another {key}: {before[key]} and {document[key]}")
    both = {key: f"{before[key]}; {document[key]}" for key in ("command", "commit")}
    return {
        **before,
        **both,
        "wall_s": round(before["wall_s"] + document["wall_s"], 1),
        "rows": before["rows"] + document["rows"],
    }


if __name__ == "__main__":
    main()
