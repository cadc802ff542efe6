"""Measure what `compare` says of pull requests: false alarms, and slowdowns that it finds.

    python experiments/detection.py --harmless 100 --regressions 20 --output detection-cpu.json
    python experiments/detection.py --limit 600 --output detection-cpu.json
    python experiments/detection.py --device cuda --together 30 --jobs 3 --regressions 50 \\
        --output FILE

Each request is a git repository of its own, drawn by a seed: a module, or several of them, and a
branch that changes them. A harmless change edits names, text and places. A regression does more
work. The command that a user would type compares the two. A plain loop, which alternates calls of
both versions, measures the extra work: one loop chooses how much is added, another one after the
command says what it came to. Only the second one's figure is reported, so that it was not selected.
A result that exists is continued, so that requests may be spread over calls of `--limit` seconds.
With `--jobs` requests share the device: one of them times at once, this script's loops included.
On a GPU each loop runs in a process that ends while the GPU is still its own, as `compare` refuses
to time next to a program that it does not know.
Rates have exact one-sided bounds of 95 % (Clopper & Pearson).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import text_trials
import torch
from aa import upper_bound
from detection_modules import (
    BOUNDS,
    EDITS,
    KINDS,
    MODEL,
    Files,
    Kind,
    files_of,
    target_of,
    tree,
    with_extra,
)
from loop_timing import device_name
from provenance import provenance

from cudal1_ci.processes.gpus import gpu_uuid
from cudal1_ci.processes.lock import exclusive
from cudal1_ci.records import Entry
from cudal1_ci.render.reading import read_report
from cudal1_ci.stats.gate import GateConfig, Policy, judged


@dataclass(frozen=True)
class Sought:
    """How much slower a regression is, as a ratio of times."""

    aim: float
    """What the first loop looks for: the least that counts, and room for its noise."""
    counted: float
    """A regression counts from here on, by the second loop."""
    most: float
    """Beyond this the first loop draws another request."""


SOUGHT = {"cpu": Sought(1.12, 1.10, 1.25), "cuda": Sought(1.04, 1.03, 1.08)}
MOST_TRIES = 6
LOOP_S = {"cpu": 1.5, "cuda": 0.3}
BLOCK_S = 0.002


@dataclass(frozen=True)
class Loop:
    """How many times as long the head takes, by a plain loop: a median, and its interval."""

    estimate: float
    low: float
    high: float
    base_us: float

    def row(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in vars(self).items()}


def callable_of(kind: Kind, files: Files) -> Callable[..., Any]:
    """Return the module of a repository's text."""
    scope: dict[str, Any] = {}
    text = files[MODEL].replace("from pkg.bounds import bounded\n", files.get(BOUNDS, ""))
    exec(compile(text, MODEL, "exec"), scope)
    found = scope[kind.entry]
    torch.manual_seed(0)
    return found() if isinstance(found, type) else found


@contextmanager
def device_of(device: str) -> Iterator[Callable[..., Any]]:
    """Yield what calls a function while no verifier times. On a GPU it runs in another process,
    which ends before verifiers go on."""
    if device == "cpu":
        yield lambda function, *args: function(*args)
        return
    uuid = gpu_uuid(device, os.environ)
    assert uuid is not None
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(torch.get_num_threads).result()  # imports take their time before
        with exclusive(uuid.removeprefix("GPU-")):
            yield lambda function, *args: process.submit(function, *args).result()
            process.shutdown()


