"""Hold the result of one check of `cudal1-ci doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "limited", "missing", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Describe one check. The remedy is empty when there is nothing to do."""

    name: str
    grade: Grade
    found: str
    fix: str = ""
