"""Inject faults into trials and scans, and look at what they leave.

    python benchmarks/faults.py --repeat 12 --output benchmarks/results/faults.json
    python benchmarks/faults.py --only segfault

After each injection: is the verdict or the exception the right one; is the next evaluation of the
same session right (of a scan, that of `--resume`); does the archive hold every evaluation that was
finished; and is anything left: a process, also one that detached itself, a folder, a descriptor, a
mapping of shared memory. Processes are found by the environment that they were started with, which
names a folder that only this run uses. One injection in four gets a session of its own; the others
share one for as long as it lives. Linux, and as root: the environment of a runner is read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from discovery_speed import provenance

import cudal1_ci.trial.session
from cudal1_ci.archive import Archive
from cudal1_ci.errors import WorkerError
from cudal1_ci.schema import Candidate, Evaluation, Made, Problem, TextProgram, Workload
from cudal1_ci.trial import Session, TrialConfig

CONFIG = TrialConfig(call_s=2, load_s=20, num_rounds=3, launch_s=0.3, measure_s=0.3)
POLICY = "faults"
GONE_S = 15.0
"""What was killed may take as long until nothing of it is left."""
FRESH_EVERY = 4
HOST_EVERY = 2
"""A scan and its continuation take as long as ten trials."""
MOST_TRIES = 5
"""An injection that came too late is made again."""
LATEST_S = 1.2
"""A trial of `VICTIM` takes about 1.5 s."""

REFERENCE_NAME, VICTIM_NAME = "f-reference", "f-candidate"
SOURCE = """\
import ctypes, os, shutil, signal, sys, time
import torch
from torch import nn

ctypes.CDLL(None).prctl(15, b"{name}")
STATE = {{"calls": 0, "hoard": []}}


def is_timed():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


def again(*_):
    return max([0], key=again)


def forever(*_):
    return forever() + 1


class {entry}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        STATE["calls"] += 1
        first = STATE["calls"] == 1
{body}
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.rand(32, 64)]


def get_init_inputs():
    return [64]

# {number}
"""
DAEMON = """
if first and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4096)
        os.chdir("/")
        os.environ.clear()
        while True:
            signal.pause()
    os._exit(0)
"""
THOUSAND = """
if first:
    for _ in range(1000):
        if os.fork() == 0:
            while True:
                signal.pause()
"""
FILLS_DISK = """
page = bytes(2**24)
for number in range(1000):
    with open(os.path.join(os.environ["TMPDIR"], f"fill{number}"), "wb") as file:
        for _ in range(10):
            file.write(page)
"""
DELETES_SCRATCH = """
for place in (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()):
    shutil.rmtree(place, ignore_errors=True)
"""
VICTIM = "if first: time.sleep(0.3)"
HARMLESS = ("passed", "inconclusive timing.noisy")
"""On a machine that is too busy to measure on the judge says so, and accuses nobody."""
TIMEOUT = ("timeout runner.timeout", "timeout runner.failed")
DIED = ("runtime_error runner.died", "runtime_error runner.failed")
RAISED = ("runtime_error program.raised",)
MEMORY = ("runtime_error memory.exhausted",)
NOT_BLAMED = (*HARMLESS, "inconclusive", "harness_error", "invalid_reference", "WorkerError")
"""What may become of a candidate whose reference is killed from outside: it did nothing."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and the verdicts that are right then."""

    body: str
    right: tuple[str, ...]
    strike: str = ""
    """What is done from outside, and to whom; else the candidate does it."""


