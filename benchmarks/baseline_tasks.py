"""The forty tasks of KernelBench with which a model's zero line is drawn.

Twenty of level 1 and twenty of level 2, by number. Left out are those whose inputs and outputs have
together more than 1.3 GB (all elementwise functions and most reductions of level 1: a judge holds
several copies, and in double precision), those whose result hangs on random numbers (2/66, 2/83),
and those that are constant for the inputs as they are drawn (2/23, 2/80). Of the others, kinds that
are there many times over, as products of matrices, are taken less often than they come. The
cheapest stand first, so that the first few make a short run.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

LEVELS = {
    1: (12, 40, 72, 95, 88, 66, 58, 10, 50, 54, 62, 6, 1, 13, 14, 15, 16, 18, 8, 83),
    2: (6, 15, 50, 71, 73, 85, 36, 9, 12, 14, 18, 22, 29, 30, 86, 99, 11, 3, 37, 45),
}
FILE = re.compile(r"KernelBench/level(\d+)/(\d+)_\w+\.py")


def tasks(count: int | None = None, only: str = "") -> list[str]:
    """Names such as `2/15`, the levels taking turns; the first `count`, or those that are named."""
    levels = [[f"{level}/{number}" for number in numbers] for level, numbers in LEVELS.items()]
    found = [name for pair in zip(*levels, strict=True) for name in pair]
    wanted = [name for name in only.split(",") if name]
    if unknown := set(wanted) - set(found):
        raise SystemExit(f"--only: {', '.join(sorted(unknown))}: expected some of {found}")
    return [name for name in found if not wanted or name in wanted][:count]


def read(source: Path, names: list[str]) -> dict[str, str]:
    """The references of the tasks: from a git directory, a folder with KernelBench/level1 in it,
    or a file that was packed.

    Raises:
        SystemExit: One is missing.
    """
    if source.is_file():
        packed: dict[str, str] = json.loads(source.read_text(encoding="utf-8"))["references"]
        found = {name: text for name, text in packed.items() if name in names}
    else:
        paths, text_of = git_files(source) if (source / "HEAD").exists() else files(source)
        found = {
            name: text_of(path)
            for path in paths
            if (match := FILE.search(path)) and (name := f"{match[1]}/{match[2]}") in names
        }
    if missing := [name for name in names if name not in found]:
        raise SystemExit(f"{source}: has no task {', '.join(missing)} of KernelBench")
    return {name: found[name] for name in names}


def commit_of(source: Path) -> str | None:
    """Of KernelBench, where the source says it."""
    if source.is_file():
        commit: str | None = json.loads(source.read_text(encoding="utf-8"))["commit"]
        return commit
    if (source / "HEAD").exists():
        return said(source, "rev-parse", "HEAD").strip()
    place = source / "COMMIT"
    return place.read_text(encoding="utf-8").strip() if place.exists() else None


def git_files(git: Path) -> tuple[list[str], Callable[[str], str]]:
    paths = said(git, "ls-tree", "-r", "--name-only", "HEAD", "KernelBench/").splitlines()
    return paths, lambda path: said(git, "show", f"HEAD:{path}")


def files(folder: Path) -> tuple[list[str], Callable[[str], str]]:
    paths = [str(path) for path in sorted(folder.glob("KernelBench/level*/*.py"))]
    return paths, lambda path: Path(path).read_text(encoding="utf-8")


def said(git: Path, *words: str) -> str:
    command = ["git", "--git-dir", str(git), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
