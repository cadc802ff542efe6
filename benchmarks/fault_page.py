"""Results of fault injections as a page of Markdown: `python benchmarks/faults.py --table`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fault_programs import FAULTS

Result = Mapping[str, Any]

HEAD = """\
# Faults

What happens to a trial when something breaks in the middle of it: processes are killed and
stopped, programs hang, crash, take all memory, fill the disk. Injected by `benchmarks/faults.py`,
which also draws this page from its results (`--table`). After each injection it asks four things:

- **right verdict**: the candidate is accused of what it did, and of nothing that was done to it
  from outside. Where the tool itself was broken it says so (`WorkerError`: no verdict, nothing
  recorded).
- **next trial right**: the next evaluation of the same session has the right verdict, of a
  candidate that is right or of one that is wrong, in turn. Of a scan: `--resume` ends with all
  modules judged.
- **nothing lost**: the archive holds every evaluation that was finished until then.
- **nothing left behind**: within {gone_s:.0f} s no process that was started since, also none that
  detached itself, no folder, no descriptor and no mapping of shared memory of the host or the
  judge; on a GPU, no memory and no process.

One injection in four has a session of its own, which is ended afterwards; the others meet one
that goes on. Kills and stops from outside come at a random moment; one that came too late is made
again.
"""
RESULT = """
## On {where}

{right} of {total} injections of {kinds} kinds as they should be, {wall_min:.0f} minutes;
sessions: {sessions}. Of the next trials of a right candidate {num_passed} passed,
{num_noisy} found the machine too busy.
`{command}`, {name}, {threads}, Python {python}, torch {torch}, {date}, commit `{commit}`
([raw](../{path})). Limits of a trial here: {call_s:.0f} s for a call, {load_s:.0f} s for loading.

{table}
"""
MEMORY = """
Memory of the GPU in use before the first session and after the last one: {before:,} and {after:,}
bytes.
"""
NOTES = """
## How to read it

- `inconclusive timing.noisy` is no accusation: on a machine that is too busy to measure on, the
  judge says so. Four lanes of injections share two cores here, and few rounds are timed.
- *exit 0*: a candidate that ends its process without an error has not answered; it is never taken
  for success.
- *a thousand children*, *prints a gigabyte*, *fills its disk*: the limits of the
  [sandbox](security.md) end them, or the judge's patience does. *scratch disk is full* is another
  thing: the disk under the judge's own folders is filled from outside, bytes and files. The judge
  may end by it; then the next trial has a new one.
- *kill -9 of the reference, always*: whenever it is timed beside the candidate. Nobody knows why
  it dies, so nothing is said of the candidate.

## What it found

Three defects of the judge, by earlier runs than the one above; all are mended, with tests:

- A reference that was killed while it was timed was held against the candidate (`runtime_error`).
  A launch in which the reference fails is now made again ([judge.md](judge.md#the-clock)).
- A reference that was killed once while it was learned was invalid for all candidates of the
  session, or something less was known of it. It is now asked once more.
- On a machine with five times as many processes as cores one honest candidate, in 223 injections,
  was called a hack by one launch of three rounds (`timing.reconciliation`): the judge's clock went
  on while it was preempted. It now takes two launches.

## What was not injected
"""
NOT_INJECTED = """\
- The kernel's own choice when the machine has no memory left: to the judge it is a `kill -9` of a
  runner, of the reference or of itself, and these are above. *growing list* ends at the limit of
  the process.
- A full disk under the archive, a machine that loses power, a GPU that is lost or reset, a host
  with more than one GPU.
"""


def is_good(row: Result) -> bool:
    """Whether everything is as it should be after an injection."""
    return bool(
        row["is_right"] and row["is_next_right"] and row["is_nothing_lost"] and not row["left"]
    )


def made(rows: Sequence[Result]) -> list[Result]:
    """Without those that never came in time."""
    return [row for row in rows if row["verdict"] != "not injected"]


def table(rows: Sequence[Result]) -> str:
    """A line for each fault."""
    lines = [
        "| fault | injected | right verdict | next trial right | nothing lost "
        "| nothing left behind | verdicts |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {name: [row for row in rows if row["fault"] == name] for name in FAULTS}
    for name, own in [*groups.items(), ("**all**", list(rows))]:
        done = made(own)
        if not done:
            continue
        verdicts = Counter(row["verdict"] for row in done).most_common() if name in FAULTS else []
        cells = [
            name,
            len(done),
            sum(row["is_right"] for row in done),
            sum(row["is_next_right"] for row in done),
            sum(row["is_nothing_lost"] for row in done),
            sum(not row["left"] for row in done),
            ", ".join(f"`{verdict}` {number}" for verdict, number in verdicts),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def section(path: str, result: Result) -> str:
    """What one run found."""
    rows = made(result["rows"])
    device = result["device"]
    threads = f"{device['num_threads']} thread{'s' if device['num_threads'] > 1 else ''}"
    following = Counter(row["next_verdict"] for row in rows)
    sessions = Counter(row["session"] for row in rows)
    text = RESULT.format(
        where="the CPU" if device["kind"] == "cpu" else "a GPU",
        right=sum(map(is_good, rows)),
        total=len(rows),
        kinds=len({row["fault"] for row in rows}),
        wall_min=result["wall_s"] / 60,
        num_passed=following["passed"],
        num_noisy=following["inconclusive timing.noisy"],
        sessions=", ".join(f"{number} {name}" for name, number in sessions.most_common()),
        command=result["command"],
        name=device["name"],
        threads=f"{result['num_cores']} cores, {threads}",
        python=result["python"],
        torch=device["software"]["torch"],
        date=result["date"][:10],
        commit=result["commit"],
        path=path,
        call_s=result["config"]["call_s"],
        load_s=result["config"]["load_s"],
        table=table(result["rows"]),
    )
    if result.get("gpu_memory_bytes"):
        before, after = result["gpu_memory_bytes"]
        text += MEMORY.format(before=before, after=after)
    return text


def page(results: Mapping[str, Result], gone_s: float) -> str:
    """The text of docs/faults.md, of results by their path in the repository."""
    text = HEAD.format(gone_s=gone_s)
    text += "".join(section(path, result) for path, result in results.items())
    text += NOTES
    seen = {row["fault"] for result in results.values() for row in made(result["rows"])}
    if missing := [name for name in FAULTS if name not in seen]:
        names = ", ".join(f"*{name}*" for name in missing)
        text += f"\n- Written, and never run (`--device cuda`): {names}.\n"
    return text + NOT_INJECTED
