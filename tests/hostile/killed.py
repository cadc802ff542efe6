"""Do work in a child, kill it at a random moment with SIGKILL, and look at what is left.

    python -m tests.hostile.killed KIND COUNT FOLDER       prints what was wrong

A process of its own: it forks, which a process with threads should not.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cudal1_ci.errors import CudaL1Error
from cudal1_ci.github.trees import Trees
from cudal1_ci.processes.enclosed import Enclosure, enclosed
from cudal1_ci.records.archive import Archive
from cudal1_ci.render import render
from cudal1_ci.render.reading import read_report
from tests.reports import a_report, a_target, compared
from tests.unit.records.test_archive_processes import evaluation_number

POLICY = "policy"
Work = Callable[[Callable[[], None]], None]


def killed_after(work: Work, most_s: float, after: int = 0) -> int:
    """Run the work in a child. Kill it some time after it has acknowledged `after` steps. Return
    how many it had acknowledged by then."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        work(lambda: os.write(theirs, b"!") and None)
        os._exit(0)
    os.close(theirs)
    acknowledged = sum(len(os.read(ours, 1)) for _ in range(after))
    time.sleep(random.uniform(0, most_s))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(ours, 4096):
        acknowledged += len(part)
    os.close(ours)
    return acknowledged


def archive(folder: Path, number: int) -> Iterator[str]:
    """A measurement that was acknowledged is there, and the file is whole."""
    path, first = folder / "archive.sqlite", number * 1000

    def work(acknowledge: Callable[[], None]) -> None:
        with Archive.open(path) as kept:
            for i in range(first, first + 200):
                kept.record(evaluation_number(i), POLICY)
                acknowledge()

    count = killed_after(work, 0.004, after=random.randrange(4))
    with Archive.open(path) as kept:
        found = [one.candidate.id for _, one in kept.recorded()]
        wanted = [evaluation_number(i).candidate.id for i in range(first, first + count)]
    if not set(wanted) <= set(found):
        yield f"{len(set(wanted) - set(found))} of {count} measurements are lost"
    connection = sqlite3.connect(path)
    if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        yield "the archive is damaged"
    connection.close()


REPORT = a_report(*(compared("regression", target=a_target(qualname=f"f{i}")) for i in range(300)))
TEXT = render(REPORT, "json")


def report(folder: Path, number: int) -> Iterator[str]:
    """A report that was cut is no report: no part of it replaces the whole one."""
    path = folder / f"report-{number}.json"

    def work(acknowledge: Callable[[], None]) -> None:
        acknowledge()
        with path.open("w", encoding="utf-8", buffering=64) as file:
            for i in range(0, len(TEXT), 512):
                file.write(TEXT[i : i + 512])

    killed_after(work, 0.002, after=1)
    try:
        found = read_report(path)
    except CudaL1Error:
        return
    finally:
        path.unlink(missing_ok=True)
    if len(found.entries) != len(REPORT.entries):
        yield f"a cut report is read as one of {len(found.entries)} targets"


def trees(folder: Path, number: int) -> Iterator[str]:
    """A tree that is there is whole, and one whose making was cut is made again."""
    repository, state = folder / "repo", folder / "state" / "trees"
    sha = git(repository, "rev-parse", f"HEAD~{number % 3}")

    def work(acknowledge: Callable[[], None]) -> None:
        acknowledge()
        Trees(repository, state).of(sha)

    killed_after(work, 0.08, after=1)
    made = Trees(repository, state)
    found = made.of(sha)
    made.check(sha)
    if len(list(found.glob("*.py"))) != 40:
        yield "a tree lacks files"
    if number % 5 == 0:
        subprocess.run(["rm", "-rf", str(state)], check=True)


def command(folder: Path, number: int) -> Iterator[str]:
    """What a command has started ends with the process that started the command."""
    mark = f"killed-{os.getpid()}-{number}"
    script = f"(sh -c 'sleep 30; true' {mark} &) ; echo; exec sleep 30 # {mark}"

    def work(acknowledge: Callable[[], None]) -> None:
        words = ("/bin/sh", "-c", script)
        with enclosed(words, folder, Enclosure(readable=(str(folder),)), {}) as process:
            acknowledge()
            process.process.wait()

    killed_after(work, 0.1, after=1)
    deadline = time.monotonic() + 5
    while alive(mark):
        if time.monotonic() > deadline:
            yield "a command outlives its host"
            return
        time.sleep(0.01)


def alive(mark: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes():
                return True
        except OSError:
            continue
    return False


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def main(kind: str, count: int, folder: Path) -> None:
    """Kill `count` times, and write what is wrong."""
    if kind == "trees":
        repository = folder / "repo"
        repository.mkdir()
        git(repository, "init", "-q")
        for i in range(40):
            (repository / f"m{i}.py").write_text(f"x = {i}\n" * 200)
        for text in "abc":
            (repository / "m0.py").write_text(text)
            git(repository, "add", "-A")
            git(repository, "commit", "-qm", text)
    kinds = {"archive": archive, "report": report, "trees": trees, "command": command}
    for number in range(count):
        for wrong in kinds[kind](folder, number):
            sys.stdout.write(f"{wrong}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
