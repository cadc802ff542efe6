"""Print lines and tables on a console; a table without room becomes a list.

A table whose columns would break names within a word cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NARROW = 110
"""Below this a table is a list."""
DEVICE_WIDTH = 24
"""Columns that the table needs more when each row names its device."""
MAX_TARGET_WIDTH = 38
"""Columns that the names of targets get where they can be broken between words."""


def is_narrow(console: Console, names: Sequence[str], several_devices: bool = False) -> bool:
    """Return whether a table lacks room, or room for unbroken names; a list replaces it then."""
    least = NARROW + (DEVICE_WIDTH if several_devices else 0)
    room = max(MAX_TARGET_WIDTH, console.width // 3)
    return console.width < least or _longest(names, r"\s") > room


def target_width(names: Sequence[str], most: int = MAX_TARGET_WIDTH) -> int | None:
    """Return the number of columns for target names: `most`, or the length of the longest word.
    None where there is no name.
    """
    longest_word = _longest(names, r"\s")
    return max(longest_word, min(_longest(names, r"\n"), most)) or None


def _longest(names: Sequence[str], between: str) -> int:
    return max((len(part) for name in names for part in re.split(between, name)), default=0)


def print_heading(console: Console, text: str) -> None:
    console.print()
    print_line(console, text, "bold")


def print_line(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    console.print(
        Padding(Text(text, style=style), (0, 0, 0, indent), expand=False)
        if indent
        else Text(text, style)
    )


def table_of(*columns: str, header: bool = True) -> Table:
    table = Table(box=None, show_header=header, padding=(0, 2, 0, 0), header_style="bold dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
