"""List the files of a tree that discovery reads, and name why others are left out.

Read: Python, CUDA and C++ sources. Left out: what git ignores, tests, vendored and generated
folders, notebooks, what `exclude` names. The rules apply to paths below the root, never to the root
itself. So a package installed in `site-packages` can be scanned in place.

    listing = source_files(Path("."), DiscoveryConfig(exclude=("experiments/**",)))
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from cudal1_ci.discover.ignored import GITIGNORE, IgnoreRules
from cudal1_ci.errors import ConfigError, DiscoveryError
from cudal1_ci.records import Notice, Record

PYTHON_SUFFIXES = frozenset({".py"})
CUDA_SUFFIXES = frozenset({".cu", ".cuh"})
CPP_SUFFIXES = frozenset({".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl"})
SOURCE_SUFFIXES = PYTHON_SUFFIXES | CUDA_SUFFIXES | CPP_SUFFIXES

TEST_FOLDERS = frozenset({"tests", "test"})
TEST_FILE = re.compile(r"(?:test_.*|.*_test|conftest)\.py")

VENDORED_FOLDERS = frozenset(
    {"third_party", "third-party", "thirdparty", "3rdparty", "external", "extern"}
    | {"vendor", "vendored", "_vendor", "site-packages", "node_modules"}
)
# These folders never hold a repository's own sources, whatever the configuration says.
MACHINE_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".tox", ".nox", ".eggs"}
    | {"build", "dist", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".cudal1-ci"}
    | {".ipynb_checkpoints"}
)
GENERATED_FILE = re.compile(r".*(?:_pb2|_pb2_grpc)\.py")


class DiscoveryConfig(Record, frozen=True, kw_only=True):
    """Select the files to read. Globs are those of `.gitignore`, relative to the root."""

    include: tuple[str, ...] = ()
    """Only files that match one of these; empty is all."""
    exclude: tuple[str, ...] = ()
    """No file or folder that matches one of these."""
    tests: bool = False
    """Also read `tests/`, `test_*.py`, `*_test.py` and `conftest.py`."""
    vendored: bool = False
    """Also read `third_party/`, `vendor/`, `site-packages/` and similar folders."""
    max_file_bytes: int = 2_000_000
    """Larger files are data or generated; a notice names them."""
    num_processes: int | None = None
    """Processes that read the tree; None is one for each core, up to 8."""

    def __post_init__(self) -> None:
        if self.max_file_bytes <= 0:
            raise ConfigError(f"discover.max-file-bytes must be > 0, got {self.max_file_bytes}")
        if self.num_processes is not None and self.num_processes <= 0:
            raise ConfigError(f"discover.num-processes must be > 0, got {self.num_processes}")


@dataclass(frozen=True)
class SourceFile:
    """Describe a file to read."""

    path: str
    """POSIX path relative to the root."""
    size_bytes: int


@dataclass
class Listing:
    """Hold the files of a tree, in order of their paths, and notices of unreadable folders."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    suffixes: frozenset[str] = SOURCE_SUFFIXES


@dataclass(frozen=True)
class Globs:
    """Hold the configuration's include and exclude patterns."""

    include: GitIgnoreSpec | None
    exclude: GitIgnoreSpec | None

    @classmethod
    def of(cls, config: DiscoveryConfig) -> Globs:
        return cls(
            include=compiled_globs("include", config.include),
            exclude=compiled_globs("exclude", config.exclude),
        )

    def excludes(self, path: str, *, is_folder: bool) -> bool:
        if self.exclude is not None and self.exclude.match_file(f"{path}/" if is_folder else path):
            return True
        return not is_folder and self.include is not None and not self.include.match_file(path)


def compiled_globs(key: str, patterns: tuple[str, ...]) -> GitIgnoreSpec | None:
    """Compile the patterns, or return None for none. Raises: ConfigError for an invalid glob."""
    if not patterns:
        return None
    try:
        return GitIgnoreSpec.from_lines(patterns, backend="simple")
    except ValueError as error:
        raise ConfigError(f"discover.{key}: expected .gitignore globs, got {error}") from error


def source_files(root: Path, config: DiscoveryConfig) -> Listing:
    """List the sources below `root`. Raises: DiscoveryError when `root` is not a folder."""
    if not root.exists():
        raise DiscoveryError(f"{root}: no such folder; give the root of a source tree")
    if not root.is_dir():
        raise DiscoveryError(f"{root}: expected a folder with sources, got a file")
    try:
        os.scandir(root).close()
    except OSError as error:
        raise DiscoveryError(f"{root}: the folder cannot be read ({error.strerror})") from error
    listing = Listing(root=root.resolve())
    walk(listing, "", IgnoreRules.of(listing.root), Globs.of(config), config)
    listing.files.sort(key=lambda file: file.path)
    listing.notices += idle_patterns(listing, config)
    return listing


