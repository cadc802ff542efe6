"""Hold a program that a repository gives as an example of its use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "readme", "docs", "example", "notebook", "docstring", "benchmark", "main", "test", "config"
]
"""What a script was found in. `config` is not found but made: models of their default
configuration, where no text calls them."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A piece of a script. One that fails does not end its script."""

    line: int
    """Of its file, where its text begins."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Script:
    """A program. Without cells it is the whole file; a test is run by pytest."""

    kind: Kind
    path: str
    """POSIX path relative to the root of the tree."""
    cells: tuple[Cell, ...] = ()
    arguments: tuple[str, ...] = ()
    """Of the command line, for a file that is run as a whole."""
    imports: frozenset[str] = frozenset()
    """Modules that it imports, dotted as they are written."""

    @property
    def place(self) -> str:
        """Return `README.md:12`, or the path of a file that is run as a whole."""
        return f"{self.path}:{self.cells[0].line}" if self.cells else self.path
