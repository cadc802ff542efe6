"""Read which part of a tree a verb looks at: a folder, a file, or `file.py:Name`.

scope_of([Path("model.py:Attention")])    # the working directory, and that target of it
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cudal1_ci.discover import Discovery
from cudal1_ci.discover.files import SOURCE_SUFFIXES
from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.records import Target


class Place(NamedTuple):
    """A file or folder of the tree, and the name of a target in it."""

    path: str
    """POSIX path below the root; `.` is all of it."""
    name: str | None

    def holds(self, target: Target) -> bool:
        is_below = self.path in (".", target.path) or target.path.startswith(f"{self.path}/")
        return is_below and self.name in (None, target.qualname)

    def __str__(self) -> str:
        return f"{self.path}:{self.name}" if self.name else self.path


class Scope(NamedTuple):
    """The root of a tree, and the places in it that are looked at. Files are read in the whole
    tree: what they import decides what they are."""

    root: Path
    places: tuple[Place, ...] = ()
    """Empty for all of the tree."""

    def holds(self, target: Target) -> bool:
        return not self.places or any(place.holds(target) for place in self.places)

    def refuse_unknown(self, discovery: Discovery) -> None:
        """Refuse a place without a target. Raises: DiscoveryError, with the nearest name, or with
        why the file cannot be read."""
        targets = discovery.targets
        for place in self.places:
            if not any(place.holds(target) for target in targets):
                said = (one.message for one in discovery.notices if one.path == place.path)
                raise DiscoveryError(f"{place}: {next(said, None) or nearest(place, targets)}")


def nearest(place: Place, targets: Sequence[Target]) -> str:
    """Say that a place has no target, and what it has or what is called like it."""
    here = [one.qualname for one in targets if Place(place.path, None).holds(one)]
    if place.name is None:
        return "no target was found here; `cudal1-ci scan --list` shows what is"
    near = difflib.get_close_matches(place.name, here, n=1, cutoff=0.5)
    if near:
        return f"no target `{place.name}`; did you mean `{near[0]}`?"
    elsewhere = [
        str(Place(one.path, one.qualname)) for one in targets if one.last_name == place.name
    ]
    found = ", ".join(elsewhere or here)
    return f"no target `{place.name}`; there is {found}" if found else "no target was found here"


def scope_of(paths: Sequence[Path]) -> Scope:
    """Return the scope of the paths of a command line.

    Raises:
        DiscoveryError: One does not exist, is no source file, or lies in another tree.
    """
    parts = [parts_of(str(path)) for path in paths]
    if len(parts) == 1 and parts[0][0].is_dir():
        return Scope(parts[0][0])
    root = root_of([path for path, _ in parts])
    places = []
    for path, name in parts:
        below = path.resolve().relative_to(root.resolve()).as_posix()
        places.append(Place(below, name))
    return Scope(root, tuple(places))


def root_of(paths: Sequence[Path]) -> Path:
    """Return the tree that files are looked at in: the working directory where all are below it,
    as for `scan .`; else the folder of a single one. A working directory that is in no project,
    such as a home folder, is not searched: a project below it is the tree.

    Raises: DiscoveryError, for several that are not below the working directory.
    """
    here = Path.cwd().resolve()
    if all(path.resolve().is_relative_to(here) for path in paths):
        if any(is_project(folder) for folder in (here, *here.parents)):
            return Path()
        between = (one for one in paths[0].resolve().parents if one.is_relative_to(here))
        project = next((one for one in between if is_project(one)), None)
        if project and all(path.resolve().is_relative_to(project) for path in paths):
            return project.relative_to(here)
        return Path()
    if len(paths) == 1:
        return paths[0] if paths[0].is_dir() else paths[0].parent
    outside = next(path for path in paths if not path.resolve().is_relative_to(here))
    raise DiscoveryError(
        f"{outside}: of several paths each must be below the working directory; run the command in "
        "the folder that holds them all"
    )


def is_project(folder: Path) -> bool:
    """Return whether a folder is the top of a repository or of a Python project."""
    return any((folder / name).exists() for name in (".git", "pyproject.toml"))


def parts_of(text: str) -> tuple[Path, str | None]:
    """Return the path of `file.py:Name` and the name.

    Raises:
        DiscoveryError: The path does not exist, or is no source file.
    """
    path, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        path, name = text, ""
    found = Path(path)
    if not found.exists():
        raise DiscoveryError(
            f"{path}: no such file or folder; expected a folder, a source file or `file.py:Name`"
        )
    if name and found.is_dir():
        raise DiscoveryError(f"{text}: expected `file.py:Name`, and {path} is a folder")
    if found.is_file() and found.suffix not in SOURCE_SUFFIXES:
        raise DiscoveryError(f"{path}: expected a folder, a source file or `file.py:Name`")
    return found, name or None


def file_and_name(text: str) -> tuple[Path, str | None]:
    """Return the file of `file.py:Name`, which must exist, and the name. Raises: ConfigError."""
    try:
        path, name = parts_of(text)
    except DiscoveryError as error:
        raise ConfigError(str(error)) from error
    if not path.is_file():
        raise ConfigError(f"{path}: expected a Python file, or `path.py:Name`")
    return path, name
