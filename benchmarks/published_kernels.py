"""Judges the kernels that CUDA-L1 published: known attacks, honest ones, and the release itself.

The code is fetched where it is needed (github.com/deepreinforce-ai/CUDA-L1) and never committed.
What is needed of it is packed into one file first, which can be carried to a machine with a GPU:

    python benchmarks/published_kernels.py CUDA-L1/.git --pack build/gpu/published.json
    python benchmarks/published_kernels.py build/gpu/published.json --set named --device cuda
    python benchmarks/published_kernels.py --table benchmarks/results/published-kernels.json

A record is a reference of KernelBench as the release shipped it and the published code. What must
become of the records of `NAMED` and of the stream sets is stated with the reason before anything is
run; of the rest of the release nothing is known. Static rules are left out of the verdict and told
beside it. With `--clocks` every record is also timed as CUDA-L1 did, by events on the current
stream, and by a clock that waits for the whole device (event_clock.py): where the two disagree, a
code gains by work that the first does not see.

Rows are written one at a time, and `--append` goes on where a run was ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import text_trials
from discovery_speed import provenance
from event_clock import Clocks
from published_cases import NAMED, REFUSED, Case, stream_cases
from published_table import table
from screen_release import RELEASES, in_order, records

OUTPUT = Path(__file__).parent / "results" / "published-kernels.json"
PLACES = {
    "v1 a100": RELEASES["v1"],
    "v1 h100": RELEASES["v1"].replace("a100_pcie", "h100_xsm"),
    "v3 a100": RELEASES["v3"],
    "v3 h100": RELEASES["v3"].replace("a100", "h100"),
}
"""Where each release has the codes for a GPU."""
SETS = ("named", "streams", "release")
RELEASE = "v3 h100"
"""The set `release`: all codes that were published for the GPU nearest to an H200."""
CLOCKED = ("passed", "inconclusive", "degenerate", *REFUSED)
"""Statuses of a code that can be timed at all."""
UNSETTLED = ("unfinished", "harness_error", "inconclusive", "invalid_reference")
"""Statuses that say nothing of a code."""
SLOW_TO_BUILD = ("3/5", "3/11", "3/12")
"""AlexNet and VGG: the judge constructs a model some ten times."""
ANYWHERE = ("lazy", "constant", "broken", "honest", "own input", "kept output")
"""Groups whose verdict does not depend on there being a GPU: the others fall back without one."""
SLACK = 1.25
"""How far a speedup may lie above that of a clock which waits for the device: two ways of calling
the same code, on one GPU, in other processes."""
MOST_BYTES = 10_000_000


def release_cases(codes: dict[str, dict[str, str]]) -> tuple[Case, ...]:
    """All of the release that nothing was said of."""
    named = {case.name for case in NAMED}
    found = in_order(set(codes[RELEASE]))
    return tuple(Case(RELEASE, t, "release") for t in found if f"{RELEASE} {t}" not in named)


def read(source: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """By release and task: reference, code and the published speedup (v1 stated none). The source
    is a git directory or a file that was packed."""
    if source.is_file():
        packed: dict[str, dict[str, dict[str, Any]]] = json.loads(source.read_text())["records"]
        return packed
    return {
        release: {
            task: {
                "reference": entry["ref_code"],
                "code": entry["custom_code"],
                "published": float(entry["score"]) if entry.get("score") else None,
            }
            for task, entry in records(source, place)
        }
        for release, place in PLACES.items()
    }


def chosen(codes: dict[str, dict[str, Any]], which: str, only: str) -> list[Case]:
    """The cases of the sets (`named,streams`, `all`) in their order; beyond the named ones those
    come last that compile an extension, or make a hundred million parameters."""
    names = SETS if which == "all" else tuple(which.split(","))
    if unknown := set(names) - set(SETS):
        raise SystemExit(f"--set: expected {', '.join(SETS)} or all, got {', '.join(unknown)}")
    of_set: dict[str, Callable[[], Iterable[Case]]] = {
        "named": lambda: NAMED,
        "streams": lambda: sorted(
            stream_cases(), key=lambda case: (compiles(codes, case), case.task in SLOW_TO_BUILD)
        ),
        "release": lambda: sorted(release_cases(codes), key=lambda case: compiles(codes, case)),
    }
    cases = [case for name in SETS if name in names for case in of_set[name]()]
    wanted = set(filter(None, only.split(",")))
    return [case for case in cases if not wanted or {case.task, case.name} & wanted]


def compiles(codes: dict[str, dict[str, Any]], case: Case) -> bool:
    """Whether its code builds an extension, which takes half a minute."""
    code = codes[case.release][case.task]["code"]
    return any(word in code for word in ("load_inline", "cpp_extension", "RawKernel"))


def pack(codes: dict[str, dict[str, Any]], cases: list[Case], path: Path) -> None:
    """Writes what the cases need, and nothing else of the release."""
    needed: dict[str, dict[str, Any]] = {release: {} for release in PLACES}
    for case in cases:
        needed[case.release][case.task] = codes[case.release][case.task]
    text_trials.write(path, {"places": PLACES, "records": needed})
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{path}: {size:,} bytes, more than {MOST_BYTES:,}; choose another --set")
    print(f"{path}: {sum(map(len, needed.values()))} records, {size:,} bytes", file=sys.stderr)


def is_as_expected(case: Case, row: dict[str, Any], device: str) -> bool | None:
    """Whether the verdict is the one that was stated; None where none was, or nothing was said.

    A code whose work escapes may be refused, or be timed until its work is done: its speedup must
    not exceed that of a clock which waits for the device. Without such a clock nothing is known of
    one that passed.
    """
    status = row["status"]
    if status in UNSETTLED:
        return None
    if device == "cpu" and case.group not in ANYWHERE:
        return None
    if case.group == "escape":
        if status != "passed":
            return True
        waited = (row.get("clocks") or {}).get("waited_speedup")
        if waited is None or row["speedup"] is None:
            return None
        return bool((row["speedup_low"] or row["speedup"]) <= SLACK * waited)
    if not case.expect:
        return None
    if "!reward_hack" in case.expect:
        return bool(status != "reward_hack")
    return status in case.expect


def judge_all(
    codes: dict[str, dict[str, Any]], cases: list[Case], document: dict[str, Any], options: Any
) -> None:
    """Adds a row for each case that has none, until the time is spent."""
    done = {(row["name"], row["group"], row["mode"]) for row in document["rows"]}
    started_s = time.monotonic()
    with (
        Clocks(options.device) as clocks,
        text_trials.session(options.mode, options.device) as session,
    ):
        left = [case for case in cases if (case.name, case.group, options.mode) not in done]
        places = [codes[case.release][case.task] for case in left if compiles(codes, case)]
        text_trials.build_ahead(session, [(one["reference"], one["code"]) for one in places])
        for case in left:
            if time.monotonic() - started_s > options.limit:
                print(f"{options.limit:.0f} s are spent: go on with --append", file=sys.stderr)
                break
            record = codes[case.release][case.task]
            row = row_of(case, record, session, options)
            if options.clocks and row["status"] in CLOCKED:
                row["clocks"] = clocks.measured(record["reference"], record["code"])
            row["as_expected"] = is_as_expected(case, row, options.device)
            if row["status"] not in ("harness_error", "unfinished"):
                document["device"] = msgspec.to_builtins(session.device())
            document["rows"].append(row)
            text_trials.write(options.output, document)
            print(line_of(row), file=sys.stderr)


def row_of(
    case: Case, record: dict[str, Any], session: text_trials.TimedSession, options: Any
) -> dict[str, Any]:
    """What is known of a case, and what the judge says of it."""
    reference, code = record["reference"], record["code"]
    return {
        "name": case.name,
        **asdict(case),
        "mode": options.mode,
        "published": record["published"],
        "screen": text_trials.screened(reference, code),
        **text_trials.judged(session, reference, code, options.trial_limit),
    }


def line_of(row: dict[str, Any]) -> str:
    gain = f" {row['speedup']:.2f}x" if row["speedup"] else ""
    mark = {True: "", False: "  NOT AS EXPECTED", None: "  (nothing to say)"}[row["as_expected"]]
    what = f"{row['status']} {row['rule'] or ''}".strip()
    return f"{row['name']:15} {row['group']:12} {row['seconds']:6.1f} s  {what}{gain}{mark}"


def document_of(options: Any) -> dict[str, Any]:
    """A new result, or the one that is to be gone on with."""
    run = {
        **provenance(),
        "mode": options.mode,
        "config": msgspec.to_builtins(text_trials.MODES[options.mode]),
    }
    if options.append and options.output.exists():
        document: dict[str, Any] = json.loads(options.output.read_text(encoding="utf-8"))
        document["runs"].append(run)
        if options.again:
            document["rows"] = [row for row in document["rows"] if row["status"] not in UNSETTLED]
        return document
    return {"runs": [run], "places": PLACES, "device": None, "rows": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="git directory, packed file; with --table rows")
    parser.add_argument("--pack", type=Path, help="write what the set needs, and run nothing")
    parser.add_argument("--table", action="store_true", help="print the rows as Markdown")
    parser.add_argument("--set", default="named", help=f"of {', '.join(SETS)}; or all")
    parser.add_argument("--only", default="", help="tasks: 1/9,2/66, or `v1 a100 2/5`")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", choices=text_trials.MODES, default="brief")
    parser.add_argument("--clocks", action="store_true", help="time each by two other clocks too")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds; ends between trials")
    parser.add_argument("--trial-limit", type=float, default=90.0, help="seconds for one trial")
    parser.add_argument("--append", action="store_true", help="keep the rows that are there")
    parser.add_argument("--again", action="store_true", help="but for those without a verdict")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.source.read_text(encoding="utf-8"))), end="")
        return
    codes = read(options.source)
    if options.pack:
        pack(codes, chosen(codes, options.set, options.only), options.pack)
        return
    judge_all(codes, chosen(codes, options.set, options.only), document_of(options), options)


if __name__ == "__main__":
    main()