def plain_loop(kind: Kind, width: int, base: Files, head: Files, device: str) -> Loop:
    """Time blocks of calls of both versions in turns, and take the median of their ratios."""
    calls = [callable_of(kind, files) for files in (base, head)]
    calls = [one.to(device) if isinstance(one, torch.nn.Module) else one for one in calls]
    torch.manual_seed(1)
    inputs = [torch.randn(shape).to(device) for shape in kind.shapes(width)]
    finish: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def block_s(which: int, num_calls: int) -> float:
        finish()
        started_s = time.perf_counter()
        for _ in range(num_calls):
            calls[which](*inputs)
        finish()
        return time.perf_counter() - started_s

    with torch.no_grad():
        block_s(1, 3)
        once_s = block_s(0, 10) / 10
        num_calls = max(1, math.ceil(BLOCK_S / once_s))
        pairs: list[tuple[float, float]] = []
        ends_s = time.monotonic() + LOOP_S[device]
        while time.monotonic() < ends_s or len(pairs) < 30:
            first = len(pairs) % 2
            one, other = block_s(first, num_calls), block_s(1 - first, num_calls)
            pairs.append((other, one) if first else (one, other))
    ratios = sorted(head_s / base_s for base_s, head_s in pairs)
    # Ranks around the median that hold it with 95 %.
    reach = 0.98 * math.sqrt(len(ratios))
    return Loop(
        estimate=statistics.median(ratios),
        low=ratios[max(0, math.floor(len(ratios) / 2 - reach))],
        high=ratios[min(len(ratios) - 1, math.ceil(len(ratios) / 2 + reach))],
        base_us=statistics.median(base_s for base_s, _ in pairs) / num_calls * 1e6,
    )


def drawn(rng: random.Random, device: str) -> tuple[str, int, int]:
    """Return a kind of module, a width and a count."""
    name = rng.choice(sorted(KINDS))
    sizes = KINDS[name].sizes[device]
    return name, rng.choice(sizes.widths), rng.choice(sizes.counts)


def harmless(rng: random.Random, device: str = "cpu") -> dict[str, Any]:
    """Return a request that changes no time, with the texts of both trees."""
    name, width, count = drawn(rng, device)
    base = files_of(KINDS[name], width, count)
    head, chosen = base, rng.sample(sorted(EDITS), rng.choice((1, 1, 2, 3)))
    edits = []
    for one in (one for one in EDITS if one in chosen):
        before, head = head, EDITS[one](head)
        edits += [one] if head != before else []
    return {"kind": name, "width": width, "count": count, "edits": edits, "trees": (base, head)}


def slower(rng: random.Random, device: str = "cpu") -> dict[str, Any]:
    """Return a request with so much more work as is sought, by a plain loop."""
    sought = SOUGHT[device]
    while True:
        name, width, count = drawn(rng, device)
        kind = KINDS[name]
        way = rng.choice(sorted([*kind.extras, "layers"]))
        base = files_of(kind, width, count)
        strength = 1
        for _ in range(MOST_TRIES):
            head = with_extra(kind, width, count, way, strength)
            loop = plain_loop(kind, width, base, head, device)
            if loop.estimate >= sought.counted:
                break
            each = max(loop.estimate - 1, 0.001) / strength
            enough = math.ceil((sought.aim - 1) / each)
            strength = max(strength + 1, min(enough, 4 * strength))
        if sought.counted <= loop.estimate <= sought.most:
            break
    return {
        "kind": name,
        "width": width,
        "count": count,
        "way": way,
        "strength": strength,
        "chosen_by": loop.row(),
        "trees": (base, head),
    }


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path, files: Files) -> None:
    """Commit these files, and no others."""
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a commit")


def modules_of(
    number: int, seed: int, device: str, are_slower: Sequence[bool]
) -> list[dict[str, Any]]:
    """Return what a request changes, each with the texts of both trees."""
    torch.set_num_threads(1)
    rng = random.Random(f"{seed} {number}")
    return [
        {"number": number, "is_slower": one, **(slower if one else harmless)(rng, device)}
        for one in are_slower
    ]


def loops_of(modules: Sequence[Mapping[str, Any]], device: str) -> list[dict[str, float]]:
    """Return what a plain loop says of each."""
    torch.set_num_threads(1)
    rows = []
    for one in modules:
        base, head = one["trees"]
        rows.append(plain_loop(KINDS[one["kind"]], one["width"], base, head, device).row())
    return rows


