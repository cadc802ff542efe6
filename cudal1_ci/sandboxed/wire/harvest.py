"""Define what the host requests of a harvester, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .codec import Asks

Outcome = Literal["ran", "failed", "out_of_time", "out_of_memory", "needs"]
"""What became of a cell. `needs` lacks something that the sandbox does not have: a download, a GPU,
a package, arguments."""

ABSENT = "not installed: "
"""Begins the note on a package that a script ran without."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A tensor that a cell bound to a name, by a sample of its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sample: tuple[str, ...] = ()
    """Some of its values, as their shortest texts."""


@dataclass(frozen=True, kw_only=True)
class CellRan:
    """What became of a cell, or of a test. `line` 0 is the whole file."""

    line: int = 0
    outcome: Outcome
    name: str = ""
    """The test's, as pytest names it."""
    reason: str = ""
    duration_s: float = 0.0
    outputs: tuple[Output, ...] = ()
    printed: str = ""
    """The beginning of what it printed, where scripts are compared."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Ready to run scripts. `refused` names each layer of the sandbox that this kernel does not
    grant, with its reason; `torch` is its version, or empty."""

    refused: dict[str, str]
    torch: str


@dataclass(frozen=True, kw_only=True)
class ScriptRan:
    """What became of a script: its cells, and its calls as lines of a trace."""

    cells: tuple[CellRan, ...] = ()
    trace: str = ""
    notes: tuple[str, ...] = ()
    """What was replaced or made smaller."""
    ending: str = ""
    """Why the process ended before the script did; empty where it did not."""


@dataclass(frozen=True, kw_only=True)
class HarvestCell:
    """The text of a cell, and its line."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class OpenHarvest(Asks[Opened]):
    """Get ready to run scripts of a checkout."""

    op: ClassVar[str] = "open_harvest"
    root: str
    import_roots: tuple[str, ...]
    """Folders, relative to the root, from which its modules are imported."""
    functions: dict[str, tuple[str, ...]]
    """Names of the functions to record, by path."""
    packages: tuple[str, ...]
    """Modules that the checkout imports from elsewhere. Those that are installed are imported once
    for all scripts."""
    warm_s: float
    """Time for that."""
    own: tuple[str, ...]
    """Top names of the modules of the checkout, which may also be installed."""
    memory_bytes: int
    has_gpu: bool
    configurations: tuple[str, ...] = ()
    """Paths of files that may hold arguments of its classes."""


@dataclass(frozen=True, kw_only=True)
class RunScript(Asks[ScriptRan]):
    """Run a script in a process of its own, which ends with everything that it started."""

    op: ClassVar[str] = "run_script"
    kind: str
    path: str
    module: str
    """Name by which the file is imported; empty for a page."""
    cells: tuple[HarvestCell, ...] = ()
    cell_s: float
    script_s: float
    is_smaller: bool = False
    """Whether batches and depths are made small."""
    seed: int = 0
    arguments: tuple[str, ...] = ()
    compares: bool = False
    """Whether what it gives is compared with another tree's: dropout is turned off, as a fused
    operator draws other random numbers, and no call is made once more."""
