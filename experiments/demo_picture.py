"""Draw what `make demo` printed as a picture of a terminal: docs/images/terminal/demo.svg.

    python experiments/demo_picture.py

The text is the beginning of results/demo.txt, with one line for each target, without its path.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PRINTED = ROOT / "experiments" / "results" / "demo.txt"
PICTURE = ROOT / "docs" / "images" / "terminal" / "demo.svg"
COMMAND = "cudal1-ci scan examples/slowformer --no-compile --html report.html"
FACES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
SPEEDUP = re.compile(r"\d[\d.]*x \[[^\]]*\]")


def shown(printed: str) -> list[str]:
    """Return what the models gain, the summary, and the first line of each proposal."""
    lines = printed.splitlines()
    first = next(number for number, line in enumerate(lines) if "faster versions proven" in line)
    gains = [line.split(";")[0] for line in lines[:first] if SPEEDUP.search(line)]
    rows = [line for line in lines[first:] if re.match(r"\d+ +\w+ +[\d.]+x \[", line)]
    head = next(line for line in lines if line.split()[:2] == ["target", "speedup"])
    return [*gains, "", lines[first].split(";")[0], "", head, *rows]


def picture(printed: str) -> str:
    """Return the picture as SVG; it loads no fonts."""
    console = Console(record=True, width=122, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), COMMAND))
    for line in shown(printed):
        text = Text(line.rstrip(), no_wrap=True, overflow="crop")
        text.highlight_regex(SPEEDUP, "bold cyan")
        console.print(text)
    drawn = console.export_svg(title="cudal1-ci", unique_id="demo")
    return "\n".join(line.rstrip() for line in FACES.sub("", drawn).splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(PRINTED.read_text("utf-8")), encoding="utf-8")
