"""Compare what the verifier shows of a pair of programs with what a program's own loop sees.

    python experiments/loop_timing.py experiments/cpu_pairs --output FILE
    python experiments/loop_timing.py experiments/gpu_pairs --device cuda --output FILE
    python experiments/loop_timing.py --table FILE

PAIRS is a folder of folders with `reference.py` and `candidate.py`, in the form that `verify`
reads. A loop runs in a process of its own with one thread. An operation writes four inputs, then
the program is called on them in a row, and each output is dropped as it is returned. Reference,
candidate and the reference again (A/A) alternate in random order. The ratio is the median over the
alternations, of several groups of new processes. On a CPU half of the groups run before the
verifier and half after it, so that both see the same machine. The verifier's figure should be
within 7 % (5 % on a GPU) of the loop's, or within the A/A spread where that is larger.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from provenance import provenance

from cudal1_ci.stats.figures import evaluation_with_figures
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import candidate_of, text_problem

NUM_INPUTS = 4
NUM_GROUPS = {"cpu": (2, 2), "cuda": (1, 0)}
"""Groups of new processes for a pair, before the verifier and after it. A GPU's times change less
from one minute to the next, and a start takes seconds there."""
LIMIT_S = {"cpu": 3600.0, "cuda": 270.0}
"""After this time no further pair is begun."""
NUM_TURNS = 5
"""Turns of each process of a group."""
TURN_S = 0.15
CLOSE = {"cpu": 0.07, "cuda": 0.05}
NAMES = {"reference": "Model", "candidate": "ModelNew", "control": "Model"}


def run_loop(path: str, name: str, device: str, turn_s: float) -> None:
    """Answer each line on stdin with microseconds a call of a plain loop."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found: dict[str, Any] = {}
    exec(compile(Path(path).read_text(), path, "exec"), found)
    texts = Path(path).with_name("reference.py").read_text()
    made: dict[str, Any] = {}
    exec(compile(texts, "reference.py", "exec"), made)
    with torch.device(device):
        program = found.get(name, found.get("Model"))(*made["get_init_inputs"]()).eval()
        sources = [made["get_inputs"]() for _ in range(NUM_INPUTS)]
    inputs = [[one.clone() for one in args] for args in sources]

    def synchronize() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def write() -> None:
        for args, source in zip(inputs, sources, strict=True):
            for tensor, other in zip(args, source, strict=True):
                tensor.copy_(other)

    def pass_us(repeat: int) -> float:
        write()
        synchronize()
        started_s = time.perf_counter()
        for _ in range(repeat):
            for args in inputs:
                program(*args)
        synchronize()
        return (time.perf_counter() - started_s) * 1e6 / (repeat * NUM_INPUTS)

    with torch.no_grad():
        for _ in range(3):
            pass_us(1)
        # A clock costs as much as a hundredth of a call that takes few microseconds. On a GPU the
        # host must be ahead of the device, as it is in a program's loop.
        least_us = 10_000 if device == "cuda" else 100
        repeat = max(1, math.ceil(least_us / (NUM_INPUTS * pass_us(1))))
        print("ready", flush=True)
        for _ in sys.stdin:
            until_s = time.perf_counter() + turn_s
            pass_us(repeat)  # the first after the turn of another process
            passes: list[float] = []
            while not passes or time.perf_counter() < until_s:
                passes.append(pass_us(repeat))
            print(statistics.median(passes), flush=True)


class Loop:
    """A process that runs a program in a loop."""

    def __init__(self, path: Path, name: str, device: str, turn_s: float):
        own = [sys.executable, __file__, "--loop", str(path), name, device, str(turn_s)]
        self.process = subprocess.Popen(
            own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a loop's process ended")
        return line

    def turn(self) -> float:
        """Return microseconds a call in one turn."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.read())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def loops(pair: Path, device: str, turn_s: float) -> Iterator[dict[str, Loop]]:
    """Yield a group of new processes: reference, candidate, reference again."""
    found: dict[str, Loop] = {}
    try:
        for name, entry in NAMES.items():
            file = "candidate.py" if name == "candidate" else "reference.py"
            found[name] = Loop(pair / file, entry, device, turn_s)
        for one in found.values():
            one.read()  # all of them start at the same time
        yield found
    finally:
        for one in found.values():
            one.end()


def group(pair: Path, device: str, rng: random.Random, turn_s: float) -> list[dict[str, float]]:
    """Return microseconds a call of each program in the alternations of one group."""
    with loops(pair, device, turn_s) as found:
        turns = []
        for _ in range(NUM_TURNS):
            order = rng.sample(list(found), len(found))
            turns.append({name: found[name].turn() for name in order})
        return turns


def verified(session: Session, pair: Path) -> dict[str, Any]:
    """Return the verifier's figures of a pair."""
    started_s = time.monotonic()
    problem = text_problem(pair / "reference.py", "infer")
    said = session.evaluate(problem, candidate_of(problem, pair / "candidate.py"))
    answer = evaluation_with_figures(said)
    found: dict[str, Any] = {
        "status": answer.verdict.status,
        "wall_s": round(time.monotonic() - started_s, 1),
        "findings": [f"{one.rule}: {one.message}"[:200] for one in answer.verdict.findings],
    }
    for one in answer.measurements[:1]:
        found |= {fact: getattr(one, fact) for fact in FACTS}
    return found


FACTS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "control_spread",
    "reference_us",
    "candidate_us",
)