FAULTS = {
    "hangs in Python": Fault("while True: pass", TIMEOUT),
    "hangs in C": Fault("ctypes.CDLL(None).pause()", TIMEOUT),
    "hangs holding the GIL": Fault("ctypes.PyDLL(None).sleep(1000)", TIMEOUT),
    "hangs in a timed batch": Fault("if is_timed(): signal.pause()", TIMEOUT),
    "ignores SIGTERM, hangs": Fault(
        "for n in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(n, signal.SIG_IGN)\n"
        "while True: time.sleep(1)",
        TIMEOUT,
    ),
    "segfault": Fault("ctypes.string_at(0)", DIED),
    "abort": Fault("os.abort()", DIED),
    "stack overflow in C": Fault("sys.setrecursionlimit(10**9); again()", DIED),
    "infinite recursion": Fault("forever()", (*RAISED, *DIED)),
    "exit 0": Fault("os._exit(0)", DIED),
    "os._exit(0) in a timed batch": Fault(
        "if is_timed() and STATE['calls'] % 7 == 0: os._exit(0)", DIED
    ),
    "SystemExit": Fault("sys.exit(0)", RAISED),
    "KeyboardInterrupt": Fault("raise KeyboardInterrupt", RAISED),
    "torch.ones(2**45)": Fault("torch.ones(2**45)", MEMORY),
    "growing list": Fault("while True: STATE['hoard'].append(torch.empty(2**26))", MEMORY),
    "growing list, written": Fault(
        "while True: STATE['hoard'].append(bytearray(2**28))", (*MEMORY, *TIMEOUT)
    ),
    "a thousand children": Fault(THOUSAND, (*HARMLESS, *RAISED, *TIMEOUT)),
    "daemon by a double fork": Fault(DAEMON, HARMLESS),
    "prints a gigabyte": Fault(
        "for _ in range(64): os.write(1, bytes(2**24))", (*RAISED, *TIMEOUT)
    ),
    "fills its disk": Fault(FILLS_DISK, (*RAISED, *TIMEOUT)),
    "deletes its scratch folder": Fault(DELETES_SCRATCH, (*HARMLESS, *RAISED)),
    "closes its descriptors": Fault("os.closerange(0, 4096)", DIED),
    "kill -9 of the runner": Fault(VICTIM, (*DIED, *HARMLESS), "kill runner"),
    "SIGSTOP of the runner": Fault(VICTIM, (*TIMEOUT, *HARMLESS), "stop runner"),
    "kill -9 of the reference, timed": Fault(VICTIM, NOT_BLAMED, "kill reference"),
    "kill -9 of the reference, learned": Fault(VICTIM, NOT_BLAMED, "kill learned"),
    "kill -9 of the template": Fault(VICTIM, ("WorkerError",), "kill template"),
    "kill -9 of the judge": Fault(VICTIM, ("WorkerError",), "kill judge"),
    "kill -9 of the host": Fault("", (), "kill host"),
}


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


def source_of(name: str, entry: str, body: str, number: object) -> str:
    lines = "\n".join(" " * 8 + line for line in body.strip().splitlines())
    return SOURCE.format(name=name, entry=entry, body=lines, number=number)


def problem_of(number: object) -> Problem:
    """A linear layer and a ReLU; another number is another problem."""
    workload = Workload(
        name="w",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    source = source_of(REFERENCE_NAME, "Model", "", number)
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def candidate_of(problem: Problem, body: str, number: object) -> Candidate:
    source = source_of(VICTIM_NAME, "ModelNew", body, number)
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="faults")


# --- what is left --------------------------------------------------------------------------


def processes(folder: Path) -> dict[int, str]:
    """Those that were started with the folder's name in their environment or work in it, and all
    descendants of this process."""
    mark, found = str(folder).encode(), {}
    own = set(descendants(os.getpid()))
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            is_marked = mark in (entry / "environ").read_bytes()
            if pid in own or is_marked or str((entry / "cwd").readlink()).startswith(str(folder)):
                found[pid] = (entry / "comm").read_text().strip()
    return found


def descendants(pid: int) -> Iterator[int]:
    """Of a process, as far as they did not detach themselves."""
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def named(pid: int, name: str) -> list[int]:
    """Descendants of that name."""
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                found.append(child)
    return found


