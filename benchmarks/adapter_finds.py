"""What a model finds beyond the playbook, as it comes and with an adapter, in real repositories.

Each CHECKOUT is a folder and, after `=`, the command of its tests, which are traced once first:
fetch the repositories and make an environment in which their tests run before. Every one is scanned
four times, each time with an archive of its own: with the playbook alone, with the playbook again
(what differs is noise), with the model as it comes, and with the adapter.

    python benchmarks/adapter_finds.py --model Qwen/Qwen2.5-Coder-0.5B-Instruct --device cuda \\
        --python ../venv/bin/python --server-python ../serving/bin/python --budget 10m \\
        examples/slowformer "../x-transformers=python -m pytest -q tests"
    python benchmarks/adapter_finds.py --table benchmarks/results/adapter-finds.json

Without `--adapter` it is the bundled one that fits. Where neither vLLM nor `transformers serve` is
installed, two servers on another device have the weights, with and without the adapter:

    python benchmarks/batch_server.py weights --port 8100 --device cuda:1 &
    python benchmarks/batch_server.py weights --adapter adapter --port 8101 --device cuda:1 &
    python benchmarks/adapter_finds.py --model weights --base-url http://127.0.0.1:8100/v1 \\
        --adapter-url http://127.0.0.1:8101/v1 --device cuda:0 examples/slowformer

What a scan wrote is kept beside the checkout, in `.cudal1-ci/adapter-finds`, until the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write
from third_party import head_of, name_of

OUTPUT = Path(__file__).parent / "results" / "adapter-finds.json"
STATE = ".cudal1-ci/adapter-finds"
WAYS = ("playbook", "playbook again", "base", "adapter")
COMPARED = (
    ("playbook again", "playbook"),
    ("base", "playbook"),
    ("adapter", "playbook"),
    ("adapter", "base"),
)
MODEL_COUNTS = (
    "num_answers",
    "num_repairs",
    "prompt_tokens",
    "completion_tokens",
    "generating_s",
    "waiting_s",
)
MEASURED = ("workload", "speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us")
SETTINGS = ("CUDAL1_CI_OPTIMIZER_", "CUDAL1_CI_TRIAL_", "CUDAL1_CI_MODEL_MAX_TOKENS")
"""How the variables begin that say how much is asked and measured, kept with the result."""
UNREACHED = "not reached"
"""How the reason begins of a target that a scan had no time for."""
LAST_CHARS = 2000
Report = dict[str, Any]
Found = dict[str, Any]


# --- scans -------------------------------------------------------------------------------------


def words_of(way: str, options: argparse.Namespace) -> list[str]:
    """What tells a scan with what to look."""
    if way.startswith("playbook"):
        return ["--no-model"]
    if options.base_url is not None:
        return ["--model", options.base_url if way == "base" else options.adapter_url]
    adapter = "none" if way == "base" else options.adapter
    return ["--model", options.model, "--adapter", adapter]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Of all verbs: an archive that nobody else has filled, and who serves the model."""
    told = {**os.environ, "CUDAL1_CI_STATE_DIR": STATE}
    if options.server_python is not None:
        told["CUDAL1_CI_MODEL_PYTHON"] = str(options.server_python.absolute())
    return told


