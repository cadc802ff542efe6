"""Check commits out, each once into its own folder, with what the project builds in it.

This is not a git worktree: that writes into the user's repository and runs its hooks. The files of
a commit are written through our own index, and those of its submodules from the repositories that
the checkout has of them. No hook and no filter runs: a file of Git LFS gets the checkout's content
where that is the same. What the checkout has built is copied where it fits (`built.py`). A tree
has no `.git`; programs that ask it for a version find that in the environment.

    trees = Trees(Path("."), Path(".cudal1-ci/trees"), setup=("pip install -e .",))
    base = trees.of("0123abcd...")
    trees.notices          # what a reader must know: a submodule that is not here
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cudal1_ci.errors import DiscoveryError, UnsupportedError
from cudal1_ci.git import repository_top
from cudal1_ci.github.built import copy_built, site_of
from cudal1_ci.github.files_of_commit import write_commit
from cudal1_ci.github.tree_integrity import altered, named, unlike_the_commit, write_manifest
from cudal1_ci.github.version_of_commit import version_variables
from cudal1_ci.processes.enclosed import CommandsConfig, Enclosure, environment_folder, run_to_end
from cudal1_ci.records import Notice, content_hash
from cudal1_ci.records.archive import make_folder

SETUP_TIMEOUT_S = 1800.0
CONFINED = CommandsConfig()
MOST_TREES = 6
"""Trees kept in the folder; the least recently used are removed."""


class Trees:
    """Hold the trees of commits of one repository."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        *,
        setup: Sequence[str] = (),
        setup_s: float | None = None,
        python: str | None = None,
        commands: CommandsConfig = CONFINED,
    ):
        """Use `root`, the scanned folder, perhaps below the top. Run `setup` once in each tree, a
        command for at most `setup_s`, confined as `commands` says. `python` is the project's
        interpreter, in which the project may be installed.
        """
        self.setup_s = min(SETUP_TIMEOUT_S, setup_s or SETUP_TIMEOUT_S)
        self.site = site_of(python) if python else None
        self.python = python
        self.commands = commands
        self.top = repository_top(root)
        self.below = root.resolve().relative_to(self.top.resolve())
        self.folder = folder.absolute()  # git is run at the top, wherever this process is
        self.setup = tuple(setup)
        self.notices: list[Notice] = []

    def of(self, sha: str) -> Path:
        """Return the scanned folder as it is in a commit.

        Raises:
            DiscoveryError: The commit has no such folder, or git fails.
            UnsupportedError: A command of `setup` failed there.
        """
        tree = self.folder / self.name_of(sha)
        with locked(self.folder):
            if tree.is_dir() and self._altered(sha, tree):
                shutil.rmtree(tree)
            if not tree.is_dir():
                self._make(sha, tree)
            # Each time, as the checkout may have been built since.
            self._say(copy_built(self.top, sha, tree, self.site))
            write_manifest(tree, manifest_of(tree))
            os.utime(tree)
            remove_oldest(self.folder, MOST_TREES)
        found = tree / self.below
        if not found.is_dir():
            raise DiscoveryError(f"{sha[:12]}: has no folder {self.below.as_posix()}")
        return found

    def check(self, sha: str) -> None:
        """Raise DiscoveryError where a tree is not what was made of its commit."""
        tree = self.folder / self.name_of(sha)
        if found := self._altered(sha, tree):
            raise DiscoveryError(
                f"the tree of {sha[:12]} was changed since it was written, so nothing of it is "
                f"believed: {named(found)}"
            )

    def name_of(self, sha: str) -> str:
        """Return the name of a commit's tree."""
        return sha[:16] if not self.setup else f"{sha[:16]}-{content_hash(self.setup)[:8]}"

    def _altered(self, sha: str, tree: Path) -> list[str]:
        return altered(tree, manifest_of(tree), self.top, sha)

    def _make(self, sha: str, tree: Path) -> None:
        """Make the tree, and give it its name only when all of it is there."""
        with tempfile.TemporaryDirectory(
            prefix="making-", dir=self.folder, ignore_cleanup_errors=True
        ) as scratch:
            files = Path(scratch) / "tree"
            files.mkdir()
            self._say(write_commit(self.top, sha, files, Path(scratch)))
            if self.setup:
                copy_built(self.top, sha, files, self.site)
                variables = version_variables(self.top, sha)
                for command in self.setup:
                    self._run_setup(command, files, variables)
                self._restore(sha, files, Path(scratch))
            files.rename(tree)

    def _restore(self, sha: str, files: Path, scratch: Path) -> None:
        """Write tracked files again that a build has rewritten, such as a lock file."""
        changed = list(unlike_the_commit(files, self.top, sha))
        if changed:
            again = scratch / "again"
            again.mkdir()
            write_commit(self.top, sha, again, scratch)
        for path in changed:
            there = files / path
            if there.is_dir() and not there.is_symlink():
                shutil.rmtree(there)
            there.unlink(missing_ok=True)
            there.parent.mkdir(parents=True, exist_ok=True)
            (again / path).rename(there)

    def _run_setup(self, command: str, files: Path, variables: Mapping[str, str]) -> None:
        """Run a command of the configuration in a tree. It sees the system, the interpreter and
        this tree. What it installs into the interpreter's environment is dropped.

        Raises:
            UnsupportedError: It failed; the message ends with its last output.
        """
        environment = environment_folder(self.python) if self.python else None
        enclosure = Enclosure(
            pythons=(self.python,) if self.python else (),
            writable=(str(files),),
            copied=(environment,) if environment else (),
            config=self.commands,
        )
        words, folder = ("/bin/sh", "-c", command), files / self.below
        known = {**os.environ, **variables}
        try:
            code, said = run_to_end(words, folder, enclosure, known, self.setup_s)
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(
                f"setup `{command}`: not done in {self.setup_s:.0f} s; it is part of the budget "
                "(`--budget`), so give that more time or the command less to do"
            ) from error
        if code != 0:
            lines = said.strip().splitlines()[-5:]
            raise UnsupportedError(
                f"setup `{command}` failed with exit code {code} in a tree of the repository "
                "(`compare.setup` in the configuration). It writes to the tree alone, and reaches "
                "the network if `commands.network` is set:\n" + "\n".join(lines)
            )

    def _say(self, notices: Sequence[Notice]) -> None:
        self.notices += [notice for notice in notices if notice not in self.notices]


def manifest_of(tree: Path) -> Path:
    """Return the file in which the contents of a tree are written down."""
    return tree.with_name(f"{tree.name}.manifest")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time makes and removes trees."""
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_oldest(folder: Path, most: int) -> None:
    """Remove trees beyond `most`, and the remains of an interrupted one."""
    trees = [one for one in folder.iterdir() if one.is_dir()]
    whole = [one for one in trees if not one.name.startswith("making-")]
    old = sorted(whole, key=lambda one: one.stat().st_mtime)[:-most]
    for one in [*old, *(one for one in trees if one not in whole)]:
        shutil.rmtree(one, ignore_errors=True)
        manifest_of(one).unlink(missing_ok=True)