def holdings(pid: int) -> tuple[int, int]:
    """How many descriptors and mappings of shared memory a process has."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    shared = sum("/memfd:" in line or "/dev/shm" in line for line in maps)
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), shared


def scratch_of(folder: Path) -> list[str]:
    """Folders and logs of runners. What programs build is kept for as long as the session."""
    found = [*folder.glob("cudal1-ci-*/runners-*/*"), *folder.glob("cudal1-ci-*/probe-*")]
    return [path.name for path in found if path.name != "builds"]


def files_of(folder: Path) -> list[str]:
    """All in the folder but the lock, which is no session's own."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def settled(look: Callable[[], list[str]]) -> list[str]:
    """What is left once that which was killed had its time to go."""
    deadline = time.monotonic() + GONE_S
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


# --- one session after the other -----------------------------------------------------------


class Lane:
    """A running session and an archive, in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.random = random.Random(folder.name)
        self.numbers = iter(range(10**9))
        self.problem = problem_of(0)
        self.recorded: list[Candidate] = []
        self.archive_path = folder.parent / f"{folder.name}.state" / "archive.sqlite"
        self.session: Session | None = None
        self.idle: dict[str, Any] = {}
        self.outside: set[int] = set(processes(folder))
        self.device: dict[str, Any] = {}
        self.host = holdings(os.getpid())

    @contextmanager
    def fresh(self) -> Iterator[Session]:
        with Session(CONFIG, device="cpu") as session:
            yield session

    def running(self) -> Session:
        """The session that lives on, with what it holds at rest."""
        if self.session is None:
            self.session = Session(CONFIG, device="cpu")
            self.evaluate(self.session, self.problem, "")
            self.device = msgspec.to_builtins(self.session.device())
            self.idle = self.at_rest(self.session)
        return self.session

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
        return {"pid": pid, "processes": number, "host": host, "judge": judge}

    def after_end(self) -> list[str]:
        """What is left where no session is open."""
        left = [f"process {name}" for pid, name in processes(self.folder).items() if self.own(pid)]
        left += [f"file {name}" for name in files_of(self.folder)]
        if (now := holdings(os.getpid())) != self.host:
            left.append(f"host's descriptors and mappings {self.host} -> {now}")
        return left

    def own(self, pid: int) -> bool:
        return pid not in self.outside

    def in_between(self) -> list[str]:
        """What is left in a session that goes on."""
        assert self.session is not None
        now = self.at_rest(self.session)
        keys = ("processes", "host", "judge")
        left = [
            f"{key} {self.idle[key]} -> {now[key]}" for key in keys if self.idle[key] != now[key]
        ]
        return left + [f"scratch {name}" for name in scratch_of(self.folder)]

    def evaluate(self, session: Session, problem: Problem, body: str) -> str:
        """The verdict in words; what was finished is recorded."""
        candidate = candidate_of(problem, body, f"{self.folder.name} {next(self.numbers)}")
        try:
            evaluation = session.evaluate(problem, candidate)
        except WorkerError:
            return "WorkerError"
        with Archive.open(self.archive_path) as archive:
            archive.record(evaluation, POLICY)
        if evaluation.verdict.status not in ("inconclusive", "harness_error", "invalid_reference"):
            self.recorded.append(candidate)
        return in_words(evaluation)

    def is_nothing_lost(self) -> bool:
        """Whether the archive holds all that was recorded."""
        with Archive.open(self.archive_path) as archive:
            return all(
                archive.lookup(one.problem_id, one.id, self.key(), POLICY) for one in self.recorded
            )

    def key(self) -> str:
        return str(msgspec.convert(self.device, cudal1_ci.trial.session.Device).key)


def judge_of(session: Session) -> int:
    worker = session._worker
    return worker.pid if worker is not None else 0


def in_words(evaluation: Evaluation) -> str:
    """Status and first rule."""
    verdict = evaluation.verdict
    if verdict.status == "passed":
        return "passed" if evaluation.measurements else "passed without a measurement"
    return " ".join([verdict.status, *(finding.rule for finding in verdict.findings[:1])])


# --- from outside --------------------------------------------------------------------------


class Striker:
    """A thread that kills or stops a process at a random moment of the trial under way."""

    def __init__(self, lane: Lane, session: Session, strike: str) -> None:
        self.action, self.target = strike.split()
        self.session, self.random = session, lane.random
        latest_s = 0.1 if self.target == "learned" else LATEST_S
        self.delay_s = self.random.uniform(0, latest_s)
        self.over = threading.Event()
        self.num_hits = 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Striker:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def run(self) -> None:
        self.over.wait(self.delay_s)
        number = signal.SIGKILL if self.action == "kill" else signal.SIGSTOP
        while not self.over.wait(0.001):
            pids = self.targets()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    self.num_hits += 1
            if pids and self.action == "kill":
                return

    def targets(self) -> list[int]:
        """Whom it meets now; nobody while they are not there."""
        judge = judge_of(self.session)
        if not judge or self.target == "judge":
            return [judge] if judge else []
        if self.target == "template":
            found = list(descendants(judge))[:2]  # the one that waits, and the one that forks
        elif self.target == "runner":
            found = named(judge, VICTIM_NAME)
        else:
            found = named(judge, REFERENCE_NAME)
            if self.target == "reference" and not named(judge, VICTIM_NAME):
                found = []
        return [self.random.choice(found)] if found else []


def injected(lane: Lane, session: Session, fault: Fault, problem: Problem) -> str | None:
    """The verdict of a trial with the fault in it; None when it came too late."""
    if not fault.strike:
        return lane.evaluate(session, problem, fault.body)
    if fault.strike != "kill learned":
        session.check(problem)
    with Striker(lane, session, fault.strike) as striker:
        verdict = lane.evaluate(session, problem, fault.body)
    return verdict if striker.num_hits else None


def following(lane: Lane, session: Session, problem: Problem, is_honest: bool) -> str:
    """The verdict of the next trial, again while it is too noisy."""
    verdict = ""
    for _ in range(2):
        verdict = lane.evaluate(session, problem, "" if is_honest else "return self.fc(x) + 1")
        if verdict != "inconclusive timing.noisy":
            break
    return verdict


def trial(lane: Lane, name: str, number: int) -> Row:
    """One injection into a session, and all that is looked at afterwards."""
    fault, is_fresh = FAULTS[name], number % FRESH_EVERY == 0
    row, started_s = Row(name, "fresh" if is_fresh else "running"), time.monotonic()
    if is_fresh:
        row.left += [f"of the session before: {one}" for one in lane.close()]
    with lane.fresh() if is_fresh else nothing(lane.running()) as session:
        for _ in range(MOST_TRIES):
            problem = problem_of(f"{name} {number}") if "learned" in fault.strike else lane.problem
            verdict = injected(lane, session, fault, problem)
            if verdict is not None:
                break
        row.verdict = verdict or "not injected"
        row.is_right = not {row.verdict, row.verdict.partition(" ")[0]}.isdisjoint(fault.right)
        is_honest = number % 5 in (0, 1)
        row.next_verdict = following(lane, session, problem, is_honest)
        wanted = HARMLESS if is_honest else ("incorrect_values values.mismatch",)
        row.is_next_right = row.next_verdict in wanted
        lane.device = lane.device or msgspec.to_builtins(session.device())
        if not is_fresh:
            row.left += settled(lane.in_between)
    row.left += settled(lane.after_end) if is_fresh else []
    row.is_nothing_lost = lane.is_nothing_lost()
    row.elapsed_s = round(time.monotonic() - started_s, 2)
    return row


@contextmanager
def nothing(session: Session) -> Iterator[Session]:
    yield session


# --- the host ------------------------------------------------------------------------------

SLOW = """\
import torch
from torch import nn


