"""Read KernelBench from a checkout; none of its text is in this repository.

kernelbench(Path("KernelBench"), levels=(1, 2))    # ScalingIntelligence/KernelBench
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.source.kernelbench import numbered
from model_training.tasks.record import Task

LEVELS = (1, 2, 3)


def kernelbench(root: Path, levels: Sequence[int] = LEVELS) -> list[Task]:
    """Return the tasks of these levels, by their number.

    Raises:
        ConfigError: There are none.
    """
    tasks = [
        Task(
            source="kernelbench",
            name=f"level{one.level}/{one.number}",
            family=f"level{one.level}",
            text=one.path.read_text(encoding="utf-8"),
        )
        for one in numbered(root)
        if one.level in levels
    ]
    if not tasks:
        raise ConfigError(
            f"{root}: expected KernelBench/level1/*.py, found none; is it a checkout?"
        )
    return tasks
