"""Run a report card in an order that suits a GPU; a second call continues it.

    python experiments/report_card.py CUDA-L1/optimized_cuda_code/h100.json --folder card

Verifiers that share a GPU share its memory, and one that times stops the others. Compiling is work
of the processor, so many verifiers do it at once. References with large tensors are verified by a
few, after the others. What a few had too little memory for is verified by one alone. A candidate
has one repetition, as in training. The parts are runs of `cudal1-ci bench` in the folder, which
keeps their results. What is reached in time is spread over all tasks of a part, and `run.json`
merges all parts.

The size of a reference's tensors is found without computing anything, on torch's meta device, and
kept in the folder's `sizes.json`: `--minutes 0` does only that, on a machine without a GPU. A
reference that cannot be called there counts as large. So does one where the reference or a
candidate had too little memory on a GPU of many verifiers: intermediate tensors are not counted.
References are imported for this, outside of any sandbox.

    python experiments/report_card.py h100.json --folder card --earlier report-card-h100.json.gz

continues a card whose folder is gone: what run_facts.py kept of it is in `run.json` too, and tasks
that all columns have tried are skipped. `--solvers` selects some columns, and the tasks that lack
one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from torch.utils._pytree import tree_leaves

from cudal1_ci.cli.bench_flags import shard_of
from cudal1_ci.cli.group import EXIT_BUDGET, EXIT_DONE, EXIT_INTERRUPTED
from cudal1_ci.records import TextProgram
from cudal1_ci.report_card.columns import DEFAULT
from cudal1_ci.report_card.crowded import crowded_columns, lacked_memory
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.tasks import Choice, Task, tasks_at

LARGE_BYTES = 2**28
"""Of inputs, outputs, parameters and buffers together."""
LEAST_S = 45.0
"""With less left no part is begun."""
END_S = 30.0
"""For a part that was asked to end."""
PARTS = ("light", "large", "alone")
"""In their order; files in the folder and logs are called by them."""


@dataclass(frozen=True)
class Part:
    """A run of `cudal1-ci bench`."""

    name: str
    tasks: tuple[str, ...]
    num_judges: int
    """On each device."""


def parts_of(
    sizes: Mapping[str, int | None], few: int, many: int, crowded: Callable[[], Collection[str]]
) -> Iterator[Part]:
    """Yield all parts to run, in order. `sizes` are bytes by task, None where that is not known.
    `crowded` are the names of tasks that are known to have had too little memory.
    """
    now = crowded()
    light = [
        name
        for name, size in sizes.items()
        if size is not None and size <= LARGE_BYTES and name not in now
    ]
    if light:
        yield Part("light", tuple(light), many)
    now = crowded()
    large = [name for name in sizes if name not in light or name in now]
    if large:
        yield Part("large", tuple(large), few)
    now = crowded()
    alone = [name for name in large if name in now]
    if alone and few > 1:
        yield Part("alone", tuple(alone), 1)


def num_bytes(source: str) -> int | None:
    """Return the bytes of a reference's inputs, outputs, parameters and buffers."""
    try:
        with torch.device("meta"), torch.no_grad():
            names: dict[str, object] = {"__name__": "reference"}
            exec(compile(source, "reference", "exec"), names)
            inputs = names["get_inputs"]()  # type: ignore[operator]
            model = names["Model"](*names.get("get_init_inputs", list)())  # type: ignore[operator]
            held = [*inputs, model(*inputs), *model.parameters(), *model.buffers()]
    except Exception:  # noqa: BLE001 (whatever others' programs do not like about it)
        return None
    return sum(leaf.nbytes for leaf in tree_leaves(held) if isinstance(leaf, torch.Tensor))


def sizes_of(tasks: Sequence[Task], file: Path) -> dict[str, int | None]:
    """Return bytes by task; the file keeps known sizes by problem. One name may have several
    problems: from two corpora, or from before the text was changed. Problems with one name run
    together and count as large as the largest.
    """
    known = json.loads(file.read_bytes()) if file.exists() else {}
    for task in tasks:
        if task.problem.id not in known and isinstance(task.problem.reference, TextProgram):
            known[task.problem.id] = num_bytes(task.problem.reference.source)
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    by_name: dict[str, list[int | None]] = {}
    for task in tasks:
        by_name.setdefault(task.name, []).append(known[task.problem.id])
    return {
        name: None if None in sizes else max(size for size in sizes if size is not None)
        for name, sizes in by_name.items()
    }


def still_open(
    tasks: Sequence[Task], earlier: Sequence[Path], solvers: Sequence[str] = DEFAULT
) -> list[Task]:
    """Return tasks that no earlier run has settled on any machine: some columns were not tried, and
    nothing rules all of them out.

    Raises:
        ReportError: A file is no run.
    """
    told = [task for file in earlier for task in read_run(file).tasks]
    settled = {
        task.problem_id
        for task in told
        if task.standing in ("degenerate", "invalid") and not lacked_memory(task)
    }
    columns: dict[str, set[str]] = {}
    for task in told:
        found = {one.solver for one in task.results} - set(crowded_columns(task.results))
        columns.setdefault(task.problem_id, set()).update(found)
    settled |= {problem_id for problem_id, found in columns.items() if set(solvers) <= found}
    return [task for task in tasks if task.problem.id not in settled]


