"""Build the check run: its payloads, and the annotations at the lines that they are about.

A check is there even when a comment is not worthwhile, and also where nothing was measured. So
silence is not taken for a broken workflow. Each project has one check. Annotations are sent fifty
at a time: GitHub takes no more in one request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from cudal1_ci.github.conclusion import Standing
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import key_of
from cudal1_ci.github.sanitize import one_line, ordinary_path, plain
from cudal1_ci.records import Comparison, Entry, Report
from cudal1_ci.render.digest import digest, worth
from cudal1_ci.render.other_uses import changed_lines
from cudal1_ci.render.wording import at_least_gain_text, change_text, count_text, ratio_change_text
from cudal1_ci.stats.gate import STATES, Policy, is_acknowledged, is_missing, state_of

CHECK_NAME = "cudal1-ci"
MAX_SUMMARY_CHARS = 60_000
MAX_SUMMARY_BYTES = 65_535
BATCH = 50
"""Annotations that GitHub takes in one request."""
MAX_ANNOTATIONS = 200
MAX_TITLE = 200
MAX_MESSAGE = 2_000
_NAME = re.compile(rf"{CHECK_NAME}(?: \((?P<folder>.*)\))?(?: into (?P<into>\S+))?", re.DOTALL)
_LAST_LINE = 2**31 - 1
_EXTERNAL_ID = re.compile(
    r"(?P<key>[\w.%~-]{1,200})/(?P<run>\d{1,19})/(?P<attempt>\d{1,9})", re.ASCII
)

Level = Literal["warning", "notice"]
Payload = dict[str, Any]


def check_name(folder: str, into: str | None = None) -> str:
    """Return the name of a project's check; the project of the whole repository has no suffix.

    GitHub finds a required check by its name and its commit alone, and one commit can be the head
    of pull requests into several bases. So the name has the base, unless that is the default one.
    """
    name = CHECK_NAME if folder == "." else f"{CHECK_NAME} ({folder})"
    return name if into is None else f"{name} into {into}"


def folder_of(name: str, into: str | None) -> str | None:
    """Return the project of a check into a base; None where the name is no such check."""
    found = _NAME.fullmatch(name)
    return (found["folder"] or ".") if found is not None and found["into"] == into else None


def external_id(occasion: Occasion) -> str:
    """Return the id by which a run finds the check that it has started."""
    return f"{key_of(occasion.workflow)[:200]}/{occasion.run_id}/{occasion.attempt}"


def run_of(external: str, key: str | None = None) -> tuple[int, int] | None:
    """Return the run and the attempt that have made a check of a workflow, or of any; None where
    the id is not ours.
    """
    found = _EXTERNAL_ID.fullmatch(external)
    if found is None or (key is not None and found["key"] != key[:200]):
        return None
    return int(found["run"]), int(found["attempt"])


def started(occasion: Occasion, name: str = CHECK_NAME) -> Payload:
    """Build a check run in progress."""
    return {
        "name": name,
        "head_sha": occasion.head_sha,
        "status": "in_progress",
        "external_id": external_id(occasion),
        "details_url": occasion.run_url,
    }


def unmeasured(occasion: Occasion, name: str, policy: Policy, why: str, fix: str = "") -> Payload:
    """Complete a check run without a report, so that no reader waits for it."""
    conclusion = policy.conclusion_of("no_report")
    return {
        **started(occasion, name),
        "status": "completed",
        "conclusion": conclusion,
        "output": {
            "title": f"Nothing was measured: {why}"[:MAX_TITLE],
            "summary": (
                f"Nothing was measured: {why}. {fix + ' ' if fix else ''}See "
                f"[the run]({occasion.run_url}). The check concludes `{conclusion}`, by "
                "`on-missing`."
            ),
        },
    }


def superseded(occasion: Occasion, name: str, later: int, conclusion: str) -> Payload:
    """Complete the check run of an older run with what a later one has concluded."""
    return {
        **started(occasion, name),
        "status": "completed",
        "conclusion": conclusion,
        "output": {
            "title": f"Replaced by the later run {later}"[:MAX_TITLE],
            "summary": f"The later run {later} has measured this commit, and its result counts.",
        },
    }


def completed(
    occasion: Occasion,
    name: str,
    standing: Standing,
    texts: Sequence[str],
    annotations: Sequence[Payload],
) -> list[Payload]:
    """Return the payloads that complete a check run.

    The first payload holds everything except further annotations. `texts` are summaries, the
    longest first.
    """
    output = {
        "title": standing.title[:MAX_TITLE],
        "summary": _longest_fitting(texts, standing.title),
    }
    batches = [list(annotations[i : i + BATCH]) for i in range(0, len(annotations), BATCH)]
    first, *others = batches or [[]]
    completing = {
        **started(occasion, name),
        "status": "completed",
        "conclusion": standing.judgement.conclusion,
        "output": {**output, "annotations": first},
    }
    return [completing, *({"output": {**output, "annotations": batch}} for batch in others)]


def _longest_fitting(texts: Sequence[str], title: str) -> str:
    """Return the first text that fits; never cut one, as half a table would show as none."""
    for text in texts:
        if len(text) <= MAX_SUMMARY_CHARS and len(text.encode()) <= MAX_SUMMARY_BYTES:
            return text
    return f"{title}. The report is too long for this page: see the summary of the run."


def annotations_of(document: Report) -> list[Payload]:
    """Return the annotations of lines of code, the worst first."""
    regressed = sorted(
        (e for e in document.entries if e.comparison and e.comparison.verdict == "regression"),
        key=lambda e: -(e.comparison.slowdown or 0.0) if e.comparison else 0.0,
    )
    lacking = [e for e in document.entries if e.comparison and is_missing(e.comparison)]
    changed = [e for e in document.entries if e.comparison and e.comparison.output_change]
    broken = [e for e in document.entries if e.comparison and e.comparison.broken]
    made: list[Payload] = []
    for annotation in (
        *(_regression(entry) for entry in regressed),
        *(_missing(entry) for entry in lacking),
        *(_output_change(entry) for entry in changed),
        *(_other_use(entry) for entry in broken),
        *_proposals(document),
    ):
        if annotation is not None and len(made) < MAX_ANNOTATIONS:
            made.append(annotation)
    return made


def _regression(entry: Entry) -> Payload | None:
    comparison = entry.comparison
    assert comparison is not None
    if is_acknowledged(comparison):
        return _annotation(entry, "notice", "Slower, as agreed", slowdown_text(comparison))
    return _annotation(entry, "warning", "Slower", slowdown_text(comparison))


def _missing(entry: Entry) -> Payload | None:
    """Name a target that was not measured, at its lines in the head; what was removed has none."""
    comparison = entry.comparison
    if comparison is None or comparison.verdict == "removed":
        return None
    _, meaning = STATES[state_of(comparison.cause or "unmeasured")]
    said = f"{meaning}: {comparison.reason}" if comparison.reason else meaning
    return _annotation(entry, "notice", "Not measured", said)


def _output_change(entry: Entry) -> Payload | None:
    change = entry.comparison.output_change if entry.comparison else None
    return _annotation(entry, "notice", "Other output", change or "")


def _other_use(entry: Entry) -> Payload | None:
    lines = changed_lines(entry.comparison) if entry.comparison else []
    return _annotation(entry, "notice", "Worked in the base", "; ".join(lines))


def _proposals(document: Report) -> Iterator[Payload | None]:
    for proposal in digest(document).proposals:
        if (gain := worth(proposal.evaluation)) > 1:
            text = f"A faster version was proven: it takes {at_least_gain_text(gain)}."
            yield _annotation(proposal.entry, "notice", "Can be faster", text)


def slowdown_text(comparison: Comparison) -> str:
    """Return how much slower a target is, with the interval, and in how many workloads."""
    number = sum(row.verdict == "regression" for row in comparison.rows)
    where = f" in {count_text(number, 'workload')}" if number else ""
    slowdown, low, high = comparison.slowdown, comparison.slowdown_low, comparison.slowdown_high
    if slowdown is None:
        return f"Takes longer than before{where}."
    if low is None or high is None:
        return f"{ratio_change_text(slowdown)} of the time of a call{where}."
    return f"{change_text(slowdown, low, high)} of the time of a call{where}."


def _annotation(entry: Entry, level: Level, what: str, message: str) -> Payload | None:
    """Build an annotation; return None for a path that must not be sent to GitHub."""
    path = ordinary_path(entry.target.path)
    if path is None:
        return None
    line = min(entry.target.first_line, _LAST_LINE)
    return {
        "path": path,
        "start_line": line,
        "end_line": line,
        "annotation_level": level,
        "title": one_line(f"{what}: {entry.target.qualname}", MAX_TITLE),
        "message": plain(message, MAX_MESSAGE) or what,
    }
