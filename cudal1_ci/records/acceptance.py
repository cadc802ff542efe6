"""Record what the repository itself says of a patch: who relies on what it leaves out, and whether
its own tests and examples give the same."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.record import Count, Name, NotNegative, Published, Text


class AcceptanceLine(Published, frozen=True, kw_only=True):
    """Name a place of the repository that a patch concerns, or what was not run."""

    kind: Name
    """`hook`, `override`, `replaced`, `path`, `state_dict`, `read`: code that relies on what is
    left out. `test`, `block`: what ran. `every`, `unused`: what a maintainer should know."""
    result: Literal["broken", "stated", "not_run"]
    """What is `broken` refuses the patch."""
    detail: Text
    path: Text = ""
    line: Count | None = None


class Acceptance(Published, frozen=True, kw_only=True):
    """Hold what a search of the tree and its own programs, before and after, say of a patch."""

    num_files: Count = 0
    """Searched for code that relies on what the patch leaves out."""
    num_tests: Count = 0
    """Tests with the same outcome on both trees."""
    num_blocks: Count = 0
    """Blocks of pages, examples and scripts with the same outcome and values."""
    lines: tuple[AcceptanceLine, ...] = ()
    """Broken ones first."""
    elapsed_s: NotNegative = 0.0

    @property
    def broken(self) -> tuple[AcceptanceLine, ...]:
        """Return what refuses the patch."""
        return tuple(one for one in self.lines if one.result == "broken")