def crowded_in(tasks: Sequence[Task], runs: Sequence[Path]) -> set[str]:
    """Return names of tasks for which a run's GPU had too little memory; missing files are skipped.

    Raises:
        ReportError: A file is no run.
    """
    ids = {
        task.problem_id
        for file in runs
        if file.exists()
        for task in read_run(file).tasks
        if lacked_memory(task) or crowded_columns(task.results)
    }
    return {task.name for task in tasks if task.problem.id in ids}


def done(file: Path, problem_ids: Collection[str]) -> bool:
    """Return whether a run ended with all of these problems: an earlier call may have had others.

    Raises:
        ReportError: The file is no run.
    """
    if not file.exists():
        return False
    run = read_run(file)
    return run.ended == "done" and set(problem_ids) <= {task.problem_id for task in run.tasks}


def run(
    part: Part,
    paths: Sequence[Path],
    solvers: str,
    devices: Sequence[str],
    folder: Path,
    seconds: float,
) -> None:
    """Run one part for at most so many seconds; keep what it found by then.

    Raises:
        SystemExit: It failed, with the end of what it said.
    """
    # A CPU has one verifier.
    seats = [one for one in devices for _ in range(1 if one == "cpu" else part.num_judges)]
    command = [
        *(sys.executable, "-m", "cudal1_ci", "bench", *map(str, paths)),
        *(word for name in part.tasks for word in ("--task", glob.escape(name))),
        *("--solvers", solvers, "--device", ",".join(seats)),
        *("--budget", f"{seconds:.0f}s", "--output", f"{part.name}.json"),
    ]
    settings = {"CUDAL1_CI_TRIAL_NUM_LAUNCHES": "1", **os.environ}
    with (folder / f"{part.name}.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log)
        try:
            process.wait(seconds + END_S)
        except subprocess.TimeoutExpired:  # it waits for a build
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        finally:
            process.kill()
            process.wait()
    if process.returncode not in (EXIT_DONE, EXIT_BUDGET, EXIT_INTERRUPTED):
        said = (folder / f"{part.name}.log").read_text("utf-8", "replace")[-2000:]
        raise SystemExit(f"{part.name}: exit code {process.returncode}\n{said}")


def shard(given: str) -> tuple[int, int]:
    """Parse `2/4`."""
    try:
        return shard_of(None, None, given)
    except click.BadParameter as error:
        raise argparse.ArgumentTypeError(error.message) from error


def merged(folder: Path, earlier: Sequence[Path]) -> None:
    files = (*(folder / f"{name}.json" for name in PARTS), *earlier)
    parts = [str(file.resolve()) for file in files if file.exists()]
    if not parts:
        return
    command = [sys.executable, "-m", "cudal1_ci", "bench", "--merge", *parts]
    subprocess.run([*command, "--output", str(folder / "run.json")], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER|FILE")
    parser.add_argument("--task", action="append", default=[], metavar="GLOB")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="2/4", help="as of bench")
    parser.add_argument("--earlier", action="append", default=[], type=Path, metavar="RUN")
    parser.add_argument("--solvers", default=",".join(DEFAULT), metavar="COLUMN,COLUMN")
    parser.add_argument("--device", default="cuda:0", help="several as cuda:0,cuda:1")
    parser.add_argument("--few", type=int, default=2, help="judges on a device, of large tensors")
    parser.add_argument("--many", type=int, default=8, help="judges on a device, of others")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    ends_s = time.monotonic() + 60 * given.minutes
    paths = [path.resolve() for path in given.paths]
    choice = Choice(globs=tuple(given.task), shard=given.shard)
    found = still_open(tasks_at(paths, choice).tasks, given.earlier, given.solvers.split(","))
    given.folder.mkdir(parents=True, exist_ok=True)
    sizes = sizes_of(found, given.folder / "sizes.json")
    known = (*given.earlier, *(given.folder / f"{name}.json" for name in PARTS[:-1]))
    for part in parts_of(sizes, given.few, given.many, lambda: crowded_in(found, known)):
        left_s = ends_s - time.monotonic()
        if done(
            given.folder / f"{part.name}.json",
            [task.problem.id for task in found if task.name in part.tasks],
        ):
            continue
        if left_s < LEAST_S:
            break
        print(f"{part.name}: {len(part.tasks)} tasks, {left_s:.0f} s left", flush=True)
        run(part, paths, given.solvers, given.device.split(","), given.folder, left_s)
    merged(given.folder, given.earlier)


if __name__ == "__main__":
    main()
