"""How often each rewrite matches in real code, and that none breaks on it.

Applies every rewrite to every module and tensor function of the given trees: none may raise, what
comes out must parse, and nothing but the target may have changed, apart from imports and functions
that are new. Nothing is run, so nothing is said of whether it is faster.

    python benchmarks/playbook_corpus.py ../transformers/src ../timm \\
        --output benchmarks/results/playbook-corpus.json
"""

from __future__ import annotations

import argparse
import ast
import json
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from discovery_speed import provenance

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Call, Problem, Target, TensorSpec, TextProgram, Workload

WORKLOAD = Workload(
    name="any",
    provenance="synthetic",
    init=Call(),
    call=Call(args=(TensorSpec(shape=(2, 2), dtype="float32"),)),
)


@dataclass
class Tally:
    """What was seen in some files."""

    num_targets: int = 0
    matches: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def tally(root: Path, path: str, targets: list[Target]) -> Tally:
    """All rewrites on all targets of a file."""
    found = Tally(num_targets=len(targets))
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    playbook = Playbook(PlaybookConfig(compile=True))
    for target in targets:
        qualname = target.qualname
        program = TextProgram(source=text, entry=qualname)
        problem = Problem(reference=program, workloads=(WORKLOAD,), target=target)
        try:
            for candidate in playbook.propose(problem, (), n=1000):
                if "+" in candidate.proposer:
                    continue
                found.matches[candidate.proposer] += 1
                found.examples.setdefault(candidate.proposer, f"{path}:{qualname}")
                assert isinstance(candidate.program, TextProgram)
                others_are_the_same(text, candidate.program.source, qualname)
        except Exception:  # noqa: BLE001 (this script looks for them)
            found.failures.append(f"{path}:{qualname}: {traceback.format_exc(limit=-2)}")
    return found


def others_are_the_same(before: str, after: str, qualname: str) -> None:
    """Every top-level definition but the target's, and every other statement but imports and those
    that the target stands in."""
    head = qualname.partition(".")[0]
    old, new = (ast.parse(text).body for text in (before, after))
    there = {getattr(node, "name", None) for node in old}

    def others(body: list[ast.stmt]) -> list[str]:
        return [
            ast.dump(node)
            for node in body
            if not isinstance(node, ast.Import | ast.ImportFrom)
            and getattr(node, "name", None) in there
            and not any(getattr(one, "name", None) == head for one in ast.walk(node))
        ]

    if others(old) != others(new):
        raise AssertionError("something beside the target changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tree", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only each Nth file")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    total = Tally()
    num_files = 0
    started_s = time.monotonic()
    with ProcessPoolExecutor(arguments.processes) as pool:
        for root in arguments.tree:
            by_path: dict[str, list[Target]] = {}
            for target in discover(root, DiscoveryConfig()).targets:
                if target.kind in ("torch_module", "torch_function"):
                    by_path.setdefault(target.path, []).append(target)
            chosen = sorted(by_path)[:: arguments.every]
            num_files += len(chosen)
            jobs = [pool.submit(tally, root, path, by_path[path]) for path in chosen]
            for job in jobs:
                one = job.result()
                total.num_targets += one.num_targets
                total.matches += one.matches
                total.failures += one.failures
                total.examples = one.examples | total.examples
    document = {
        **provenance(),
        "trees": [tree.name for tree in arguments.tree],
        "every": arguments.every,
        "elapsed_s": round(time.monotonic() - started_s, 1),
        "num_files": num_files,
        "num_targets": total.num_targets,
        "matches": dict(total.matches.most_common()),
        "examples": total.examples,
        "failures": total.failures,
    }
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{total.num_targets} targets in {num_files} files, {document['elapsed_s']} s")
    for name, count in total.matches.most_common():
        print(f"{count:6} {name}   {total.examples[name]}")
    print(f"{len(total.failures)} failures")
    for failure in total.failures[:10]:
        print(failure)


if __name__ == "__main__":
    main()
