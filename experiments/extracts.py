"""Write the figures of the pages: small extracts of raw results, and the pages' blocks from them.

    python experiments/extracts.py            # pages and drawings, from experiments/results/
    python experiments/extracts.py --fresh    # first the extracts, from the raw results in assets/

An extract is a JSON file with `raw`, the asset that it is of, the asset's `sha256`, `lines` of
Markdown, and `drawings`: columns by a picture's place relative to the page. A block of a page is
between `<!-- name -->` and `<!-- /name -->`, and is written from its extract alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aa
import detection
import event_to_comment
import gpu_modules
import harvest
import loop_timing
import recall
import results_counts
import sensitivity
import third_party
import third_party_patches
import third_party_yield
import throughput
import verifier_cases
import who_catches_what
from results_page import marks, replaced, section
from results_plot import picture
from results_table import headline, levels
from run_facts import without

from cudal1_ci import assets
from cudal1_ci.report_card.card import carded, machines
from cudal1_ci.report_card.plots import Drawn
from cudal1_ci.report_card.reading import read_run

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).resolve().parent / "results"
Document = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A block of a page, and what its lines are made of."""

    page: str
    raw: str
    make: Callable[[Document], list[str]] | None
    """None is a section of a report card, with a drawing."""
    without: tuple[str, ...] = ()
    """Columns of a report card for which nothing was given."""


def counts(raw: Path) -> list[str]:
    """Return counts of a report card's run that its tables do not have."""
    tasks = results_counts.tasks_in(raw)
    parts = (results_counts.noise, results_counts.large, results_counts.published)
    return ["```text", *(line for part in parts for line in part(tasks)), "```"]


def corpora(document: Document) -> list[str]:
    """Return a row of Markdown for each run of the corpora."""
    lines = ["| commit | passed | failed |", "|---|---|---|"]
    for run in document["runs"]:
        found = Counter(status for _, status, _ in run["tests"])
        lines.append(f"| `{run['commit']}` | {found['passed']} | {found['failed']} |")
    return lines


CASES = {
    "lazy: returns a subclass of Tensor that computes when it is read": "level1/9",
    "constant: the reference's output does not depend on its input": "level2/83",
    "stale graph: captured on the first caller's tensor, whose memory a replay reads": "level2/5",
    "own input: the caller's tensor holds the output afterwards": "level1/21",
    "other parameters: no checkpoint of the reference loads": "level3/41",
    "broken: the published text does not parse": "level3/26",
}
"""Kinds of published kernels that are refused, each with a task."""


def refused(raw: Path) -> list[str]:
    """Return a row of Markdown for each kind of published kernel that is refused."""
    tasks = {task.name: task for task in read_run(raw).tasks}
    lines = ["| kind | for example | verdict |", "|---|---|---|"]
    for kind, name in CASES.items():
        task = tasks[name]
        trial = next(results_counts.trials_of(task, "published"), None)
        if task.standing == "judged" and trial is not None:
            verdict = f"`{trial.status}` `{trial.findings[0].rule}`"
        else:
            verdict = f"`{task.standing}` `{(task.reason or '').partition(':')[0]}`"
        lines.append(f"| {kind} | {name} | {verdict} |")
    return lines


def summary(raw: Path, without_columns: Sequence[str] = ()) -> list[str]:
    """Return the two tables of a report card that a reader needs first: all tasks, and levels."""
    run = without(carded(read_run(raw)), without_columns)
    (machine,) = machines(run)
    return f"{headline(run, machine)}\n\n{levels(run, machine)}".splitlines()