def compared(
    session: Session, pair: Path, device: str, rng: random.Random, turn_s: float
) -> dict[str, Any]:
    """Compare a pair by both clocks."""
    before, after = NUM_GROUPS[device]
    groups = [group(pair, device, rng, turn_s) for _ in range(before)]
    said = verified(session, pair)
    groups += [group(pair, device, rng, turn_s) for _ in range(after)]
    turns = [turn for one in groups for turn in one]
    found = {
        "pair": pair.name,
        "loop": {name: round(statistics.median(t[name] for t in turns), 3) for name in NAMES},
        "ratio": median_ratio(turns, "candidate"),
        "same": [median_ratio(one, "control") for one in groups],
        "verify": said,
    }
    found["spread"] = max(abs(one - 1) for one in found["same"])
    if said.get("speedup"):
        found["off"] = said["speedup"] / found["ratio"] - 1
        found["is_close"] = abs(found["off"]) <= max(CLOSE[device], found["spread"])
    return found


def median_ratio(turns: list[dict[str, float]], name: str) -> float:
    """Return how many times as long the reference takes, in the median of the alternations."""
    return statistics.median(turn["reference"] / turn[name] for turn in turns)


def table(document: dict[str, Any]) -> str:
    """Return a table of a result."""
    lines = [
        f"{document['device']}, {document['date']}, commit {document['commit']}",
        f"{'pair':<20}{'loop us':>10}{'cand. us':>10}{'ratio':>7}{'A/A':>6}"
        f"{'verify us':>11}{'cand. us':>10}{'ratio':>7}{'interval':>15}{'off':>6}{'s':>5}",
    ]
    for one in document["pairs"]:
        said, loop = one["verify"], one["loop"]
        line = (
            f"{one['pair']:<20}{loop['reference']:>10.1f}{loop['candidate']:>10.1f}"
            f"{one['ratio']:>7.2f}{one['spread']:>6.0%}"
        )
        if said.get("speedup"):
            interval = f"[{said['speedup_low']:.2f}, {said['speedup_high']:.2f}]"
            line += (
                f"{said['reference_us']:>11.1f}{said['candidate_us']:>10.1f}{said['speedup']:>7.2f}"
                f"{interval:>15}{one['off']:>+6.0%}{said['wall_s']:>5.0f}"
                f" {'' if one['is_close'] else 'apart'}"
            )
        else:
            line += f"  {said['status']} {said.get('findings', said.get('message', ''))}"
        lines.append(line.rstrip())
    close = sum(bool(one.get("is_close")) for one in document["pairs"])
    lines.append(f"{close} of {len(document['pairs'])} are close")
    return "\n".join(lines)


def page_table(document: dict[str, Any]) -> list[str]:
    """Return a table of a result for a page, and what it was measured on."""
    lines = [
        "| pair | loop: reference, candidate (us) | ratio | A/A | `verify` | off |",
        "|---|---|---|---|---|---|",
    ]
    for one in document["pairs"]:
        said, loop = one["verify"], one["loop"]
        shown, off = said["status"], ""
        if said.get("speedup"):
            interval = f"[{said['speedup_low']:.2f}, {said['speedup_high']:.2f}]"
            shown, off = f"{said['speedup']:.2f} {interval}", f"{one['off']:+.0%}"
        times = f"{loop['reference']:,.1f}, {loop['candidate']:,.1f}"
        name = one["pair"].partition("_")[2].replace("_", " ")
        lines.append(
            f"| {name} | {times} | {one['ratio']:.2f} | {one['spread']:.0%} | {shown} | {off} |"
        )
    close = sum(bool(one.get("is_close")) for one in document["pairs"])
    return [
        *lines,
        "",
        f"{close} of {len(document['pairs'])} are close. {document['device']}, torch "
        f"{document['torch']}, {document['date'][:10]}, commit `{document['commit']}`: "
        f"`{document['command']}`.",
    ]


def device_name(device: str) -> str:
    """Return the name of what is measured on."""
    if device == "cpu":
        return str(provenance()["processor"])
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")[0]


def main() -> None:
    if sys.argv[1:2] == ["--loop"]:
        run_loop(*sys.argv[2:5], float(sys.argv[5]))  # type: ignore[call-arg]
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--device", choices=sorted(CLOSE), default="cpu")
    parser.add_argument("--only", nargs="+", default=[], help="first letters of pairs")
    parser.add_argument("--turn", type=float, default=TURN_S, help="seconds of a turn")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path, help="print the table of a result")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    rng = random.Random(0)
    document: dict[str, Any] = {
        **provenance(),
        "torch": version("torch"),
        "device": device_name(args.device),
        "pairs": [],
    }
    pairs = sorted(one for one in args.pairs.iterdir() if (one / "candidate.py").exists())
    started_s = time.monotonic()
    with Session(TrialConfig(), device=args.device) as session:
        for pair in pairs:
            if args.only and not pair.name.startswith(tuple(args.only)):
                continue
            if time.monotonic() - started_s > LIMIT_S[args.device]:
                print(f"{pair.name} is left out: the time is over")
                continue
            found = compared(session, pair, args.device, rng, args.turn)
            document["pairs"].append(found)
            print(table({**document, "pairs": [found]}).split("\n")[-2], flush=True)
            if args.output:
                args.output.write_text(json.dumps(document) + "\n")
    print(table(document))


if __name__ == "__main__":
    main()
