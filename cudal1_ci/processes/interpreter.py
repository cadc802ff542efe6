"""Find the interpreter that a project's code runs in, as type checkers do.

    found = find_interpreter(Path("."), os.environ)
    found.python, found.origin      # ("/project/.venv/bin/python", ".venv of the project")

In this order: an activated environment (VIRTUAL_ENV, CONDA_PREFIX), the project's own environment,
and the interpreter that runs the tool. A flag or a setting comes before all of them and never gets
here. Reads folders and git's index; starts no interpreter and no package manager.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import repository_top, run_git

ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX")
FOLDERS = (".venv", "venv")
UV_FOLDER = "UV_PROJECT_ENVIRONMENT"
OWN = "the tool's own"
SEARCHED = "VIRTUAL_ENV, CONDA_PREFIX, UV_PROJECT_ENVIRONMENT, .venv, venv and Poetry's environment"
"""What is looked for, as messages name it."""


class Interpreter(NamedTuple):
    """An interpreter, and why it is the one."""

    python: str
    origin: str
    """`VIRTUAL_ENV`, `.venv of the project`, `the tool's own`."""
    passed_over: tuple[str, ...] = ()
    """Environments that came before it and cannot be used, each with its reason."""


def find_interpreter(project: Path, environ: Mapping[str, str]) -> Interpreter:
    """Return the interpreter of the project at this folder."""
    passed_over: list[str] = []
    for folder, origin in environments(project, environ):
        reason = why_not(folder)
        if reason is None:
            return Interpreter(str(python_of(folder)), origin, tuple(passed_over))
        passed_over.append(f"{origin} ({folder}): {reason}")
    return Interpreter(sys.executable, OWN, tuple(passed_over))


def environments(project: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the folders of environments that the variables or the project name, the first that is
    usable first."""
    for name in ACTIVATED:
        if environ.get(name):
            yield Path(environ[name]), name
    for folder in project_folders(project):
        of_uv = environ.get(UV_FOLDER)
        if of_uv and (folder / "uv.lock").is_file():
            yield folder / Path(of_uv).expanduser(), UV_FOLDER
        for name in FOLDERS:
            if os.path.lexists(folder / name):
                yield folder / name, f"{name} of the project"
        of_poetry = poetry_environment(folder, environ)
        if of_poetry is not None:
            yield of_poetry, "Poetry's environment of the project"


def project_folders(project: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the top of its repository. Outside of one, up to
    the working directory: a folder that others may write to, such as /tmp, is not the project's."""
    folder, here = project.resolve(), Path.cwd().resolve()
    try:
        top = repository_top(folder).resolve()
    except DiscoveryError:
        top = here if folder.is_relative_to(here) else folder
    yield folder
    while folder != top and folder != folder.parent:
        folder = folder.parent
        yield folder


def why_not(folder: Path) -> str | None:
    """Return why an environment cannot be used; None for one that can."""
    python = python_of(folder)
    if not os.access(python, os.X_OK):
        return f"there is no {python.relative_to(folder)}"
    if is_own(folder) and importlib.util.find_spec("torch") is None:
        return "it is the tool's own and has no torch"
    if is_committed(folder):
        return "it is committed to the repository, so it is no environment of this machine"
    return None


def python_of(folder: Path) -> Path:
    """Return an environment's interpreter. The link is not followed: a virtual environment is known
    by its path."""
    return folder.absolute() / "bin" / "python"


def is_own(folder: Path) -> bool:
    """Return whether the tool is installed in this environment."""
    return folder.resolve() == Path(sys.prefix).resolve()


def is_committed(folder: Path) -> bool:
    """Return whether git tracks the environment, or a link in its place. A change could bring a
    program of that name, which would run before anything confines it."""
    try:
        return bool(run_git(folder.absolute().parent, "ls-files", "--", folder.name))
    except DiscoveryError:
        return False


def poetry_environment(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the environment that Poetry keeps outside of a project, for the Python version that it
    was last used with. Poetry itself is not run: a project's plug-ins would run with it.

    Source: poetry/utils/env/env_manager.py, `generate_env_name` and `envs.toml`.
    """
    name = poetry_name(folder / "pyproject.toml")
    if name is None:
        return None
    cache = environ.get("POETRY_CACHE_DIR")
    root = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pypoetry"
    virtualenvs = environ.get("POETRY_VIRTUALENVS_PATH")
    home = Path(virtualenvs) if virtualenvs else Path(cache or root) / "virtualenvs"
    sanitized = re.sub(r'[ $`!*@"\\\r\n\t]', "_", name.lower())[:42]
    digest = hashlib.sha256(os.path.realpath(folder).encode()).digest()
    base = f"{sanitized}-{base64.urlsafe_b64encode(digest).decode()[:8]}"
    try:
        chosen = tomllib.loads((home / "envs.toml").read_text(encoding="utf-8"))
        minor = chosen[base]["minor"]
    except (OSError, ValueError, KeyError, TypeError):
        made = sorted(home.glob(f"{base}-py*"))
        return made[-1] if made else None
    return home / f"{base}-py{minor}"


def poetry_name(pyproject: Path) -> str | None:
    """Return the name of a project that Poetry manages."""
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    tool = table.get("tool", {})
    of_poetry = tool.get("poetry") if isinstance(tool, dict) else None
    is_locked = (pyproject.parent / "poetry.lock").is_file()
    if of_poetry is None and not is_locked:
        return None
    for holder in (of_poetry, table.get("project")):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return str(holder["name"])
    return None
