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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cudal1_ci.errors import DiscoveryError, UnsupportedError
from cudal1_ci.git import repository_top
from cudal1_ci.github.built import copy_built, site_of
from cudal1_ci.github.files_of_commit import write_commit
from cudal1_ci.github.version_of_commit import version_variables
from cudal1_ci.processes.environment import without_secrets
from cudal1_ci.records import Notice, content_hash
from cudal1_ci.records.archive import make_folder

SETUP_TIMEOUT_S = 1800.0
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
    ):
        """Use `root`, the scanned folder, perhaps below the top. Run `setup` once in each tree, a
        command for at most `setup_s`. `python` is the project's interpreter, in which the project
        may be installed.
        """
        self.setup_s = min(SETUP_TIMEOUT_S, setup_s or SETUP_TIMEOUT_S)
        self.site = site_of(python) if python else None
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
        name = sha[:16] if not self.setup else f"{sha[:16]}-{content_hash(self.setup)[:8]}"
        tree = self.folder / name
        with locked(self.folder):
            if not tree.is_dir():
                self._make(sha, tree)
            # Each time, as the checkout may have been built since.
            self._say(copy_built(self.top, sha, tree, self.site))
            os.utime(tree)
            remove_oldest(self.folder, MOST_TREES)
        found = tree / self.below
        if not found.is_dir():
            raise DiscoveryError(f"{sha[:12]}: has no folder {self.below.as_posix()}")
        return found

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
                known = without_secrets(os.environ) | version_variables(self.top, sha)
                for command in self.setup:
                    run_setup(command, files / self.below, known, self.setup_s)
            files.rename(tree)

    def _say(self, notices: Sequence[Notice]) -> None:
        self.notices += [notice for notice in notices if notice not in self.notices]


def run_setup(command: str, folder: Path, environment: dict[str, str], limit_s: float) -> None:
    """Run a command of the configuration in a tree.

    Raises:
        UnsupportedError: It failed; the message ends with its last output.
    """
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(
            f"setup `{command}`: not done in {limit_s:.0f} s; it is part of the budget "
            "(`--budget`), so give that more time or the command less to do"
        ) from error
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()[-5:]
        raise UnsupportedError(
            f"setup `{command}` failed with exit code {done.returncode} in a tree of the "
            "repository (`compare.setup` in the configuration):\n" + "\n".join(said)
        )


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
