"""Copy what the project has built in the checkout into the tree of a commit, where it fits.

Extensions and generated files are ignored by git, so no commit has them. They lie in the checkout,
or where the project was installed from it. Three rules:

- A file that the commit has, or a module of that name, is never replaced.
- A version file (`_version.py`) is copied if it holds plain values and does nothing.
- Other files are copied if what they are built from is equal in the commit and in the checkout:
  native sources, templates and build settings. Otherwise a notice names what differs, and
  `compare.setup` can build them.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import committed_text, current_text, run_git
from cudal1_ci.records import Notice

COMPILED = (".so", ".pyd", ".ptx", ".cubin", ".fatbin", ".hsaco")
GENERATED = (*COMPILED, ".py", ".pyi", ".h", ".cuh", ".inc")
SOURCES = re.compile(
    r".*\.(c|cc|cpp|cxx|cu|cuh|h|hpp|hxx|inl|inc|pyx|pxd|pxi|rs|f|f90|proto|thrift|fbs|capnp|g4|"
    r"in|j2|jinja|jinja2|tmpl|tpl|mako|cmake|bzl)"
    r"|(.*/)?(setup\.py|setup\.cfg|build\.py|CMakeLists\.txt|meson\.build|meson\.options|"
    r"Makefile|Cargo\.toml|Cargo\.lock|BUILD|BUILD\.bazel|WORKSPACE)",
    re.DOTALL,
)
VERSION_FILE = re.compile(r"_*version_*\.pyi?|_version_info\.py|git_version\.py")
LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".tox", ".nox", ".venv", "venv", "env", ".env", "node_modules"),
        *("__pycache__", "build", "dist", "site-packages", ".cudal1-ci", ".eggs"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
    }
)
BUILD_TABLES = ("setuptools", "scikit-build", "meson-python", "maturin", "hatch", "poetry", "pdm")
MOST_FILES = 20_000
MOST_BYTES = 2 * 2**30
MOST_NAMED = 3


class Built(NamedTuple):
    """A built file, and where it belongs in a tree."""

    file: Path
    path: PurePosixPath


def copy_built(top: Path, sha: str, tree: Path, site: Path | None = None) -> list[Notice]:
    """Copy built files into a tree; return a notice of those that do not fit.

    `site` is the folder of the packages that the project's interpreter imports: `pip install .`
    leaves extensions there and not in the checkout.
    """
    found = [*ignored_files(top), *(installed_files(top, tree, site) if site else ())]
    found = [one for one in found if may_be_added(one.path, tree)]
    others = []
    for one in found:
        if not VERSION_FILE.fullmatch(one.path.name):
            others.append(one)
        elif does_nothing(current_text(one.file) or "("):
            copy(one.file, tree / one.path)
    if not others:
        return []
    different = build_sources_that_differ(top, sha)
    if not different:
        for one in others:
            copy(one.file, tree / one.path)
        return []
    named = ", ".join(different[:MOST_NAMED])
    more = len(different) - MOST_NAMED
    return [
        Notice(
            path=others[0].path.as_posix(),
            message=f"{len(others)} built files of the checkout are not used in the tree of "
            f"{sha[:12]}: {named}{f' and {more} more' if more > 0 else ''} differ there; "
            "`compare.setup` in the configuration names the commands that build them",
        )
    ]


def installed_files(top: Path, tree: Path, site: Path) -> Iterator[Built]:
    """Yield built files of packages that were installed from a folder of the checkout, by where
    the tree has the package. Source: PEP 610, and PEP 376 for RECORD.
    """
    for origin in sorted(site.glob("*.dist-info/direct_url.json")):
        try:
            url = urlsplit(json.loads(origin.read_text(encoding="utf-8"))["url"])
            project = Path(unquote(url.path)).resolve().relative_to(top.resolve())
            listed = (origin.parent / "RECORD").read_text(encoding="utf-8")
            rows = list(csv.reader(listed.splitlines()))
        except (OSError, ValueError, KeyError, TypeError, csv.Error):
            continue  # a registry's, another folder's, or damaged
        if url.scheme != "file":
            continue
        for row in rows:
            path = PurePosixPath(row[0] if row else "")
            if ".." in path.parts or path.is_absolute() or len(path.parts) < 2:
                continue
            is_built = path.suffix in COMPILED or VERSION_FILE.fullmatch(path.name)
            for root in (PurePosixPath(project) / "src", PurePosixPath(project)):
                if is_built and (tree / root / path.parts[0]).is_dir():
                    yield Built(site / path, root / path)
                    break


def site_of(python: str) -> Path | None:
    """Return the folder of an environment's packages; None where its layout is another."""
    found = shutil.which(python)
    folders = sorted(Path(found).parent.parent.glob("lib/python3.*/site-packages")) if found else []
    return folders[-1] if len(folders) == 1 else None