def tool(options: argparse.Namespace, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudal1_ci", *words]
    return subprocess.run(
        command, env=environment(options), capture_output=True, text=True, check=False
    )


def traced(folder: Path, tests: str, options: argparse.Namespace) -> Found:
    """Has the calls of a project's tests recorded, so that no scan begins with that."""
    shutil.rmtree(folder / STATE, ignore_errors=True)
    started_s = time.monotonic()
    python = ("--python", str(options.python))
    if tests:
        done = tool(options, "trace", str(folder), *python, "--", *shlex.split(tests))
    else:  # which traces by the command of the configuration, where there is one
        done = tool(options, "scan", str(folder), *python, "--list", "--json", os.devnull)
    seconds = round(time.monotonic() - started_s, 1)
    return {"tests": tests or None, "trace_exit_code": done.returncode, "trace_s": seconds}


def scanned(folder: Path, way: str, options: argparse.Namespace) -> Found:
    """One scan, and what it found; why not, where there is no report."""
    for path in (folder / STATE).glob("archive.sqlite*"):
        path.unlink()
    file = folder / STATE / f"{way.replace(' ', '-')}.json"
    started_s = time.monotonic()
    done = tool(
        options,
        *("scan", str(folder), "--python", str(options.python), "--device", options.device),
        *("--budget", options.budget, "--json", str(file), *words_of(way, options)),
    )
    run = {"exit_code": done.returncode, "seconds": round(time.monotonic() - started_s, 1)}
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {**run, "failure": done.stderr[-LAST_CHARS:]}
    return {**run, **found_in(report)}


# --- what was found ------------------------------------------------------------------------------


def found_in(report: Report) -> Found:
    """What a report says: verdicts by who wrote the candidates, what became of a model's answers,
    every proposal, and which targets had no turn."""
    verdicts: dict[str, Counter[str]] = {"playbook": Counter(), "model": Counter()}
    for entry in report["entries"]:
        for each in entry["evaluations"]:
            verdicts[author(each)][each["status"]] += 1
    return {
        "ended": report["ended"],
        "elapsed_s": round(report["elapsed_s"], 1),
        "totals": report["totals"],
        "candidates_judged": {
            by: {"number": counts.total(), "statuses": dict(counts.most_common())}
            for by, counts in verdicts.items()
        },
        "model": asked(report),
        "proposals": [proposal(entry) for entry in report["entries"] if entry["best"] is not None],
        "unreached": [
            name_of(entry)
            for entry in report["entries"]
            if (entry["skipped"] or "").startswith(UNREACHED)
        ],
    }


def author(evaluation: dict[str, Any]) -> str:
    return "playbook" if evaluation["candidate"]["generation"] is None else "model"


def asked(report: Report) -> Found | None:
    """What a model was asked in all, and what became of its answers; None where none was."""
    uses = [entry["model_use"] for entry in report["entries"] if entry["model_use"]]
    if not uses:
        return None
    refused: Counter[str] = Counter()
    for use in uses:
        refused.update(use["refused"])
    return {
        "name": uses[0]["model"],
        "adapter": uses[0]["adapter"],
        "adapter_name": uses[0]["adapter_name"],
        "num_targets": len(uses),
        **{key: round(sum(use[key] for use in uses), 1) for key in MODEL_COUNTS},
        "answers_without_candidate": dict(refused.most_common()),
    }


def proposal(entry: dict[str, Any]) -> Found:
    """The best candidate of a target with its numbers and its patch."""
    best = entry["evaluations"][entry["best"]]
    return {
        "target": name_of(entry),
        "by": author(best),
        "proposer": best["candidate"]["proposer"],
        "measurements": [{key: each[key] for key in MEASURED} for each in best["measurements"]],
        "patch": best["candidate"]["patch"],
    }


def beyond(found: Found, other: Found) -> Found:
    """What one scan proposes that another does not, or a faster version of the same, by who wrote
    it: `faster` where on every workload the intervals lie apart, nothing where the other had no
    time for the target. And which proposals it has not."""
    mine = {one["target"]: one for one in found["proposals"]}
    theirs = {one["target"]: one for one in other["proposals"]}
    rows = []
    for target, one in mine.items():
        how = relation(one, theirs.get(target), is_unreached=target in other["unreached"])
        if how is not None:
            rows.append({"target": target, "by": one["by"], "how": how})
    counts = Counter((row["by"], row["how"]) for row in rows)
    return {
        **{
            f"{how}_by_{by}": counts[by, how]
            for by in ("model", "playbook")
            for how in ("new", "faster")
        },
        "rows": rows,
        "missing": [
            target for target in theirs if target not in mine and target not in found["unreached"]
        ],
    }


def relation(one: Found, other: Found | None, *, is_unreached: bool) -> str | None:
    """`new`, `faster`, or None for what is neither."""
    if other is None:
        return None if is_unreached else "new"
    lows = {each["workload"]: each["speedup_low"] for each in one["measurements"]}
    highs = {each["workload"]: each["speedup_high"] for each in other["measurements"]}
    if not lows or lows.keys() != highs.keys() or None in (*lows.values(), *highs.values()):
        return None
    return "faster" if all(lows[name] > highs[name] for name in lows) else None


def compared(ways: dict[str, Found]) -> dict[str, Found]:
    """Every pair of scans that says something, of those that have a report."""
    whole = {way: found for way, found in ways.items() if "failure" not in found}
    return {
        f"{one} beyond {other}": beyond(whole[one], whole[other])
        for one, other in COMPARED
        if one in whole and other in whole
    }


# --- for people ----------------------------------------------------------------------------------


def lines(result: Found) -> list[str]:
    """A repository's scans, a line each, and what each found beyond another."""
    shown = [result["repository"]]
    for way, found in result["ways"].items():
        if "failure" in found:
            shown.append(f"  {way}: no report (exit code {found['exit_code']})")
            continue
        judged = found["candidates_judged"]["model"]
        told = f"{len(found['proposals'])} proposals in {found['seconds']:.0f} s, {found['ended']}"
        if model := found["model"]:
            with_adapter = f" with {model['adapter_name']}" if model["adapter_name"] else ""
            told += (
                f"; {model['name']}{with_adapter}: {model['num_answers']:.0f} answers, "
                f"{judged['number']} candidates judged, "
                f"{judged['statuses'].get('passed', 0)} passed"
            )
        shown.append(f"  {way}: {told}")
    for pair, one in result["compared"].items():
        shown.append(
            f"  {pair}: by the model {one['new_by_model']} new, {one['faster_by_model']} faster; "
            f"by a rewrite {one['new_by_playbook']} new, {one['faster_by_playbook']} faster; "
            f"{len(one['missing'])} missing"
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", nargs="*", metavar="CHECKOUT[=TESTS]")
    parser.add_argument("--model", help="weights: a folder or an id of the hub")
    parser.add_argument("--adapter", default="auto", help="folder; the bundled one that fits")
    parser.add_argument("--base-url", help="of a server with the weights as they come")
    parser.add_argument("--adapter-url", help="of one with the adapter in them")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the projects'")
    parser.add_argument("--server-python", type=Path, help="that has vllm or transformers")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget", default="10m", help="of one scan")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--table", type=Path, help="show this result, scan nothing")
    options = parser.parse_args()
    if options.table is not None:
        for result in json.loads(options.table.read_text(encoding="utf-8"))["results"]:
            print("\n".join(lines(result)))
        return
    if not options.checkout or options.model is None:
        parser.error("expected --model and checkouts to scan, or --table")
    if (options.base_url is None) != (options.adapter_url is None):
        parser.error("expected --base-url and --adapter-url, or neither")
    about = {key: getattr(options, key) for key in ("adapter", "budget", "device")}
    about["settings"] = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)
    }
    model = Path(options.model).name if Path(options.model).is_dir() else options.model
    results: list[Found] = []
    for each in options.checkout:
        name, _, tests = each.partition("=")
        folder = Path(name).resolve()
        result: Found = {"repository": folder.name, "commit": head_of(folder)}
        results.append({**result, **traced(folder, tests, options), "ways": {}, "compared": {}})
        for way in WAYS:
            results[-1]["ways"][way] = scanned(folder, way, options)
            results[-1]["compared"] = compared(results[-1]["ways"])
            # After each, so that a kill loses no finished one.
            write(options.output, {**provenance(), "model": model, **about, "results": results})
        print("\n".join(lines(results[-1])), flush=True)


if __name__ == "__main__":
    main()
