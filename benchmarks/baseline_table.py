"""The zero line of a model as Markdown (model_baseline.py): rates with intervals, and what failed.

An answer goes through four gates: its code can be read, it is a new program (not the reference word
by word, with the class that is asked for), it compiles, it is correct. `faster` is correct with a
lower bound of the speedup above 1. Rates are told twice: of answers, and of tasks, of which one of
the answers will do. All intervals have 95%.

- Of tasks: Wilson's score interval.
- Of answers: the eight of a task are alike, so tasks are what is drawn: a percentile bootstrap over
  tasks. Where all tasks have the same rate (none at all, as a rule) every draw is the same and
  would claim certainty: Wilson's interval for one answer a task is told instead, which is wider
  than the truth. So it is for greedy answers, of which a task has one.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Z = statistics.NormalDist().inv_cdf(0.975)
NUM_DRAWS = 2000
NUM_BEST = 5
UNSETTLED = ("harness_error", "unfinished", "inconclusive", "invalid_reference")
"""Statuses that say nothing of a program."""
HEADS = ("readable", "new program", "compiled", "correct", "faster")


class Rate(NamedTuple):
    """A share with its interval."""

    hits: int
    total: int
    low: float
    high: float


def wilson(hits: int, total: int) -> Rate:
    """Source: E. B. Wilson, doi:10.1080/01621459.1927.10502953."""
    if total == 0:
        return Rate(0, 0, 0.0, 1.0)
    share, square = hits / total, Z * Z / total
    middle = (share + square / 2) / (1 + square)
    half = Z * math.sqrt(share * (1 - share) / total + square / total / 4) / (1 + square)
    low = 0.0 if hits == 0 else middle - half
    return Rate(hits, total, low, 1.0 if hits == total else middle + half)


def clustered(hits: Mapping[str, Sequence[bool]], seed: int = 0) -> Rate:
    """The rate of answers by their tasks, with an interval for other tasks of the same kind."""
    counts = [(sum(one), len(one)) for one in hits.values() if one]
    total, found = sum(n for _, n in counts), sum(hit for hit, _ in counts)
    shares = {hit / n for hit, n in counts}
    if len(shares) <= 1 or all(n == 1 for _, n in counts):
        share = found / total if total else 0.0
        alike = wilson(round(share * len(counts)), len(counts))
        if 0 < share < 1 and len(shares) == 1:
            alike = alike._replace(low=min(alike.low, share), high=max(alike.high, share))
        return alike._replace(hits=found, total=total)
    rng, drawn = random.Random(seed), []
    for _ in range(NUM_DRAWS):
        some = rng.choices(counts, k=len(counts))
        drawn.append(sum(hit for hit, _ in some) / sum(n for _, n in some))
    drawn.sort()
    edge = round(0.025 * NUM_DRAWS)
    return Rate(found, total, drawn[edge - 1], drawn[-edge])


def gates(answer: Mapping[str, Any], program: Mapping[str, Any] | None) -> tuple[bool, ...]:
    """Through which of `HEADS` an answer came; what has no verdict came through none of the
    judge's."""
    status = program["status"] if program else None
    is_settled = status is not None and status not in UNSETTLED
    is_correct = status == "passed"
    return (
        answer["has_code"],
        answer["candidate"] is not None,
        is_settled and status != "compile_error",
        is_correct,
        is_correct and program is not None and (program.get("speedup_low") or 0) > 1,
    )


Group = tuple[str, str]
"""Setting and sampling."""


def grouped(document: Mapping[str, Any]) -> dict[Group, list[dict[str, Any]]]:
    """Answers by setting and sampling, in the order of the result."""
    found: dict[Group, list[dict[str, Any]]] = defaultdict(list)
    for answer in document["answers"]:
        found[answer["setting"], answer["sampling"]].append(answer)
    return dict(found)


def rates(
    answers: Sequence[Mapping[str, Any]], programs: Mapping[str, Any]
) -> list[tuple[Rate, Rate]]:
    """For each of `HEADS` the rate of answers and the rate of tasks."""
    found = []
    for gate in range(len(HEADS)):
        hits: dict[str, list[bool]] = defaultdict(list)
        for answer in answers:
            came = gates(answer, programs.get(answer["candidate"]))
            hits[answer["task"]].append(came[gate])
        found.append((clustered(hits), wilson(sum(map(any, hits.values())), len(hits))))
    return found


def shown(rate: Rate) -> str:
    if not rate.total:
        return "–"
    return f"{rate.hits / rate.total:.1%} ({rate.low:.1%} to {rate.high:.1%})"


def counted(rate: Rate) -> str:
    return f"{rate.hits} of {rate.total}, {rate.low:.0%} to {rate.high:.0%}"


def table(document: Mapping[str, Any]) -> str:
    """The whole of it."""
    groups, programs = grouped(document), document["programs"]
    found = {key: rates(answers, programs) for key, answers in groups.items()}
    lines = [*head(document), ""]
    for title, pick, form in (
        ("Of answers", 0, shown),
        ("Of tasks, by the best of their answers", 1, counted),
    ):
        lines += [f"{title}:", "", f"| exemplars | T | answers | {' | '.join(HEADS)} |"]
        lines.append("|---" * (3 + len(HEADS)) + "|")
        for key, answers in groups.items():
            cells = [form(both[pick]) for both in found[key]]
            lines.append(f"| {name_of(key, answers)} | {len(answers)} | {' | '.join(cells)} |")
        lines.append("")
    lines += [*bests(groups, programs), ""]
    lines += [*counts("Answers without a program", groups, why_no_program), ""]
    lines += [*counts("Verdicts", groups, lambda one: verdict_of(one, programs)), ""]
    lines += [*shape(groups), "", *rewrites(document)]
    return "\n".join(lines) + "\n"