def ignored_files(top: Path) -> Iterator[Built]:
    """Yield files that git ignores and that a module may need, those of submodules too."""
    repositories = ["", *submodules(top)]
    num_files = num_bytes = 0
    for outer in repositories:
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        for line in sorted(filter(None, run_git(top / outer, *words).split("\0"))):
            path = PurePosixPath(outer) / line
            file = top / path
            if (
                path.suffix not in GENERATED
                or LEFT_OUT.intersection(path.parts)
                or any(part.endswith((".egg-info", ".dist-info")) for part in path.parts)
                or file.is_symlink()
                or not file.is_file()
            ):
                continue
            num_files, num_bytes = num_files + 1, num_bytes + file.stat().st_size
            if num_files > MOST_FILES or num_bytes > MOST_BYTES:
                return
            yield Built(file, path)


def submodules(top: Path) -> list[str]:
    """Return the paths of submodules that are checked out, nested ones after their outer one."""
    found, waiting = [], [""]
    while waiting:
        outer = waiting.pop()
        for line in filter(None, run_git(top / outer, "ls-files", "--stage", "-z").split("\0")):
            path = (PurePosixPath(outer) / line.partition("\t")[2]).as_posix()
            if line.startswith("160000 ") and (top / path / ".git").exists():
                found.append(path)
                waiting.append(path)
    return found


def may_be_added(path: PurePosixPath, tree: Path) -> bool:
    """Return whether a tree has neither the file, nor a module of its name, nor a link on the way.

    An extension comes before a module of Python with the same name.
    """
    folder = tree
    for part in path.parts[:-1]:
        folder = folder / part
        if folder.is_symlink():
            return False
        if not folder.exists():
            break
    file = tree / path
    if file.exists() or file.is_symlink():
        return False
    if path.suffix in (".so", ".pyd", ".py"):
        module = file.with_name(path.name.partition(".")[0])
        return not module.is_dir() and not module.with_suffix(".py").exists()
    return True


def build_sources_that_differ(top: Path, sha: str) -> list[str]:
    """Return what built files come from and is another in a commit than in the working tree."""
    listed = run_git(top, "diff", "--name-only", "-z", "--no-ext-diff", "--no-textconv", sha, "--")
    untracked = run_git(top, "ls-files", "--others", "--exclude-standard", "-z")
    paths = [path for path in (listed + untracked).split("\0") if path]
    links = set(submodules(top))
    return sorted(
        path
        for path in dict.fromkeys(paths)
        if SOURCES.fullmatch(path)
        or path in links
        or (PurePosixPath(path).name == "pyproject.toml" and builds_otherwise(top, sha, path))
    )


def builds_otherwise(top: Path, sha: str, path: str) -> bool:
    """Return whether a `pyproject.toml` has other build settings in a commit than now."""
    try:
        before = committed_text(top, sha, path)
    except DiscoveryError:
        before = None  # it is not in the commit
    return build_settings(before) != build_settings(current_text(top / path))


def build_settings(text: str | None) -> object:
    """Return what a `pyproject.toml` says of building; the text itself if it is no TOML."""
    try:
        read = tomllib.loads(text or "")
        tool = read.get("tool", {})
        return read.get("build-system"), [tool.get(name) for name in BUILD_TABLES]
    except (tomllib.TOMLDecodeError, AttributeError):
        return text


INERT = (
    *(ast.Module, ast.Assign, ast.AnnAssign, ast.Expr, ast.If, ast.Import, ast.ImportFrom),
    *(ast.alias, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Subscript, ast.BinOp),
    *(ast.BitOr, ast.Load, ast.Store, ast.UnaryOp, ast.USub, ast.Attribute, ast.Dict),
)
INERT_MODULES = frozenset({"__future__", "typing", "collections.abc"})


def does_nothing(text: str) -> bool:
    """Return whether a module only assigns plain values, as generated version files do."""
    try:
        parsed = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    for node in ast.walk(parsed):
        if not isinstance(node, INERT):
            return False
        if isinstance(node, ast.Import) and any(n.name not in INERT_MODULES for n in node.names):
            return False
        if isinstance(node, ast.ImportFrom) and node.module not in INERT_MODULES:
            return False
    return True


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
