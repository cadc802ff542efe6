"""Write the files of a commit into an empty folder, submodules too, and run nothing for it.

Hooks and filters are off: they are commands of the repository's configuration, and one that fails
(Git LFS without credentials) would end everything. So a file of Git LFS is its pointer, until the
checkout is found to have the content with the pointer's hash.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import GIT_TIMEOUT_S, git_environment, run_git
from cudal1_ci.records import Notice

GITLINK = "160000"
MOST_NESTED = 8
NO_SUBMODULE = (
    "the submodule is not in the checkout, so trees do not have it either (in Actions: "
    "`submodules: recursive` of actions/checkout)"
)
NO_COMMIT = (
    "the submodule's commit {commit} is not in the checkout and could not be fetched, so its "
    "folder is empty in the tree (in Actions: `fetch-depth: 0` gets the commits of submodules too)"
)
POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-\d.*\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>\d+)\n"
)
MOST_POINTER_BYTES = 1024


class Repository(NamedTuple):
    """A repository of which files are written: the checkout's own, or that of a submodule."""

    git_dir: Path
    folder: Path
    """Where the checkout has its files."""
    path: str
    """Below the top; empty for the top itself."""


def write_commit(top: Path, sha: str, into: Path, scratch: Path) -> list[Notice]:
    """Write all files of a commit; return what is missing.

    Raises: DiscoveryError with git's own words.
    """
    git_dir = Path(run_git(top, "rev-parse", "--absolute-git-dir").rstrip("\n"))
    notices = list(write_repository(Repository(git_dir, top, ""), sha, into, scratch))
    missing = fill_pointers(top, into)
    if missing:
        notices.append(
            Notice(
                path=missing[0],
                message=f"{len(missing)} files of Git LFS are pointers, since the checkout has no "
                "content for them (in Actions: `lfs: true` of actions/checkout)",
            )
        )
    return notices


def moved_submodules(top: Path, base: str, head: str) -> list[Notice]:
    """Return a notice of each submodule that has another commit: its files are no change here."""
    listed = run_git(top, "diff", "--raw", "-z", "--no-renames", "--abbrev=12", base, head, "--")
    fields = listed.split("\0")
    return [
        Notice(
            path=path,
            message=f"the submodule moved from {line.split()[2]} to {line.split()[3]}; its own "
            "modules are not compared, only those of this repository that changed",
        )
        for line, path in zip(fields[::2], fields[1::2], strict=False)
        if line.startswith(f":{GITLINK} {GITLINK} ")
    ]


def write_repository(
    one: Repository, sha: str, into: Path, scratch: Path, depth: int = 0
) -> Iterator[Notice]:
    """Write a commit of a repository, then those of its submodules."""
    environment = git_environment() | {
        "GIT_INDEX_FILE": str(scratch / f"index-{content_name(one.path)}"),
        # Named, so that git looks for no repository and asks for no owner.
        "GIT_DIR": str(one.git_dir),
        "GIT_WORK_TREE": str(one.folder),
    }
    off = filters_off(one.git_dir, environment)
    git(one.folder, environment, [*off, "read-tree", sha])
    git(one.folder, environment, [*off, "checkout-index", "--all", f"--prefix={into}/"])
    listed = git(one.folder, environment, ["ls-files", "--stage", "-z"])
    for line in filter(None, listed.split("\0")):
        mode, commit = line.split(" ")[:2]
        path = line.partition("\t")[2]
        if mode != GITLINK:
            continue
        inner = submodule(one, path)
        if inner is None or depth >= MOST_NESTED:
            yield Notice(path=joined(one.path, path), message=NO_SUBMODULE)
            continue
        if not has_commit(inner.git_dir, commit):
            inner = fetched(inner, commit, scratch)
        if inner is None:
            yield Notice(path=joined(one.path, path), message=NO_COMMIT.format(commit=commit[:12]))
            continue
        (into / path).mkdir(parents=True, exist_ok=True)
        yield from write_repository(inner, commit, into / path, scratch, depth + 1)


