"""What of this machine a container sees: the project's interpreter and the checkouts, to be read.

Everything is at the path that it has outside, so that the links of a virtual environment, the lines
of its `.pth` files and the paths in requests mean the same inside. What a checkout hides at its top
is covered: `.git` may hold the token that fetched it, `.env` a password.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.processes.engine import quoted
from cudal1_ci.processes.local import scrubbed_environment

PROBE = """\
import json, sys
prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
print(json.dumps({"executable": sys.executable, "prefixes": prefixes, "path": sys.path}))
"""
PROBE_S = 60.0
MAX_LINKS = 40
"""As many as the kernel follows."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A file or folder of this machine, and where a container sees it."""

    source: Path
    target: Path

    @property
    def arguments(self) -> list[str]:
        """For an engine; nothing can be written through it."""
        fields = [
            ("type", "bind"),
            ("source", str(self.source)),
            ("target", str(self.target)),
            ("readonly", None),
        ]
        return ["--mount", quoted(fields)]


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python of this machine and the folders that it reads."""

    executable: Path
    folders: tuple[Path, ...]
    """Of the environment and of what it is based on."""
    checkouts: tuple[Path, ...]
    """Other folders that it imports from: what an editable installation names is a checkout."""


def interpreter(python: str) -> Interpreter:
    """Ask an interpreter where it is.

    Raises:
        WorkerError: It does not run.
        UnsupportedError: Its environment cannot be shown to a container without the home folder.
    """
    with tempfile.TemporaryDirectory(prefix="cudal1-ci-") as home:
        try:
            done = subprocess.run(
                [python, "-c", PROBE],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=scrubbed_environment(os.environ, Path(home), 1),
                cwd=home,
                timeout=PROBE_S,
                check=True,
            )
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise WorkerError(
                f"{python} cannot be started ({error}); name the interpreter of the project with "
                "--python or the `python` setting"
            ) from error
    executable = Path(found["executable"])
    prefixes = [Path(prefix) for prefix in found["prefixes"]]
    for prefix in prefixes:
        if holds_home(prefix):
            raise UnsupportedError(
                f"`python`: {python} is installed in {prefix}, which is or holds the home folder "
                "and is not shown to a container; use a virtual environment, or an image that has "
                "a Python with torch (`container-python`)"
            )
    searched = [Path(path) for path in found["path"] if Path(path).is_absolute()]
    folders = tuple(both_paths([*prefixes, *(link.parent for link in links(executable))]))
    return Interpreter(
        executable=executable,
        folders=folders,
        checkouts=tuple(
            path
            for path in searched
            if path.is_dir() and not holds_home(path) and not lies_in(path, folders)
        ),
    )


def links(path: Path) -> Iterator[Path]:
    """A file and what it links to, one after the other."""
    for _ in range(MAX_LINKS):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def both_paths(paths: Iterable[Path]) -> Iterator[Path]:
    """Each as it is written and, where links lead elsewhere, as it is."""
    for path in paths:
        yield path
        yield path.resolve()


def outermost(paths: Iterable[Path]) -> list[Path]:
    """Without those that lie in another one."""
    distinct = sorted(set(paths), key=lambda path: len(path.parts))
    kept: list[Path] = []
    for path in distinct:
        if not lies_in(path, kept):
            kept.append(path)
    return kept


def lies_in(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is one of the folders or is beneath one."""
    return any(path.is_relative_to(folder) for folder in folders)


def holds_home(path: Path) -> bool:
    """Whether a folder is the user's home or holds it."""
    return Path.home().resolve().is_relative_to(path.resolve())


def mounts_of(folders: Iterable[Path], checkouts: Iterable[Path], empty: Path) -> list[Mount]:
    """The folders and the checkouts; what a checkout hides at its top is covered with what is in
    `empty`, a folder with an empty `folder` and an empty `file`."""
    needed = list(folders)
    roots = list(both_paths(root.absolute() for root in checkouts))
    shown = [Mount(source=path, target=path) for path in outermost([*needed, *roots])]
    for root in outermost(roots):
        for entry in sorted(root.iterdir()):
            is_needed = any(path.is_relative_to(entry) for path in needed)
            if entry.name.startswith(".") and not entry.is_symlink() and not is_needed:
                cover = empty / ("folder" if entry.is_dir() else "file")
                shown.append(Mount(source=cover, target=entry))
    return shown
