"""Read the kernels that CUDA-L1 published with the static screen, and keep what was found.

Fetch github.com/deepreinforce-ai/CUDA-L1 first; nothing of it is kept:

    python benchmarks/screen_release.py CUDA-L1/.git

The first release (v1) had kernels whose work escaped the timer on side streams; the last (v3) is
said to have none. What a reader found of v1's streams is below; where the rule disagrees, the
result says so by task.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from discovery_speed import provenance

from cudal1_ci.records import Finding, TextProgram
from cudal1_ci.verification.static_rules import RULES, convictions, screen

OUTPUT = Path(__file__).parent / "results" / "screen-release.json"
RELEASES = {
    "v1": "cfff841a482027816ce7b274c645d649ea753597:optimized_cuda_code/a100_pcie.json",
    "v2": "8afc155e33e106025b41f1cfcb0e4db770224d24:optimized_cuda_code/a100_pcie.json",
    "v3": "51e8356bf844101cab2aeeca4bdff47ebb1953b8:optimized_cuda_code/codes/a100.json",
}
ESCAPES = {
    "1": "1,2,3,4,5,7,8,10,13,14,15,16,17,18,33,34,42,43,46,54,55,56,57,58,60,61,62,63,65,66,68,70,"
    "72,73,74,75,77,78,81,82,86,89,90",
    "2": "1,5,6,8,10,11,13,15,16,23,24,25,27,38,41,48,49,58,60,61,72,74,77,78,85,89,96,100",
    "3": "5,8,9,11,12,15,20,21,22,23,31,35,36,37,39,41,42,43",
}
"""v1, by level: tasks with a path that leaves work on a side stream, in an earlier scan."""
JOINED = {"1": "67", "2": "12,26,62,73,76", "3": "6,10,38,40"}
"""v1: tasks that use side streams and wait for them, in the same scan."""
READ_AGAIN = {
    "1/14": "waits: current_stream.wait_stream(stream) for every stream",
    "1/15": "waits: event.wait() for every event",
    "2/43": "escapes: set_stream, set back without a wait",
    "3/6": "escapes: current_stream.synchronize() waits for the current stream alone",
    "1/72": "v2, v3: set_stream for each group, never set back, so the output is on one",
}
"""Tasks where the rule and the scan disagree, by a reader."""


def records(git: Path, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tasks of a release, as `level/task`, with what was published of each; those without a code
    are left out."""
    shown = subprocess.run(
        ["git", "--git-dir", git, "show", place], check=True, capture_output=True, text=True
    )
    for level, entries in json.loads(shown.stdout).items():
        for entry in entries:
            code = entry.get("custom_code")
            if code and code != "None":
                yield f"{level}/{entry['task_id']}", entry


def programs(git: Path, place: str) -> Iterator[tuple[str, TextProgram, TextProgram]]:
    """Tasks of a release with candidate and reference."""
    for task, entry in records(git, place):
        candidate = TextProgram(source=entry["custom_code"], entry="ModelNew")
        yield task, candidate, TextProgram(source=entry["ref_code"], entry="Model")


def tasks(by_level: dict[str, str]) -> set[str]:
    return {f"{level}/{task}" for level, found in by_level.items() for task in found.split(",")}


def in_order(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: tuple(map(int, name.split("/"))))


def screened(git: Path, place: str) -> dict[str, Any]:
    """What the rules see in one release."""
    seen: dict[str, set[str]] = defaultdict(set)
    convicted: dict[str, list[str]] = {}
    count: Counter[str] = Counter()
    num_codes, started_s = 0, time.process_time()
    for task, candidate, reference in programs(git, place):
        findings: list[Finding] = screen(candidate, reference)
        num_codes += 1
        for rule in {finding.rule for finding in findings}:
            seen[rule].add(task)
            count[rule] += 1
        if convictions(findings):
            convicted[task] = sorted({finding.rule for finding in convictions(findings)})
    return {
        "place": place,
        "num_codes": num_codes,
        "screen_s": round(time.process_time() - started_s, 2),
        "codes_by_rule": {rule: count.get(rule, 0) for rule in sorted(RULES)},
        "convicted": convicted,
        "side_stream": in_order(seen["static.side_stream"]),
        "graph_captures_argument": in_order(seen["static.graph_captures_argument"]),
    }


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """The stream rule on v1 against the earlier scan."""
    flagged, escapes, joined = set(found["side_stream"]), tasks(ESCAPES), tasks(JOINED)
    return {
        "both": len(flagged & escapes),
        "scan_only": in_order(escapes - flagged),
        "rule_only": in_order(flagged - escapes),
        "joined_and_flagged": in_order(flagged & joined),
        "joined_and_not_flagged": in_order(joined - flagged),
        "read_again": READ_AGAIN,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("git", type=Path, help="the git directory of a clone")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    releases = {name: screened(options.git, place) for name, place in RELEASES.items()}
    result = {
        **provenance(),
        "command": "python benchmarks/screen_release.py CUDA-L1/.git",
        "releases": releases,
        "streams_v1": compared(releases["v1"]),
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["streams_v1"], indent=1))


if __name__ == "__main__":
    main()
