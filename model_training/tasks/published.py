"""Tasks of others, read from folders that somebody has fetched; none of their text is in this
repository.

    kernelbench(Path("KernelBench"), levels=(1, 2))    # ScalingIntelligence/KernelBench
    cuda_l1(Path("CUDA-L1"), gpu="h100")               # deepreinforce-ai/CUDA-L1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from cudal1_ci.source.kernelbench import numbered, release
from model_training.tasks.record import Task

LEVELS = (1, 2, 3)


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


def cuda_l1(root: Path, gpu: str = "h100", levels: Sequence[int] = LEVELS) -> Iterator[Published]:
    """What the release has code for: a reference of its own and a candidate. Code that was
    withdrawn is none.

    Raises:
        ConfigError: The release has no file of that GPU, or one that is no JSON lines.
    """
    file = root / "optimized_cuda_code" / f"{gpu}.json"
    if not file.is_file():
        known = ", ".join(sorted(one.stem for one in file.parent.glob("*.json"))) or "none"
        raise ConfigError(f"{file}: expected the release's kernels of a GPU ({known})")
    for row in release(file):
        if row.level in levels and row.code is not None:
            yield Published(
                task=Task(
                    source="cuda-l1",
                    name=f"level{row.level}/{row.number}",
                    family=f"level{row.level}",
                    text=row.reference,
                ),
                code=row.code,
                claimed_speedup=row.claimed_speedup,
            )
