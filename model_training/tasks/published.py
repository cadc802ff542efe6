"""Tasks of others, read from folders that somebody has fetched; none of their text is in this
repository.

    kernelbench(Path("KernelBench"), levels=(1, 2))    # ScalingIntelligence/KernelBench
    cuda_l1(Path("CUDA-L1"), gpu="h100")               # deepreinforce-ai/CUDA-L1
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cudal1_ci.errors import ConfigError
from cudal1_ci.schema import Record
from model_training.tasks.record import Task

LEVELS = (1, 2, 3)
_NUMBER = re.compile(r"(\d+)_")


class Published(Record, frozen=True, kw_only=True):
    """A task of CUDA-L1's release with the code that it shipped for it, and what it claims."""

    task: Task
    code: str
    claimed_speedup: float | None


def kernelbench(root: Path, levels: Sequence[int] = LEVELS) -> list[Task]:
    """The tasks of these levels, by their number.

    Raises:
        ConfigError: There are none.
    """
    files = [
        (level, file)
        for level in levels
        for file in sorted((root / "KernelBench" / f"level{level}").glob("*.py"), key=number_of)
    ]
    tasks = [
        Task(
            source="kernelbench",
            name=f"level{level}/{number_of(file)}",
            family=f"level{level}",
            text=file.read_text(encoding="utf-8"),
        )
        for level, file in files
    ]
    if not tasks:
        raise ConfigError(
            f"{root}: expected KernelBench/level1/*.py, found none; is it a checkout?"
        )
    return tasks


def number_of(file: Path) -> int:
    found = _NUMBER.match(file.name)
    return int(found[1]) if found else 0


def cuda_l1(root: Path, gpu: str = "h100", levels: Sequence[int] = LEVELS) -> Iterator[Published]:
    """What the release has code for: a reference of its own and a candidate. Code that was
    withdrawn is the text `None` there, with its score left standing, and is none here.

    Raises:
        ConfigError: The release has no file of that GPU, or one that is no JSON lines.
    """
    file = root / "optimized_cuda_code" / f"{gpu}.json"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        known = ", ".join(sorted(one.stem for one in file.parent.glob("*.json"))) or "none"
        raise ConfigError(f"{file}: expected the release's kernels of a GPU ({known})") from error
    for number, line in enumerate(lines, 1):
        try:
            row: dict[str, Any] = json.loads(line)
            level, task = int(row["level_id"]), int(row["task_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}:{number}: expected a row of the release: {error}") from error
        code, reference = row.get("custom_code"), row.get("ref_code")
        if level in levels and is_code(code) and is_code(reference):
            yield Published(
                task=Task(
                    source="cuda-l1",
                    name=f"level{level}/{task}",
                    family=f"level{level}",
                    text=str(reference),
                ),
                code=str(code),
                claimed_speedup=number_or_none(row.get("score_default")),
            )


def is_code(value: Any) -> bool:
    return isinstance(value, str) and value.strip() not in ("", "None")


def number_or_none(value: Any) -> float | None:
    """The release writes numbers as text, and `None` or nothing where there is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number > 0 else None