def head(document: Mapping[str, Any]) -> list[str]:
    """What was asked, of what, on what."""
    model, device = document["model"] or {}, document["device"] or {}
    about = f" ({document['about_the_model']})" if document["about_the_model"] else ""
    references = document["references"]
    refused = {task: row for task, row in references.items() if row["status"] != "passed"}
    missing = document["num_questions"] - len(document["answers"])
    kept = {one["candidate"] for one in document["answers"]} - {None}
    unjudged = len(kept - set(document["programs"]))
    lines = [
        f"{model.get('model')}{about}, top_p {model.get('top_p')}, at most "
        f"{model.get('max_tokens')} tokens an answer; {len(document['tasks'])} tasks of "
        f"KernelBench (`{(document['kernelbench'] or 'unknown')[:12]}`); {device.get('name')}, "
        f"torch {(device.get('software') or {}).get('torch')}; {document['date'][:10]}, commit "
        f"`{document['commit']}`, trials of the mode `{document['mode']}`. {len(kept)} different "
        "programs were judged.",
    ]
    if refused:
        said = ", ".join(f"{task} {row['status']}" for task, row in refused.items())
        lines += ["", f"Not asked, as the judge has no verdict on their references: {said}."]
    begun = {one["setting"] for one in document["answers"]}
    if later := [name for name in document["settings"] if name not in begun]:
        lines += ["", f"NOT FINISHED: nothing was answered of {', '.join(later)}."]
    if missing or unjudged:
        lines += [
            "",
            f"NOT FINISHED: {missing} questions without an answer, {unjudged} programs without a "
            "verdict, which count as failed.",
        ]
    return lines


def name_of(key: Group, answers: Sequence[Mapping[str, Any]]) -> str:
    return f"{key[0]} | {answers[0]['temperature']:g}"


def bests(groups: Mapping[Group, Sequence[Any]], programs: Mapping[str, Any]) -> list[str]:
    """The highest lower bounds above 1, one a task."""
    lines = ["| exemplars | T | fastest, one a task |", "|---|---|---|"]
    for key, answers in groups.items():
        best: dict[str, Any] = {}
        for answer in answers:
            program = programs.get(answer["candidate"])
            if gates(answer, program)[-1] and program is not None:
                known = best.setdefault(answer["task"], program)
                best[answer["task"]] = max(known, program, key=lambda one: one["speedup_low"])
        ranked = sorted(best.items(), key=lambda pair: -pair[1]["speedup_low"])[:NUM_BEST]
        said = [
            f"{task}: {one['speedup']:.2f} ({one['speedup_low']:.2f} to {one['speedup_high']:.2f})"
            for task, one in ranked
        ]
        lines.append(f"| {name_of(key, answers)} | {'; '.join(said) or 'none'} |")
    return lines


def why_no_program(answer: Mapping[str, Any]) -> str | None:
    return None if answer["candidate"] is not None else answer["kind"]


def verdict_of(answer: Mapping[str, Any], programs: Mapping[str, Any]) -> str | None:
    """The status with the rule, of an answer that is a program."""
    if answer["candidate"] is None:
        return None
    program = programs.get(answer["candidate"])
    if program is None:
        return "not judged"
    return " ".join(filter(None, (program["status"], program["rule"])))


def counts(
    title: str,
    groups: Mapping[Group, Sequence[Mapping[str, Any]]],
    kind_of: Callable[[Mapping[str, Any]], str | None],
) -> list[str]:
    """A row a setting, what happened and how often."""
    lines = [f"| exemplars | T | {title.lower()} |", "|---|---|---|"]
    for key, answers in groups.items():
        found = Counter(kind for answer in answers if (kind := kind_of(answer)) is not None)
        said = ", ".join(f"{kind} {count}" for kind, count in found.most_common())
        lines.append(f"| {name_of(key, answers)} | {said or 'none'} |")
    return lines


def shape(groups: Mapping[Group, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Lengths, and how much there was to choose from."""
    lines = [
        "| exemplars | T | prompt, median tokens | answer, median tokens | cut off "
        "| tasks with 1, 2, 3 and more variants to draw from |",
        "|---" * 6 + "|",
    ]
    for key, answers in groups.items():
        cut = sum(answer["finish_reason"] == "length" for answer in answers)
        known = {answer["task"]: answer["num_known"] for answer in answers}
        pools = Counter(min(number, 3) for number in known.values())
        lines.append(
            f"| {name_of(key, answers)} | {median(answers, 'prompt_tokens')} "
            f"| {median(answers, 'completion_tokens')} | {cut} "
            f"| {pools[1]}, {pools[2]}, {pools[3]} |"
        )
    return lines


def median(answers: Sequence[Mapping[str, Any]], key: str) -> str:
    found = [answer[key] for answer in answers if answer[key] is not None]
    return f"{statistics.median(found):.0f}" if found else "–"


def rewrites(document: Mapping[str, Any]) -> list[str]:
    """What the playbook does on the same tasks, without a model."""
    rows = [row for row in document["programs"].values() if row["by"].startswith("playbook:")]
    passed = [row for row in rows if row["status"] == "passed"]
    faster = {row["task"] for row in passed if (row.get("speedup_low") or 0) > 1}
    return [
        f"Without a model, the playbook's rewrites of the same tasks: {len(rows)} judged, "
        f"{len(passed)} correct, {len(faster)} tasks faster.",
    ]