@dataclass(frozen=True)
class Gate:
    """Apply the same rules to a path that may no longer exist."""

    root: Path
    rules: IgnoreRules
    globs: Globs
    config: DiscoveryConfig

    @classmethod
    def of(cls, root: Path, config: DiscoveryConfig) -> Gate:
        return cls(root, IgnoreRules.of(root), Globs.of(config), config)

    def lets_in(self, path: str) -> bool:
        """Return whether a source of that path would be read, verified by its name alone."""
        rules, below = self.rules, Path(path)
        for folder in [*below.parents][-2::-1]:
            name = folder.as_posix()
            if is_left_out_folder(folder.name, self.config):
                return False
            if is_left_out(name, rules, self.globs, is_folder=True):
                return False
            if (self.root / folder / GITIGNORE).is_file():
                rules = rules.inside(self.root / folder, name)
        if below.suffix not in SOURCE_SUFFIXES or is_left_out_file(below.name, self.config):
            return False
        return not is_left_out(path, rules, self.globs, is_folder=False)


def idle_patterns(listing: Listing, config: DiscoveryConfig) -> list[Notice]:
    """Return a notice for each `include` pattern that matches no source."""
    found, paths = [], [file.path for file in listing.files]
    for one in config.include:
        spec = compiled_globs("include", (one,))
        if one.startswith("!") or spec is None or any(spec.match_files(paths)):
            continue
        message = f'no source file that is looked at matches "{one}" (discover.include, --include)'
        found.append(Notice(path=".", message=message))
    return found


def walk(
    listing: Listing, folder: str, rules: IgnoreRules, globs: Globs, config: DiscoveryConfig
) -> None:
    """Add the sources of one folder and of those below it.

    Links are not followed, as in git. Their destination either has its own name in the tree or is
    outside it.
    """
    for entry in read_folder(listing, folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                if is_left_out_folder(entry.name, config):
                    continue
                if is_left_out(path, rules, globs, is_folder=True):
                    continue
                below = rules
                if (listing.root / path / GITIGNORE).is_file():
                    below = rules.inside(listing.root / path, path)
                walk(listing, path, below, globs, config)
            elif (
                os.path.splitext(entry.name)[1] in listing.suffixes  # noqa: PTH122 (ten times faster)
                and entry.is_file(follow_symlinks=False)
                and not is_left_out_file(entry.name, config)
                and not is_left_out(path, rules, globs, is_folder=False)
            ):
                add_file(listing, path, entry.stat().st_size, config)
        except OSError as error:
            listing.notices.append(Notice(path=path, message=unreadable(error)))


def read_folder(listing: Listing, folder: str) -> list[os.DirEntry[str]]:
    """Return a folder's entries by name; add a notice when the folder cannot be read."""
    try:
        with os.scandir(listing.root / folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        listing.notices.append(Notice(path=folder or ".", message=unreadable(error)))
        return []


def add_file(listing: Listing, path: str, size_bytes: int, config: DiscoveryConfig) -> None:
    """Add a file, or a notice that it is too large. A large C++ file gets no notice."""
    if size_bytes > config.max_file_bytes:
        if path.endswith(tuple(CPP_SUFFIXES)):
            return
        message = (
            f"{size_bytes:,} bytes is more than the {config.max_file_bytes:,} that are looked at; "
            "raise discover.max-file-bytes or exclude it"
        )
        listing.notices.append(Notice(path=path, message=message))
        return
    listing.files.append(SourceFile(path=path, size_bytes=size_bytes))


def is_left_out(path: str, rules: IgnoreRules, globs: Globs, *, is_folder: bool) -> bool:
    return globs.excludes(path, is_folder=is_folder) or rules.ignores(path, is_folder=is_folder)


def is_left_out_folder(name: str, config: DiscoveryConfig) -> bool:
    """Return whether a folder of this name holds no sources of the repository's own."""
    if name in MACHINE_FOLDERS or name.endswith((".egg-info", ".dist-info")):
        return True
    if name in VENDORED_FOLDERS:
        return not config.vendored
    return name in TEST_FOLDERS and not config.tests


def is_left_out_file(name: str, config: DiscoveryConfig) -> bool:
    """Return whether a file of this name is a test or was written by a program."""
    if GENERATED_FILE.fullmatch(name):
        return True
    return not config.tests and TEST_FILE.fullmatch(name) is not None


def unreadable(error: OSError) -> str:
    """Return a notice's text for a file or folder that the system refused."""
    return f"cannot be read ({error.strerror or error}); fix its permissions or exclude it"
