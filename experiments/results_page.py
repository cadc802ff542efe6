"""Write the start of docs/results.md: tables and a drawing of a report card's run.

    python experiments/results_page.py run.json.gz --commit 39788c9
    python experiments/results_page.py new.json.gz --commit 39788c9 --section "Current KernelBench"

All numbers are of the run alone, which `cudal1-ci bench ... --output` writes, except the commit,
which no run knows. Several files are parts of one run, as for `cudal1-ci bench --merge`. Only the
text between the two marks is replaced; without marks it is put at the top. `--without COLUMN`
leaves out a column that a run is known to have measured wrongly, or does not have.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

from results_beside import beside
from results_plot import picture
from results_table import by_the_paper, costs, headline, levels, opening, out_of_it
from run_facts import without

from cudal1_ci.errors import ReportError
from cudal1_ci.report_card.card import carded, counted, machines
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.page import drawing
from cudal1_ci.report_card.plots import Drawn
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.shape import RunDocument

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"
FIRST = "Report card"
"""The page's first section; others are below it, where their marks are."""
IMAGE = "images/{}{}.svg"
"""Next to the page; machines after the first add their number."""


def marks(title: str) -> tuple[str, str]:
    """Return the marks around a section."""
    return f"<!-- {title.lower()} -->", f"<!-- /{title.lower()} -->"


def section(
    run: RunDocument, source: str, title: str = FIRST
) -> tuple[str, dict[str, list[Drawn]]]:
    """Return the text between the marks, and the drawings by their place relative to the page.
    `source` names the commit of the run and where it is.
    """
    parts: list[str] = [f"{'#' if title == FIRST else '##'} {title}"]
    drawings: dict[str, list[Drawn]] = {}
    for number, machine in enumerate(machines(run), 1):
        parts.append(opening(run, machine, source))
        tasks = counted(run, machine)
        if not tasks:
            parts += [out_of_it(run, machine), "No task is in a table."]
            continue
        slug = title.lower().replace(" ", "-")
        place = IMAGE.format(slug, "" if number == 1 else f"-{number}")
        drawings[place] = [drawing(tasks, solver) for solver in run.solvers]
        parts += [
            headline(run, machine),
            f"![Share of the tasks that are right and more than p times as fast]({place})",
            out_of_it(run, machine),
            by_the_paper(run, machine),
            levels(run, machine),
            beside(tasks, run.solvers),
            costs(run, machine),
        ]
    return "\n\n".join(part for part in parts if part) + "\n", drawings


def replaced(page: str, text: str, title: str = FIRST) -> str:
    """Replace the text between the marks of a page.

    Raises:
        ValueError: There is one mark without the other, or one twice, or none for what is not the
            first section.
    """
    begin, end = marks(title)
    block = f"{begin}\n{text}{end}"
    if title == FIRST and begin not in page and end not in page:
        return f"{block}\n\n{page}"
    before, _, rest = page.partition(begin)
    old, mark, after = rest.partition(end)
    if not mark or any(one in part for one in (begin, end) for part in (before, old, after)):
        raise ValueError(f"expected {begin} and then {end}, each once")
    return f"{before}{block}{after}"


def source_text(
    raws: Sequence[Path], page: Path, commits: Sequence[str], command: str | None
) -> str:
    """Format ``commit `39788c9`, `cudal1-ci bench ...`
    ([raw](../experiments/results/run.json))``.
    """
    links = [f"[raw]({Path(os.path.relpath(raw, page.parent)).as_posix()})" for raw in raws]
    said = ", ".join(f"`{commit}`" for commit in commits)
    told = f", `{command}`" if command else ""
    return f"commit {said}{told} ({', '.join(links)})"


def commit(text: str) -> str:
    """Parse a commit's hash, or the start of one."""
    if not re.fullmatch(r"[0-9a-f]{7,40}", text):
        raise argparse.ArgumentTypeError(f"expected 7 to 40 hexadecimal digits, got {text!r}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the report card into docs/results.md.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json", help="may be gzipped")
    parser.add_argument("--commit", type=commit, action="append", required=True)
    parser.add_argument("--command", help="with which the run was made, to be told")
    parser.add_argument("--without", action="append", default=[], metavar="COLUMN")
    parser.add_argument("--section", default=FIRST, metavar="TITLE", help="of the page")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    try:
        runs = [read_run(path) for path in options.runs]
        run = without(merge(runs) if len(runs) > 1 else carded(runs[0]), options.without)
        source = source_text(options.runs, options.page, options.commit, options.command)
        text, drawings = section(run, source, options.section)
        page = replaced(options.page.read_text(encoding="utf-8"), text, options.section)
    except (ReportError, ValueError) as error:
        parser.error(str(error))
    for place, drawn in drawings.items():
        file = options.page.parent / place
        file.parent.mkdir(exist_ok=True)
        file.write_text(picture(drawn), encoding="utf-8")
    options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
