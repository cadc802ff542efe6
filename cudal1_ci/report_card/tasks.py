"""Read tasks from paths.

    tasks_at([Path("KernelBench"), Path("h100.json")])

A folder is a KernelBench checkout where it has levels, and a folder of such files otherwise; a file
is Python or a release. Tasks with the same reference are one, with all the kernels that were
published for it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Problem, Record
from cudal1_ci.report_card.names import Named, names_apart
from cudal1_ci.source.kernelbench import NumberedFile, number_of, numbered, release
from cudal1_ci.verification.verify import problem_of, text_of

NEVER_TASKS = ("__init__.py", "conftest.py", "setup.py")


class Published(Record, frozen=True, kw_only=True):
    """A kernel that somebody published for a task."""

    origin: str
    """The set, such as `h100`."""
    code: str
    claimed_speedup: float | None = None


class Task(Record, frozen=True, kw_only=True):
    """A reference to make faster."""

    name: str
    """`level1/12`, `softmax`; of no other task here (names.py)."""
    level: str | None = None
    title: str = ""
    """Of its file: `12_Matmul_with_diagonal_matrices_`."""
    source: str
    """`kernelbench`, `cuda-l1`, or the folder's name."""
    problem: Problem
    published: tuple[Published, ...] = ()


class Choice(Record, frozen=True, kw_only=True):
    """Which of the tasks."""

    levels: tuple[int, ...] = ()
    globs: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)
    """`(2, 4)`: every fourth task, from the second on."""


class Found(Record, frozen=True, kw_only=True):
    """Tasks, and which files are none."""

    tasks: tuple[Task, ...]
    left_out: tuple[str, ...] = ()


def tasks_at(paths: Sequence[Path], choice: Choice | None = None) -> Found:
    """Return the chosen tasks at these places, by source, level and number.

    Raises:
        ConfigError: A place does not exist or holds no task, or none was chosen.
    """
    left_out: list[str] = []
    found = [task for path in paths for task in _at(path, left_out)]
    tasks = sorted(_join_tasks(found), key=lambda task: (task.source, natural(task.name)))
    names = names_apart(Named(one.name, one.source, one.title, one.problem.id) for one in tasks)
    chosen = [
        msgspec.structs.replace(task, name=names[task.problem.id])
        for task in choose(tasks, choice or Choice(), names)
    ]
    if not chosen:
        raise ConfigError(
            f"none of the {len(tasks)} tasks is chosen; see --level, --task and --shard"
        )
    return Found(tasks=tuple(chosen), left_out=tuple(left_out))


def choose(tasks: Sequence[Task], choice: Choice, names: Mapping[str, str]) -> list[Task]:
    """Choose by levels and names, then by shard: machines with the same choice divide it. A glob
    matches the source's name of a task, or its unique name in `names` (by problem).
    """
    levels = {f"level{number}" for number in choice.levels}
    chosen = [
        task
        for task in tasks
        if (not levels or task.level in levels)
        and (
            not choice.globs
            or any(
                fnmatch.fnmatch(name, glob)
                for name in (task.name, names[task.problem.id])
                for glob in choice.globs
            )
        )
    ]
    number, count = choice.shard
    return chosen[number - 1 :: count]


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `level1/9` before `level1/10`."""
    return [
        (int(part), "") if part.isdecimal() else (0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]


def _join_tasks(tasks: Sequence[Task]) -> list[Task]:
    by_problem: dict[str, Task] = {}
    for task in tasks:
        known = by_problem.get(task.problem.id, task)
        published = tuple(dict.fromkeys((*known.published, *task.published)))
        by_problem[task.problem.id] = msgspec.structs.replace(known, published=published)
    return list(by_problem.values())


def _at(path: Path, left_out: list[str]) -> Iterator[Task]:
    if path.is_file():
        is_release = path.suffix in (".json", ".jsonl")
        yield from _released(path, left_out) if is_release else [_single(path)]
        return
    if not path.is_dir():
        raise ConfigError(f"{path}: expected a folder of tasks, a .py or a .json file, got nothing")
    releases = sorted(path.glob("optimized_cuda_code/*.json"))
    if releases:
        names = ", ".join(str(one.relative_to(path)) for one in releases)
        raise ConfigError(f"{path}: it holds releases for several GPUs, name one of {names}")
    files, before = numbered(path), len(left_out)
    found = list(_numbered(files, left_out) if files else _folder(path, left_out))
    if not found:
        first = f"; the first that is none: {left_out[before]}" if left_out[before:] else ""
        raise ConfigError(
            f"{path}: expected KernelBench/level1/*.py or files with `Model` and `get_inputs`, "
            f"found none{first}"
        )
    yield from found


def _numbered(files: Sequence[NumberedFile], left_out: list[str]) -> Iterator[Task]:
    for one in files:
        level = f"level{one.level}"
        problem = _stated(one.path, left_out)
        if problem is not None:
            yield Task(
                name=f"{level}/{one.number or one.path.stem}",
                level=level,
                title=one.path.stem,
                source="kernelbench",
                problem=problem,
            )


def _folder(root: Path, left_out: list[str]) -> Iterator[Task]:
    for path in sorted(root.rglob("*.py")):
        name, problem = path.relative_to(root).with_suffix("").as_posix(), _stated(path, left_out)
        if problem is not None:
            yield Task(name=name, title=path.stem, source=root.resolve().name, problem=problem)


def _stated(path: Path, left_out: list[str]) -> Problem | None:
    """Return the problem in a file; None for a file that is no task, which is reported: one broken
    file must not stop the others.
    """
    if path.name in NEVER_TASKS:
        return None
    try:
        return problem_of(text_of(path, errors="replace"), str(path))
    except ConfigError as error:
        left_out.append(str(error))
        return None


def _single(path: Path) -> Task:
    number = number_of(path)
    level = path.resolve().parent.name
    is_numbered = bool(number) and re.fullmatch(r"level\d+", level) is not None
    return Task(
        name=f"{level}/{number}" if is_numbered else path.stem,
        level=level if is_numbered else None,
        title=path.stem,
        source="kernelbench" if is_numbered else path.resolve().parent.name,
        problem=problem_of(text_of(path), str(path)),
    )


def _released(file: Path, left_out: list[str]) -> Iterator[Task]:
    rows, before = list(release(file)), len(left_out)
    if not rows:
        raise ConfigError(f"{file}: expected rows with `ref_code`, found none")
    for row in rows:
        name = f"level{row.level}/{row.number}"
        try:
            problem = problem_of(row.reference, f"{file}: {name}")
        except ConfigError as error:
            left_out.append(str(error))
            continue
        published = Published(
            origin=file.stem, code=row.code or "", claimed_speedup=row.claimed_speedup
        )
        yield Task(
            name=name,
            level=f"level{row.level}",
            source="cuda-l1",
            problem=problem,
            published=(published,) if row.code else (),
        )
    if len(left_out) - before == len(rows):
        raise ConfigError(f"none of {len(rows)} rows is a task; the first: {left_out[before]}")
