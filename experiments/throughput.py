"""Measure candidates an hour, compared with other ways to evaluate them on the same machine.

24 honest candidates of eight problems (throughput_candidates/): rewrites in PyTorch, kernels in
Triton, inline CUDA. Ours is one session for all of them with every defense: as a scan screens
candidates (`--mode screen`), and once more as it confirms what it shows (`--also default`).
KernelBench's is one fresh process for each, with the defaults of its scripts
(kernelbench_process.py). A harness without defenses keeps its process (kept_harness.py). All begin
with nothing compiled.

    python experiments/kernelbench_process.py KernelBench/.git build/gpu/kernelbench
    python experiments/throughput.py --kernelbench build/gpu/kernelbench --device cuda \
        --only '*/pytorch*,*/triton' --limit 80

Without KernelBench its place is taken by kept_harness.py in fresh processes. On a CPU:
`--device cpu --rows 64 --only '*/pytorch*'`.
`--limit` ends each side between candidates; those that all finished are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kept_harness
import kernelbench_process
import msgspec
import text_trials
from provenance import provenance

CANDIDATES = Path(__file__).parent / "throughput_candidates"
OUTPUT = Path(__file__).parents[1] / "assets" / "results" / "throughput.json"
KINDS = ("pytorch", "triton", "cuda")
BACKENDS = {"pytorch": "cuda", "triton": "triton", "cuda": "cuda"}
"""KernelBench executes a text in its own namespace, unless it must be a file."""


Save = Callable[[], None]
"""Writes what there is, as a run may be ended at any time."""


class One(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its reference's text."""

    name: str
    problem: str
    kind: str
    reference: str
    source: str


def candidates(patterns: str, rows: int | None) -> list[One]:
    """Return all candidates that match a pattern, problem by problem. Problems with inline CUDA
    come last, to leave time for their builds. `rows` replaces the one size that a reference states.
    """
    found = []
    for folder in sorted(CANDIDATES.iterdir()):
        reference = (folder / "reference.py").read_text(encoding="utf-8")
        if rows is not None:
            reference = re.sub(r"^ROWS = \d+$", f"ROWS = {rows}", reference, flags=re.MULTILINE)
        for path in sorted(folder.glob("*.py")):
            name = f"{folder.name}/{path.stem}"
            is_wanted = any(fnmatch.fnmatch(name, one) for one in patterns.split(","))
            if path.stem != "reference" and is_wanted:
                found.append(
                    One(
                        name=name,
                        problem=folder.name,
                        kind=path.stem.partition("_")[0],
                        reference=reference,
                        source=path.read_text(encoding="utf-8"),
                    )
                )
    with_cuda = {one.problem for one in found if one.kind == "cuda"}
    found.sort(key=lambda one: (one.problem in with_cuda, one.problem, KINDS.index(one.kind)))
    return found


# --- ours --------------------------------------------------------------------------------------


def ours(
    chosen: Sequence[One],
    mode: str,
    options: argparse.Namespace,
    side: dict[str, Any],
    save: Save,
) -> None:
    """Run all candidates in one session, and record what each trial waited for."""
    started_s = time.monotonic()
    with (
        nothing_compiled(),
        text_trials.session(mode, options.device) as session,
    ):
        side["device"] = msgspec.to_builtins(session.device())
        side["mode"] = mode
        side["config"] = msgspec.to_builtins(session.config)
        text_trials.build_ahead(session, [(one.reference, one.source) for one in chosen])
        side["start_s"] = round(time.monotonic() - started_s, 2)
        for one in chosen:
            if time.monotonic() - started_s > options.limit:
                break
            row = text_trials.judged(session, one.reference, one.source)
            side["rows"].append({"name": one.name, "kind": one.kind, **row})
            save()
            print(
                f"{mode:11} {one.name:32} {row['seconds']:6.1f} s {row['status']}",
                file=sys.stderr,
            )