def compared(modules: Sequence[Mapping[str, Any]], device: str) -> list[dict[str, Any]]:
    """Run the command on a repository of two commits, and return what it said of each module."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "repository", Path(folder) / "report.json"
        root.mkdir()
        git(root, "init", "-q")
        commit(root, tree(modules, 0))
        git(root, "checkout", "-qb", "work")
        commit(root, tree(modules, 1))
        words = ["compare", "main", "--device", device, "--fail-on", "regression", "-q"]
        started_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cudal1_ci", *words, "--json", str(file)],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        took_s = time.monotonic() - started_s
        if not file.exists():
            return [{"exit_code": done.returncode, "error": done.stderr[-500:]} for _ in modules]
        report = read_report(file)
    rows = []
    for place, one in enumerate(modules):
        entries = [
            entry for entry in report.entries if entry.target.path.startswith(f"pkg{place}/")
        ]
        gate = GateConfig(required=(target_of(one, place),))
        alone = msgspec.structs.replace(report, entries=tuple(entries))
        rows.append(
            {
                "exit_code": done.returncode,
                "conclusion": judged(alone, Policy(fail_on="regression", gate=gate)).conclusion,
                "seconds": round(took_s, 2),
                "targets": list(map(target_row, entries)),
            }
        )
    return rows


def target_row(entry: Entry) -> dict[str, Any]:
    """Return what was said of a target."""
    comparison = entry.comparison
    assert comparison is not None
    row: dict[str, Any] = {"target": entry.target.qualname, "verdict": comparison.verdict}
    if comparison.reason:
        row["reason"] = comparison.reason
    for one in comparison.rows:
        row |= {
            "slowdown": one.slowdown,
            "low": one.slowdown_low,
            "high": one.slowdown_high,
            "measurements": one.num_measurements,
            "reason": one.reason,
        }
    return row


def request(
    number: int, seed: int, device: str, are_slower: Sequence[bool]
) -> list[dict[str, Any]]:
    """Return a row for each module that a request changes."""
    with device_of(device) as alone:
        modules = alone(modules_of, number, seed, device, are_slower)
    load = round(os.getloadavg()[0], 1)
    said = compared(modules, device)
    with device_of(device) as alone:
        loops = alone(loops_of, modules, device)
    rows = []
    for module, one, loop in zip(modules, said, loops, strict=True):
        facts = {name: value for name, value in module.items() if name != "trees"}
        rows.append({**facts, "load": load, **one, "loop": loop})
    return rows


def counted(rows: Sequence[Mapping[str, Any]], device: str) -> list[Mapping[str, Any]]:
    """Return the regressions that are large enough, by the loop that has selected none."""
    least = SOUGHT[device].counted
    return [row for row in rows if row["is_slower"] and row["loop"]["estimate"] >= least]


def verdict(row: Mapping[str, Any]) -> str:
    """Return the verdict that decides a request."""
    found = {one["verdict"] for one in row.get("targets", ())}
    if "error" in row:
        return "error"
    # Helpers have no workload of their own, and are measured with what calls them.
    order = ("regression", "inconclusive", "improvement", "same")
    return next((one for one in order if one in found), "nothing to measure")


def groups(
    rows: Sequence[Mapping[str, Any]], device: str
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield requests of a kind, by the name of the kind."""
    large = counted(rows, device)
    yield "harmless", [row for row in rows if not row["is_slower"]]
    yield name_of(device), large
    if device == "cuda":
        yield "of these, the GPU waits for the host", [row for row in large if is_starved(row)]
    small = [row for row in rows if row["is_slower"] and row not in large]
    yield "less than " + name_of(device).removesuffix(" and more"), small


def is_starved(row: Mapping[str, Any]) -> bool:
    """Return whether a request's call leaves the GPU waiting for the host."""
    return bool(row["width"] == KINDS[row["kind"]].sizes["cuda"].widths[0])


def name_of(device: str) -> str:
    """Return what a regression that counts is called."""
    return f"{100 * (SOUGHT[device].counted - 1):.0f} % and more"


def processor(document: Mapping[str, Any]) -> str:
    """Return what the times were measured on, and by how many at once."""
    if "device" not in document:
        return f"{document['processor']}, 1 thread"
    return (
        f"{document['device']} shared by {document['jobs']} requests of "
        f"{document['together']} modules, of which one times at once"
    )


VERDICTS = ("regression", "inconclusive", "same", "improvement", "nothing to measure")


