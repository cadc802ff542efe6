"""Judges side by side: each a process of its own, all with one archive.

What one of them examines overlaps with what the others do, and a device is timed by one at a time:
so has the product it. A judge takes a task with some of its candidates, checks the reference and
profiles it where nobody did, and writes what it finds into the archive before it goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import text_trials

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.llm_loop import profile_of
from cudal1_ci.records import Candidate, Problem
from cudal1_ci.records.archive import Archive

REFERENCE, TRIAL, DEVICE = "baseline reference", "baseline trial", "baseline device"
"""Kinds of notes."""
MOST_CANDIDATES = 8
"""Of one piece of work: a second judge checks the reference once more, which takes some seconds,
and the last judge at work should not be alone for long."""


@dataclass(frozen=True)
class Work:
    """A task, and candidates that were not judged yet."""

    task: str
    problem: Problem
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Bench:
    """What all judges are told."""

    archive: Path
    known: frozenset[str]
    """Tasks of whose references there was a verdict when the judges began."""
    device: str
    mode: str
    over_s: float
    """When no other trial is begun, in seconds since the epoch."""
    trial_s: float
    gpus: tuple[str, ...] = ()
    """That the judges take in turn; the first that is visible for none."""


def shares(task: str, problem: Problem, candidates: Sequence[Candidate]) -> Iterator[Work]:
    """A task as pieces of work, one at least."""
    for first in range(0, max(len(candidates), 1), MOST_CANDIDATES):
        yield Work(task, problem, tuple(candidates[first : first + MOST_CANDIDATES]))


def judge_all(works: Iterable[Work], bench: Bench, num_judges: int) -> None:
    """Has all work done, or what of it the time allows."""
    context = multiprocessing.get_context("spawn")
    left: Any = context.Queue()
    count = 0
    for work in works:
        left.put(work)
        count += 1
    judges = [
        context.Process(target=judge, args=(left, bench, number), name=f"judge {number}")
        for number in range(min(num_judges, count))
    ]
    for process in judges:
        process.start()
    for process in judges:
        process.join()
    # What was not taken is not waited for.
    left.cancel_join_thread()
    if failed := [process.name for process in judges if process.exitcode]:
        print(f"{', '.join(failed)} failed: what it had at hand is still to do", file=sys.stderr)


def judge(left: Any, bench: Bench, number: int) -> None:
    """One process: takes work until there is no more, or no time."""
    if bench.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = bench.gpus[number % len(bench.gpus)]
    with (
        Archive.open(bench.archive) as archive,
        text_trials.session(bench.mode, bench.device, is_screening=True) as session,
    ):
        while time.time() < bench.over_s:
            try:
                work = left.get(timeout=1.0)
            except queue.Empty:
                return
            judge_one(work, bench, archive, session)


def judge_one(
    work: Work, bench: Bench, archive: Archive, session: text_trials.TimedSession
) -> None:
    """The reference, if nothing is known of it, and the candidates."""
    known = archive.noted(REFERENCE, work.task, dict[str, Any])
    if known is None or (work.task not in bench.known and known["status"] != "passed"):
        known = reference_row(work, bench, archive, session)
        archive.note(REFERENCE, work.task, known)
        print(f"{work.task:6} reference {known['seconds']:6.1f} s  {said(known)}", file=sys.stderr)
    if known["status"] != "passed":
        return
    session.build_ahead(work.problem, work.candidates)
    for candidate in session.in_turn(work.candidates):
        if time.time() > bench.over_s:
            return
        row, evaluation = text_trials.evaluated(session, work.problem, candidate, bench.trial_s)
        if evaluation is not None:
            archive.record(evaluation, session.config.policy)
        archive.note(TRIAL, candidate.id, {"task": work.task, "by": candidate.proposer, **row})
        print(
            f"{work.task:6} {candidate.proposer[:24]:24} {row['seconds']:6.1f} s  {said(row)}",
            file=sys.stderr,
        )


def reference_row(
    work: Work, bench: Bench, archive: Archive, session: text_trials.TimedSession
) -> dict[str, Any]:
    """Whether candidates can be judged against a reference; its profile goes into the archive, from
    where prompts take it."""
    started_s = time.monotonic()
    found: dict[str, Any]
    try:
        with text_trials.limited(bench.trial_s):
            device = session.device()
            archive.note(DEVICE, DEVICE, device)
            verdict = session.check(work.problem)
            first = verdict.findings[0] if verdict.findings else None
            found = {
                "status": verdict.status,
                "rule": first.rule if first else None,
                "message": first.message[: text_trials.MOST_CHARS] if first else None,
            }
            if verdict.status == "passed":
                profile = profile_of(
                    work.problem,
                    archive,
                    device,
                    lambda name: session.profile(name, is_candidate=False),
                )
                found["profile"] = profile if isinstance(profile, str) else None
    except text_trials.TrialTimeout:
        found = text_trials.failed("unfinished", f"not finished after {bench.trial_s:.0f} s")
    except WorkerError as error:
        found = text_trials.failed("harness_error", str(error)[: text_trials.MOST_CHARS])
    return {**found, "seconds": round(time.monotonic() - started_s, 2)}


def said(row: dict[str, Any]) -> str:
    gain = f" {row['speedup']:.2f}x" if row.get("speedup") else ""
    return f"{row['status']} {row['rule'] or ''}".strip() + gain