@contextlib.contextmanager
def nothing_compiled() -> Iterator[None]:
    """Hide earlier caches, of Triton and of anything else in the user's folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        before = {name: os.environ.get(name) for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR")}
        os.environ["XDG_CACHE_HOME"] = folder
        os.environ.pop("TRITON_CACHE_DIR", None)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


# --- theirs ------------------------------------------------------------------------------------


def theirs(
    chosen: Sequence[One], options: argparse.Namespace, side: dict[str, Any], save: Save
) -> None:
    """Run one process for each candidate, one after the other."""
    started_s = time.monotonic()
    side["what"] = "fresh processes"
    if options.kernelbench is not None:
        side["what"] = "KernelBench"
        side["commit"] = kernelbench_process.commit_of(options.kernelbench)
    for one in chosen:
        if time.monotonic() - started_s > options.limit:
            break
        if options.kernelbench is None:
            with kept_harness.Harness(options.device) as fresh:
                row = fresh.evaluated(one.reference, one.source)
        else:
            row = kernelbench_process.evaluated(
                options.kernelbench,
                one.reference,
                one.source,
                backend=BACKENDS[one.kind],
                gpu_arch=options.gpu_arch,
            )
        side["rows"].append({"name": one.name, "kind": one.kind, **row})
        save()
        said = row.get("error") or ("correct" if row["correct"] else f"wrong: {row['why']}")
        print(f"{side['what']} {one.name:32} {row['seconds']:6.1f} s {said}", file=sys.stderr)


def kept(
    chosen: Sequence[One], options: argparse.Namespace, side: dict[str, Any], save: Save
) -> None:
    """Run all candidates in one process of a harness without defenses."""
    started_s = time.monotonic()
    side["what"] = "a kept process without defenses"
    with nothing_compiled(), kept_harness.Harness(options.device) as harness:
        for one in chosen:
            if time.monotonic() - started_s > options.limit:
                break
            row = harness.evaluated(one.reference, one.source)
            side["rows"].append({"name": one.name, "kind": one.kind, **row})
            save()
            said = row.get("error") or ("correct" if row["correct"] else f"wrong: {row['why']}")
            print(f"kept        {one.name:32} {row['seconds']:6.1f} s {said}", file=sys.stderr)


# --- what is reported ----------------------------------------------------------------------


def summary(
    own: dict[str, Any], other: dict[str, Any] | None, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return rates on the candidates that all finished, by kind, and where our time went."""
    common = {row["name"] for row in own["rows"]}
    for one in (other, kept):
        if one is not None:
            common &= {row["name"] for row in one["rows"]}
    mine = [row for row in own["rows"] if row["name"] in common]
    found: dict[str, Any] = {
        "num_common": len(common),
        "ours": rate(mine, own["start_s"]),
        "where_our_time_goes_s": spent(mine, own["start_s"]),
        "pytorch_verdict_s": verdict_s(mine),
    }
    if other is not None:
        same = [row for row in other["rows"] if row["name"] in common]
        found["kernelbench"] = rate(same, 0.0)
        found["where_its_time_goes_s"] = their_phases(same)
        if found["ours"]["per_hour"] and found["kernelbench"]["per_hour"]:
            ratio = found["ours"]["per_hour"] / found["kernelbench"]["per_hour"]
            found["times_as_many_an_hour"] = round(ratio, 2)
    if kept is not None:
        same = [row for row in kept["rows"] if row["name"] in common]
        found["kept"] = rate(same, 0.0)
        found["where_kept_time_goes_s"] = their_phases(same)
        if found["ours"]["per_hour"] and found["kept"]["per_hour"]:
            ratio = found["ours"]["per_hour"] / found["kept"]["per_hour"]
            found["times_as_many_as_kept"] = round(ratio, 2)
    return found


def rate(rows: Sequence[dict[str, Any]], start_s: float) -> dict[str, Any]:
    """Return candidates an hour, and the median seconds of each kind."""
    total_s = start_s + sum(row["seconds"] for row in rows)
    medians = {
        kind: round(statistics.median(row["seconds"] for row in rows if row["kind"] == kind), 2)
        for kind in KINDS
        if any(row["kind"] == kind for row in rows)
    }
    return {
        "num_candidates": len(rows),
        "total_s": round(total_s, 2),
        "per_hour": round(3600 * len(rows) / total_s, 1) if rows else None,
        "median_s_by_kind": medians,
    }


