"""Find out whether a commit's tree is still what was written for that commit.

Tests of the head run on the machine that measures the base. They are confined; where that fails,
a tree that they changed must not be measured. Two records are compared with the files:

    git's ids    the hash of each tracked file is the id that the commit has for it
    a manifest   every file, also what was built and added, as it was when the tree was made

The manifest lies next to the tree, in the state folder, which no command of a project sees.

    write_manifest(tree, file)
    altered(tree, file, top, sha)      names of what differs; empty for an intact tree
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import git_output

LINK, SUBMODULE = "120000", "160000"
POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*oid sha256:(\w{64})\n"
)
MAX_POINTER_BYTES = 1024
MOST_NAMED = 5


def write_manifest(tree: Path, file: Path) -> None:
    """Write down every file of a tree."""
    file.write_text(json.dumps(state_of(tree)), encoding="utf-8")


def altered(tree: Path, manifest: Path, top: Path, sha: str) -> list[str]:
    """Return the paths that are not as they were written, with those that the commit lacks.

    Raises:
        DiscoveryError: The commit cannot be read.
    """
    try:
        known = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ["the manifest"]
    found = state_of(tree)
    moved = {path for path in known.keys() | found.keys() if known.get(path) != found.get(path)}
    return sorted(moved | set(unlike_the_commit(tree, top, sha)))


def named(paths: list[str]) -> str:
    """Return some of the paths, for a message."""
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(paths[:MOST_NAMED]) + more


def state_of(tree: Path) -> dict[str, str]:
    """Return kind, mode and contents of everything below a folder, by path."""
    found = {}
    for folder, names, files in os.walk(tree):
        links = [name for name in names if Path(folder, name).is_symlink()]
        for name in (*files, *links, *(name for name in names if name not in links)):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                said = hash_of(path, hashlib.sha256())
            else:
                said = str(path.readlink()) if stat.S_ISLNK(mode) else ""
            found[str(path.relative_to(tree))] = f"{mode:o} {said}"
    return found


def hash_of(path: Path, digest: hashlib._Hash) -> str:
    """Return the hash of a file's contents."""
    with path.open("rb") as stream:
        while part := stream.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def unlike_the_commit(tree: Path, top: Path, sha: str) -> Iterator[str]:
    """Yield tracked files whose contents are not those of the commit. Raises DiscoveryError."""
    for line in git_output(top, "ls-tree", "-r", "-z", "--full-tree", sha).split(b"\0"):
        if not line:
            continue
        about, _, name = line.partition(b"\t")
        mode, _, wanted = about.decode().split()
        path = tree / os.fsdecode(name)
        if mode != SUBMODULE and not is_blob(path, mode, wanted, top):
            yield os.fsdecode(name)


def is_blob(path: Path, mode: str, wanted: str, top: Path) -> bool:
    """Return whether a file has the contents of an object: as they are, with the line ends of
    another system, or those that a pointer of Git LFS names."""
    if path.is_symlink():
        return mode == LINK and blob_id(os.fsencode(path.readlink()), wanted) == wanted
    if mode == LINK or not path.is_file():
        return False
    data = path.read_bytes()
    if wanted in (blob_id(data, wanted), blob_id(data.replace(b"\r\n", b"\n"), wanted)):
        return True
    try:
        known = git_output(top, "cat-file", "blob", wanted)
    except DiscoveryError:
        return False
    pointer = POINTER.match(known) if len(known) <= MAX_POINTER_BYTES else None
    return pointer is not None and hashlib.sha256(data).hexdigest() == pointer[1].decode()


def blob_id(data: bytes, like: str) -> str:
    """Return git's id of contents, by the hash that `like` is of."""
    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(data) + data)
    return digest.hexdigest()