def submodule(outer: Repository, path: str) -> Repository | None:
    """Return the repository that the checkout has at a submodule's path."""
    folder = outer.folder / path
    entry = folder / ".git"
    if entry.is_dir():
        git_dir = entry
    elif entry.is_file():
        said = entry.read_text(encoding="utf-8", errors="replace")
        git_dir = folder / said.removeprefix("gitdir:").strip()
    else:
        # Deinitialized, or absent from the commit that is checked out.
        git_dir = outer.git_dir / "modules" / path
    if not (git_dir / "HEAD").is_file():
        return None
    return Repository(git_dir.resolve(), folder, joined(outer.path, path))


def has_commit(git_dir: Path, commit: str) -> bool:
    """Return whether a repository has a commit."""
    words = ["--git-dir", str(git_dir), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        git(git_dir, git_environment(), words)
    except DiscoveryError:
        return False
    return True


def fetched(one: Repository, commit: str, scratch: Path) -> Repository | None:
    """Return a repository of our own with a commit of a submodule, from where the checkout has
    fetched it. It gets no credentials but those of git's own settings.

    A checkout of depth 1 has the head's commit of a submodule and not the base's.
    """
    own = scratch / f"fetched-{content_name(one.path)}"
    environment = git_environment() | {
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    }
    try:
        asked = ["--git-dir", str(one.git_dir), "config", "--get", "remote.origin.url"]
        url = git(one.git_dir, environment, asked).rstrip("\n")
        git(scratch, environment, ["init", "--quiet", "--bare", "--template=", str(own)])
        words = ["--git-dir", str(own), "fetch", "--quiet", "--no-tags", "--depth=1"]
        git(scratch, environment, [*words, "--", url, commit])
    except DiscoveryError:
        return None
    return one._replace(git_dir=own)


def filters_off(git_dir: Path, environment: dict[str, str]) -> list[str]:
    """Return the options that turn off every filter of git's configuration."""
    try:
        names = git(
            git_dir, environment, ["config", "--name-only", "-z", "--get-regexp", r"^filter\."]
        )
    except DiscoveryError:
        return []  # there is none
    drivers = {name[len("filter.") :].rpartition(".")[0] for name in names.split("\0") if name}
    words = []
    for driver in sorted(drivers):
        for key, value in (("smudge", ""), ("process", ""), ("required", "false")):
            words += ["-c", f"filter.{driver}.{key}={value}"]
    return words


def fill_pointers(top: Path, tree: Path) -> list[str]:
    """Give pointers of Git LFS the checkout's content; return the paths of those that stay."""
    missing = []
    for file in sorted(tree.rglob("*")):
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MOST_POINTER_BYTES:
            continue
        pointer = POINTER.fullmatch(file.read_bytes())
        if pointer is None:
            continue
        path = file.relative_to(tree)
        oid = pointer["oid"].decode()
        source = content_of(top, path, oid, int(pointer["size"]))
        if source is None:
            missing.append(path.as_posix())
        else:
            shutil.copyfile(source, file)
    return missing


def content_of(top: Path, path: Path, oid: str, size: int) -> Path | None:
    """Return a file with the content that a pointer names: the checkout's, or Git LFS's own."""
    stored = Path(".git") / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    for file in (top / path, top / stored):
        if file.is_symlink() or not file.is_file() or file.stat().st_size != size:
            continue
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == oid:
                return file
    return None


def joined(outer: str, path: str) -> str:
    return f"{outer}/{path}" if outer else path


def content_name(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def git(folder: Path, environment: dict[str, str], words: list[str]) -> str:
    """Run git. Raises: DiscoveryError with git's own words."""
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_TIMEOUT_S * 5,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        verb = next((word for word in words if re.fullmatch(r"[a-z][a-z-]+", word)), "")
        raise DiscoveryError(f"git {verb}: {said[-1] if said else 'failed'}")
    return done.stdout.decode("utf-8", "surrogateescape")