def spent(rows: Sequence[dict[str, Any]], start_s: float) -> dict[str, Any]:
    """Return seconds of our side by kind of candidate and of request.

    `check` learns a reference. `examine` loads a candidate, compiles it where that was not done
    ahead, and compares its answers. `launch` times it. `next to`, shown as parallel, is the rest:
    waiting for builds or for a device that is in use, and the host's own work.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        requests = row["seconds_by_request"]
        found[row["kind"]].update(requests)
        found[row["kind"]]["beside"] += row["seconds"] - sum(requests.values())
    return {
        "start": round(start_s, 2),
        **{
            kind: {request: round(seconds, 2) for request, seconds in sorted(found[kind].items())}
            for kind in KINDS
            if kind in found
        },
    }


def their_phases(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return seconds of the other side by kind of candidate and phase. `other` is the rest:
    constructing the models, moving them, ending the process.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        phases = {k: v for k, v in row.get("spent_s", {}).items() if k != "evaluation"}
        found[row["kind"]].update(phases)
        found[row["kind"]]["other"] += row["seconds"] - sum(phases.values())
    return {
        kind: {phase: round(seconds, 2) for phase, seconds in sorted(found[kind].items())}
        for kind in KINDS
        if kind in found
    }


def verdict_s(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the seconds until the verdict of PyTorch-level candidates once the
    reference is known.
    """
    found = []
    for row in rows:
        if row["kind"] == "pytorch":
            learned_s = sum(s for op, s in row["seconds_by_request"].items() if "check" in op)
            seconds = round(row["seconds"] - learned_s, 2)
            one = {"name": row["name"], "status": row["status"], "seconds": seconds}
            found.append({**one, "reference_us": row.get("reference_us")})
    return found


def table(document: dict[str, Any]) -> str:
    """Render the summaries as Markdown."""
    own = [document[name] for name in ("ours", "also") if document.get(name)]
    return "\n".join(table_of(document, one) for one in own)


def table_of(document: dict[str, Any], own: dict[str, Any]) -> str:
    """Render the summary of one of our sides."""
    found = summary(own, document["kernelbench"], document.get("kept"))
    theirs_name = (document["kernelbench"] or {}).get("what", "KernelBench")
    device = document["ours"]["device"]["name"]
    sides = [(f"this verifier ({own['mode']})", found["ours"])]
    if "kernelbench" in found:
        sides.append((theirs_name, found["kernelbench"]))
    if "kept" in found:
        sides.append((document["kept"]["what"], found["kept"]))
    lines = [
        f"{found['num_common']} candidates on {device}, {document['date'][:10]}, commit "
        f"`{document['commit']}`, `{document['command']}`.",
        "",
        "| | candidates | seconds | an hour | "
        + " | ".join(f"{k}, median s" for k in KINDS)
        + " |",
        "|---" * (4 + len(KINDS)) + "|",
    ]
    for name, side in sides:
        medians = " | ".join(str(side["median_s_by_kind"].get(kind, "–")) for kind in KINDS)
        lines.append(
            f"| {name} | {side['num_candidates']} | {side['total_s']} | {side['per_hour']} "
            f"| {medians} |"
        )
    if "times_as_many_an_hour" in found:
        lines += ["", f"{found['times_as_many_an_hour']} times as many an hour."]
    if "times_as_many_as_kept" in found:
        lines += ["", f"{found['times_as_many_as_kept']} times as many as in a kept process."]
    verdicts = [one["seconds"] for one in found["pytorch_verdict_s"] if one["status"] == "passed"]
    if verdicts:
        lines += [
            "",
            f"A PyTorch-level candidate that passed, its reference known: "
            f"{statistics.median(verdicts):.1f} s in the median, {max(verdicts):.1f} s at most "
            f"(of {len(verdicts)}).",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernelbench", type=Path, help="folder of kernelbench_process.py")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", choices=text_trials.MODES, default="screen")
    parser.add_argument("--also", choices=text_trials.MODES, default="default", help="once more")
    parser.add_argument("--only", default="*", help="names, as gelu/*,*/triton")
    parser.add_argument("--rows", type=int, help="another number of rows, to try the script")
    parser.add_argument("--gpu-arch", default="Hopper", help="as KernelBench names it")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for each side")
    parser.add_argument("--table", type=Path, help="print the tables of a result, and run nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))), end="")
        return
    if options.device.startswith("cuda"):
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", options.gpu_arch)  # for both sides
    chosen = candidates(options.only, options.rows)
    document = {**provenance(), "ours": {"rows": []}, "also": {"rows": []}}
    document |= {"kernelbench": {"rows": []}, "kept": {"rows": []}}

    def save() -> None:
        text_trials.write(options.output, document)

    ours(chosen, options.mode, options, document["ours"], save)
    kept(chosen, options, document["kept"], save)
    theirs(chosen, options, document["kernelbench"], save)
    ours(chosen, options.also, options, document["also"], save)
    others = document["kernelbench"], document["kept"]
    document["summary"] = summary(document["ours"], *others)
    document["also_summary"] = summary(document["also"], *others)
    save()
    print(table(document), end="")


if __name__ == "__main__":
    main()