class Diagonal(nn.Module):
    def __init__(self, dim: int = 64):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return x @ torch.diag(self.scale)
"""
TABLE = (
    '[[tool.cudal1-ci.workload]]\ntarget = "pkg/slow{}.py:Diagonal"\ninputs = ["float32[64, 64]"]\n'
)
NUM_MODULES = 4
SETTINGS = {
    "CUDAL1_CI_TRIAL_NUM_ROUNDS": "3",
    "CUDAL1_CI_TRIAL_MEASURE": "0.3s",
    "CUDAL1_CI_TRIAL_CALL": "2s",
    "CUDAL1_CI_TRIAL_LOAD": "20s",
}


def checkout(folder: Path) -> Path:
    """A project with a few slow modules."""
    package = folder / "project" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    numbers = range(NUM_MODULES)
    for number in numbers:
        (package / f"slow{number}.py").write_text(SLOW)
    (package.parent / "pyproject.toml").write_text("".join(map(TABLE.format, numbers)))
    subprocess.run(["git", "init", "-q"], cwd=package.parent, check=True)
    return package.parent


def scan(root: Path, scratch: Path, *words: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "cudal1_ci", "scan", str(root), "--json", "-", *words],
        env={**os.environ, **SETTINGS, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_scan(root: Path, scratch: Path, num_lines: int, delay_s: float) -> int | None:
    """Kill a scan some time after it said that so many candidates were judged; how many it said.
    None when it was over before."""
    process = scan(root, scratch)
    assert process.stderr is not None
    said, archive = 0, root / ".cudal1-ci" / "archive.sqlite"
    while process.poll() is None and not archive.exists():
        time.sleep(0.01)
    while said < num_lines and (line := process.stderr.readline()):
        said += is_finished(line)
    time.sleep(delay_s)
    process.kill()
    _, text = process.communicate()
    said += sum(map(is_finished, text.splitlines()))
    return said if process.returncode == -signal.SIGKILL else None


def is_finished(line: str) -> bool:
    """Whether a line of progress says that a candidate passed. What was inconclusive is judged
    again."""
    return "playbook:diagonal_product: passed" in line


def host(lane: Lane, name: str, number: int) -> Row:
    """Kill a scan, look at what is left, and go on with it."""
    row, started_s = Row(name, "scan"), time.monotonic()
    row.left += [f"of the session before: {one}" for one in lane.close()]
    with tempfile.TemporaryDirectory(dir=lane.folder.parent) as place:
        scratch = Path(place) / "scratch"
        scratch.mkdir()
        for attempt in range(MOST_TRIES):
            root = checkout(Path(place) / str(attempt))
            said = killed_scan(root, scratch, number // HOST_EVERY % 3, lane.random.uniform(0, 0.8))
            if said is not None:
                break
        row.verdict = "not injected" if said is None else "killed"
        row.left += settled(lambda: what_a_scan_left(lane, scratch))
        kept, is_unfinished = archived(root)
        ran = scan(root, scratch, "-q", *(["--resume"] if is_unfinished else []))
        out, errors = ran.communicate(timeout=120)
        report = json.loads(out) if ran.returncode == 0 else {"totals": {}, "ended": errors[-300:]}
        totals = report["totals"]
        row.next_verdict = f"exit {ran.returncode}, {report['ended']}, {totals}"[:300]
        row.is_right = said is not None
        row.is_next_right = report["ended"] == "done" and totals.get("num_judged") == NUM_MODULES
        row.is_nothing_lost = kept >= (said or 0) and totals.get("num_reused", -1) >= (said or 0)
        row.left += settled(lambda: what_a_scan_left(lane, scratch))
    row.elapsed_s = round(time.monotonic() - started_s, 2)
    return row


def what_a_scan_left(lane: Lane, scratch: Path) -> list[str]:
    left = [f"process {name}" for pid, name in processes(scratch).items() if lane.own(pid)]
    return left + [f"file {name}" for name in files_of(scratch)]


def archived(root: Path) -> tuple[int, bool]:
    """Evaluations in the archive of a checkout, and whether a run in it can be resumed."""
    with Archive.open(root / ".cudal1-ci" / "archive.sqlite") as archive:
        ((number,),) = archive._rows("SELECT count(*) FROM evaluations", ())
        is_unfinished = archive.unfinished_run({"path": str(root.resolve()), "changed": None})
    return int(number), is_unfinished is not None


# --- all of them ---------------------------------------------------------------------------


def run_lane(
    names: Sequence[str], rounds: range, folder: Path, until_s: float
) -> tuple[list[Row], dict[str, Any]]:
    """The faults of one lane, round after round, so that one session meets many of them."""
    # A text can be written in another way: what is tested is what its run does.
    cudal1_ci.trial.session.screen = lambda *_: ()  # type: ignore[assignment]
    folder.mkdir()
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    lane, rows = Lane(folder), []
    for number in rounds:
        for name in names:
            if time.time() > until_s:
                break
            is_host = FAULTS[name].strike == "kill host"
            if is_host and number % HOST_EVERY:
                continue
            row = (host if is_host else trial)(lane, name, number)
            rows.append(row)
            if not is_good(row):
                print("  not as it should be:", json.dumps(asdict(row)), flush=True)
                lane.close()  # so that it is counted once
        if time.time() > until_s:
            break
        print(f"{folder.name}: {len(rows)} injections", flush=True)
    for one in lane.close():
        rows[-1].left.append(f"at the end: {one}")
    return rows, lane.device


def is_good(row: Row) -> bool:
    return row.is_right and row.is_next_right and row.is_nothing_lost and not row.left


def table(rows: Sequence[Row]) -> str:
    """A line for each fault, in Markdown."""
    lines = [
        "| fault | injected | right verdict | next trial right | nothing lost "
        "| nothing left behind | verdicts |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {name: [row for row in rows if row.fault == name] for name in FAULTS}
    for name, own in [*groups.items(), ("all", list(rows))]:
        done = [row for row in own if row.verdict != "not injected"]
        if not done:
            continue
        verdicts = Counter(row.verdict for row in done).most_common() if name != "all" else []
        cells = [
            name,
            len(done),
            sum(row.is_right for row in done),
            sum(row.is_next_right for row in done),
            sum(row.is_nothing_lost for row in done),
            sum(not row.left for row in done),
            ", ".join(f"`{verdict}` {number}" for verdict, number in verdicts),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--start", type=int, default=0, help="number of the first round")
    parser.add_argument("--only", choices=sorted(FAULTS), help="one fault")
    parser.add_argument("--lanes", type=int, default=2, help="processes that inject side by side")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all of them")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--append", action="store_true", help="to the rows of that file")
    options = parser.parse_args()
    names = [options.only] if options.only else list(FAULTS)
    rounds = range(options.start, options.start + options.repeat)
    lanes = min(options.lanes, len(names))
    folder, started_s = Path(tempfile.mkdtemp(prefix="faults-")), time.monotonic()
    until_s = time.time() + options.limit
    try:
        with ProcessPoolExecutor(lanes, mp_context=get_context("spawn")) as pool:
            asked = [
                pool.submit(run_lane, names[at::lanes], rounds, folder / f"lane{at}", until_s)
                for at in range(lanes)
            ]
            done = [one.result() for one in asked]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [row for found, _ in done for row in found]
    device = next((found for _, found in done if found), {})
    wall_s = time.monotonic() - started_s
    if options.output is not None:
        rows = written(options.output, rows, device, wall_s, options.append)
    print(table(rows))


def written(
    path: Path, rows: list[Row], device: dict[str, Any], wall_s: float, append: bool
) -> list[Row]:
    """Keep what was seen; all rows of the file."""
    before = json.loads(path.read_text()) if append else {}
    rows = [Row(**row) for row in before.get("rows", [])] + rows
    here = provenance()
    document = {
        **here,
        "command": "; ".join(filter(None, [before.get("command"), here["command"]])),
        "device": device,
        "torch": device.get("software", {}).get("torch"),
        "config": msgspec.to_builtins(CONFIG),
        "wall_s": round(before.get("wall_s", 0.0) + wall_s, 1),
        "num_injections": sum(row.verdict != "not injected" for row in rows),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return rows


if __name__ == "__main__":
    main()