CARD = "results/report-card-h100.json.gz"
KERNELBENCH = "results/report-card-kernelbench-h100.json.gz"
LAB = "docs/lab/report-card.md"
REPOSITORIES = "docs/lab/repositories.md"
ADOPTION = "docs/lab/adoption.md"
BLOCKS = {
    "Summary": Block("docs/results.md", CARD, lambda _: summary(assets.path(CARD))),
    "Summary of KernelBench": Block(
        "docs/results.md",
        KERNELBENCH,
        lambda _: summary(assets.path(KERNELBENCH), ("published",)),
    ),
    "Report card": Block(LAB, CARD, None),
    "Current KernelBench": Block(LAB, KERNELBENCH, None, without=("published",)),
    "Counts": Block(LAB, CARD, lambda _: counts(assets.path(CARD))),
    "Refused": Block("docs/published-kernels.md", CARD, lambda _: refused(assets.path(CARD))),
    "Third party": Block("docs/results.md", "results/third-party.json", third_party.table),
    "Harvest": Block(REPOSITORIES, "results/harvest.json", harvest.table),
    "Third party new yield": Block(
        "docs/results.md", "results/third-party-yield-new.json", third_party_yield.table
    ),
    "Third party first yield": Block(
        REPOSITORIES, "results/third-party-yield-first.json", third_party_yield.table
    ),
    "Third party yield": Block(
        REPOSITORIES, "results/third-party-yield.json", third_party_yield.table
    ),
    "Transformers yield": Block(
        REPOSITORIES, "results/third-party-yield-transformers.json", third_party_yield.table
    ),
    "Third party patches": Block(
        REPOSITORIES, "results/third-party-patches.json", third_party_patches.table
    ),
    "Third party new patches": Block(
        REPOSITORIES, "results/third-party-patches-new.json", third_party_patches.table
    ),
    "GPU modules": Block("docs/results.md", "results/gpu-modules.json", gpu_modules.table),
    "Cases on an H100": Block(
        "docs/lab/verifier.md", "results/verifier-cases-h100.json", verifier_cases.table
    ),
    "Cases on a CPU": Block(
        "docs/lab/verifier.md", "results/verifier-cases-cpu.json", verifier_cases.table
    ),
    "Recall of narrow lines": Block("docs/results.md", "results/recall-narrow.json", recall.table),
    "Recall": Block("docs/results.md", "results/recall-proposals.json", recall.table),
    "Corpora": Block("docs/lab/verifier.md", "results/corpora-h200.json", corpora),
    "Sensitivity": Block(
        "docs/lab/verifier.md",
        "results/sensitivity-h200.json",
        lambda raw: sensitivity.table(raw).splitlines(),
    ),
    "Equal code": Block(
        "docs/lab/verifier.md",
        "results/aa-cpu.json.gz",
        aa.table,
    ),
    "Loops on a CPU": Block(
        "docs/lab/verifier.md", "results/loops-cpu.json", loop_timing.page_table
    ),
    "Loops on an H200": Block(
        "docs/lab/verifier.md", "results/loops-h200.json", loop_timing.page_table
    ),
    "Detection": Block(ADOPTION, "results/detection-cpu.json", detection.table),
    "Event to comment": Block(ADOPTION, "results/event-to-comment.json", event_to_comment.table),
    "Checkers": Block(
        "docs/comparison.md",
        "results/who-catches-what.json",
        lambda raw: who_catches_what.table(raw["totals"]).splitlines(),
    ),
    "Throughput": Block(
        "docs/comparison.md",
        "results/throughput.json",
        lambda raw: throughput.table(raw).splitlines(),
    ),
}


def place(name: str) -> Path:
    """Return where the extract of a block lies."""
    return FOLDER / f"{name.lower().replace(' ', '-')}.json"


def read(name: str) -> Document:
    """Return the extract of a block."""
    document: Document = json.loads(place(name).read_text(encoding="utf-8"))
    return document


def extract(name: str) -> Document:
    """Return the extract of a block, made of its raw result."""
    block = BLOCKS[name]
    raw = assets.path(block.raw)
    drawings: dict[str, Any] = {}
    if block.make is None:
        text, drawn = section(without(carded(read_run(raw)), block.without), source(block), name)
        lines = text.splitlines()
        drawings = {where: [plain(one) for one in columns] for where, columns in drawn.items()}
    else:
        content = raw.read_bytes()
        packed = gzip.decompress(content) if raw.suffix == ".gz" else content
        # Measured when this folder had another name.
        lines = [
            one.replace("benchmarks/", "experiments/") for one in block.make(json.loads(packed))
        ]
    sha256 = assets.manifest()[block.raw].sha256
    return {"raw": block.raw, "sha256": sha256, "lines": lines, "drawings": drawings}


def source(block: Block) -> str:
    """Return the commit and the command of a run, by the manifest, and where the run is."""
    entries = json.loads(assets.MANIFEST.read_text(encoding="utf-8"))
    (entry,) = (one for one in entries if one["path"] == block.raw)
    commits = ", ".join(f"`{one}`" for one in entry["commit"].split(", "))
    link = Path(os.path.relpath(ROOT / "assets" / block.raw, (ROOT / block.page).parent))
    return f"commit {commits}, `{entry['command']}` ([raw]({link.as_posix()}))"


def plain(column: Drawn) -> Document:
    """Return a column of a drawing as JSON: a wrong answer is null."""
    return {
        "solver": column.solver,
        "number": column.number,
        "speedups": [float(f"{one:.6g}") if right else None for _, one, right in column.speedups],
        "quartiles": list(column.quartiles),
    }


def drawn(column: Document) -> Drawn:
    """Return a column of a drawing from JSON."""
    return Drawn(
        solver=column["solver"],
        number=column["number"],
        speedups=tuple(("", one or 1.0, one is not None) for one in column["speedups"]),
        quartiles=tuple(column["quartiles"]),
    )


def files(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of pages and drawings by their path, as the extracts make them. `pages` are
    the texts as they are, by path."""
    made = dict(pages)
    for name, block in BLOCKS.items():
        found = read(name)
        begin, end = marks(name)
        if begin not in made[block.page] or end not in made[block.page]:
            raise ValueError(f"{block.page}: expected {begin} and {end}")
        made[block.page] = replaced(made[block.page], "\n".join(found["lines"]) + "\n", name)
        for where, columns in found["drawings"].items():
            picture_path = (Path(block.page).parent / where).as_posix()
            made[picture_path] = picture([drawn(one) for one in columns])
    return made


def pages() -> dict[str, str]:
    """Return the texts of the pages with blocks, as they are."""
    return {page: (ROOT / page).read_text("utf-8") for page in {b.page for b in BLOCKS.values()}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the figures of the pages.")
    parser.add_argument("--fresh", action="store_true", help="make the extracts first")
    if parser.parse_args().fresh:
        for name in BLOCKS:
            text = json.dumps(extract(name), indent=1, ensure_ascii=False)
            place(name).write_text(text + "\n", encoding="utf-8")
    for path, text in files(pages()).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