def table(document: Mapping[str, Any]) -> list[str]:
    """Return what was said of each group of requests as Markdown, and how sure the rates are."""
    rows, device = document["rows"], document.get("kind", "cpu")
    lines = [
        f"| requests | number | {' | '.join(VERDICTS)} | other | check fails | seconds (median, "
        "longest) |",
        "|---" * (len(VERDICTS) + 5) + "|",
    ]
    for name, some in groups(rows, device):
        if not some:
            continue
        said = Counter(map(verdict, some))
        numbers = " | ".join(str(said[one]) for one in VERDICTS)
        other = len(some) - sum(said[one] for one in VERDICTS)
        fails = sum(row.get("conclusion") == "failure" for row in some)
        took = [row["seconds"] for row in some if "seconds" in row]
        lines.append(
            f"| {name} | {len(some)} | {numbers} | {other} | {fails} "
            f"| {statistics.median(took):.1f}, {max(took):.1f} |"
        )
    equal = [row for row in rows if not row["is_slower"]]
    found = counted(rows, device)
    false = sum(verdict(row) == "regression" for row in equal)
    missed = sum(verdict(row) != "regression" for row in found)
    lines += [
        "",
        f"False alarms: {false} of {len(equal)}, at most {upper_bound(false, len(equal)):.1%}. "
        f"Found of {name_of(device)}: {len(found) - missed} of {len(found)}, at least "
        f"{1 - upper_bound(missed, len(found)):.1%}. Bounds are exact and one-sided, 95 %.",
        "",
        f"{processor(document)}, torch {document['torch']}, {document['date'][:10]}, "
        f"commit `{document['commit']}`: `{document['command']}`. Load of {document['num_cores']} "
        f"cores when a request began: median "
        f"{statistics.median(row['load'] for row in rows):.1f}, highest "
        f"{max(row['load'] for row in rows):.1f}.",
    ]
    return lines


def line(row: Mapping[str, Any]) -> str:
    """Return a request in a line."""
    edits = row.get("edits") or row["way"]
    words = (row["number"], row["kind"], row["width"], edits, row["loop"]["estimate"])
    return " ".join(map(str, (*words, verdict(row), row.get("seconds"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=sorted(SOUGHT), default="cpu")
    parser.add_argument("--harmless", type=int, default=100)
    parser.add_argument("--regressions", type=int, default=20, help="that count by the second loop")
    parser.add_argument("--together", type=int, default=1, help="modules that a request changes")
    parser.add_argument("--jobs", type=int, default=1, help="requests at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of this call")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = options.device
    document = {**provenance(), "torch": torch.__version__, "rows": []}
    if device == "cuda":
        facts = {"jobs": options.jobs, "together": options.together}
        document |= {"kind": device, "device": device_name(device), **facts}
    if options.output is not None and options.output.exists():
        document = json.loads(options.output.read_text(encoding="utf-8"))
    rows = document["rows"]
    ends_s = time.monotonic() + options.limit
    numbers = itertools.count(1 + max((row["number"] for row in rows), default=-1))
    started: dict[Future[list[dict[str, Any]]], list[bool]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        while True:
            while len(started) < options.jobs and time.monotonic() < ends_s:
                left = options.harmless - sum(not row["is_slower"] for row in rows)
                lacking = options.regressions - len(counted(rows, device))
                planned = [one for some in started.values() for one in some]
                are_slower: list[bool] = []
                for _ in range(options.together):
                    some = [*planned, *are_slower]
                    harmless_left, slower_left = (
                        left - some.count(False),
                        lacking - some.count(True),
                    )
                    if harmless_left <= 0 and slower_left <= 0:
                        break
                    # Both kinds through the whole run, so that both meet the same noise.
                    is_slower = slower_left * options.harmless > harmless_left * options.regressions
                    are_slower.append(harmless_left <= 0 or is_slower)
                if not are_slower:
                    break
                one = pool.submit(request, next(numbers), options.seed, device, are_slower)
                started[one] = are_slower
            if not started:
                break
            for done in wait(started, return_when=FIRST_COMPLETED).done:
                del started[done]
                rows += done.result()
                if options.output is not None:
                    text_trials.write(options.output, document)
                print("\n".join(map(line, done.result())), file=sys.stderr)
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
